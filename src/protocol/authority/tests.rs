//! Tests of the gate's state, of the right to run a key, and of the losses that put a key at risk.
//!
//! The views come from `examples`.

use super::super::change::Change;
use super::super::examples::{
    SEALED, draft, drained, first, history, key, lose, moved_at, name, next, on_ring, origin, resumed, ring,
    seal,
};
use super::*;

const NOW: Moment = Moment::from_nanos(5);

fn held(view: &View) -> Held {
    Held { view: Arc::new(view.clone()), until: Moment::from_nanos(6) }
}

fn gate(view: &View) -> GateState {
    GateState::founded(Arc::new(view.clone()))
}

fn may(gate: &GateState, lease: &View, id: &KeyId, me: &str) -> Result<(), Closed> {
    right(gate, Some(&held(lease)), id, &name(me), NOW)
}

const RUN: Result<(), Closed> = Ok(());

fn adopted(gate: &GateState, view: &View) -> GateState {
    gate.adopt(Arc::new(view.clone()))
}

#[test]
pub fn an_older_lease_covers_the_keys_owned_under_it() {
    let view = first();
    let (mine, gained) = (key(&view, &["b"]), key(&view, &["a", "b"]));
    let lost = lose(&view, "a", 0);
    let gate = adopted(&gate(&view), &lost).open();
    assert_eq!(may(&gate, &view, &mine, "b"), RUN);
    let right = may(&gate, &view, &gained, "b");
    assert_eq!(right, Err(Closed::Moving), "acceptors do not protect it yet");
    assert_eq!(may(&gate, &lost, &gained, "b"), RUN);
}

#[test]
fn gained_keys_stay_closed_until_the_gate_opens() {
    let view = first();
    let (mine, gained) = (key(&view, &["b"]), key(&view, &["a", "b"]));
    let lost = lose(&view, "a", 0);
    let gate = adopted(&gate(&view), &lost);
    assert!(!gate.is_open());
    assert_eq!(may(&gate, &lost, &mine, "b"), RUN, "it never stops");
    assert_eq!(may(&gate, &lost, &gained, "b"), Err(Closed::CatchingUp));
    let open = gate.open();
    assert!(open.is_open());
    assert_eq!(may(&open, &lost, &gained, "b"), RUN);
    // Through further views, too.
    let further = next(&lost, Change::Kill);
    let gate = adopted(&gate, &further);
    assert_eq!(gate.since.len(), 2, "an equal placement is named once");
    assert_eq!(may(&gate, &further, &gained, "b"), Err(Closed::CatchingUp));
    // A store that comes later has everything to catch up with.
    let joined = GateState::joined(Arc::new(view.clone()));
    assert!(!joined.is_open() && self::gate(&view).is_open());
    assert_eq!(joined.serves(&mine, &name("b")), Err(Closed::CatchingUp));
    assert_eq!(joined.open().serves(&mine, &name("b")), Ok(()));
}

#[test]
pub fn keys_gained_again_wait_again() {
    // b gains a's keys, opens them, gives them back, and gains them again, without a's new rows.
    let view = drained(&first(), "a", 1);
    let key = key(&view, &["a", "b"]);
    let gate = adopted(&gate(&first()), &view).open();
    let back = resumed(&view, "a", 2);
    let again = drained(&back, "a", 3);
    let gate = adopted(&adopted(&gate, &back), &again);
    assert_eq!(view.placement(), again.placement());
    assert!(!gate.is_open(), "placed as before, and not covered");
    assert_eq!(may(&gate, &again, &key, "b"), Err(Closed::CatchingUp));
    assert_eq!(may(&gate.open(), &again, &key, "b"), RUN);
}

#[test]
fn a_view_that_moves_nothing_leaves_an_open_gate_open() {
    let killed = next(&first(), Change::Kill);
    let gate = adopted(&gate(&first()), &killed);
    assert!(gate.is_open());
    assert_eq!(may(&gate, &killed, &key(&killed, &["a"]), "a"), RUN);
    assert_eq!(adopted(&gate, &first()), gate, "an older one is not adopted");
}

#[test]
pub fn after_a_skipped_view_every_key_counts_as_gained() {
    // b ran a's keys under epoch 2, and a owns them again under 3. a learns of 3 and missed 2.
    let (one, two) = (first(), drained(&first(), "a", 1));
    let three = resumed(&two, "a", 2);
    let key = key(&one, &["a"]);
    let gate = adopted(&gate(&one), &three);
    assert!(!gate.is_open());
    assert_eq!(may(&gate, &three, &key, "a"), Err(Closed::CatchingUp));
    assert_eq!(may(&gate.open(), &three, &key, "a"), RUN);
    let kept = adopted(&self::gate(&one), &lose(&one, "b", 0));
    assert_eq!(may(&kept, &kept.view, &key, "a"), RUN, "one after the other, what was kept runs on");
}

