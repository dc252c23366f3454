//! Tests of the acceptor, arrow by arrow (docs/protocol.md#rule-14), and of chosen views.
//!
//! The test says when a grant is over.

use super::super::change::Change;
use super::super::digest::digest;
use super::super::examples::{ballot, drained, first, lose, name, next, resumed, seal, voters};
use super::super::view::{Content, View};
use super::*;

const TTL: Duration = Duration::from_secs(3);

fn runs(_: &RegionName, _: &Grant) -> bool {
    false
}

fn over(_: &RegionName, _: &Grant) -> bool {
    true
}

fn boot(number: u8) -> Digest32 {
    digest("test", &[&[number]])
}

/// An acceptor that was there at the founding.
fn founded() -> Acceptor {
    after(&Acceptor::made(AcceptorId(1)), &found_by(0, "a", &first()), &runs)
}

/// The acceptor after a message that changes something.
fn after(acceptor: &Acceptor, message: &Message, over: Over<'_>) -> Acceptor {
    acceptor.answer(None, message, over).0.unwrap()
}

fn says(acceptor: &Acceptor, message: &Message, over: Over<'_>) -> Reply {
    acceptor.answer(None, message, over).1
}

fn accept(counter: u64, view: &View) -> Message {
    Message::Accept { ballot: ballot(counter, "b"), view: Arc::new(view.clone()) }
}

fn renew(region: &str, view: &View) -> Message {
    let (region, view) = (name(region), Arc::new(view.clone()));
    Message::Renew { region, boot: boot(1), holder: 1, starts: 1, view, ttl: TTL }
}

/// A gateway of region a asks for the lease of that start of its Postgres.
fn start(number: u8, holder: u64, view: &View) -> Message {
    let (boot, starts, view) = (boot(number), u32::from(number), Arc::new(view.clone()));
    Message::Renew { region: name("a"), boot, holder, starts, view, ttl: TTL }
}

fn found_by(counter: u64, region: &str, view: &View) -> Message {
    Message::Found { ballot: ballot(counter, region), view: Arc::new(view.clone()) }
}

fn force(counter: u64, view: &View) -> Message {
    Message::Force { ballot: ballot(counter, "a"), view: Arc::new(view.clone()) }
}

fn prepare(counter: u64) -> Message {
    Message::Prepare { ballot: ballot(counter, "b") }
}

#[test]
fn an_unfounded_acceptor_answers_only_a_founding() {
    let made = Acceptor::made(AcceptorId(1));
    for message in [Message::Read, prepare(1), accept(1, &first()), renew("a", &first())] {
        assert_eq!(made.answer(None, &message, &over), (None, Reply::NotFounded(AcceptorId(1))));
    }
    let (next, reply) = made.answer(None, &found_by(5, "a", &first()), &over);
    let next = next.unwrap();
    assert!(reply == Reply::Accepted && next.admitted);
    assert_eq!(next.promised, Some(ballot(0, "a")), "whatever was prepared is higher");
    // Only once, and not after a promise.
    let again = found_by(0, "a", &first());
    assert_eq!(next.answer(None, &again, &runs), (None, Reply::Accepted), "asked twice");
    for other in [found_by(0, "b", &first()), found_by(0, "a", &voted_by(&[("a", 1)]))] {
        assert!(matches!(next.answer(None, &other, &runs), (None, Reply::Holds { .. })));
    }
    let promised = Acceptor { promised: Some(ballot(4, "b")), ..made };
    assert_eq!(promised.answer(None, &again, &runs), (None, Reply::NotFounded(AcceptorId(1))));
}

#[test]
fn a_message_for_another_acceptor_of_that_name_is_not_answered() {
    let to = |id| founded().answer(Some(AcceptorId(id)), &prepare(9), &over);
    assert_eq!(to(2), (None, Reply::OtherAcceptor(AcceptorId(1))));
    assert!(matches!(to(1), (Some(_), Reply::Promised(_))));
}

#[test]
pub fn an_acceptor_that_may_have_forgotten_is_another_one() {
    let kept = after(&founded(), &prepare(9), &over);
    assert_eq!(kept.after_start(true, AcceptorId(2)), kept);
    assert_eq!(kept.after_start(false, AcceptorId(2)), Acceptor::made(AcceptorId(2)));
}

