//! Clauses of the store about reading: look-ups, fingerprints, retention.

use std::time::Duration;

use super::super::bench::{
    LONG, SHORT, StoreBench, asks, asks_again, asks_on, claimed, finds, fingerprint_of, id, known, lived,
    release, row, settled_for, wins,
};
use onceway_ports::KeyStore;
use onceway_ports::store::Written;
use onceway_protocol::digest::digest;
use onceway_protocol::fingerprint::{self, Fingerprint};
use onceway_protocol::lifetime::{Lifetime, NEVER, Retention};
use onceway_protocol::record::{Row, State};

pub async fn suite(bench: &impl StoreBench) {
    look_ups_keep_the_order(bench).await;
    fingerprints_and_principals_read_back(bench).await;
    an_expired_answer_is_a_tombstone(bench).await;
    stored_life_is_longer_than_promised(bench).await;
    a_key_may_be_kept_for_ever(bench).await;
}

/// A look-up answers in the order of its ids, repeats included, with nothing for absent keys.
async fn look_ups_keep_the_order(bench: &impl StoreBench) {
    let first = claimed(bench, "look-1", 1).await;
    let second = claimed(bench, "look-2", 2).await;
    let absent = id(bench, "look-absent");
    let ids = [second.id.clone(), absent.clone(), first.id.clone(), second.id.clone(), absent];
    let found = bench.store().look_up(&ids).await.expect("store: look_up failed");
    let nonces: Vec<Vec<u128>> =
        found.iter().map(|rows| rows.iter().map(|row| row.nonce.0).collect()).collect();
    assert_eq!(nonces, [vec![2], vec![], vec![1], vec![2], vec![]], "store: look_up must keep the order");
    let none = bench.store().look_up(&[]).await.expect("store: look_up of nothing failed");
    assert!(none.is_empty(), "store: a look-up of nothing finds nothing");
}

/// Those of the newest claim stand.
async fn fingerprints_and_principals_read_back(bench: &impl StoreBench) {
    let raw = fingerprint::raw("POST", "/", b"{ }");
    let canonical = fingerprint::canonical("POST", "/", b"{}");
    let principal = digest("principal", &[b"alice"]);
    for (name, canonical, principal) in [("said", Some(canonical), Some(principal)), ("unsaid", None, None)] {
        let mut ask = asks(bench, &id(bench, name), 1).await;
        (ask.terms.fingerprint, ask.terms.principal) = (Fingerprint { raw, canonical }, principal);
        let (attempt, _) = wins(bench, &ask).await;
        let read = row(bench, &ask.id).await;
        assert_eq!(read.fingerprint, ask.terms.fingerprint, "store: a fingerprint must read back identical");
        assert_eq!(read.principal, principal, "store: a principal must read back");
        assert_eq!(release(bench, &attempt).await, Written::Done);
        let mut ask = asks_again(bench, &ask.id, 2).await;
        ask.terms.fingerprint = fingerprint_of("re-serialised");
        wins(bench, &ask).await;
        let newest = row(bench, &ask.id).await.fingerprint;
        assert_eq!(newest, ask.terms.fingerprint, "store: the newest claim's must stand");
    }
}

/// A settled key past its retention reads as expired, reaped or not, and is never claimed again.
async fn an_expired_answer_is_a_tombstone(bench: &impl StoreBench) {
    let (attempt, expires) = settled_for(bench, "expired", lived(SHORT, Duration::ZERO)).await;
    bench.pass(SHORT).await;
    let expired = row(bench, &attempt.id).await;
    assert!(is_expired(&expired), "store: past retention an answer must be told to be expired: {expired:?}");
    assert_eq!(expired.expires, expires, "store: an expired row must still say when it expired");
    let unseen = asks(bench, &attempt.id, 2).await;
    let found = finds(bench, &unseen, "an expired answer must not be won").await;
    assert!(is_expired(&found), "store: a claim must find it expired: {found:?}");
    let again = asks_on(bench, &attempt.id, 2, known(&expired)).await;
    finds(bench, &again, "an expired answer must not be won on its own row's basis").await;
}

fn is_expired(row: &Row) -> bool {
    matches!(row.state, State::Settled { expired: true, .. } | State::Tombstone)
}

/// Between its promised and its stored end an answer is still replayed.
async fn stored_life_is_longer_than_promised(bench: &impl StoreBench) {
    let (attempt, expires) = settled_for(bench, "skew", lived(SHORT, LONG)).await;
    bench.pass(SHORT).await;
    let row = row(bench, &attempt.id).await;
    let State::Settled { .. } = row.state else { panic!("store: the skew is stored beyond the promise") };
    assert_eq!(row.expires, expires, "store: the skew must not be promised");
}

/// A key that is kept for ever has a date that never comes.
async fn a_key_may_be_kept_for_ever(bench: &impl StoreBench) {
    let mut ask = asks(bench, &id(bench, "never"), 1).await;
    ask.terms.lifetime = Lifetime { retention: Retention::Never, ..lived(SHORT, Duration::ZERO) };
    let (_, expires) = wins(bench, &ask).await;
    assert_eq!(expires, NEVER, "store: never must be told as such");
    assert_eq!(row(bench, &ask.id).await.expires, NEVER);
}
