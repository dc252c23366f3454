//! Tests of the hindrances to starting gained keys, each alone (docs/protocol.md#rule-26).
//!
//! The views come from `examples`.

use super::super::change::Change;
use super::super::examples::{drained, first, lose, moved, name, next, on_ring, origin, resumed, ring, seal};
use super::super::view::Content;
use super::*;

/// Facts that hinder nothing, to be spoilt one by one.
struct World {
    view: View,
    me: Origin,
    applied: BTreeMap<Origin, u64>,
    windows: BTreeMap<Origin, window::Standing>,
    frontiers: BTreeMap<(RegionName, Origin), Frontier>,
    waived: BTreeSet<(RegionName, u64)>,
    converted: BTreeSet<Origin>,
    keepers: BTreeSet<(RegionName, Origin)>,
}

impl World {
    /// b looks; all heartbeats up to 50 have arrived from every region.
    fn new(view: View) -> Self {
        let applied = ["a#1", "b#1", "c#1"].map(|text| (origin(text), 50)).into();
        let (windows, frontiers, waived, converted) = Default::default();
        let (me, keepers) = (origin("b#1"), BTreeSet::new());
        Self { view, me, applied, windows, frontiers, waived, converted, keepers }
    }

    /// a was lost at epoch 2 with frontier 40, and nothing about it hinders.
    fn after_a_was_lost() -> Self {
        let mut world = Self::new(lose(&first(), "a", 40));
        world.windows.insert(origin("a#1"), window::Standing::Over);
        world.frontiers.insert((name("c"), origin("a#1")), Frontier { applied: 45, seal: 50 });
        world.converted.insert(origin("a#1"));
        world
    }

    fn missing(&self) -> Vec<Hindrance> {
        let Self { view, me, applied, windows, frontiers, waived, converted, keepers } = self;
        hindrances(&Facts { view, me, applied, windows, frontiers, waived, converted, keepers })
    }
}

fn not_covered(of: &str, mark: u64, applied: u64) -> Hindrance {
    Hindrance::NotCovered { origin: origin(of), mark, applied }
}

/// A region has said nothing of a's store.
fn silent(by: &str) -> Hindrance {
    Hindrance::NotTold { origin: origin("a#1"), by: name(by) }
}

/// A region has rows of a's store that are not here.
fn import(from: &str, upto: u64) -> Hindrance {
    Hindrance::Import { origin: origin("a#1"), from: name(from), upto }
}

#[test]
fn what_is_covered_or_a_regions_own_hinders_nothing() {
    assert_eq!(World::after_a_was_lost().missing(), []);
    for (case, view) in [
        ("the first view", first()),
        ("a mark that is here", drained(&first(), "a", 50)),
        ("its own mark", drained(&first(), "b", 99)),
        ("its own mark after a loss", seal(&lose(&first(), "b", 70), "b", 99)),
        ("its own loss: it owns nothing, so it waits for nothing", lose(&first(), "b", 70)),
    ] {
        assert_eq!(World::new(view).missing(), [], "{case}");
    }
}

#[test]
pub fn every_newest_mark_counts_not_only_the_predecessors() {
    // a to c to b, quickly: c's seal says nothing of a's rows (docs/protocol.md#rule-28).
    let view = drained(&drained(&first(), "a", 60), "c", 50);
    let mut world = World::new(view);
    assert_eq!(world.missing(), [not_covered("a#1", 60, 50)]);
    world.applied.insert(origin("a#1"), 60);
    assert_eq!(world.missing(), []);
    world.applied.remove(&origin("c#1"));
    let missing = world.missing();
    assert_eq!(missing, [not_covered("c#1", 50, 0)], "a copy that is not known to be whole is none");
}

#[test]
pub fn rows_of_a_store_that_was_replaced_count_on() {
    // Lost in epoch 2, replaced in epoch 3.
    let mut world = World::after_a_was_lost();
    world.view = next(&lose(&first(), "a", 60), Change::Rebuild { region: name("a") });
    world.windows.clear();
    let from_c = |upto| import("c", upto);
    let frontier = |applied| ((name("c"), origin("a#1")), Frontier { applied, seal: 50 });
    world.frontiers.extend([frontier(0)]);
    let forgotten = Hindrance::Forgotten { origin: origin("a#1"), mark: 60, applied: 50 };
    assert!(forgotten.needs_operator());
    let missing = world.missing();
    assert_eq!(missing, [not_covered("a#1", 60, 50), forgotten], "no window, and nobody who is left has it");
    assert!(world.frontiers.remove(&(name("c"), origin("a#1"))).is_some());
    assert_eq!(world.missing(), [not_covered("a#1", 60, 50), silent("c")], "c may have it");
    world.frontiers.extend([frontier(61)]);
    assert_eq!(world.missing(), [not_covered("a#1", 60, 50), from_c(61)]);
    world.waived.insert((name("a"), 2));
    assert_eq!(world.missing(), [from_c(61)], "what is there is fetched, whoever accepted what");
    world.applied.insert(origin("a#1"), 61);
    assert_eq!(world.missing(), []);
    world.waived.clear();
    world.converted.clear();
    assert_eq!(world.missing(), [Hindrance::Escrow(origin("a#1"))]);
    // The new store of the region itself: the other regions have the earlier rows now.
    world.me = origin("a#2");
    world.applied.remove(&origin("a#1"));
    world.converted.insert(origin("a#1"));
    world.frontiers.insert((name("b"), origin("a#1")), Frontier { applied: 3, seal: 50 });
    assert_eq!(world.missing(), [not_covered("a#1", 60, 0), import("b", 3), from_c(61)]);
}