#[test]
pub fn a_new_voter_answers_nothing_but_readers_until_it_is_admitted() {
    let quiet = Acceptor { admitted: false, ..founded() };
    for message in [prepare(1), accept(1, &first()), renew("a", &first())] {
        assert_eq!(quiet.answer(None, &message, &over), (None, Reply::NotAdmitted));
    }
    assert!(matches!(says(&quiet, &Message::Read, &over), Reply::Holds { .. }));
}

/// A view with these voters only, as break-glass leaves one.
fn voted_by(ids: &[(&str, u128)]) -> View {
    View::from_content(Content { voters: voters(ids), ..first().content() })
}

/// A lone voter has to take others in again, and none is admitted before a view names it.
#[test]
fn a_new_voter_accepts_only_its_lone_voters_admission() {
    let lone = voted_by(&[("a", 1)]);
    let taken_in = next(&lone, Change::Voters(voters(&[("a", 1), ("b", 9)])));
    let made = Acceptor::made(AcceptorId(9));
    let (next_one, reply) = made.answer(Some(AcceptorId(9)), &accept(3, &taken_in), &over);
    assert_eq!(reply, Reply::Accepted);
    let accepted = next_one.unwrap();
    assert!(!accepted.admitted);
    for message in [prepare(4), renew("a", &taken_in)] {
        assert_eq!(accepted.answer(None, &message, &over), (None, Reply::NotAdmitted), "it is silent still");
    }
    let below = says(&accepted, &accept(2, &taken_in), &over);
    assert_eq!(below, Reply::Outbid(ballot(3, "b")), "it keeps its promise");
    for (before, after) in [
        // Beside two others it is one of a majority that could do without it.
        (&[("a", 1), ("c", 3)][..], &[("a", 1), ("b", 9), ("c", 3)][..]),
        // The lone voter is replaced: no acceptor remembers anything.
        (&[("a", 1)], &[("a", 9)]),
        // The view does not name it, or only it as the one before.
        (&[("a", 1)], &[("a", 1), ("b", 8)]),
        (&[("a", 9)], &[("a", 9), ("b", 2)]),
    ] {
        let view = next(&voted_by(before), Change::Voters(voters(after)));
        assert_eq!(made.answer(None, &accept(3, &view), &over), (None, Reply::NotFounded(AcceptorId(9))));
    }
}

#[test]
fn a_promise_grows_and_tells_what_was_accepted() {
    let acceptor = founded();
    let (next, reply) = acceptor.answer(None, &prepare(3), &runs);
    let next = next.unwrap();
    assert_eq!(reply, Reply::Promised(acceptor.accepted.clone().unwrap()));
    assert_eq!(next.promised, Some(ballot(3, "b")));
    for low in [2, 3] {
        assert_eq!(next.answer(None, &prepare(low), &runs), (None, Reply::Outbid(ballot(3, "b"))));
    }
    assert!(next.answer(None, &prepare(4), &runs).0.is_some());
}

#[test]
fn nothing_is_accepted_below_the_promise() {
    let promised = after(&founded(), &prepare(3), &runs);
    let view = next(&first(), Change::Kill);
    assert_eq!(promised.answer(None, &accept(2, &view), &runs), (None, Reply::Outbid(ballot(3, "b"))));
    let accepted = after(&promised, &accept(3, &view), &runs);
    assert_eq!(accepted.accepted.as_ref().map(|held| held.view.epoch()), Some(2));
    let higher = after(&founded(), &accept(4, &view), &runs);
    assert_eq!(higher.promised, Some(ballot(4, "b")), "an accept is a promise, too");
}

#[test]
fn a_lower_epoch_under_a_higher_ballot_is_accepted() {
    let view = first();
    let later = after(&founded(), &accept(3, &next(&view, Change::Kill)), &runs);
    let back = after(&later, &accept(4, &view), &runs);
    assert_eq!(back.accepted.unwrap().view.epoch(), 1);
    // Also while a lease of the later one runs: that was agreed on, so this one never is.
    let two = drained(&view, "a", 1);
    let three = resumed(&two, "a", 2);
    let granted = after(&after(&founded(), &accept(3, &three), &runs), &renew("a", &three), &runs);
    assert_eq!(says(&granted, &accept(4, &two), &runs), Reply::Accepted);
}

