//! Tests of the holder's side of a lease, row by row (docs/protocol.md#rule-23).

use super::super::change::Change;
use super::super::examples::{at, first, name, next, voters};
use super::super::view::AcceptorId;
use super::*;

const DRIFT: Drift = Drift { ppm: 10_000, margin: Duration::from_millis(10) };
const TTL: Duration = Duration::from_secs(1);
/// `TTL · (1 − eps) − δ`.
const GOOD: u64 = 980;
/// `TTL · (1 + eps) + δ`, and drift and margin again, up to the next millisecond.
const QUIET: u64 = 1_041;

/// Asks for a lease at `ms`, and lets `by` grant it at `then`.
fn granted(lease: &mut Lease, ms: u64, by: &[&str], then: u64) -> Renewal {
    lease.asks(Arc::new(first()), boot(), at(ms));
    heard(lease, ms, by, then)
}

fn heard(lease: &mut Lease, ms: u64, by: &[&str], then: u64) -> Renewal {
    by.iter().map(|from| lease.heard(&name(from), &Reply::Granted(1), at(ms), at(then))).last().unwrap()
}

fn boot() -> Digest32 {
    Digest32::new([1; 32])
}

fn lease() -> Lease {
    Lease::new(TTL, DRIFT)
}

#[test]
pub fn a_majority_lease_counts_from_before_its_request() {
    let mut lease = lease();
    assert!(lease.held(at(0)).is_none());
    assert_eq!(granted(&mut lease, 100, &["a"], 200), Renewal::Open);
    assert!(lease.held(at(200)).is_none());
    assert_eq!(heard(&mut lease, 100, &["a"], 210), Renewal::Open, "one voter twice is one voter");
    assert_eq!(heard(&mut lease, 100, &["c"], 900), Renewal::Renewed);
    assert_eq!(lease.held(at(900)).unwrap().until, at(100 + GOOD), "not from when the reply came");
    assert!(lease.held(at(100 + GOOD - 1)).is_some());
    assert!(lease.held(at(100 + GOOD)).is_none());
}

#[test]
fn grants_count_if_they_come_in_time_and_from_voters() {
    let mut lease = lease();
    assert_eq!(granted(&mut lease, 100, &["a", "b"], 100 + GOOD), Renewal::Open, "too late");
    assert_eq!(granted(&mut lease, 2_000, &["a", "x"], 2_001), Renewal::Open, "x has no vote");
    assert!(lease.current().is_none());
    let two = Arc::new(next(&first(), Change::Voters(voters(&[("a", 1), ("b", 2)]))));
    lease.asks(two, boot(), at(2_010));
    let renewal = heard(&mut lease, 2_010, &["a", "c"], 2_011);
    assert_eq!(renewal, Renewal::Open, "the majority is of the view that it is granted under");
    assert_eq!(heard(&mut lease, 2_010, &["b"], 2_012), Renewal::Renewed);
    granted(&mut lease, 2_300, &["a", "b"], 2_310);
    assert_eq!(lease.held(at(2_400)).unwrap().until, at(2_300 + GOOD), "prolonged");
    assert_eq!(lease.tenure(), Tenure(1), "in one tenure");
}

#[test]
fn two_renewals_at_one_moment_count_for_nothing() {
    let mut lease = lease();
    lease.asks(Arc::new(first()), boot(), at(5));
    let two = Arc::new(next(&first(), Change::Kill));
    lease.asks(two, boot(), at(5));
    assert_eq!(heard(&mut lease, 5, &["a", "b"], 6), Renewal::Open, "granted under the first, perhaps");
    lease.asks(Arc::new(first()), boot(), at(6));
    assert_eq!(granted(&mut lease, 7, &["a", "b"], 8), Renewal::Renewed);
    assert_eq!(heard(&mut lease, 6, &["a", "b"], 9), Renewal::Open, "a reply to an older renewal");
}

#[test]
pub fn a_lapse_ends_the_tenure_and_is_followed_by_quiet() {
    let mut lease = lease();
    granted(&mut lease, 0, &["a", "b"], 1);
    lease.asks(Arc::new(first()), boot(), at(900));
    assert!(!lease.may_ask(at(GOOD)));
    assert_eq!(lease.tenure(), Tenure(2));
    let renewal = heard(&mut lease, 900, &["a", "b"], GOOD);
    assert_eq!(renewal, Renewal::Open, "asked for in the tenure that is over");
    assert!(lease.held(at(GOOD)).is_none());
    let too_early = !lease.may_ask(at(GOOD + QUIET - 1));
    assert!(too_early, "a minority's grants must run out first (docs/protocol.md#rule-23)");
    let over = at(GOOD) + DRIFT.judge(DRIFT.judge(TTL));
    assert!(lease.clone().may_ask(over), "to the nanosecond");
    assert!(lease.may_ask(at(GOOD + QUIET)));
    granted(&mut lease, GOOD + QUIET, &["a", "b"], GOOD + QUIET + 1);
    assert_eq!(lease.tenure(), Tenure(2));
}