#[test]
pub fn keys_given_up_stay_closed_until_a_new_view() {
    let view = first();
    let (moving, staying) = (key(&view, &["a"]), key(&view, &["b"]));
    let target = Arc::new(draft(&view, &[("a", SEALED)]));
    let pending = gate(&view).give_up(Some(Pending { target, seal: None }));
    assert_eq!(may(&pending, &view, &moving, "a"), Err(Closed::Moving));
    assert_eq!(may(&pending, &view, &staying, "b"), RUN);
    // a learns again of a view that it has. Its promise holds.
    assert_eq!(may(&adopted(&pending, &view), &view, &moving, "a"), Err(Closed::Moving));
    let killed = next(&view, Change::Kill);
    assert_eq!(may(&adopted(&pending, &killed), &killed, &moving, "a"), RUN);
}

#[test]
fn a_waiver_dies_with_its_loss() {
    let lost = lose(&first(), "a", 0);
    let waived = BTreeSet::from([(name("a"), 2)]);
    let gate = GateState { waived: waived.clone(), ..gate(&lost) };
    assert_eq!(adopted(&gate, &next(&lost, Change::Kill)).waived, waived);
    let back = seal(&lost, "a", 1);
    assert!(adopted(&gate, &back).waived.is_empty());
    let again = lose(&back, "a", 1);
    assert!(adopted(&gate, &again).waived.is_empty(), "another loss is another risk");
}

/// The regions of which b, at the last of these views, names the risk for a key.
fn risk(views: &[View], epochs: &[(&str, u64)], id: &KeyId) -> Vec<String> {
    At { epochs, ..At::of(views) }.risk(id)
}

/// Facts of b.
#[derive(Clone)]
struct At<'a> {
    view: &'a View,
    views: &'a [View],
    epochs: &'a [(&'a str, u64)],
    rows: &'a [(&'a str, u64)],
    waived: Option<&'a [(&'a str, u64)]>,
    outlived: u64,
}

impl<'a> At<'a> {
    fn of(views: &'a [View]) -> Self {
        At { view: views.last().unwrap(), views, epochs: &[], rows: &[], waived: Some(&[]), outlived: 0 }
    }

    fn risk(&self, id: &KeyId) -> Vec<String> {
        let of = |pairs: &[(&str, u64)]| pairs.iter().map(|(text, upto)| (origin(text), *upto)).collect();
        let waived = self.waived.map(|waived| waived.iter().map(|(text, at)| (name(text), *at)).collect());
        let losses = losses(&Facts {
            view: self.view,
            views: &self.views.iter().map(|view| (view.epoch(), Arc::new(view.clone()))).collect(),
            epochs: &of(self.epochs),
            rows: &of(self.rows),
            waived: waived.as_ref(),
            me: &name("b"),
            outlived: self.outlived,
        });
        let hide = losses.iter().filter(|loss| loss.may_hide(id));
        let regions: BTreeSet<&RegionName> = hide.map(|loss| &loss.origin.region).collect();
        regions.into_iter().map(ToString::to_string).collect()
    }
}

const NOBODY: [&str; 0] = [];

#[test]
fn keys_owned_at_the_loss_are_at_risk() {
    let views = history("lose a 0, kill");
    let (of_a, of_c) = (key(&views[0], &["a"]), key(&views[0], &["c"]));
    assert_eq!(risk(&views[..1], &[], &of_a), NOBODY);
    let early = At { view: &views[0], ..At::of(&views) };
    assert_eq!(early.risk(&of_a), NOBODY, "that view is not adopted here yet");
    assert_eq!(risk(&views[..2], &[], &of_a), ["a"]);
    assert_eq!(risk(&views[..2], &[], &of_c), NOBODY);
    assert_eq!(risk(&views[1..2], &[], &of_c), ["a"], "nobody knows here what it owned");
    assert_eq!(risk(&views, &[], &of_a), ["a"]);
}

#[test]
fn two_losses_are_two_risks() {
    let (of_a, of_b) = (key(&first(), &["a", "c", "b"]), key(&first(), &["b"]));
    assert_eq!(risk(&history("lose a 0, lose c 0"), &[], &of_a), ["a", "c"]);
    let gone = risk(&history("drain a 9, lose a 9"), &[], &of_a);
    assert_eq!(gone, NOBODY, "it owned nothing any more, and its mark is there");
    let gap = history("drain a 9, lose a 8");
    assert_eq!(risk(&gap, &[], &of_a), ["a"], "rows of before its mark are missing");
    assert_eq!(risk(&gap, &[], &of_b), NOBODY, "but it never owned this one");
    assert_eq!(risk(&gap[1..], &[], &of_b), ["a"], "nobody knows here what it owned at first");
}

#[test]
fn a_ring_that_changes_after_a_loss_hides_no_risk() {
    let mut views = history("lose a 0");
    let (key, lost) = (key(&views[0], &["a"]), &views[1]);
    let target = on_ring(lost, ring(&["b", "c"], &[])).unwrap();
    views.push(moved_at(lost, target, 1));
    assert_eq!(risk(&views, &[], &key), ["a"]);
}

