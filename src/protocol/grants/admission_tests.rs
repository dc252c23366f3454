//! Tests of the admission of an acceptor that became a voter.

use super::super::examples::{abc, at, name, voters};
use super::super::register::{Ballot, Message, Reply};
use super::super::view::{AcceptorId, Content};
use super::*;

const DRIFT: Drift = Drift { ppm: 1_000, margin: Duration::from_millis(50) };
const TTL: Duration = Duration::from_secs(10);

fn view(epoch: u64, voters: &[(&str, u128)]) -> Arc<View> {
    lasting(epoch, voters, TTL)
}

fn lasting(epoch: u64, voters: &[(&str, u128)], longest_lease: Duration) -> Arc<View> {
    let content = View::founding(epoch, abc(), Default::default(), self::voters(voters)).content();
    Arc::new(View::from_content(Content { longest_lease, ..content }))
}

#[test]
fn an_acceptor_that_became_a_voter_is_silent_for_one_lease() {
    let (made, me) = (Acceptor::made(AcceptorId(7)), name("w"));
    let (before, chosen) = (view(4, &[("w", 3)]), view(5, &[("w", 7)]));
    let mut admission = Admission::new(DRIFT);
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
    let (mut admission, chosen) = (Admission::new(DRIFT), lasting(5, &[("w", 7)], Duration::ZERO));
    assert_eq!(admission.due(&holding, &me, &chosen, at(0)), None);
    let kept = admission.due(&holding, &me, &chosen, at(50)).unwrap();
    assert_eq!((kept.accepted, kept.promised), (holding.accepted.clone(), holding.promised.clone()));
}