#[test]
pub fn a_running_grant_blocks_a_view_that_takes_keys_from_its_holder() {
    let view = first();
    let granted = after(&founded(), &renew("a", &view), &runs);
    let lost = accept(2, &lose(&view, "a", 0));
    assert_eq!(granted.answer(None, &lost, &runs), (None, Reply::Blocked(name("a"))));
    assert_eq!(says(&granted, &lost, &over), Reply::Accepted, "over");
    assert_eq!(says(&granted, &accept(2, &lose(&view, "b", 0)), &runs), Reply::Accepted, "a loses nothing");
    assert_eq!(says(&granted, &accept(2, &next(&view, Change::Kill)), &runs), Reply::Accepted);
    assert_eq!(says(&granted, &accept(2, &drained(&view, "a", 7)), &runs), Reply::Accepted, "a released it");
}

#[test]
pub fn a_release_of_before_opens_no_later_change() {
    // a gave up its keys for epoch 2, and is back by 3. Epoch 4 takes them by the old release.
    let view = first();
    let drained = drained(&view, "a", 7);
    let back = resumed(&drained, "a", 1);
    let granted = after(&founded(), &renew("a", &back), &runs);
    let again = lose(&back, "a", 9);
    assert_eq!(says(&granted, &accept(2, &again), &runs), Reply::Blocked(name("a")));
    // Drained, and one epoch further: the older grant is behind its release.
    let granted = after(&founded(), &renew("a", &view), &runs);
    let further = next(&drained, Change::Kill);
    assert!(further.members()[&name("a")].release.is_some());
    assert_eq!(says(&granted, &accept(2, &further), &runs), Reply::Blocked(name("a")));
}

#[test]
pub fn nothing_is_granted_below_what_was_accepted() {
    let view = first();
    let later = after(&founded(), &accept(2, &lose(&view, "b", 0)), &runs);
    assert_eq!(later.answer(None, &renew("a", &view), &runs), (None, Reply::Newer));
    assert_eq!(says(&later, &renew("a", &lose(&view, "b", 0)), &runs), Reply::Granted(1));
    let ahead = next(&lose(&view, "b", 0), Change::Kill);
    assert_eq!(says(&later, &renew("a", &ahead), &runs), Reply::Granted(1), "it has missed what was chosen");
    // Only a serving region holds a lease.
    for (region, view) in [("a", lose(&view, "a", 0)), ("a", drained(&view, "a", 1)), ("x", view)] {
        assert_eq!(says(&founded(), &renew(region, &view), &over), Reply::NotGranted(DOES_NOT_SERVE));
    }
}

#[test]
pub fn a_late_renewal_never_downgrades_a_grants_view() {
    // a gained keys by epoch 3 and holds its lease under it; its renewal of epoch 2 arrives now.
    // Epoch 4 takes the gained keys away. Had the late renewal counted, a would not seem to lose
    // anything, and two regions would start the same keys.
    let with_b_drained = drained(&first(), "b", 5);
    let gained = lose(&with_b_drained, "c", 0);
    let acceptor = after(&founded(), &renew("a", &gained), &runs);
    assert_eq!(acceptor.answer(None, &renew("a", &with_b_drained), &runs), (None, Reply::Newer));
    let taken = resumed(&seal(&gained, "c", 1), "c", 1);
    let unreleased = lose(&taken, "a", 0);
    assert_eq!(says(&acceptor, &accept(5, &unreleased), &runs), Reply::Blocked(name("a")));
}

#[test]
fn two_starts_of_a_regions_postgres_never_hold_together() {
    let acceptor = after(&founded(), &renew("a", &first()), &runs);
    let other = start(2, 2, &first());
    assert!(matches!(acceptor.answer(None, &other, &runs), (None, Reply::NotGranted(_))));
    let granted = says(&acceptor, &other, &over);
    assert_eq!(granted, Reply::Granted(2), "numbers go on, so that it is seen to be another");
    let rebuilt = next(&lose(&first(), "a", 0), Change::Rebuild { region: name("a") });
    let reborn = resumed(&rebuilt, "a", 1);
    let refused = matches!(says(&acceptor, &start(1, 2, &reborn), &runs), Reply::NotGranted(_));
    assert!(refused, "nor do two generations");
    assert_eq!(says(&acceptor, &start(1, 2, &reborn), &over), Reply::Granted(2));
}

