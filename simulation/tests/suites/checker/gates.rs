//! Forged gates, under which claims, lodgments and openings pass or fail.

use super::*;

#[test]
fn a_gate_opens_when_nothing_is_missing() {
    let one = first();
    let two = lost(&one, "c");
    let closed = GateState::founded(one).adopt(two.clone());
    let opens = |at: u64, applied: u64, waived: bool, lodged: &[&str]| {
        let waived = waived.then(|| (name("c"), 2)).into_iter().collect();
        let open = GateState { waived, ..closed.open() };
        let lodged = lodged.iter().map(|region| origin(region)).collect();
        let opened = Gated { lodged, ..gated(at, open, &[("c", applied)]) };
        let history = [gated(3, closed.clone(), &[]), opened];
        after_founding([majority_accepts(2, &two), gates(1, "a", history)])
    };
    assert_eq!(opens(4, 5, false, &[]), []);
    assert_eq!(opens(4, 4, true, &[]), []);
    assert_eq!(opens(4, 5, false, &["b"]), []);
    assert_eq!(opens(3, 5, true, &[]), []);
    let broken = [Invariant::OpenWhenCovered];
    assert_eq!(opens(4, 4, false, &[]), broken, "a mark is not applied");
    assert_eq!(opens(3, 5, false, &[]), broken, "no window");
    assert_eq!(opens(4, 5, false, &["c"]), broken, "lodged by the lost one");
    assert_eq!(opens(4, 5, true, &["c"]), broken, "an accepted risk is about what is not here");
}

#[test]
fn nothing_starts_with_a_view_that_follows_one_that_was_skipped() {
    let one = first();
    let two = after(&one, &Change::Kill);
    let three = after(&two, &Change::Kill);
    let adopts = |state: GateState| {
        let history = [gated(5, state, &[("b", 9), ("c", 9)])];
        after_founding([majority_accepts(2, &two), majority_accepts(3, &three), gates(1, "a", history)])
    };
    let state = GateState::founded(one.clone());
    assert_eq!(adopts(state.adopt(three.clone())), []);
    assert_eq!(adopts(state.adopt(two.clone()).adopt(three.clone()).open()), [Invariant::OpenWhenCovered]);
}

#[test]
fn a_claim_needs_an_open_gate() {
    let one = first();
    let id = key(&one);
    let without_a = lost(&one, "a");
    let giving_up = |at: u64| {
        let pending = Pending { target: without_a.clone(), seal: None };
        gates(1, "a", [gated(at, GateState::founded(one.clone()).give_up(Some(pending)), &[])])
    };
    let claims = || writes(1, "a", [claim(10, &id, token(1, 1))]);
    // Given up after the claim, or in the same moment.
    assert_eq!(after_founding([giving_up(15), claims()]), []);
    assert_eq!(after_founding([giving_up(10), claims()]), []);
    assert_eq!(after_founding([giving_up(5), claims()]), [Invariant::OpenWhenCovered]);
    // b never owned it, or gained it and has not caught up.
    let by_b = |epoch| writes(2, "b", [claim(10, &id, token(epoch, 1))]);
    assert_eq!(after_founding([by_b(1)]), [Invariant::OpenWhenCovered]);
    let gained = || gates(2, "b", [gated(5, GateState::founded(one.clone()).adopt(without_a.clone()), &[])]);
    let gained_by_b = |route: &str| {
        let claim = recorded(claim(10, &id, token(2, 1)), |record| record.route = route.into());
        after_founding([majority_accepts(2, &without_a), gained(), writes(2, "b", [claim])])
    };
    assert_eq!(gained_by_b("strict"), [], "a proof by escrow");
    assert_eq!(gained_by_b("park"), [Invariant::OpenWhenCovered]);
}

#[test]
fn a_claim_is_lodged_under_its_own_view() {
    let one = first();
    let id = key(&one);
    let without_a = lost(&one, "a");
    let adopts = || gates(2, "b", [gated(5, GateState::founded(one.clone()).adopt(without_a.clone()), &[])]);
    let lodged = |at: u64, region: &str, generation: u32| {
        let origin = Origin { generation, ..origin(region) };
        let lodgment = Lodgment { at: ms(at), id: id.clone(), origin, token: token(1, 1) };
        let at_b = StoreNews { lodged: vec![lodgment], ..of_store(2, "b") };
        after_founding([majority_accepts(2, &without_a), adopts(), stores([at_b])])
    };
    assert_eq!(lodged(5, "a", 1), []);
    assert_eq!(lodged(6, "a", 1), [Invariant::LodgedUnderItsView]);
    assert_eq!(lodged(5, "a", 2), [Invariant::LodgedUnderItsView], "of another store than the view's");
}

#[test]
fn a_tombstone_goes_after_what_it_hides() {
    let id = key(&first());
    let ends = |standing: Standing, beside_open: bool| {
        let claim = claim(1, &id, token(1, 1));
        let gone = Write { record: None, beside_open, ..write(3, &id, token(1, 1), standing) };
        after_founding([writes(1, "a", [claim, write(2, &id, token(1, 1), standing), gone])])
    };
    assert_eq!(ends(Standing::Tombstone, false), []);
    assert_eq!(ends(Standing::Released, true), [], "a released row hides nothing");
    assert_eq!(ends(Standing::Tombstone, true), [Invariant::FinalStays]);
}
