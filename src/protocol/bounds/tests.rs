//! Each bound on both of its sides.
//!
//! Numbers of peers must not panic here, however large.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::digest::Digest32;
use crate::examples::{abc, name};
use crate::register::Accepted;
use crate::view::{AcceptorId, Content, View};

const LEASE: Duration = Duration::from_secs(10);

fn ballot(counter: u64) -> Ballot {
    Ballot { counter, region: name("a"), proposer: 1 }
}

fn view_of_epoch(epoch: u64) -> View {
    let content = View::founding(epoch, abc(), BTreeMap::new(), BTreeMap::new()).content();
    View::from_content(Content { longest_lease: LEASE, ..content })
}

fn renew(epoch: u64, ttl: Duration) -> Message {
    let (boot, view) = (Digest32::new([0; 32]), Arc::new(view_of_epoch(epoch)));
    Message::Renew { region: name("a"), boot, holder: 1, starts: 1, view, ttl }
}

fn acceptor(promised: u64, epoch: u64) -> Acceptor {
    let accepted = Accepted { ballot: ballot(1), view: Arc::new(view_of_epoch(epoch)) };
    Acceptor { promised: Some(ballot(promised)), accepted: Some(accepted), ..Acceptor::made(AcceptorId(1)) }
}

fn known(counter: u64, epoch: u64) -> Known {
    Known { counter, epoch }
}

fn fits(promised: u64, message: &Message, known: &Known) -> bool {
    within(&acceptor(promised, 7), message, known).is_ok()
}

#[test]
fn a_ballot_is_bounded_by_the_known_promises() {
    let accept = |counter| Message::Accept { ballot: ballot(counter), view: Arc::new(view_of_epoch(8)) };
    let prepare = |counter| Message::Prepare { ballot: ballot(counter) };
    for message in [&prepare as &dyn Fn(u64) -> Message, &accept] {
        assert!(fits(5, &message(5 + AHEAD), &known(0, 0)));
        assert!(!fits(5, &message(6 + AHEAD), &known(0, 0)));
        assert!(fits(5, &message(6 + AHEAD), &known(6, 0)), "a majority is further");
        assert!(!fits(5, &message(u64::MAX), &known(0, 0)));
        assert!(!fits(u64::MAX, &message(u64::MAX), &known(u64::MAX, 0)));
    }
}

#[test]
fn an_epoch_is_at_most_a_leap_ahead() {
    let accept = |epoch| Message::Accept { ballot: ballot(6), view: Arc::new(view_of_epoch(epoch)) };
    let renew = |epoch| renew(epoch, LEASE);
    for message in [&accept as &dyn Fn(u64) -> Message, &renew] {
        assert!(fits(5, &message(7 + LEAP), &known(0, 0)));
        assert!(!fits(5, &message(8 + LEAP), &known(0, 0)));
        assert!(fits(5, &message(8 + LEAP), &known(0, 8)));
        assert!(!fits(5, &message(u64::MAX), &known(0, u64::MAX)));
    }
}

#[test]
fn a_lease_is_no_longer_than_was_agreed_on() {
    let renew = |ttl| renew(7, ttl);
    assert!(fits(5, &renew(LEASE), &known(0, 0)));
    assert!(!fits(5, &renew(LEASE + Duration::from_nanos(1)), &known(0, 0)));
    assert!(!fits(5, &renew(Duration::MAX), &known(0, 0)));
}

#[test]
fn force_may_leave_a_poisoned_register_and_leaves_room_above() {
    let force =
        |counter, epoch| Message::Force { ballot: ballot(counter), view: Arc::new(view_of_epoch(epoch)) };
    assert!(fits(5, &force(LARGEST, LARGEST), &known(0, 0)));
    assert!(!fits(5, &force(LARGEST + 1, 8), &known(0, 0)) && !fits(5, &force(8, LARGEST + 1), &known(0, 0)));
    let found = |epoch| Message::Found { ballot: ballot(u64::MAX), view: Arc::new(view_of_epoch(epoch)) };
    assert!(fits(5, &found(LARGEST), &known(0, 0)) && !fits(5, &found(LARGEST + 1), &known(0, 0)));
}

#[test]
fn no_single_acceptor_moves_what_is_reached_or_followed() {
    assert_eq!((reached(vec![3, u64::MAX, 5], 3), reached(vec![9], 3), reached(vec![], 1)), (5, 0, 0));
    let far = 1 << 40;
    assert_eq!(follow(vec![far], 2, 3), None, "those that are near are a majority");
    assert_eq!(follow(vec![far + 9, far], 1, 3), Some(far));
    assert_eq!(follow(vec![far + 9, far, far + 1], 0, 3), Some(far + 1));
    assert_eq!(follow(vec![u64::MAX, u64::MAX], 1, 3), None, "poisoned: nothing is above it");
    assert_eq!(follow(vec![LARGEST], 1, 3), None, "nor is a ballot that may be made above the largest");
    assert_eq!(follow(vec![far], 0, 3), None, "the others are silent");
}