#[test]
pub fn a_reply_cannot_bring_a_lapsed_lease_back_unnoticed() {
    // Nothing looked while it lapsed, and the late reply finds it over. A handler from before must
    // not send (docs/protocol.md#rule-9).
    let mut lease = lease();
    granted(&mut lease, 0, &["a", "b"], 1);
    lease.asks(Arc::new(first()), boot(), at(700));
    assert_eq!(heard(&mut lease, 700, &["a", "b"], GOOD + 100), Renewal::Open);
    assert_eq!(lease.tenure(), Tenure(2));
    assert!(lease.current().is_none());
}

#[test]
fn a_region_that_asks_in_vain_pauses_at_times() {
    // One acceptor grants to a region that reaches no other. If the region went on asking, that
    // acceptor could never accept a successor (docs/protocol.md#rule-23).
    let mut lease = lease();
    for ms in [0, 300, 600, 900] {
        assert!(lease.may_ask(at(ms)));
        assert_eq!(granted(&mut lease, ms, &["a"], ms + 1), Renewal::Open);
    }
    assert!(!lease.may_ask(at(1_000)));
    assert!(!lease.may_ask(at(1_000 + QUIET - 1)));
    assert!(lease.may_ask(at(1_000 + QUIET)));
    assert_eq!(lease.tenure(), Tenure(1), "there was no tenure to end");
    assert_eq!(granted(&mut lease, 3_000, &["a", "b"], 3_001), Renewal::Renewed);
}

#[test]
fn newer_ends_the_asking_and_not_the_lease() {
    let mut lease = lease();
    granted(&mut lease, 0, &["a", "b"], 1);
    lease.asks(Arc::new(first()), boot(), at(300));
    assert_eq!(lease.heard(&name("c"), &Reply::Newer, at(300), at(301)), Renewal::Newer);
    assert_eq!(heard(&mut lease, 300, &["a", "b"], 302), Renewal::Open);
    assert_eq!(lease.held(at(302)).unwrap().until, at(GOOD));
    assert!(lease.may_ask(at(303)), "for the newer view, once it is adopted");
    lease.wait_for_newer(at(303));
    assert!(!lease.may_ask(at(304)));
    assert!(lease.held(at(304)).is_some());
}

#[test]
fn other_replies_decide_nothing() {
    let mut lease = lease();
    lease.asks(Arc::new(first()), boot(), at(0));
    let view = Arc::new(first());
    let ballot = super::super::examples::ballot(1, "a");
    let accepted = super::super::register::Accepted { ballot: ballot.clone(), view };
    for reply in [
        Reply::NotAdmitted,
        Reply::NotFounded(AcceptorId(1)),
        Reply::OtherAcceptor(AcceptorId(1)),
        Reply::NotGranted("other boot"),
        Reply::Blocked(name("a")),
        Reply::Accepted,
        Reply::Outbid(ballot),
        Reply::Promised(accepted),
    ] {
        assert_eq!(lease.heard(&name("a"), &reply, at(0), at(1)), Renewal::Open);
    }
    assert_eq!(heard(&mut lease, 0, &["b"], 2), Renewal::Open);
}

#[test]
fn giving_up_ends_the_tenure_at_once() {
    let mut lease = lease();
    lease.asks(Arc::new(first()), boot(), at(0));
    lease.give_up(at(0));
    assert_eq!(lease.tenure(), Tenure(1), "nothing was held");
    assert_eq!(heard(&mut lease, 0, &["a", "b"], 1), Renewal::Open, "what was asked for before is given up");
    let mut lease = self::lease();
    granted(&mut lease, 0, &["a", "b"], 1);
    lease.give_up(at(2));
    assert!(lease.held(at(2)).is_none());
    assert_eq!(lease.tenure(), Tenure(2));
    assert!(!lease.may_ask(at(3)));
    lease.lost_keys();
    assert_eq!(lease.tenure(), Tenure(3), "so does a view that takes keys");
}