/// The gateways that were granted the lease rely on nothing of the start before, once all of them
/// have asked for the next. Then there is nothing to wait for.
#[test]
fn a_new_start_waits_for_all_earlier_gateways() {
    let start = |number, holder| start(number, holder, &first());
    let alone = after(&founded(), &start(1, 1), &runs);
    let next = after(&alone, &start(2, 1), &runs);
    assert_eq!(next.grants[&name("a")].boot, boot(2), "it was the only one");
    let late = next.answer(None, &start(1, 1), &runs);
    assert_eq!(late, (None, Reply::NotGranted(HELD_BY_ANOTHER_START)), "a letter from before");
    let both = after(&alone, &start(1, 2), &runs);
    let (waiting, reply) = both.answer(None, &start(2, 1), &runs);
    assert_eq!(reply, Reply::NotGranted(HELD_BY_ANOTHER_START));
    let waiting = waiting.unwrap();
    assert_eq!(waiting.answer(None, &start(2, 1), &runs), (None, reply), "asked twice, it is one");
    assert_eq!(waiting.grants[&name("a")].boot, boot(1), "the second one holds it still");
    assert_eq!(says(&waiting, &start(2, 2), &runs), Reply::Granted(3), "the last one has come");
    let stopped = |_: &RegionName, grant: &Grant| grant.number == 2;
    assert_eq!(says(&waiting, &start(2, 1), &stopped), Reply::Granted(3), "the last one's time is over");
}

#[test]
fn a_shorter_lease_keeps_another_gateways_time() {
    let with = |acceptor: &Acceptor, ttl, over: Over<'_>| {
        let (region, view) = (name("a"), Arc::new(first()));
        let message = Message::Renew { region, boot: boot(1), holder: 1, starts: 1, view, ttl };
        after(acceptor, &message, over)
    };
    let acceptor = with(&founded(), TTL, &runs);
    let shorter = with(&acceptor, TTL / 3, &runs);
    assert_eq!(shorter.grants[&name("a")].ttl, TTL, "a gateway with the old settings runs on");
    assert_eq!(with(&shorter, TTL / 3, &over).grants[&name("a")].ttl, TTL / 3);
    assert_eq!(with(&acceptor, TTL * 2, &runs).grants[&name("a")].ttl, TTL * 2);
}

#[test]
fn readers_see_everything_and_change_nothing() {
    let acceptor = after(&after(&founded(), &renew("a", &first()), &runs), &prepare(3), &runs);
    let (next, reply) = acceptor.answer(None, &Message::Read, &runs);
    let running = BTreeSet::from([name("a")]);
    let accepted = acceptor.accepted.clone().unwrap();
    let expected = Reply::Holds { id: AcceptorId(1), promised: Some(ballot(3, "b")), accepted, running };
    assert_eq!((next, reply), (None, expected));
    let all_over = says(&acceptor, &Message::Read, &over);
    assert!(matches!(all_over, Reply::Holds { running, .. } if running.is_empty()));
}

#[test]
fn a_majority_is_more_than_half_and_of_the_right_acceptors() {
    assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
    let three = voters(&[("a", 1), ("b", 2), ("c", 3)]);
    assert!(agreed(&three, &voters(&[("a", 1), ("c", 3)])));
    assert!(!agreed(&three, &voters(&[("a", 1), ("x", 3), ("y", 4)])));
    assert!(!agreed(&three, &voters(&[("a", 1), ("c", 33)])), "c was made anew: another acceptor");
}

/// The epoch of the chosen view, if these acceptors report those views under those ballots.
fn found(reports: &[(&str, u128, u64, &View)]) -> Option<u64> {
    let read = |(text, id, counter, view): &(&str, u128, u64, &View)| {
        let accepted = Accepted { ballot: ballot(*counter, "b"), view: Arc::new((*view).clone()) };
        (name(text), AcceptorId(*id), accepted)
    };
    let reports: Vec<_> = reports.iter().map(read).collect();
    chosen(reports.iter().map(|(name, id, accepted)| (name, *id, accepted))).map(|held| held.view.epoch())
}

#[test]
fn a_majority_under_one_ballot_chooses_a_view() {
    let one = first();
    let two = next(&one, Change::Kill);
    assert_eq!(found(&[("a", 1, 1, &one), ("b", 2, 2, &two), ("c", 3, 2, &two)]), Some(2));
    assert_eq!(found(&[("a", 1, 1, &one), ("b", 2, 2, &two)]), None);
    let chosen = found(&[("a", 1, 2, &two), ("b", 2, 3, &two)]);
    assert_eq!(chosen, None, "one value under two ballots proves nothing");
    assert_eq!(found(&[("b", 2, 2, &two), ("c", 33, 2, &two)]), None, "c was made anew");
    assert_eq!(found(&[("x", 1, 2, &two), ("c", 3, 2, &two)]), None);
}

