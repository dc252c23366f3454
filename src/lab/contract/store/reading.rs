//! Clauses of the store about reading (look-ups, fingerprints, retention), and about its gate: a
//! restarted server serves nothing until its boot is approved.

use super::super::bench::*;
use super::claims::a_repeated_claim_finds_itself;
use onceway_ports::store::Boot;
use onceway_protocol::lifetime::NEVER;

pub async fn suite(bench: &impl StoreBench) {
    look_ups_keep_the_order(bench).await;
    fingerprints_and_principals_read_back(bench).await;
    an_expired_answer_is_a_tombstone(bench).await;
    stored_life_is_longer_than_promised(bench).await;
    a_key_may_be_kept_for_ever(bench).await;
    a_restart_closes_the_gate(bench).await;
    a_repeated_claim_finds_itself(bench, "unconfirmed", true).await;
    approval_compares_version_and_boot(bench).await;
}

async fn look_ups_keep_the_order(bench: &impl StoreBench) {
    let first = claimed(bench, "look-1", 1).await;
    let second = claimed(bench, "look-2", 2).await;
    let absent = id(bench, "look-absent");
    let ids = [second.id.clone(), absent.clone(), first.id.clone(), second.id.clone(), absent];
    let found = look_up(bench, &ids).await;
    let nonces: Vec<Vec<u128>> =
        found.iter().map(|rows| rows.iter().map(|row| row.nonce.0).collect()).collect();
    assert_eq!(nonces, [vec![2], vec![], vec![1], vec![2], vec![]], "store: look_up must keep the order");
    assert!(look_up(bench, &[]).await.is_empty(), "store: a look-up of nothing finds nothing");
}

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
        assert_eq!(release(bench, &attempt).await, Done);
        let mut ask = asks_again(bench, &ask.id, 2).await;
        ask.terms.fingerprint = fingerprint_of("re-serialised");
        wins(bench, &ask).await;
        let newest = row(bench, &ask.id).await.fingerprint;
        assert_eq!(newest, ask.terms.fingerprint, "store: the newest claim's must stand");
    }
}

async fn an_expired_answer_is_a_tombstone(bench: &impl StoreBench) {
    let (attempt, expires) = settled_for(bench, "expired", lived(SHORT, Duration::ZERO)).await;
    bench.pass(SHORT).await;
    let expired = row(bench, &attempt.id).await;
    assert!(is_expired(&expired), "store: past retention an answer must be told to be expired: {expired:?}");
    assert_eq!(expired.expires, expires, "store: an expired row must still say when it expired");
    let found = finds(bench, &asks(bench, &attempt.id, 2).await, "an expired answer must not be won").await;
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

async fn a_key_may_be_kept_for_ever(bench: &impl StoreBench) {
    let mut ask = asks(bench, &id(bench, "never"), 1).await;
    ask.terms.lifetime = Lifetime { retention: Retention::Never, ..lived(SHORT, Duration::ZERO) };
    let (_, expires) = wins(bench, &ask).await;
    assert_eq!(expires, NEVER, "store: never must be told as such");
    assert_eq!(row(bench, &ask.id).await.expires, NEVER);
}

async fn a_restart_closes_the_gate(bench: &impl StoreBench) {
    let before = open(bench).await;
    let held = claimed(bench, "restart-held", 1).await;
    assert_eq!(gate(bench).await, before, "store: the gate moved though nobody touched it");
    let mut fresh = asks(bench, &id(bench, "restart-fresh"), 2).await;
    bench.restart().await;
    let closed = gate(bench).await;
    assert!(!closed.is_open(), "store: a restart must close the gate");
    assert_ne!(closed.running, before.running, "store: a restart must be another boot");
    assert_eq!(closed.approved, before.approved, "store: a restart approves nothing by itself");
    for version in [before.version, closed.version] {
        fresh.gate = version;
        assert_eq!(
            claim(bench, &fresh).await,
            ClaimReply::GateMoved,
            "store: a closed gate let a claim pass"
        );
    }
    assert!(rows(bench, &fresh.id).await.is_empty(), "store: a closed gate let a row pass");
    assert_eq!(settle(bench, &held, &answer()).await, GateMoved, "store: settled while closed");
    assert_eq!(release(bench, &held).await, GateMoved, "store: released while closed");
    assert_eq!(doubt(bench, &held, None).await, GateMoved, "store: doubted while closed");
    let beat = bench.store().beat(None).await.expect("store: beat failed");
    assert_eq!(beat, None, "store: a closed gate let a heartbeat pass");
    assert!(is_claimed(&row(bench, &held.id).await), "store: look-ups must go on while the gate is closed");
    fresh.gate = open(bench).await.version;
    wins(bench, &fresh).await;
    assert_eq!(settle(bench, &held, &answer()).await, Done, "store: it survives a restart");
}

/// An approval of another version, or another boot than the running one, opens nothing. One that
/// passes moves the version, so that a reader of the former one reads the gate again.
async fn approval_compares_version_and_boot(bench: &impl StoreBench) {
    let before = open(bench).await;
    bench.restart().await;
    let now = gate(bench).await;
    let version = GateVersion(now.version.0 + 1);
    assert_eq!(approve(bench, version, &now.running).await, Lost, "store: approved at {version:?}");
    let others = [
        before.running,
        Boot { system: now.running.system ^ 1, ..now.running.clone() },
        Boot { timeline: now.running.timeline + 1, ..now.running.clone() },
        Boot { started: now.running.started + 1, ..now.running.clone() },
    ];
    for boot in &others {
        assert_eq!(approve(bench, now.version, boot).await, Lost, "store: approved {boot:?}");
    }
    assert_eq!(gate(bench).await, now, "store: a lost approval changed the gate");
    assert_eq!(approve(bench, now.version, &now.running).await, Done, "store: must be approved");
    let opened = gate(bench).await;
    assert!(opened.is_open(), "store: an approved boot must open the gate");
    assert!(opened.version > now.version, "store: an approval must move the gate's version");
    assert_eq!(opened.epoch, now.epoch, "store: an approval must not change the epoch");
    let old = approve(bench, now.version, &now.running).await;
    assert_eq!(old, Lost, "store: an approval at an old version must be lost");
    let mut ask = asks(bench, &id(bench, "old-version"), 1).await;
    ask.gate = now.version;
    let reply = claim(bench, &ask).await;
    assert_eq!(reply, ClaimReply::GateMoved, "store: a claim under the old version passed");
}

calls! { StoreBench: approve = approve(version: GateVersion, boot: &Boot) -> Written; }