/// A drain laid the lease down. The return must not wait for grants that no longer matter.
#[test]
fn a_released_lease_is_requested_again_at_once() {
    let mut lease = lease();
    assert_eq!(granted(&mut lease, 0, &["a", "b"], 1), Renewal::Renewed);
    lease.lay_down();
    assert!(lease.held(at(2)).is_none() && lease.tenure() > Tenure(1));
    assert!(lease.may_ask(at(3)));
    assert_eq!(granted(&mut lease, 3, &["a", "b"], 4), Renewal::Renewed);
    // A renewal that was on its way then gives nothing back, and was not asked for in vain.
    let mut lease = self::lease();
    lease.asks(Arc::new(first()), boot(), at(0));
    lease.lay_down();
    assert_eq!(heard(&mut lease, 0, &["a", "b"], 1), Renewal::Open);
    assert!(lease.current().is_none() && lease.may_ask(at(1_000)));
    // One that lapsed is quiet.
    assert_eq!(granted(&mut lease, 3, &["a", "b"], 4), Renewal::Renewed);
    assert!(lease.held(at(3 + GOOD)).is_none());
    assert!(!lease.may_ask(at(4 + GOOD)));
}

/// A refusal grants nothing that could block a successor, so the voters are asked again and again.
#[test]
fn a_region_refused_by_a_majority_keeps_asking() {
    let mut lease = lease();
    let no = Reply::NotGranted("another start holds it");
    for ms in (0..3_000).step_by(100) {
        assert!(lease.may_ask(at(ms)), "{ms}");
        lease.asks(Arc::new(first()), boot(), at(ms));
        assert_eq!(lease.heard(&name("b"), &no, at(ms), at(ms)), Renewal::Open);
        assert_eq!(lease.heard(&name("b"), &no, at(ms), at(ms)), Renewal::Open, "one voter twice");
        assert_eq!(lease.heard(&name("c"), &no, at(ms), at(ms)), Renewal::Refused);
        assert_eq!(lease.waits(at(ms)), Waits::Earlier);
    }
    assert_eq!(granted(&mut lease, 3_000, &["a", "b"], 3_001), Renewal::Renewed);
    assert!(lease.held(at(3_000 + GOOD)).is_none());
    let quiet = Duration::from_millis(QUIET - 1)..=Duration::from_millis(QUIET);
    assert!(matches!(lease.waits(at(3_000 + GOOD)), Waits::Quiet(left) if quiet.contains(&left)));
    assert_eq!(lease.waits(at(3_000 + GOOD + QUIET)), Waits::Replies);
}

/// Acceptors grant the next start once nobody relies on the one before: it must be so.
#[test]
fn a_new_start_gives_up_the_previous_lease() {
    let mut lease = lease();
    granted(&mut lease, 0, &["a", "b"], 1);
    lease.asks(Arc::new(first()), Digest32::new([2; 32]), at(10));
    assert!(lease.current().is_none());
    assert_eq!(lease.tenure(), Tenure(2));
    assert_eq!(heard(&mut lease, 10, &["a", "b"], 11), Renewal::Renewed);
    assert_eq!(lease.tenure(), Tenure(2));
}

#[test]
fn a_half_agreed_view_is_read_before_new_requests() {
    let mut lease = lease();
    assert_eq!(granted(&mut lease, 0, &["b"], 1), Renewal::Open);
    lease.wait_for_newer(at(10));
    assert!(!lease.may_ask(at(10 + QUIET - 1)), "the first time its grants have to run out");
    assert!(lease.may_ask(at(10 + QUIET)) && lease.reads_first());
    lease.wait_for_newer(at(10 + QUIET));
    assert!(lease.may_ask(at(10 + QUIET)) && lease.reads_first(), "then it asks for nothing");
    lease.asks(Arc::new(first()), boot(), at(10 + QUIET));
    assert!(!lease.reads_first(), "it was given up");
}

#[test]
fn a_handler_that_slept_past_its_window_must_not_send() {
    let drift = Drift { ppm: 1_000, margin: Duration::from_millis(90) };
    let asked = Moment::from_nanos(1_000);
    let by = SendBy::new(asked, Duration::from_secs(10), Duration::from_secs(5), drift);
    assert!(by.allows(asked));
    assert!(by.allows(asked + Duration::from_millis(4_899)));
    assert!(!by.allows(asked + Duration::from_millis(4_900)));
    let short = SendBy::new(asked, Duration::from_secs(5), Duration::from_secs(5), drift);
    assert!(!short.allows(asked), "a hold no longer than the upstream's time allows nothing");
}