#[test]
pub fn both_voter_sets_must_choose_a_voter_change() {
    let one = first();
    let swapped = next(&one, Change::Voters(voters(&[("a", 1), ("b", 2), ("c", 33)])));
    let chosen = found(&[("a", 1, 2, &swapped), ("b", 2, 1, &one), ("c", 33, 2, &swapped)]);
    assert_eq!(chosen, None, "a alone of the old ones");
    assert_eq!(found(&[("a", 1, 2, &swapped), ("b", 2, 2, &swapped)]), Some(2));
    let of_before = [("b", 2, 2, &swapped), ("c", 3, 2, &swapped)];
    assert_eq!(found(&of_before), None, "b alone of the new ones");
    // Two changes further, a and a ghost of c are not enough for a reader of the first view.
    let third = next(&swapped, Change::Voters(voters(&[("a", 1), ("b", 22), ("c", 33)])));
    assert_eq!(found(&[("a", 1, 3, &third), ("c", 3, 3, &third), ("b", 22, 3, &third)]), None);
    let chosen = found(&[("a", 1, 3, &third), ("c", 33, 3, &third)]);
    assert_eq!(chosen, Some(3), "nor need it have seen c's admission");
}

/// The operator's word replaces a majority, not the acceptor's checks: a ballot below its promise,
/// an old view and a view of other voters are still refused.
#[test]
fn only_its_own_voters_accept_a_newer_forced_view() {
    let founded = founded();
    let stopped = [(name("b"), 7), (name("c"), 9)].into();
    let forced = next(&first(), Change::Force { stopped, anew: None, drawn: 0 });
    let (taken, reply) = founded.answer(None, &force(9, &forced), &runs);
    assert_eq!(reply, Reply::Accepted, "whatever leases run: that is what was attested");
    let taken = taken.unwrap();
    assert_eq!(taken.accepted.as_ref().unwrap().view, Arc::new(forced.clone()));
    let promised = after(&founded, &prepare(10), &over);
    assert!(matches!(says(&promised, &force(9, &forced), &over), Reply::Outbid(_)));
    assert!(matches!(says(&taken, &force(11, &forced), &over), Reply::NotGranted(_)), "not newer");
    let of = |counter| Acceptor { promised: Some(ballot(counter, "b")), ..self::founded() };
    assert_eq!(says(&of(u64::MAX), &force(9, &forced), &over), Reply::Accepted, "no ballot is above that");
    assert!(matches!(says(&of(LARGEST), &force(9, &forced), &over), Reply::Outbid(_)));
    let other = Acceptor { id: AcceptorId(2), ..founded };
    assert!(matches!(says(&other, &force(9, &forced), &over), Reply::NotGranted(_)), "no voter of it");
    let made = Acceptor::made(AcceptorId(1));
    let two = next(&first(), Change::Force { stopped: [(name("c"), 9)].into(), anew: None, drawn: 0 });
    assert_eq!(two.voters().len(), 2);
    assert_eq!(says(&made, &force(9, &two), &over), Reply::NotFounded(AcceptorId(1)), "others remember");
}

/// Every voter is stopped, and the acceptor of the remaining region was made anew. It takes the
/// view, and stays silent like any new voter.
#[test]
fn a_new_lone_acceptor_takes_a_forced_view_silently() {
    let made = Acceptor::made(AcceptorId(9));
    let stopped: BTreeMap<RegionName, u64> = [(name("b"), 7), (name("c"), 9)].into();
    let anew = Some((name("a"), made.id));
    let forced = next(&first(), Change::Force { stopped, anew, drawn: 0 });
    let (taken, reply) = made.answer(None, &force(9, &forced), &runs);
    assert_eq!(reply, Reply::Accepted);
    let taken = taken.unwrap();
    assert_eq!((taken.admitted, taken.accepted.as_ref().unwrap().view.epoch()), (false, forced.epoch()));
    assert_eq!(says(&taken, &prepare(10), &over), Reply::NotAdmitted, "it may have forgotten grants");
    assert!(matches!(says(&taken, &force(9, &forced), &over), Reply::NotGranted(_)), "once");
    let beside = next(&first(), Change::Voters(voters(&[("a", 9), ("b", 2), ("c", 3)])));
    let (one, two) = (voted_by(&[("a", 2)]), voted_by(&[("a", 9), ("b", 9)]));
    for others in [beside, one, two] {
        let reply = made.answer(None, &force(9, &others), &over);
        assert_eq!(reply, (None, Reply::NotFounded(made.id)), "not where others vote");
    }
}