#[test]
pub fn any_region_supplies_rows_of_a_replaced_sealed_store() {
    let view = next(&drained(&first(), "a", 40), Change::Rebuild { region: name("a") });
    any_region_supplies_a(view, "a#2", &["b", "c"]);
}

/// A region left the ring for good: one that joins later gets its rows from the others.
#[test]
pub fn any_region_supplies_rows_of_a_removed_region() {
    let base = drained(&first(), "a", 40);
    let target = on_ring(&base, ring(&["b", "c"], &[])).unwrap();
    any_region_supplies_a(moved(&base, target, &[]), "b#1", &["c"]);
}

/// a is gone with its mark at 40, and `me` lacks its rows: `others` are asked.
fn any_region_supplies_a(view: View, me: &str, others: &[&str]) {
    let mut world = World::new(view);
    assert_eq!(world.missing(), [], "b had applied all of it");
    world.me = origin(me);
    world.applied.remove(&origin("a#1"));
    let missing = |rest: Vec<Hindrance>| [vec![not_covered("a#1", 40, 0)], rest].concat();
    assert_eq!(world.missing(), missing(others.iter().map(|by| silent(by)).collect()));
    world.frontiers.insert((name(others[0]), origin("a#1")), Frontier { applied: 50, seal: 50 });
    let rest =
        std::iter::once(import(others[0], 50)).chain(others[1..].iter().map(|by| silent(by))).collect();
    assert_eq!(world.missing(), missing(rest));
    world.applied.insert(origin("a#1"), 50);
    assert_eq!(world.missing(), []);
}

#[test]
pub fn a_loss_waits_for_its_window() {
    let mut world = World::after_a_was_lost();
    let left = Duration::from_secs(1);
    let of = origin("a#1");
    let (runs, beyond) = (window::Standing::Runs(left), window::Standing::Beyond(left));
    for (standing, hindrance, operator) in [
        (runs, Hindrance::Window { origin: of.clone(), left }, false),
        (beyond, Hindrance::Beyond { origin: of.clone(), window: left }, true),
        (window::Standing::Unmeasured, Hindrance::Unmeasured(of.clone()), true),
    ] {
        world.windows.insert(of.clone(), standing);
        assert_eq!(hindrance.needs_operator(), operator);
        assert_eq!(world.missing(), [hindrance]);
    }
    world.windows.clear();
    let missing = world.missing();
    assert_eq!(missing, [Hindrance::Unmeasured(of)], "a window that nobody began is not over");
}

#[test]
fn a_gap_always_waits_for_an_operator() {
    let mut world = World::after_a_was_lost();
    world.view = lose(&drained(&first(), "a", 90), "a", 40);
    assert_eq!(world.missing(), [Hindrance::Gap(origin("a#1"))]);
    assert!(world.missing()[0].needs_operator());
    world.waived.insert((name("a"), 3));
    assert_eq!(world.missing(), []);
}

#[test]
pub fn every_serving_region_is_asked_for_lost_rows() {
    let mut world = World::after_a_was_lost();
    let silence = silent("c");
    world.frontiers.clear();
    assert_eq!(world.missing(), std::slice::from_ref(&silence));
    assert!(!silence.needs_operator());
    world.frontiers.insert((name("c"), origin("a#1")), Frontier { applied: 51, seal: 50 });
    assert_eq!(world.missing(), [import("c", 51)], "c has rows that are not here (docs/protocol.md#rule-33)");
    world.frontiers.insert((name("c"), origin("a#1")), Frontier { applied: 50, seal: 51 });
    assert_eq!(
        world.missing(),
        [not_covered("c#1", 51, 50)],
        "what c made of its escrows (docs/protocol.md#rule-39)"
    );
    // No region waits for one that is gone, too.
    world.frontiers.clear();
    world.view = lose(&world.view, "c", 50);
    world.windows.insert(origin("c#1"), window::Standing::Over);
    world.converted.insert(origin("c#1"));
    assert_eq!(world.missing(), []);
    world.windows.insert(origin("c#1"), window::Standing::Unmeasured);
    assert_eq!(world.missing(), [Hindrance::Unmeasured(origin("c#1"))], "two losses, two waits");
}

