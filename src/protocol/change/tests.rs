//! Tests of every change of a view, and of everything that `next` refuses
//! (docs/protocol.md#rule-18).
//!
//! The first view comes from `examples`.

use std::time::Duration;

use super::super::examples::{
    SEALED, abc, draft, drained, first, lose, moved, name, next, on_ring, origin, report, resumed, ring,
    seal, spec, voters,
};
use super::super::ring_spec::{PlaceBy, RingSpec};
use super::super::view::Content;
use super::*;

fn drain_a() -> (View, Arc<View>) {
    let view = first();
    let target = Arc::new(draft(&view, &[("a", SEALED)]));
    (view, target)
}

fn one(region: &str, report: Report) -> BTreeMap<RegionName, Report> {
    BTreeMap::from([(name(region), report)])
}

fn refused(view: &View, change: Change) -> Illegal {
    view.next(&change).unwrap_err()
}

/// A move of the view to the target, with a's report.
fn moving(view: &View, target: &Arc<View>, report: Report) -> Result<View, Illegal> {
    view.next(&Change::Move { target: target.clone(), reports: one("a", report) })
}

#[test]
fn a_clean_move_carries_the_seals_of_the_losers_as_marks() {
    let (view, target) = drain_a();
    let next = moving(&view, &target, report(&view, &target, "a", 7)).unwrap();
    let member = next.members()[&name("a")];
    assert_eq!((next.epoch(), member.standing, member.mark), (2, SEALED, 7));
    assert_eq!(member.release, Some(Release { base: 1, target: target.placement() }));
    assert_eq!(next.members()[&name("b")], view.members()[&name("b")], "all other marks are kept");
    assert_eq!(next.placement(), target.placement());
}

#[test]
fn no_key_leaves_without_a_release_for_this_very_change() {
    let (view, target) = drain_a();
    let not_released = Err(Illegal::NotReleased(name("a")));
    let silent = Change::Move { target: target.clone(), reports: BTreeMap::new() };
    assert_eq!(view.next(&silent), not_released);
    let good = report(&view, &target, "a", 7);
    for release in [Release { base: 0, ..good.release }, Release { target: view.placement(), ..good.release }]
    {
        assert_eq!(moving(&view, &target, Report { release, ..good.clone() }), not_released);
    }
    let reborn = Report { generation: 2, ..good.clone() };
    assert_eq!(moving(&view, &target, reborn), Err(Illegal::Generation(name("a"))));
    // After a kill neither the report nor the draft is worth anything.
    let killed = next(&view, Change::Kill);
    assert_eq!(moving(&killed, &target, good.clone()), Err(Illegal::OtherBase(1)));
    let again = Arc::new(draft(&killed, &[("a", SEALED)]));
    assert_eq!(moving(&killed, &again, good), not_released);
}

#[test]
fn a_draft_carries_nothing_but_a_placement() {
    let (view, target) = drain_a();
    let mut forged = Content { voters: voters(&[("x", 1)]), ..target.content() };
    forged.members.get_mut(&name("b")).unwrap().mark = 99;
    let forged = Arc::new(View::from_content(forged));
    let next = moving(&view, &forged, report(&view, &target, "a", 7)).unwrap();
    assert_eq!(next.members()[&name("b")].mark, 0);
    assert_eq!(next.voters(), view.voters());
}

#[test]
fn a_mark_never_goes_back() {
    let view = resumed(&drained(&first(), "a", 7), "a", 3);
    let target = Arc::new(draft(&view, &[("a", SEALED)]));
    let by = |seal| moving(&view, &target, report(&view, &target, "a", seal));
    assert_eq!(by(6), Err(Illegal::MarkGoesBack(name("a"))));
    assert_eq!(by(7).unwrap().members()[&name("a")].mark, 7, "it may stay");
    let lost = lose(&first(), "a", 40);
    let change = |seal| Change::Seal { region: name("a"), generation: 1, seal };
    assert_eq!(refused(&lost, change(39)), Illegal::MarkGoesBack(name("a")));
    assert_eq!(lost.next(&change(40)).unwrap().members()[&name("a")].mark, 40);
}

