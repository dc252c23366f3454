//! Tests of the gate's state, of the right to run a key, and of the losses that put a key at risk.
//!
//! The views come from `examples`.

use super::super::change::Change;
use super::super::examples::{SEALED, draft, drained, first, key, lose, name, next, origin, resumed, seal};
use super::*;

const NOW: Moment = Moment::from_nanos(5);

fn held(view: &View) -> Held {
    Held { view: Arc::new(view.clone()), until: Moment::from_nanos(6) }
}

fn gate(view: &View) -> GateState {
    GateState::founded(Arc::new(view.clone()))
}

fn may(gate: &GateState, lease: &View, id: &KeyId, me: &str) -> Right {
    right(gate, Some(&held(lease)), Tenure(3), id, &name(me), NOW)
}

const RUN: Right = Right::Run(Tenure(3));

fn adopted(gate: &GateState, view: &View) -> GateState {
    gate.adopt(Arc::new(view.clone()))
}

#[test]
fn the_owner_runs_with_a_lease_and_nobody_else() {
    let view = first();
    let (gate, key) = (gate(&view), key(&view, &["a", "b"]));
    assert_eq!(may(&gate, &view, &key, "a"), RUN);
    assert_eq!(may(&gate, &view, &key, "b"), Right::Elsewhere(name("a")));
    let me = name("a");
    assert_eq!(right(&gate, None, Tenure(3), &key, &me, NOW), Right::Closed(Closed::NoLease));
    let lapsed = Held { until: NOW, ..held(&view) };
    assert_eq!(right(&gate, Some(&lapsed), Tenure(3), &key, &me, NOW), Right::Closed(Closed::NoLease));
    let alone = View::unfounded(view.ring().clone());
    assert_eq!(may(&self::gate(&alone), &alone, &key, "a"), Right::Nobody);
}

#[test]
pub fn an_older_lease_covers_the_keys_owned_under_it() {
    let view = first();
    let (mine, gained) = (key(&view, &["b"]), key(&view, &["a", "b"]));
    let lost = lose(&view, "a", 0);
    let gate = adopted(&gate(&view), &lost).open();
    assert_eq!(may(&gate, &view, &mine, "b"), RUN);
    let right = may(&gate, &view, &gained, "b");
    assert_eq!(right, Right::Closed(Closed::Moving), "acceptors do not protect it yet");
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
    assert_eq!(may(&gate, &lost, &gained, "b"), Right::Closed(Closed::CatchingUp));
    let open = gate.open();
    assert!(open.is_open());
    assert_eq!(may(&open, &lost, &gained, "b"), RUN);
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
    assert_eq!(may(&gate, &again, &key, "b"), Right::Closed(Closed::CatchingUp));
    assert_eq!(may(&gate.open(), &again, &key, "b"), RUN);
}

#[test]
fn gains_that_are_not_open_yet_stay_closed_through_further_views() {
    let gained = key(&first(), &["a", "b"]);
    let lost = lose(&first(), "a", 0);
    let gate = adopted(&gate(&first()), &lost);
    let further = next(&lost, Change::Kill);
    let gate = adopted(&gate, &further);
    assert_eq!(gate.since.len(), 2, "an equal placement is named once");
    assert_eq!(may(&gate, &further, &gained, "b"), Right::Closed(Closed::CatchingUp));
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
    assert_eq!(may(&gate, &three, &key, "a"), Right::Closed(Closed::CatchingUp));
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
    assert_eq!(may(&pending, &view, &moving, "a"), Right::Closed(Closed::Moving));
    assert_eq!(may(&pending, &view, &staying, "b"), RUN);
    // a learns again of a view that it has. Its promise holds.
    assert_eq!(may(&adopted(&pending, &view), &view, &moving, "a"), Right::Closed(Closed::Moving));
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

/// All these views, by epoch.
fn known(views: &[&View]) -> BTreeMap<u64, Arc<View>> {
    views.iter().map(|view| (view.epoch(), Arc::new((*view).clone()))).collect()
}

fn risk(view: &View, views: &[&View], epochs: &[(&str, u64)], id: &KeyId) -> Vec<String> {
    At { epochs, ..At::new(view, views) }.risk(id)
}

/// Facts of b.
#[derive(Clone)]
struct At<'a> {
    view: &'a View,
    views: &'a [&'a View],
    epochs: &'a [(&'a str, u64)],
    rows: &'a [(&'a str, u64)],
    waived: Option<&'a [(&'a str, u64)]>,
    outlived: u64,
}