#[test]
pub fn escrow_rows_become_records_before_anything_opens() {
    let mut world = World::after_a_was_lost();
    world.converted.clear();
    assert_eq!(world.missing(), [Hindrance::Escrow(origin("a#1"))]);
    world.waived.insert((name("a"), 2));
    let left = world.missing();
    assert_eq!(left, [Hindrance::Escrow(origin("a#1"))], "what stands here is no risk to accept");
}

#[test]
fn a_waiver_is_for_one_loss_of_one_region() {
    let mut world = World::after_a_was_lost();
    world.windows.insert(origin("a#1"), window::Standing::Unmeasured);
    world.applied.insert(origin("a#1"), 39);
    world.frontiers.clear();
    assert_eq!(world.missing().len(), 3);
    world.waived.insert((name("a"), 1));
    world.waived.insert((name("c"), 2));
    assert_eq!(world.missing().len(), 3, "another loss, another region");
    world.waived.insert((name("a"), 2));
    assert_eq!(world.missing(), []);
    world.frontiers.insert((name("c"), origin("a#1")), Frontier { applied: 41, seal: 50 });
    assert_eq!(world.missing(), [import("c", 41)], "what is known to be there is fetched all the same");
    // A waiver dies with the loss: after a return and another loss it says nothing.
    world.view = lose(&resumed(&seal(&world.view, "a", 45), "a", 45), "a", 45);
    assert!(world.missing().contains(&Hindrance::Unmeasured(origin("a#1"))));
}

/// c was drained in epoch 2, a lost in epoch 3. Claims that a lodged with c before are here once a
/// heartbeat of a from epoch 2 is.
#[test]
pub fn a_sealed_region_is_asked_for_possibly_missing_claims() {
    let (one, two) = (first(), drained(&first(), "c", 50));
    let three = lose(&two, "a", 40);
    let views: BTreeMap<u64, Arc<View>> =
        [one, two].into_iter().map(|view| (view.epoch(), Arc::new(view))).collect();
    let reached = |epoch| keepers(&three, &views, &[(origin("a#1"), epoch)].into());
    assert_eq!(reached(1), [(name("c"), origin("a#1"))].into());
    assert_eq!(reached(2), [].into());
    assert_eq!(keepers(&three, &BTreeMap::new(), &[(origin("a#1"), 2)].into()).len(), 1, "no view is known");
    let mut world = World::new(three.clone());
    world.windows.insert(origin("a#1"), window::Standing::Over);
    world.converted.insert(origin("a#1"));
    assert_eq!(world.missing(), [], "nobody else serves, and c holds nothing that is not here");
    world.keepers = reached(1);
    assert_eq!(world.missing(), [silent("c")]);
    world.frontiers.insert((name("c"), origin("a#1")), Frontier { applied: 40, seal: 60 });
    assert_eq!(world.missing(), [not_covered("c#1", 60, 50)], "what c made of it has to arrive");
    world.applied.insert(origin("c#1"), 60);
    assert_eq!(world.missing(), []);
    // The same once c has left the ring: its word counts no more, and an operator must decide.
    let left = Content { ring: ring(&["a", "b"], &[]), ..three.content() };
    world.view = View::from_content(left);
    let left_ring = Hindrance::LeftRing { origin: origin("a#1"), by: name("c"), lost: true };
    assert!(left_ring.needs_operator());
    assert_eq!(world.missing(), std::slice::from_ref(&left_ring), "whatever c says");
    world.applied.insert(origin("a#1"), 30);
    assert_eq!(world.missing(), [not_covered("a#1", 40, 30), left_ring], "rows up to the mark, too");
    world.waived.insert((name("a"), 3));
    assert_eq!(world.missing(), []);
    world.waived.clear();
    world.view = three;
    // c had seen more of a than any other region, and said so: only c can give it.
    world.keepers.clear();
    world.frontiers.clear();
    world.applied.insert(origin("a#1"), 30);
    assert_eq!(world.missing(), [not_covered("a#1", 40, 30), silent("c")]);
}

#[test]
fn a_region_is_away_until_its_rows_are_here() {
    let since = |world: &World| remembered_from(&world.view, &world.me, &world.applied);
    assert_eq!(since(&World::new(first())), 2, "another gateway may know of a loss at epoch 2");
    let mut world = World::after_a_was_lost();
    assert_eq!(since(&world), 2, "its frontier is here, and not what it had not sent");
    world.me = origin("a#1");
    assert_eq!(since(&world), 3, "what it has itself is here");
    world.me = origin("b#1");
    world.view = seal(&world.view, "a", 60);
    assert_eq!(since(&world), 0, "its rows are on their way");
    world.applied.insert(origin("a#1"), 60);
    assert_eq!(since(&world), 4);
    let replaced = next(&lose(&first(), "a", 40), Change::Rebuild { region: name("a") });
    assert_eq!(since(&World::new(replaced)), 4, "what was not sent never comes");
}
