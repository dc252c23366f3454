//! Tests of the end of a grant, which one process saw unchanged for long enough on its own clock,
//! and of the admission of a new voter (docs/protocol.md#rule-17, docs/protocol.md#rule-22).

use super::super::digest::digest;
use super::super::examples::{abc, at, first, name, voters};
use super::super::register::{Ballot, Message, Reply};
use super::super::view::Content;
use super::*;

const DRIFT: Drift = Drift { ppm: 1_000, margin: Duration::from_millis(10) };
const TTL: Duration = Duration::from_secs(1);

fn grant(boot: u8, number: u64) -> Grant {
    let boot = digest("test", &[&[boot]]);
    Grant { generation: 1, boot, view: Arc::new(first()), number, ttl: TTL, holders: BTreeMap::new() }
}

fn holding(grant: Grant) -> Acceptor {
    let mut acceptor = Acceptor::made(AcceptorId(1));
    acceptor.grants.insert(name("a"), grant);
    acceptor
}

#[test]
fn a_grant_ends_when_unchanged_for_lease_and_drift() {
    let mut watch = GrantWatch::new(DRIFT);
    let held = grant(1, 1);
    assert!(!watch.is_over(&name("a"), &held, at(99_999)), "never observed");
    watch.observe(&holding(held.clone()), at(100));
    watch.observe(&holding(held.clone()), at(700));
    assert!(!watch.is_over(&name("a"), &held, at(100 + 1_010)), "the drift is not over");
    assert!(watch.is_over(&name("a"), &held, at(100 + 1_011)), "since it was seen first");
    assert_eq!(watch.over_at(&name("a"), &held), Some(at(1_111)));
}

#[test]
fn a_renewal_begins_anew() {
    let mut watch = GrantWatch::new(DRIFT);
    watch.observe(&holding(grant(1, 1)), at(0));
    watch.observe(&holding(grant(1, 2)), at(900));
    assert!(!watch.is_over(&name("a"), &grant(1, 2), at(1_900)));
    assert!(watch.is_over(&name("a"), &grant(1, 2), at(1_911)));
    assert!(!watch.is_over(&name("a"), &grant(1, 1), at(9_999)), "not what was asked for");
    assert!(!watch.is_over(&name("a"), &grant(2, 2), at(9_999)), "another start of that Postgres");
    // So does one that the acceptor had dropped meanwhile.
    watch.observe(&Acceptor::made(AcceptorId(1)), at(10_000));
    watch.observe(&holding(grant(1, 2)), at(12_000));
    assert!(!watch.is_over(&name("a"), &grant(1, 2), at(12_001)));
}

#[test]
fn a_process_that_starts_has_seen_nothing() {
    let mut watch = GrantWatch::new(DRIFT);
    watch.observe(&holding(grant(1, 1)), at(0));
    let mut restarted = GrantWatch::new(DRIFT);
    assert!(watch.is_over(&name("a"), &grant(1, 1), at(2_000)));
    restarted.observe(&holding(grant(1, 1)), at(2_000));
    assert!(!restarted.is_over(&name("a"), &grant(1, 1), at(3_000)));
    assert!(restarted.is_over(&name("a"), &grant(1, 1), at(3_011)));
}

fn view(epoch: u64, voters: &[(&str, u128)]) -> Arc<View> {
    lasting(epoch, voters, Duration::from_secs(10))
}

fn lasting(epoch: u64, voters: &[(&str, u128)], longest_lease: Duration) -> Arc<View> {
    let content = View::founding(epoch, abc(), Default::default(), self::voters(voters)).content();
    Arc::new(View::from_content(Content { longest_lease, ..content }))
}

#[test]
fn an_acceptor_that_became_a_voter_is_silent_for_one_lease() {
    let drift = Drift { ppm: 1_000, margin: Duration::from_millis(50) };
    let (made, me) = (Acceptor::made(AcceptorId(7)), name("w"));
    let (before, chosen) = (view(4, &[("w", 3)]), view(5, &[("w", 7)]));
    let mut admission = Admission::new(drift);
    assert_eq!(admission.due(&made, &me, &before, at(0)), None);
    assert_eq!(admission.due(&made, &me, &chosen, at(100_000)), None);
    assert_eq!(admission.due(&made, &me, &chosen, at(110_059)), None);
    // The acceptor was no voter for a moment: the time counts from the next view that names it.
    assert_eq!(admission.due(&made, &me, &before, at(110_060)), None);
    assert_eq!(admission.due(&made, &me, &chosen, at(110_061)), None);
    assert_eq!(admission.due(&made, &me, &chosen, at(120_120)), None);
    let admitted = admission.due(&made, &me, &chosen, at(120_121)).unwrap();
    assert!(admitted.admitted);
    assert_eq!(admission.due(&admitted, &me, &chosen, at(500_000)), None);

    // The acceptor answers now, holds the view that made it a voter, and is behind every proposer.
    let ballot = Ballot { counter: 1, region: name("a"), proposer: 0 };
    let nothing_over = |_: &RegionName, _: &Grant| false;
    let (next, reply) = admitted.answer(None, &Message::Prepare { ballot: ballot.clone() }, &nothing_over);
    let Reply::Promised(accepted) = reply else { panic!("{reply:?}") };
    assert!(accepted.view == chosen && accepted.ballot < ballot);
    assert_eq!(next.unwrap().promised, Some(ballot.clone()));
    // An accepted view stays: it may be chosen.
    let accept = Message::Accept { ballot: ballot.clone(), view: view(6, &[("w", 7)]) };
    let accepted = admitted.answer(None, &accept, &nothing_over).0.unwrap();
    let holding = Acceptor { admitted: false, ..accepted };
    let (mut admission, chosen) = (Admission::new(drift), lasting(5, &[("w", 7)], Duration::ZERO));
    assert_eq!(admission.due(&holding, &me, &chosen, at(0)), None);
    let kept = admission.due(&holding, &me, &chosen, at(50)).unwrap();
    assert_eq!((kept.accepted, kept.promised), (holding.accepted.clone(), holding.promised.clone()));
}
