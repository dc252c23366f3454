//! Clauses of the store about stand-ins for other origins' attempts.

use super::super::bench::*;
use super::upkeep::{act, enlist, journalled};

pub async fn suite(bench: &impl StoreBench) {
    a_stand_in_record_is_complete_at_once(bench).await;
    a_stand_in_record_is_based_on_seen_rows(bench).await;
    an_operators_word_in_anothers_place_is_journalled(bench).await;
}

/// A claim over another origin's row that has arrived, of a key without an own row.
async fn stands_over(bench: &impl StoreBench, name: &str, nonce: u128) -> (ClaimAsk, Token) {
    let key = id(bench, name);
    let theirs = bench.arrives(&key, Foreign::InDoubt).await;
    let mut ask = asks_on(bench, &key, nonce, over_theirs(bench, theirs)).await;
    (ask.risk, ask.terms.hold) = (vec![bench.peers()[0].region.clone()], Duration::ZERO);
    (ask, theirs)
}

async fn stand_in(bench: &impl StoreBench, ask: &ClaimAsk, ruling: &Ruling) -> Written {
    bench.store().stand_in(ask, ruling, None).await.expect("store: stand_in failed")
}

/// It stands above the rows that it names, with all fields of a claim.
async fn a_stand_in_record_is_complete_at_once(bench: &impl StoreBench) {
    for (name, ruling) in [("stand-settled", Ruling::Settled(answer())), ("stand-released", Ruling::Released)]
    {
        let (ask, theirs) = stands_over(bench, name, 71).await;
        for _ in 0..2 {
            assert_eq!(stand_in(bench, &ask, &ruling).await, Done, "store: {name}");
        }
        let own = own(bench, &ask.id).await;
        match (&own.state, &ruling) {
            (State::Settled { answer: stored, .. }, Ruling::Settled(answer)) => assert_eq!(**stored, *answer),
            (State::Released, Ruling::Released) => {}
            (state, _) => panic!("store: it must say what became of them, not {state:?}"),
        }
        assert_eq!((own.nonce, own.risk, own.request_id), (ask.terms.nonce, ask.risk, ask.terms.request_id));
        assert!(own.over == [(bench.peers()[0].clone(), theirs)] && own.token.attempt > theirs.attempt);
    }
    // An own attempt that is over gives way as to a claim, and the rows that it named stay named.
    let (mut ask, theirs) = stands_over(bench, "stand-own", 72).await;
    let (attempt, _) = wins(bench, &ask).await;
    assert_eq!(doubt(bench, &attempt, None).await, Done);
    (ask.basis, ask.terms.nonce) = (known(&own(bench, &ask.id).await), Nonce(73));
    assert_eq!(stand_in(bench, &ask, &Ruling::Released).await, Done);
    let own = own(bench, &ask.id).await;
    assert!(own.over == [(bench.peers()[0].clone(), theirs)] && own.token > attempt.token, "store: {own:?}");
}

/// A stand-in is lost if the rows say something else by now, or under another gate.
async fn a_stand_in_record_is_based_on_seen_rows(bench: &impl StoreBench) {
    let released = Ruling::Released;
    let (ask, _) = stands_over(bench, "stand-unseen", 81).await;
    let unseen = ClaimAsk { basis: Basis::Known { own: None, over: Vec::new(), attempt: 0 }, ..ask.clone() };
    assert_eq!(stand_in(bench, &unseen, &released).await, Lost, "store: it hides what it never saw");
    let (mut long, mut again) = (ask.clone(), ask.clone());
    (long.terms.hold, again.terms.nonce) = (LONG, Nonce(82));
    let (running, _) = wins(bench, &long).await;
    assert_eq!(stand_in(bench, &again, &released).await, Lost, "store: an own row came meanwhile");
    again.basis = Basis::Known { own: Some((running.token, running.nonce)), over: Vec::new(), attempt: 9 };
    assert_eq!(stand_in(bench, &again, &released).await, Lost, "store: an attempt runs");
    let key = id(bench, "stand-answered");
    bench.arrives(&key, Foreign::Settled).await;
    let answered = ClaimAsk { id: key.clone(), ..ask };
    let stood = stand_in(bench, &answered, &Ruling::Settled(answer())).await;
    assert_eq!(stood, Lost, "store: it has its answer");
    assert_eq!(rows(bench, &key).await.len(), 1, "store: nothing was written");
    let (ask, _) = stands_over(bench, "stand-moved", 83).await;
    bench.restart().await;
    assert_eq!(stand_in(bench, &ask, &released).await, GateMoved, "store: the boot is not approved");
    open(bench).await;
    assert_eq!(stand_in(bench, &ask, &released).await, GateMoved, "store: the gate is at another version");
    assert_eq!(rows(bench, &ask.id).await.len(), 1, "store: nothing was written");
}

/// An operator's ruling is journalled once, in the same transaction, and the key leaves the list.
async fn an_operators_word_in_anothers_place_is_journalled(bench: &impl StoreBench) {
    for (name, ruling, kind) in [
        ("stand-by-hand-1", Ruling::Settled(answer()), "settled-by-hand"),
        ("stand-by-hand-2", Ruling::Released, "released-by-hand"),
    ] {
        let (ask, _) = stands_over(bench, name, 91).await;
        enlist(bench, std::slice::from_ref(&ask.id)).await;
        let act = act(ruling);
        let by = Who { actor: &act.actor, reason: &act.reason };
        for _ in 0..2 {
            assert_eq!(bench.store().stand_in(&ask, &act.ruling, Some(by)).await, Ok(Done), "store: {name}");
        }
        let token = own(bench, &ask.id).await.token;
        journalled(bench, &Attempt { id: ask.id.clone(), token, nonce: ask.terms.nonce }, kind).await;
        assert!(listed(bench, &ask.id).await.is_none(), "store: it must leave the list");
    }
}