#[test]
fn a_loss_puts_the_frontier_in_the_marks_place() {
    let view = drained(&first(), "a", 7);
    let ahead = lose(&view, "a", 9).members()[&name("a")];
    assert_eq!((ahead.standing, ahead.mark, ahead.release), (Standing::Lost { at: 3, gap: false }, 9, None));
    let behind = lose(&view, "a", 6).members()[&name("a")];
    let gap = Standing::Lost { at: 3, gap: true };
    assert_eq!((behind.standing, behind.mark), (gap, 6), "rows are known to be missing");
    assert_eq!(lose(&view, "a", 7).standing(&name("a")), Some(Standing::Lost { at: 3, gap: false }));
    let lost = lose(&first(), "a", 1);
    let again = Change::Lose { region: name("a"), frontier: 2 };
    assert_eq!(refused(&lost, again), Illegal::Standing(name("a")));
    assert_eq!(refused(&lost, Change::Lose { region: name("x"), frontier: 2 }), Illegal::Standing(name("x")));
}

/// A loser that served keys of a lost store meanwhile tells how much of that it has seen.
#[test]
fn a_losers_report_raises_the_marks_of_lost_and_replaced_stores() {
    let rebuild = |view: &View| next(view, Change::Rebuild { region: name("a") });
    let lost = lose(&first(), "a", 10);
    let replaced = rebuild(&lost);
    // What is here of the old store says nothing of the new one, once that is lost, too.
    let again = lose(&resumed(&replaced, "a", 1), "a", 3);
    let sealed = rebuild(&drained(&first(), "a", 7));
    for (case, view, of, seq, old_store, of_a) in [
        ("it has seen more", &lost, "a#1", 12, None, 12),
        ("never back", &lost, "a#1", 9, None, 10),
        ("c speaks for itself", &lost, "c#1", 99, None, 10),
        ("it has seen more of a replaced store", &replaced, "a#1", 12, Some(12), 0),
        ("never back", &replaced, "a#1", 9, Some(10), 0),
        ("the new store speaks for itself", &replaced, "a#2", 12, Some(10), 0),
        ("two lost stores", &again, "a#1", 99, Some(99), 3),
        ("one that had sealed keeps its mark", &sealed, "a#1", 12, Some(7), 0),
    ] {
        let target = Arc::new(draft(view, &[("b", SEALED)]));
        let report = Report { seen: [(origin(of), seq)].into(), ..report(view, &target, "b", 1) };
        let next = next(view, Change::Move { target, reports: one("b", report) });
        assert_eq!(next.retired.get(&origin("a#1")).map(|retired| retired.mark), old_store, "{case}");
        assert_eq!(next.members()[&name("a")].mark, of_a, "{case}");
        assert_eq!(next.members()[&name("c")], view.members()[&name("c")], "{case}");
    }
    let target = Arc::new(draft(&lost, &[("b", SEALED)]));
    let reports = ["a", "b"].map(|region| (name(region), report(&lost, &target, region, 99))).into();
    let refused = refused(&lost, Change::Move { target, reports });
    assert_eq!(refused, Illegal::Standing(name("a")), "a lost region reports nothing");
}

#[test]
fn somebody_serves() {
    let view = lose(&lose(&first(), "a", 0), "b", 0);
    assert_eq!(refused(&view, Change::Lose { region: name("c"), frontier: 0 }), Illegal::NobodyServes);
    let standings = BTreeMap::from([(name("c"), SEALED)]);
    assert_eq!(view.draft(abc(), BTreeMap::new(), &standings).unwrap_err(), Illegal::NobodyServes);
}

#[test]
fn a_loss_may_leave_nobody_who_serves_where_somebody_comes_home() {
    let view = seal(&lose(&lose(&first(), "a", 0), "b", 0), "b", 1);
    let nobody = next(&view, Change::Lose { region: name("c"), frontier: 0 });
    assert_eq!(nobody.serving().count(), 0);
    assert!(matches!(nobody.standing(&name("b")), Some(Standing::Sealed { drained: false })));
    // A move must leave a serving region, always.
    assert_eq!(on_ring(&nobody, abc()).unwrap_err(), Illegal::NobodyServes);
}