#[test]
pub fn a_returned_region_is_a_risk_until_heard_of() {
    // b has opened a's keys. a is sealed again, and its last rows are on their way. Without the
    // risk, b would start keys that a has run, and leave no trace.
    let views = history("lose a 5, seal a 9");
    let key = key(&views[0], &["a", "b"]);
    assert_eq!(risk(&views, &[], &key), ["a"]);
    assert_eq!(risk(&views, &[("a#1", 1)], &key), ["a"], "a heartbeat of before its loss");
    assert_eq!(risk(&views, &[("a#1", 2)], &key), NOBODY, "all that it claimed came before this one");
    assert_eq!(risk(&views[..2], &[("a#1", 2)], &key), ["a"], "and while it is lost, nothing is sure");
}

#[test]
fn a_store_that_was_replaced_stays_a_risk() {
    let views = history("lose a 5, rebuild a, resume a 1");
    let key = key(&views[0], &["a", "b"]);
    let risks = risk(&views, &[("a#2", 4)], &key);
    assert_eq!(risks, ["a"], "the new store knows nothing of the old one's last claims");
    assert_eq!(risk(&views, &[("a#1", 2), ("a#2", 4)], &key), NOBODY);
    // A store that was sealed before it was replaced left no rows that the mark does not cover.
    assert_eq!(risk(&history("lose a 5, seal a 9, rebuild a"), &[], &key), NOBODY);
    let own = self::key(&views[0], &["b"]);
    assert_eq!(
        risk(&history("lose b 5, seal b 9"), &[], &own),
        NOBODY,
        "its own loss is no risk to a region"
    );
    let risks = risk(&history("lose b 5, rebuild b, resume b 1"), &[], &own);
    assert_eq!(risks, ["b"], "but that of the store it had before is");
}

#[test]
fn a_replaced_store_is_no_risk_once_its_keys_are_forgotten() {
    let views = history("lose a 5, rebuild a");
    let key = key(&views[0], &["a", "b"]);
    let risk = |views: &[View], outlived| At { outlived, ..At::of(views) }.risk(&key).len();
    assert_eq!(risk(&views, 1), 1, "it was lost under the second view");
    assert_eq!(risk(&views, 2), 0);
    let still = risk(&views[..2], 2);
    assert_eq!(still, 1, "a store that may come back is waited for, however old its loss is");
    assert_eq!(risk(&views[2..], 1), 1, "a store that came later has none of the views of then");
}

/// a ran keys, was lost, came back unheard, and was lost again while c owned them. Then its store
/// was replaced: its claims of before the first loss never arrive.
#[test]
fn a_replaced_store_stays_a_risk_by_each_loss() {
    let views = history("lose a 0, seal a 9, lose a 9, rebuild a");
    let key = key(&views[0], &["a", "b"]);
    let at = |outlived| At { outlived, rows: &[("a#1", 9)], ..At::of(&views) };
    assert_eq!(at(0).risk(&key), ["a"]);
    assert_eq!(at(2).risk(&key), NOBODY, "those keys are forgotten");
    assert_eq!(risk(&views, &[("a#1", 3)], &key), NOBODY, "a was heard of in between");
}

/// a ran a key, handed it to c by a clean move, and was lost. c had the only row, and was lost too.
/// b opened as an operator accepted both risks. Then a is back, its rows are on their way, and its
/// loss is not accepted any more.
#[test]
fn an_accepted_risk_names_all_owners_since_the_heartbeat() {
    let back = history("drain a 5, lose a 5, lose c 5, seal a 9");
    let (key, both) = (key(&back[0], &["a", "c"]), &back[..4]);
    assert_eq!(back[1].owner(&key), Some(&name("c")));
    let at = |views: &[View], epoch: u64, seq: u64| {
        let (epochs, rows) = (&[("a#1", epoch)], &[("a#1", seq)]);
        let waived = if views.len() == 4 { &[("a", 3), ("c", 4)][..] } else { &[("c", 4)] };
        At { epochs, rows, waived: Some(waived), ..At::of(views) }.risk(&key)
    };
    assert_eq!(at(both, 1, 4), ["a", "c"]);
    assert_eq!(at(both, 0, 0), ["a", "c"], "nothing of a is here");
    assert_eq!(at(both, 2, 4), ["c"], "all rows of before the move are here");
    assert_eq!(at(both, 1, 5), ["c"], "all rows up to its seal are here");
    assert_eq!(risk(both, &[("a#1", 1)], &key), ["c"], "nothing opens before they are");
    let unknown = At { epochs: &[("a#1", 1)], waived: None, ..At::of(both) };
    assert_eq!(unknown.risk(&key), ["a", "c"], "the gate is not known, so it may have opened");
    assert_eq!(at(&back, 1, 4), ["a", "c"]);
    assert_eq!(at(&back, 1, 5), ["c"], "all rows up to the seal of before its loss are here");
    assert_eq!(at(&back, 3, 9), ["c"], "it was heard of since");
}
