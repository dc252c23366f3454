//! Tests of the proposer's side: one round (docs/protocol.md#rule-15).
//!
//! The exhaustive model runs many rounds at a time.

use super::super::change::Change;
use super::super::examples::{ballot, drained, first, lose, name, next, voters};
use super::*;
use crate::view::Content;

fn open(base: &View, wanted: Option<&View>) -> (Round, Vec<String>) {
    let (round, outbox) =
        Round::open(ballot(9, "a"), Arc::new(base.clone()), wanted.map(|view| Arc::new(view.clone())));
    (round, said(&outbox))
}

/// Each message as text: receiver, kind, epoch.
fn said(outbox: &Outbox) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::Prepare { ballot } => format!("prepare {}", ballot.counter),
        Message::Accept { ballot, view } => format!("accept {} epoch {}", ballot.counter, view.epoch()),
        _ => "?".to_owned(),
    };
    outbox.iter().map(|(name, id, message)| format!("{name}{} {}", id.0, text(message))).collect()
}

fn promised(round: &mut Round, from: (&str, u128), counter: u64, view: &View) -> Vec<String> {
    let accepted = Accepted { ballot: ballot(counter, "b"), view: Arc::new(view.clone()) };
    match round.heard(&name(from.0), AcceptorId(from.1), &Reply::Promised(accepted)) {
        Step::Send(outbox) => said(&outbox),
        Step::Wait => Vec::new(),
        other @ (Step::Chosen(_) | Step::Blocked(_) | Step::Outbid(_)) => panic!("{other:?}"),
    }
}

fn accepted(round: &mut Round, from: (&str, u128)) -> Option<u64> {
    match round.heard(&name(from.0), AcceptorId(from.1), &Reply::Accepted) {
        Step::Chosen(view) => Some(view.epoch()),
        Step::Wait => None,
        other @ (Step::Send(_) | Step::Blocked(_) | Step::Outbid(_)) => panic!("{other:?}"),
    }
}

const NONE: [&str; 0] = [];

#[test]
fn a_change_builds_on_a_base_that_is_newest() {
    let (base, wanted) = (first(), drained(&first(), "a", 1));
    let (mut round, outbox) = open(&base, Some(&wanted));
    assert_eq!(outbox, ["a1 prepare 9", "b2 prepare 9", "c3 prepare 9"]);
    assert_eq!(promised(&mut round, ("a", 1), 1, &base), NONE);
    assert_eq!(promised(&mut round, ("a", 1), 1, &base), NONE, "one voter twice is one voter");
    let sent = promised(&mut round, ("c", 3), 1, &base);
    assert_eq!(sent, ["a1 accept 9 epoch 2", "b2 accept 9 epoch 2", "c3 accept 9 epoch 2"]);
    assert_eq!(promised(&mut round, ("b", 2), 1, &base), NONE, "too late to matter");
    assert_eq!(accepted(&mut round, ("b", 2)), None);
    assert_eq!(accepted(&mut round, ("b", 2)), None);
    assert_eq!(accepted(&mut round, ("a", 1)), Some(2));
}

#[test]
pub fn a_proposer_first_finishes_another_ones_change() {
    let base = first();
    let (wanted, foreign) = (lose(&base, "c", 0), lose(&base, "b", 0));
    let (mut round, _) = open(&base, Some(&wanted));
    promised(&mut round, ("a", 1), 1, &base);
    let granted = Reply::Promised(Accepted { ballot: ballot(2, "b"), view: Arc::new(foreign.clone()) });
    let Step::Send(outbox) = round.heard(&name("b"), AcceptorId(2), &granted) else { panic!("nothing sent") };
    let is_foreign = |sent: &Message| matches!(sent, Message::Accept { view, .. } if **view == foreign);
    assert!(outbox.len() == 3 && outbox.iter().all(|(_, _, message)| is_foreign(message)));
}

#[test]
fn the_view_with_the_highest_ballot_is_the_newest() {
    let base = first();
    let two = next(&base, Change::Kill);
    let (mut round, _) = open(&base, None);
    promised(&mut round, ("b", 2), 3, &two);
    let sent = promised(&mut round, ("a", 1), 4, &base);
    assert_eq!(sent[0], "a1 accept 9 epoch 1", "who proposed epoch 1 again had seen a majority without 2");
}