#[test]
fn drafts_leave_lost_regions_lost_and_keep_seed_and_rule() {
    let view = lose(&first(), "a", 0);
    let wants = |region: &str, standing| {
        view.draft(abc(), BTreeMap::new(), &BTreeMap::from([(name(region), standing)]))
    };
    let lost = Standing::Lost { at: 2, gap: false };
    assert_eq!(wants("a", Standing::Serving).unwrap_err(), Illegal::Standing(name("a")));
    assert_eq!(wants("a", SEALED).unwrap_err(), Illegal::Standing(name("a")));
    assert_eq!(wants("b", lost).unwrap_err(), Illegal::Standing(name("b")));
    assert_eq!(wants("x", SEALED).unwrap_err(), Illegal::Standing(name("x")));
    assert!(wants("a", lost).is_ok(), "as it is");
    let spec = abc().spec();
    for other in [RingSpec { seed: 8, ..spec.clone() }, RingSpec { place_by: PlaceBy::Tenant, ..spec }] {
        let ring = Arc::new(Ring::build(&other).unwrap());
        assert_eq!(on_ring(&view, ring).unwrap_err(), Illegal::Placement);
    }
    let without_b = on_ring(&view, ring(&["a", "c"], &[]));
    assert_eq!(without_b.unwrap_err(), Illegal::Standing(name("b")), "b serves: it is drained first");
}

#[test]
fn a_lost_region_returns_sealed_and_then_serves() {
    let lost = lose(&first(), "a", 4);
    let back = seal(&lost, "a", 9);
    let member = back.members()[&name("a")];
    assert_eq!((member.standing, member.mark), (Standing::Sealed { drained: false }, 9));
    assert_eq!(resumed(&back, "a", 2).standing(&name("a")), Some(Standing::Serving));
    let change = |region: &str, generation| Change::Seal { region: name(region), generation, seal: 9 };
    assert_eq!(refused(&lost, change("a", 2)), Illegal::Generation(name("a")));
    assert_eq!(refused(&lost, change("b", 1)), Illegal::Standing(name("b")));
    assert_eq!(refused(&back, change("a", 1)), Illegal::Standing(name("a")));
}

#[test]
fn a_replaced_store_begins_anew_and_its_old_rows_count_on() {
    let change = || Change::Rebuild { region: name("a") };
    assert_eq!(refused(&first(), change()), Illegal::Standing(name("a")), "it serves");
    let rebuilt = |view: &View| {
        let rebuilt = view.next(&change()).unwrap();
        let member = rebuilt.members()[&name("a")];
        assert_eq!((member.generation, member.mark, member.release), (2, 0, None));
        (member.standing, rebuilt)
    };
    let (standing, lost) = rebuilt(&lose(&first(), "a", 4));
    assert_eq!(standing, Standing::Sealed { drained: false });
    assert_eq!(lost.retired, [(origin("a#1"), Retired { mark: 4, lost: Some(2) })].into());
    assert_eq!(lost.losses().collect::<Vec<_>>(), [(origin("a#1"), 2)]);
    let (standing, sealed) = rebuilt(&drained(&first(), "a", 7));
    assert_eq!(standing, Standing::Sealed { drained: true }, "it stays out until somebody asks for it");
    assert_eq!(sealed.retired, [(origin("a#1"), Retired { mark: 7, lost: None })].into());
    assert_eq!(sealed.losses().count(), 0);
}

#[test]
fn a_newcomer_that_the_ring_gives_nothing_counts_as_drained() {
    for (weight, drained) in [(0, true), (1, false)] {
        let mut spec = spec(&["a", "b", "c", "d"], &[]);
        spec.regions[3].weight = weight;
        let ring = Arc::new(Ring::build(&spec).unwrap());
        let view = on_ring(&first(), ring).unwrap();
        assert_eq!(view.standing(&name("d")), Some(Standing::Sealed { drained }));
    }
}

#[test]
fn voters_change_one_at_a_time() {
    let view = first();
    let change = |ids: &[(&str, u128)]| view.next(&Change::Voters(voters(ids)));
    for good in [
        &[("a", 1), ("b", 2)][..],
        &[("a", 1), ("b", 2), ("c", 3), ("d", 4)],
        &[("a", 1), ("b", 2), ("c", 33)],
    ] {
        let next = change(good).unwrap();
        assert_eq!((next.voters(), &next.voters_before), (&voters(good), view.voters()));
        let after = next.next(&Change::Kill).unwrap();
        assert_eq!(&after.voters_before, next.voters());
    }
    for bad in [&[("a", 1), ("b", 2), ("c", 3)][..], &[("a", 1)], &[("a", 1), ("b", 2), ("d", 4)], &[]] {
        assert_eq!(change(bad).unwrap_err(), Illegal::Voters);
    }
    let alone = Change::Voters(voters(&[("a", 1)]));
    let last = change(&[("a", 1), ("b", 2)]).unwrap().next(&alone).unwrap();
    assert_eq!(last.next(&Change::Voters(BTreeMap::new())).unwrap_err(), Illegal::Voters);
    let moved = moved(&last, draft(&last, &[("a", SEALED)]), &[("a", 1)]);
    assert_eq!(&moved.voters_before, last.voters(), "by a move, too");
}

