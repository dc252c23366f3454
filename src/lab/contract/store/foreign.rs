//! Clauses of the store about rows of other origins: a claim supersedes knowingly, or not at all.
//!
//! This file must not test what rows mean together: `protocol::record` does.

use super::super::bench::{Foreign, StoreBench, asks, claim, id, known, open, released_key, row, rows, wins};
use onceway_ports::store::{ClaimAsk, ClaimReply};
use onceway_protocol::decide::Basis;
use onceway_protocol::record::Token;

/// All clauses about rows of other origins.
pub async fn suite<B: StoreBench>(bench: &B) {
    a_claim_of_an_absent_key_finds_foreign_rows(bench).await;
    rows_that_nobody_saw_are_found(bench).await;
    rows_newer_than_those_seen_are_found(bench).await;
    seen_rows_are_superseded(bench).await;
    released_rows_yield(bench).await;
    a_settled_row_never_yields(bench).await;
}

/// A claim that saw no row finds every row that arrived of other origins.
pub async fn a_claim_of_an_absent_key_finds_foreign_rows<B: StoreBench>(bench: &B) {
    for state in [Foreign::Claimed, Foreign::InDoubt, Foreign::Released, Foreign::Settled] {
        let ask = asks(bench, &id(bench, &format!("foreign-absent-{state:?}")), 1).await;
        bench.arrives(&ask.id, state).await;
        is_stopped(bench, &ask, 1, state).await;
    }
}

/// A row that arrived after the look of a claim's basis is not superseded: its effect may have
/// happened.
pub async fn rows_that_nobody_saw_are_found<B: StoreBench>(bench: &B) {
    for state in [Foreign::Claimed, Foreign::InDoubt, Foreign::Settled] {
        let first = released_key(bench, &format!("foreign-unseen-{state:?}"), 1).await;
        let seen = row(bench, &first.id).await;
        bench.arrives(&first.id, state).await;
        let mut ask = asks(bench, &first.id, 2).await;
        ask.basis = known(&seen);
        is_stopped(bench, &ask, 2, state).await;
        let own = rows(bench, &first.id).await.contains(&seen);
        assert!(own, "store: a lost claim changed the own row");
    }
}

/// A claim that names an older attempt than the stored one has not seen it.
pub async fn rows_newer_than_those_seen_are_found<B: StoreBench>(bench: &B) {
    for state in [Foreign::Claimed, Foreign::InDoubt] {
        let mut ask = asks(bench, &id(bench, &format!("foreign-newer-{state:?}")), 1).await;
        let token = bench.arrives(&ask.id, state).await;
        let older = Token { attempt: token.attempt - 1, ..token };
        ask.basis = Basis::Known { own: None, over: vec![(bench.peers()[0].clone(), older)], attempt: 1 };
        is_stopped(bench, &ask, 1, state).await;
    }
}

/// Open rows of other origins that a claim names do not stop it, and its row names them.
pub async fn seen_rows_are_superseded<B: StoreBench>(bench: &B) {
    for state in [Foreign::Claimed, Foreign::InDoubt] {
        let mut ask = asks(bench, &id(bench, &format!("foreign-seen-{state:?}")), 1).await;
        let over = vec![(bench.peers()[0].clone(), bench.arrives(&ask.id, state).await)];
        ask.basis = Basis::Known { own: None, over: over.clone(), attempt: 1 };
        let (attempt, _) = wins(bench, &ask).await;
        assert_eq!(attempt.token.attempt, 2, "store: attempts count on from the highest seen");
        let standing = rows(bench, &ask.id).await;
        assert_eq!(standing.len(), 2, "store: a claim must leave rows of other origins where they are");
        let own = standing.into_iter().find(|row| row.origin == bench.origin());
        assert_eq!(own.map(|row| row.over), Some(over), "store: a claim must name what it supersedes");
    }
}

/// A released row of another origin stops no claim that counts on from its attempt.
pub async fn released_rows_yield<B: StoreBench>(bench: &B) {
    open(bench).await;
    let mut ask = asks(bench, &id(bench, "foreign-released"), 1).await;
    let attempt = bench.arrives(&ask.id, Foreign::Released).await.attempt;
    ask.basis = Basis::Known { own: None, over: Vec::new(), attempt: attempt - 1 };
    is_stopped(bench, &ask, 1, Foreign::Released).await;
    ask.basis = Basis::Known { own: None, over: Vec::new(), attempt };
    assert_eq!(wins(bench, &ask).await.0.token.attempt, attempt + 1, "store: attempts must count on");
}

/// A settled row of another origin is final, even for a claim that names it.
pub async fn a_settled_row_never_yields<B: StoreBench>(bench: &B) {
    let mut ask = asks(bench, &id(bench, "foreign-final"), 1).await;
    let over = vec![(bench.peers()[0].clone(), bench.arrives(&ask.id, Foreign::Settled).await)];
    ask.basis = Basis::Known { own: None, over, attempt: 1 };
    is_stopped(bench, &ask, 1, Foreign::Settled).await;
}

/// Asserts that the claim is shown so many rows and does not win.
async fn is_stopped<B: StoreBench>(bench: &B, ask: &ClaimAsk, standing: usize, by: Foreign) {
    match claim(bench, ask).await {
        ClaimReply::Found(rows) => {
            assert_eq!(rows.len(), standing, "store: a claim must be shown all rows in its way");
        }
        ClaimReply::Won { token, .. } => {
            panic!("store: a claim won under {token} over a foreign row that it had not seen: {by:?}")
        }
        ClaimReply::GateMoved => panic!("store: the gate moved though nobody touched it"),
    }
}