impl<'a> At<'a> {
    fn new(view: &'a View, views: &'a [&'a View]) -> Self {
        At { view, views, epochs: &[], rows: &[], waived: Some(&[]), outlived: 0 }
    }

    fn risk(&self, id: &KeyId) -> Vec<String> {
        let of = |pairs: &[(&str, u64)]| pairs.iter().map(|(text, upto)| (origin(text), *upto)).collect();
        let waived = self.waived.map(|waived| waived.iter().map(|(text, at)| (name(text), *at)).collect());
        let losses = losses(&Facts {
            view: self.view,
            views: &known(self.views),
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
    let one = first();
    let (of_a, of_c) = (key(&one, &["a"]), key(&one, &["c"]));
    let lost = lose(&one, "a", 0);
    assert_eq!(risk(&one, &[&one], &[], &of_a), NOBODY);
    assert_eq!(risk(&one, &[&one, &lost], &[], &of_a), NOBODY, "that view is not adopted here yet");
    assert_eq!(risk(&lost, &[&one, &lost], &[], &of_a), ["a"]);
    assert_eq!(risk(&lost, &[&one, &lost], &[], &of_c), NOBODY);
    assert_eq!(risk(&lost, &[&lost], &[], &of_c), ["a"], "nobody knows here what it owned");
    let killed = next(&lost, Change::Kill);
    assert_eq!(risk(&killed, &[&one, &lost, &killed], &[], &of_a), ["a"]);
}

#[test]
fn two_losses_are_two_risks() {
    let one = first();
    let key = key(&one, &["a", "c", "b"]);
    let two = lose(&one, "a", 0);
    let three = lose(&two, "c", 0);
    assert_eq!(risk(&three, &[&one, &two, &three], &[], &key), ["a", "c"]);
    let drained = drained(&one, "a", 9);
    let gone = lose(&drained, "a", 9);
    let risks = risk(&gone, &[&one, &drained, &gone], &[], &key);
    assert_eq!(risks, NOBODY, "it owned nothing any more, and its mark is there");
    let gap = lose(&drained, "a", 8);
    assert_eq!(risk(&gap, &[&one, &drained, &gap], &[], &key), ["a"], "rows of before its mark are missing");
    let other = self::key(&one, &["b"]);
    assert_eq!(risk(&gap, &[&one, &drained, &gap], &[], &other), NOBODY, "but it never owned this one");
    assert_eq!(risk(&gap, &[&drained, &gap], &[], &other), ["a"], "nobody knows here what it owned at first");
}

#[test]
fn a_ring_that_changes_after_a_loss_hides_no_risk() {
    let one = first();
    let key = key(&one, &["a"]);
    let lost = lose(&one, "a", 0);
    let ring = super::super::examples::ring(&["b", "c"], &[]);
    let target = lost.draft(ring, lost.escrow().clone(), &BTreeMap::new()).unwrap();
    let losers: Vec<RegionName> = lost.losers(&target).cloned().collect();
    let seals: Vec<(&str, u64)> = losers.iter().map(|name| (name.as_str(), 1)).collect();
    let moved = super::super::examples::moved(&lost, target, &seals);
    assert_eq!(risk(&moved, &[&one, &lost, &moved], &[], &key), ["a"]);
}

#[test]
pub fn a_returned_region_is_a_risk_until_heard_of() {
    // b has opened a's keys. a is sealed again, and its last rows are on their way. Without the
    // risk, b would start keys that a has run, and leave no trace.
    let one = first();
    let key = key(&one, &["a", "b"]);
    let lost = lose(&one, "a", 5);
    let back = seal(&lost, "a", 9);
    let views = [&one, &lost, &back];
    assert_eq!(risk(&back, &views, &[], &key), ["a"]);
    assert_eq!(risk(&back, &views, &[("a#1", 1)], &key), ["a"], "a heartbeat of before its loss");
    assert_eq!(risk(&back, &views, &[("a#1", 2)], &key), NOBODY, "all that it claimed came before this one");
    assert_eq!(risk(&lost, &views[..2], &[("a#1", 2)], &key), ["a"], "and while it is lost, nothing is sure");
}

#[test]
fn a_store_that_comes_later_has_everything_to_catch_up_with() {
    let one = first();
    let key = key(&one, &["a", "b"]);
    let founded = GateState::founded(Arc::new(one.clone()));
    assert!(founded.is_open());
    let joined = GateState::joined(Arc::new(one));
    assert!(!joined.is_open());
    assert_eq!(joined.serves(&key, &name("a")), Some(Closed::CatchingUp));
    assert_eq!(joined.open().serves(&key, &name("a")), None);
}

#[test]
fn a_store_that_was_replaced_stays_a_risk() {
    let one = first();
    let key = key(&one, &["a", "b"]);
    let lost = lose(&one, "a", 5);
    let rebuilt = next(&lost, Change::Rebuild { region: name("a") });
    let back = resumed(&rebuilt, "a", 1);
    let views = [&one, &lost, &rebuilt, &back];
    let risks = risk(&back, &views, &[("a#2", 4)], &key);
    assert_eq!(risks, ["a"], "the new store knows nothing of the old one's last claims");
    assert_eq!(risk(&back, &views, &[("a#1", 2), ("a#2", 4)], &key), NOBODY);
    // A store that was sealed before it was replaced left no rows that the mark does not cover.
    let sealed = seal(&lost, "a", 9);
    let rebuilt = next(&sealed, Change::Rebuild { region: name("a") });
    assert_eq!(risk(&rebuilt, &[&one, &lost, &sealed, &rebuilt], &[], &key), NOBODY);
}

#[test]
fn a_replaced_store_is_no_risk_once_its_keys_are_forgotten() {
    let one = first();
    let key = key(&one, &["a", "b"]);
    let lost = lose(&one, "a", 5);
    let rebuilt = next(&lost, Change::Rebuild { region: name("a") });
    let views = [&one, &lost, &rebuilt];
    let risk = |view: &View, views: &[&View], outlived: u64| {
        At { outlived, ..At::new(view, views) }.risk(&key).len()
    };
    assert_eq!(risk(&rebuilt, &views, 1), 1, "it was lost under the second view");
    assert_eq!(risk(&rebuilt, &views, 2), 0);
    let still = risk(&lost, &views, 2);
    assert_eq!(still, 1, "a store that may come back is waited for, however old its loss is");
    assert_eq!(risk(&rebuilt, &[], 1), 1, "a store that came later has none of the views of then");
}

/// a ran keys, was lost, came back unheard, and was lost again while c owned them. Then its store
/// was replaced: its claims of before the first loss never arrive.
#[test]
fn a_replaced_store_stays_a_risk_by_each_loss() {
    let one = first();
    let key = key(&one, &["a", "b"]);
    let lost = lose(&one, "a", 0);
    let back = seal(&lost, "a", 9);
    let again = lose(&back, "a", 9);
    let rebuilt = next(&again, Change::Rebuild { region: name("a") });
    let views = [&one, &lost, &back, &again, &rebuilt];
    let rows = [("a#1", 9)];
    let at = |outlived: u64| At { outlived, rows: &rows, ..At::new(&rebuilt, &views) };
    assert_eq!(at(0).risk(&key), ["a"]);
    assert_eq!(at(2).risk(&key), NOBODY, "those keys are forgotten");
    assert_eq!(risk(&rebuilt, &views, &[("a#1", 3)], &key), NOBODY, "a was heard of in between");
}

#[test]
fn a_regions_own_loss_is_no_risk_to_it() {
    let one = first();
    let key = key(&one, &["b"]);
    let lost = lose(&one, "b", 5);
    let back = seal(&lost, "b", 9);
    assert_eq!(risk(&back, &[&one, &lost, &back], &[], &key), NOBODY);
    let rebuilt = next(&lost, Change::Rebuild { region: name("b") });
    let reborn = resumed(&rebuilt, "b", 1);
    let risks = risk(&reborn, &[&one, &lost, &rebuilt, &reborn], &[], &key);
    assert_eq!(risks, ["b"], "but by that of the store it had before");
}

/// a ran a key, handed it to c by a clean move, and was lost. c had the only row, and was lost too.
/// b opened as an operator accepted both risks.
#[test]
fn an_accepted_risk_names_all_owners_since_the_heartbeat() {
    let one = first();
    let key = key(&one, &["a", "c"]);
    let moved = drained(&one, "a", 5);
    let lost = lose(&moved, "a", 5);
    let both = lose(&lost, "c", 5);
    let views = [&one, &moved, &lost, &both];
    assert_eq!(moved.owner(&key), Some(&name("c")));
    let at = |epoch: u64, seq: u64| {
        let (epochs, rows) = ([("a#1", epoch)], [("a#1", seq)]);
        At { epochs: &epochs, rows: &rows, waived: Some(&[("a", 3), ("c", 4)]), ..At::new(&both, &views) }
            .risk(&key)
    };
    assert_eq!(at(1, 4), ["a", "c"]);
    assert_eq!(at(0, 0), ["a", "c"], "nothing of a is here");
    assert_eq!(at(2, 4), ["c"], "all rows of before the move are here");
    assert_eq!(at(1, 5), ["c"], "all rows up to its seal are here");
    assert_eq!(risk(&both, &views, &[("a#1", 1)], &key), ["c"], "nothing opens before they are");
    let unknown = At { epochs: &[("a#1", 1)], waived: None, ..At::new(&both, &views) };
    assert_eq!(unknown.risk(&key), ["a", "c"], "the gate is not known, so it may have opened");
    // a is back, and so its loss is not accepted any more. Its rows are on their way.
    let back = seal(&both, "a", 9);
    let views = [&one, &moved, &lost, &both, &back];
    let at = |epoch: u64, seq: u64| {
        let (epochs, rows) = ([("a#1", epoch)], [("a#1", seq)]);
        At { epochs: &epochs, rows: &rows, waived: Some(&[("c", 4)]), ..At::new(&back, &views) }.risk(&key)
    };
    assert_eq!(at(1, 4), ["a", "c"]);
    assert_eq!(at(1, 5), ["c"], "all rows up to the seal of before its loss are here");
    assert_eq!(at(3, 9), ["c"], "it was heard of since");
}
