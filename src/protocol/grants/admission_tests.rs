//! Tests of the admission of an acceptor that became a voter, and of the end of a grant.
//!
//! This file must not know the register's other messages.

use super::super::register::{Ballot, Message, Reply};
use super::super::ring::{PlaceBy, RegionSpec, Ring, RingSpec};
use super::super::view::AcceptorId;
use super::*;

const DRIFT: Drift = Drift { ppm: 1_000, margin: Duration::from_millis(50) };
const TTL: Duration = Duration::from_secs(10);

fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn view(epoch: u64, voters: &[(&str, u128)]) -> Arc<View> {
    let regions = ["a", "b"].map(|region| RegionSpec { name: name(region), weight: 1 }).to_vec();
    let ring = Ring::build(&RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() });
    let voters = voters.iter().map(|(voter, id)| (name(voter), AcceptorId(*id))).collect();
    Arc::new(View::founding(epoch, Arc::new(ring.unwrap()), Default::default(), voters))
}

fn holding(number: u64) -> (Acceptor, Grant) {
    let grant = Grant {
        generation: 1,
        boot: Digest32::new([1; 32]),
        view: view(1, &[]),
        number,
        ttl: TTL,
        holders: BTreeMap::new(),
    };
    let grants = BTreeMap::from([(name("a"), grant.clone())]);
    (Acceptor { grants, ..Acceptor::made(AcceptorId(7)) }, grant)
}

#[test]
fn a_grant_is_over_once_its_number_was_seen_unchanged_for_long_enough() {
    let mut watch = GrantWatch::new(DRIFT);
    let (acceptor, grant) = holding(1);
    assert!(!watch.is_over(&name("a"), &grant, at(1_000_000)), "what was never seen is not over");
    watch.observe(&acceptor, at(1_000));
    watch.observe(&acceptor, at(5_000));
    assert!(!watch.is_over(&name("a"), &grant, at(11_059)));
    assert!(watch.is_over(&name("a"), &grant, at(11_060)));
    let (renewed, newer) = holding(2);
    assert!(!watch.is_over(&name("a"), &newer, at(1_000_000)));
    watch.observe(&renewed, at(11_000));
    assert!(!watch.is_over(&name("a"), &newer, at(21_059)));
    assert!(watch.is_over(&name("a"), &newer, at(21_060)));
    let empty = Acceptor::made(AcceptorId(7));
    watch.observe(&empty, at(22_000));
    watch.observe(&renewed, at(23_000));
    assert!(!watch.is_over(&name("a"), &newer, at(24_000)), "a break begins anew");
}

#[test]
fn an_acceptor_that_became_a_voter_is_silent_for_one_lease() {
    let (made, me) = (Acceptor::made(AcceptorId(7)), name("w"));
    let (before, chosen) = (view(4, &[("w", 3)]), view(5, &[("w", 7)]));
    let mut admission = Admission::new(DRIFT, TTL);
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
    let holding = Acceptor {
        admitted: false,
        ..admitted
            .answer(
                None,
                &Message::Accept { ballot: ballot.clone(), view: view(6, &[("w", 7)]) },
                &nothing_over,
            )
            .0
            .unwrap()
    };
    let mut admission = Admission::new(DRIFT, Duration::ZERO);
    assert_eq!(admission.due(&holding, &me, &chosen, at(0)), None);
    let kept = admission.due(&holding, &me, &chosen, at(50)).unwrap();
    assert_eq!((kept.accepted, kept.promised), (holding.accepted.clone(), holding.promised.clone()));
}
