//! Forged leases: each sender has a running lease that a majority granted.

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
    let claimed = [claimed, arrives([sent(100, "a", &id, token(1, 1))])];
    judged(founded.into_iter().chain(grants).chain(claimed))
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

/// The view, with no lease longer than this agreed on.
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
