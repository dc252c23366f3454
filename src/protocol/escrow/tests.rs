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
        let (epochs, rows) = ([(lost.clone(), self.heartbeat_epoch)].into(), BTreeMap::new());
        let Self { views, view, .. } = self;
        let facts = Facts { view, views, epochs: &epochs, rows: &rows, waived: None, me: &me, outlived: 0 };
        proves_absence(&facts, &lost, &self.id, (self.route, &self.mine))
    }
}

#[test]
fn absence_proves_only_where_everything_holds() {
    let new = World::new;
    let without = |epoch| {
        let mut world = new();
        world.views.remove(&epoch);
        world
    };
    let three = || (*new().views[&3]).clone();
    let of_key = |order: &[&str]| World { id: key(&first(), order), ..new() };
    // The target was c until b came back: what was lodged with c is not here.
    let target = history("drain b 1, resume b 2, lose a 7");
    // Claims lodged with b went with its old store.
    let rebuilt = || World {
        heartbeat_epoch: 4,
        ..World::of(&history("lose b 1, rebuild b, resume b 1, lose a 7")[3..])
    };
    let generation = |world: World, epoch, region, generation| {
        world.altered(epoch, |view| view.members.get_mut(&name(region)).unwrap().generation = generation)
    };
    // Claims of a's old store may be missing here.
    let replaced = next(&new().view, Change::Rebuild { region: name("a") });
    // a ran the key with its first store, which was lost and replaced. The second is lost, too.
    let second =
        || World { heartbeat_epoch: 4, ..World::of(&history("lose a 1, rebuild a, resume a 1, lose a 1")) };
    // a is lost, sealed, and lost again before it served: the views in between give it nothing.
    let twice = World::of(&history("lose a 1, seal a 2, lose a 2"));
    for (case, world, proves) in [
        ("everything holds", new(), true),
        ("a later heartbeat", World { heartbeat_epoch: 3, ..new() }, true),
        ("no view of before the heartbeat's epoch: those claims are rows here", without(1), true),
        ("a gap", without(3), false),
        ("a gap after the heartbeat's epoch", World { heartbeat_epoch: 1, ..without(2) }, false),
        ("no adopted loss: an old escrow could slip in", World { view: three(), ..new() }, false),
        ("another region's loss", World { view: lose(&three(), "c", 7), ..new() }, false),
        ("not the target", World { me: "c", ..new() }, false),
        ("a key that b owns", of_key(&["b"]), false),
        ("a key that a never owned", of_key(&["c", "b"]), false),
        ("another target for a while", World::of(&target), false),
        ("heard of since b is the target", World { heartbeat_epoch: 3, ..World::of(&target[2..]) }, true),
        ("the present store of b", rebuilt(), true),
        ("an old store of b", generation(rebuilt(), 4, "b", 1), false),
        ("another store of a", generation(new(), 3, "a", 9), false),
        ("heartbeats of a replacement", World { view: replaced, heartbeat_epoch: 5, ..new() }, false),
        ("the second store", World { lost: "a#2", ..second() }, true),
        ("the first store", World { lost: "a#1", ..second() }, false),
        ("ownership before an earlier loss", World { heartbeat_epoch: 3, ..twice }, false),
    ] {
        assert_eq!(world.proves(), proves, "{case}");
    }
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
