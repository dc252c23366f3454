//! Forged leases: each sender has a running lease that a majority granted. And forged gates, under
//! which claims, lodgments and openings pass or fail.

use std::ops::Range;

use super::*;

/// This acceptor grants the region a lease for this range, in milliseconds.
pub(super) fn grant(region: &str, runs: Range<u64>, by: u128, view: &Arc<View>) -> Granted {
    let (at, until) = (ms(runs.start), ms(runs.end));
    Granted { at, id: AcceptorId(by), region: name(region), until, view: view.clone() }
}

pub(super) fn granted(region: &str, runs: Range<u64>, by: &[u128], view: &Arc<View>) -> News {
    let granted = by.iter().map(|id| grant(region, runs.clone(), *id, view)).collect();
    News { granted, ..News::default() }
}

/// A founded deployment without leases other than these grants, and a's claim that is sent at 100
/// ms.
fn sends_under(grants: impl IntoIterator<Item = News>) -> Vec<Invariant> {
    let mut founded = founded();
    founded.iter_mut().for_each(|news| news.granted.clear());
    let id = key(&first());
    let claimed = writes(1, "a", [claim(50, &id, token(1, 1))]);
    judged(founded.into_iter().chain(grants).chain([claimed, arrives([sent(100, "a", &id, token(1, 1))])]))
}

#[test]
fn a_send_needs_the_grants_of_a_majority() {
    let view = first();
    let broken = [Invariant::GrantedWhenSent];
    assert_eq!(sends_under([granted("a", 10..101, &[1, 3], &view)]), []);
    let early = || granted("a", 10..90, &[1, 3], &view);
    assert_eq!(sends_under([early(), granted("a", 80..200, &[2, 3], &view)]), []);
    assert_eq!(sends_under([]), broken);
    assert_eq!(sends_under([granted("b", 10..200, &[1, 2, 3], &view)]), broken, "another region's");
    assert_eq!(sends_under([granted("a", 10..200, &[1], &view)]), broken, "one of three");
    assert_eq!(sends_under([granted("a", 10..100, &[1, 3], &view)]), broken, "over");
    assert_eq!(sends_under([granted("a", 101..200, &[1, 3], &view)]), broken, "not yet");
    let by_one = granted("a", 80..200, &[2], &view);
    assert_eq!(sends_under([early(), by_one]), broken, "the one is over, and the other by one");
    assert_eq!(sends_under([granted("a", 10..200, &[1, 7], &view)]), broken, "who votes no more");
}

#[test]
fn voters_are_those_of_the_view_that_was_granted_under() {
    let one = first();
    let two = changed(&one, |content| {
        content.epoch = 2;
        content.voters.insert(name("c"), AcceptorId(7));
    });
    assert_eq!(sends_under([granted("a", 10..200, &[1, 7], &two)]), []);
    assert_eq!(sends_under([granted("a", 10..200, &[1, 3], &two)]), [Invariant::GrantedWhenSent]);
}

#[test]
fn a_sleeper_never_sends_a_key_that_moved_meanwhile() {
    let one = first();
    let id = key(&one);
    let sealed = onceway::protocol::view::Standing::Sealed { drained: true };
    let away = with_member(&one, 2, "a", |member| member.standing = sealed);
    let back = with_member(&one, 3, "a", |_| {});
    let history = |claimed: u64| {
        let adopts =
            |at, view: &Arc<View>| gated(at, GateState::founded(view.clone()), &[("b", 9), ("c", 9)]);
        after_founding([
            majority_accepts(2, &away),
            majority_accepts(3, &back),
            gates(1, "a", [adopts(20, &away), adopts(30, &back)]),
            writes(1, "a", [claim(claimed, &id, token(1, 1))]),
            arrives([sent(40, "a", &id, token(1, 1))]),
        ])
    };
    assert_eq!(history(35), []);
    assert_eq!(history(10), [Invariant::OneSender]);
}

#[test]
fn a_lease_covers_what_was_the_regions_when_it_was_granted() {
    let one = first();
    let id = key(&one);
    let without_a = lost(&one, "a");
    let adopts = gated(5, GateState::founded(one.clone()).adopt(without_a.clone()).open(), &[("a", 5)]);
    let sends = |under: &Arc<View>| {
        let all = after_founding([
            majority_accepts(2, &without_a),
            gates(2, "b", [adopts.clone()]),
            granted("b", 6..200, &[2, 3], under),
            writes(2, "b", [claim(10, &id, token(2, 1))]),
            arrives([sent(20, "b", &id, token(2, 1))]),
        ]);
        all.contains(&Invariant::GrantedWhenSent)
    };
    assert!(!sends(&without_a));
    assert!(sends(&one), "it was a's key then");
}

#[test]
fn a_new_voter_stays_silent_for_one_lease() {
    let one = lasting(&first(), ms(100));
    let mut voters = one.voters().clone();
    voters.insert(name("c"), AcceptorId(7));
    let two = after(&one, &Change::Voters(voters));
    let vote = |id: u128, view: &Arc<View>| Held { at: ms(50), ..held(id, 2, Some((2, view))) };
    let grants = |at: u64, id: u128| {
        let votes = [1, 2].map(|id| (Voter::Store(id), vec![vote(id.into(), &two)]));
        let votes = News { votes: votes.into(), ..News::default() };
        after_founding([votes, granted("a", at..at + 100, &[id], &two)])
    };
    assert_eq!(grants(150, 7), []);
    assert_eq!(grants(149, 7), [Invariant::SilentAtFirst]);
    assert_eq!(grants(60, 1), [], "it has voted since the founding");
}

#[test]
fn no_grant_is_longer_than_its_view_allows() {
    let view = lasting(&first(), ms(100));
    let granted = |until: u64| judged([majority_accepts(1, &view), granted("a", 10..until, &[1], &view)]);
    assert_eq!(granted(110), []);
    assert_eq!(granted(111), [Invariant::GrantsAgreed]);
}

fn lasting(view: &View, longest_lease: Duration) -> Arc<View> {
    changed(view, |content| content.longest_lease = longest_lease)
}

#[test]
fn an_older_views_grant_never_replaces_a_newer_one() {
    let one = first();
    let two = after(&one, &Change::Kill);
    let grants = |views: [&Arc<View>; 2], ids: [u128; 2]| {
        let grants = [(10, views[0], ids[0]), (20, views[1], ids[1])];
        // The founding granted no lease.
        let all = grants.map(|(at, view, id)| granted("a", at..at + 100, &[id], view));
        judged([majority_accepts(1, &one), majority_accepts(2, &two)].into_iter().chain(all))
    };
    assert_eq!(grants([&one, &two], [1, 1]), []);
    assert_eq!(grants([&two, &two], [1, 1]), []);
    assert_eq!(grants([&two, &one], [1, 2]), [], "another acceptor");
    assert_eq!(grants([&two, &one], [1, 1]), [Invariant::GrantsStay]);
}

#[test]
fn a_gate_opens_when_nothing_is_missing() {
    let one = first();
    let two = lost(&one, "c");
    let closed = GateState::founded(one).adopt(two.clone());
    let opens = |at: u64, applied: u64, waived: bool, lodged: &[&str]| {
        let waived = waived.then(|| (name("c"), 2)).into_iter().collect();
        let open = GateState { waived, ..closed.open() };
        let lodged = lodged.iter().map(|region| origin(region)).collect();
        let history = [gated(3, closed.clone(), &[]), Gated { lodged, ..gated(at, open, &[("c", applied)]) }];
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
