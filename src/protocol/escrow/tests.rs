//! Tests of the proof by absence: each condition alone denies it (docs/protocol.md#rule-38).
//!
//! The views come from `examples`. The caller sees to it that no row of the key is here (v).

use super::super::change::Change;
use super::super::examples::{first, history, key, lose, meaning, name, next, origin};
use super::super::key::KeyId;
use super::super::view::{Content, Escrowed};
use super::*;

/// Views 1 to 3 and the loss of a at 4; the key's order is a, b, c.
struct World {
    views: BTreeMap<u64, Arc<View>>,
    view: View,
    id: KeyId,
    heartbeat_epoch: u64,
    me: &'static str,
    lost: &'static str,
    route: &'static str,
    mine: Meanings,
}

/// The meanings of two routes here: one that the views put under escrow, and one beside it.
fn mine() -> Meanings {
    ["pay", "other"].map(|route| (route.into(), meaning(route))).into()
}

impl World {
    fn of(chain: &[View]) -> Self {
        let id = key(&chain[0], &["a", "b", "c"]);
        let views = chain.iter().map(|view| (view.epoch(), Arc::new(view.clone()))).collect();
        let view = chain.last().unwrap().clone();
        Self { views, view, id, heartbeat_epoch: 2, me: "b", lost: "a#1", route: "pay", mine: mine() }
    }

    fn new() -> Self {
        Self::of(&history("kill, kill, lose a 7"))
    }

    /// The same, but one of the known views was altered.
    fn altered(mut self, epoch: u64, alter: impl FnOnce(&mut Content)) -> Self {
        let mut content = self.views[&epoch].content();
        alter(&mut content);
        self.views.insert(epoch, Arc::new(View::from_content(content)));
        self
    }

    fn proves(&self) -> bool {
        let (me, lost) = (name(self.me), origin(self.lost));
        let facts = Facts {
            views: &self.views,
            view: &self.view,
            me: &me,
            lost: &lost,
            heartbeat_epoch: self.heartbeat_epoch,
            route: self.route,
            mine: &self.mine,
        };
        proves_absence(&facts, &self.id)
    }
}

#[test]
fn absence_proves_where_everything_holds() {
    assert!(World::new().proves());
    assert!(World { heartbeat_epoch: 3, ..World::new() }.proves());
    let mut from_later = World::new();
    from_later.views.remove(&1);
    assert!(from_later.proves(), "before the heartbeat's epoch nothing matters: those claims are rows here");
}

#[test]
fn proof_needs_the_adopted_view_of_the_loss() {
    let before = World { view: (*World::new().views[&3]).clone(), ..World::new() };
    assert!(!before.proves(), "an escrow of an old epoch could still slip in");
    let three = (*World::new().views[&3]).clone();
    assert!(!World { view: lose(&three, "c", 7), ..World::new() }.proves(), "another region's loss");
}

#[test]
fn two_the_list_of_views_has_no_gap() {
    let mut world = World::new();
    world.views.remove(&3);
    assert!(!world.proves());
    let mut world = World { heartbeat_epoch: 1, ..World::new() };
    world.views.remove(&2);
    assert!(!world.proves());
}

#[test]
fn proof_needs_the_lost_owner_and_its_target() {
    assert!(!World { me: "c", ..World::new() }.proves());
    let other = key(&first(), &["b"]);
    assert!(!World { id: other, ..World::new() }.proves());
    let of_c = key(&first(), &["c", "b"]);
    assert!(!World { id: of_c, ..World::new() }.proves(), "b is its target, and a never owned it");
    // The target was c until b came back: what was lodged with c is not here.
    let views = history("drain b 1, resume b 2, lose a 7");
    assert!(!World { heartbeat_epoch: 2, ..World::of(&views) }.proves());
    let again = World { heartbeat_epoch: 3, ..World::of(&views[2..]) }.proves();
    assert!(again, "a has been heard of since b is its target again");
}

#[test]
fn two_the_route_was_under_escrow_all_the_time() {
    assert!(!World { route: "other", ..World::new() }.proves());
    assert!(!World::new().altered(3, |view| view.escrow.clear()).proves());
}

#[test]
pub fn three_a_heartbeat_has_come_from_then_or_later() {
    let world = World::new().altered(1, |view| view.escrow.clear());
    let mut world = World { heartbeat_epoch: 1, ..world };
    assert!(!world.proves(), "claims of epoch 1, not lodged, may be on their way");
    world.heartbeat_epoch = 2;
    assert!(world.proves());
    assert!(!World { heartbeat_epoch: 0, ..World::new() }.proves());
}

#[test]
fn proof_needs_the_same_two_stores_as_then() {
    // Claims lodged with b went with its old store.
    let views = history("lose b 1, rebuild b, resume b 1, lose a 7");
    let world = World { heartbeat_epoch: 4, ..World::of(&views[3..]) };
    assert!(world.proves());
    let of_old_store = world.altered(4, |view| {
        view.members.get_mut(&name("b")).unwrap().generation = 1;
    });
    assert!(!of_old_store.proves());
}

#[test]
fn heartbeats_of_a_replacement_store_prove_nothing() {
    let mut world = World::new();
    world.view = next(&world.view, Change::Rebuild { region: name("a") });
    world.heartbeat_epoch = 5;
    assert!(!world.proves(), "claims of the old store may be missing here");
    let other = World::new().altered(3, |view| view.members.get_mut(&name("a")).unwrap().generation = 9);
    assert!(!other.proves(), "another store owned the key then");
}

/// a ran the key with its first store, which was lost and replaced. The second store is lost, too.
#[test]
fn a_second_stores_absence_says_nothing_of_the_first() {
    let views = history("lose a 1, rebuild a, resume a 1, lose a 1");
    let world = || World { heartbeat_epoch: 4, ..World::of(&views) };
    assert!(World { lost: "a#2", ..world() }.proves());
    assert!(!World { lost: "a#1", ..world() }.proves());
}

#[test]
fn ownership_before_an_earlier_loss_proves_nothing() {
    // a is lost, sealed, and lost again before it served: the views in between give it nothing.
    let world = World::of(&history("lose a 1, seal a 2, lose a 2"));
    assert!(!World { heartbeat_epoch: 3, ..world }.proves());
}

#[test]
fn proof_needs_a_route_with_a_constant_meaning() {
    let renamed = Meanings::from([("pay".into(), meaning("other")), ("other".into(), meaning("pay"))]);
    assert!(!World { mine: renamed, ..World::new() }.proves(), "these files mean other requests by it");
    assert!(!World { mine: Meanings::new(), ..World::new() }.proves(), "these files have no such route");
    let mut world = World::new().altered(3, |view| view.escrow = [("pay".into(), meaning("other"))].into());
    assert!(!world.proves(), "it meant something else before the loss");
    world.heartbeat_epoch = 3;
    assert!(!world.proves());
}

#[test]
fn a_claim_on_a_possibly_escrowed_route_is_lodged() {
    let view = first();
    assert!(lodges(&view, "pay", &mine()));
    assert!(!lodges(&view, "other", &mine()), "all agree on what is under escrow");
    let renamed = Meanings::from([("pay".into(), meaning("other")), ("other".into(), meaning("pay"))]);
    for elsewhere in [renamed, Meanings::new()] {
        assert!(lodges(&view, "other", &elsewhere), "another region may run it as a route under escrow");
    }
    let nothing = View::from_content(Content { escrow: Escrowed::new(), ..view.content() });
    assert!(!lodges(&nothing, "pay", &Meanings::new()));
}