#[test]
fn an_outbid_or_blocked_proposer_is_told() {
    let (mut round, _) = open(&first(), None);
    let id = AcceptorId(1);
    let mut heard = |reply| round.heard(&name("a"), id, &reply);
    assert!(matches!(heard(Reply::Outbid(ballot(12, "c"))), Step::Outbid(12)));
    assert!(matches!(heard(Reply::Blocked(name("b"))), Step::Blocked(region) if region == name("b")));
    for reply in [Reply::NotAdmitted, Reply::NotFounded(id), Reply::OtherAcceptor(id), Reply::Newer] {
        assert!(matches!(heard(reply), Step::Wait));
    }
}

#[test]
fn a_change_of_voters_needs_majorities_of_the_former_and_of_the_new_ones() {
    let base = first();
    let sent = |to: &[&str]| to.iter().map(|voter| format!("{voter} accept 9 epoch 2")).collect::<Vec<_>>();
    let without_c = &[("a", 1), ("b", 2)][..];
    let c_anew = &[("a", 1), ("b", 2), ("c", 33)][..];
    for (next_ones, all, too_few) in [
        (without_c, sent(&["a1", "b2", "c3"]), [("a", 1), ("c", 3)]),
        // An acceptor that was made anew is no voter of the base.
        (c_anew, sent(&["a1", "b2", "c3", "c33"]), [("a", 1), ("c", 33)]),
    ] {
        let wanted = next(&base, Change::Voters(voters(next_ones)));
        let (mut round, _) = open(&base, Some(&wanted));
        promised(&mut round, ("a", 1), 1, &base);
        assert_eq!(promised(&mut round, ("b", 2), 1, &base), all);
        assert_eq!(too_few.map(|voter| accepted(&mut round, voter)), [None, None], "{too_few:?}");
        assert_eq!(accepted(&mut round, ("b", 2)), Some(2));
    }
}

#[test]
pub fn finishing_a_view_needs_the_previous_views_voters_too() {
    // The proposer knows epoch 1 only. Epoch 2 has c anew, and a alone has accepted an epoch 3 that
    // has b anew. Meanwhile b and c of epoch 2, a majority, have chosen another epoch 3. Majorities
    // of 1 and of 3 know nothing of that: {a, c3} and {a, b22}.
    let base = first();
    let two = next(&base, Change::Voters(voters(&[("a", 1), ("b", 2), ("c", 33)])));
    let three = next(&two, Change::Voters(voters(&[("a", 1), ("b", 22), ("c", 33)])));
    let other = lose(&two, "c", 0);
    let (mut round, _) = open(&base, None);
    assert_eq!(promised(&mut round, ("a", 1), 5, &three), ["c33 prepare 9", "b22 prepare 9"]);
    assert_eq!(promised(&mut round, ("c", 3), 1, &base), NONE);
    assert_eq!(promised(&mut round, ("b", 22), 2, &two), NONE, "a alone of the voters of epoch 2");
    let sent = promised(&mut round, ("c", 33), 6, &other);
    assert_eq!(sent, ["a1 accept 9 epoch 3", "b2 accept 9 epoch 3", "c33 accept 9 epoch 3"]);
    assert_eq!(accepted(&mut round, ("a", 1)), None);
    assert_eq!(accepted(&mut round, ("b", 22)), None);
    assert_eq!(accepted(&mut round, ("c", 33)), Some(3));
}

#[test]
fn nothing_rests_on_voters_that_have_forgotten_the_base() {
    let base = next(&first(), Change::Kill);
    let (mut round, _) = open(&base, None);
    promised(&mut round, ("a", 1), 1, &first());
    assert_eq!(promised(&mut round, ("b", 2), 1, &first()), NONE);
    assert_eq!(promised(&mut round, ("c", 3), 2, &base).len(), 3, "one of them remembers");
}

#[test]
fn two_simultaneous_foundings_are_not_built_on() {
    let one = first();
    let other = View::from_content(Content { escrow: BTreeMap::new(), ..one.content() });
    let (mut round, _) = open(&one, Some(&next(&one, Change::Kill)));
    assert_eq!(promised(&mut round, ("a", 1), 0, &other), NONE);
    assert_eq!(promised(&mut round, ("b", 2), 0, &one), NONE);
    assert_eq!(promised(&mut round, ("c", 3), 0, &one), NONE, "init is run again, with empty stores");
    let (mut round, _) = open(&one, Some(&next(&one, Change::Kill)));
    promised(&mut round, ("b", 2), 0, &one);
    assert_eq!(promised(&mut round, ("c", 3), 0, &one).len(), 3);
}