fn force(stopped: &[(&str, u64)], anew: Option<(RegionName, AcceptorId)>, drawn: u64) -> Change {
    let stopped = stopped.iter().map(|(region, frontier)| (name(region), *frontier)).collect();
    Change::Force { stopped, anew, drawn }
}

#[test]
fn a_region_attested_as_stopped_loses_its_vote() {
    let view = first();
    let two = [("b", 7), ("c", 0)];
    let next = view.next(&force(&two, None, 5)).unwrap();
    let later = view.next(&force(&two, None, 3 * STRIDE + 6)).unwrap();
    assert_eq!((next.epoch(), later.epoch()), (STRIDE + 7, STRIDE + 8), "never twice as far");
    assert_eq!(next.voters().keys().collect::<Vec<_>>(), [&name("a")]);
    assert_eq!(&next.voters_before, next.voters(), "there is no majority of the others to ask");
    for (region, frontier) in [("b", 7), ("c", 0)] {
        let member = next.members()[&name(region)];
        assert!(matches!(member.standing, Standing::Lost { at, gap: false } if at == next.epoch()));
        assert_eq!(member.mark, frontier);
    }
    let all = [("a", 0), ("b", 0), ("c", 0)];
    assert!(view.next(&force(&all, None, 0)).is_err(), "somebody is left");
    let b_went_first = lose(&view, "b", 7);
    let left = b_went_first.next(&force(&[("a", 3), ("c", 0)], None, 0)).unwrap();
    assert_eq!((left.serving().count(), left.lost().count()), (0, 3), "b seals, and comes home");
    let anew = |region: &str, id| Some((name(region), AcceptorId(id)));
    let alone = view.next(&force(&two, anew("a", 9), 0)).unwrap();
    assert_eq!(*alone.voters(), [(name("a"), AcceptorId(9))].into());
    assert_eq!(&alone.voters_before, alone.voters());
    for (stopped, id, why) in [
        (&two[..1], 9, "c remembers what was promised"),
        (&two[..], 1, "its own acceptor is the one that votes"),
    ] {
        assert_eq!(view.next(&force(stopped, anew("a", id), 0)).unwrap_err(), Illegal::Voters, "{why}");
    }
}

#[test]
fn a_forced_view_leaves_a_region_that_the_ring_gives_keys() {
    let [a_b, a_b_c] = [&[("a", 0), ("b", 0)][..], &[("a", 0), ("b", 0), ("c", 0)]];
    // A witness votes, and serves nothing.
    let all = voters(&[("a", 1), ("b", 2), ("c", 3), ("w", 4)]);
    let view = View::founding(1, abc(), BTreeMap::new(), all);
    assert_eq!(refused(&view, force(a_b_c, None, 0)), Illegal::NobodyServes);
    assert!(view.next(&force(a_b, None, 0)).is_ok());
    let mut spec = spec(&["a", "b", "c"], &[]);
    spec.regions[2].weight = 0;
    let ring = Arc::new(Ring::build(&spec).unwrap());
    let view = View::founding(1, ring, BTreeMap::new(), voters(&[("a", 1), ("b", 2), ("c", 3)]));
    assert_eq!(refused(&view, force(a_b, None, 0)), Illegal::NobodyServes, "c owns nothing");
}

#[test]
fn version_and_longest_life_only_grow_and_stay_through_all_other_changes() {
    let [hour, day] = [3_600, 86_400].map(|seconds| Retention::For(Duration::from_secs(seconds)));
    let one = View::from_content(Content { protocol: 1, longest_life: hour, ..first().content() });
    assert!(one.allows(hour) && !one.allows(day) && !one.allows(Retention::Never));
    let two = next(&next(&one, Change::Protocol(2)), Change::Life(day));
    let last = next(&two, Change::Kill);
    assert_eq!((last.protocol(), last.longest_life, last.epoch()), (2, day, one.epoch() + 3));
    assert!(one.members().keys().all(|region| !one.loses(&two, region)), "no key moves");
    for back in [1, 2] {
        assert_eq!(two.next(&Change::Protocol(back)), Err(Illegal::Protocol(2)));
    }
    for shorter in [hour, day] {
        assert_eq!(two.next(&Change::Life(shorter)), Err(Illegal::Life));
    }
    assert!(two.next(&Change::Life(Retention::Never)).unwrap().allows(Retention::Never));
}
