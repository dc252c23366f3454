//! Clauses of the store about its gate: a restarted server serves nothing until its boot is
//! approved.

use super::super::bench::{
    StoreBench, answer, asks, asks_again, claim, claimed, doubt, gate, id, is_claimed, open, release, row,
    rows, settle, wins,
};
use onceway_ports::store::{Attempt, Boot, ClaimReply, GateVersion, Written};
use onceway_ports::{KeyStore, Replica};

pub async fn suite(bench: &impl StoreBench) {
    a_restart_closes_the_gate(bench).await;
    a_claim_not_confirmed_is_found_after_the_gate_moved(bench).await;
    approval_compares_version_and_boot(bench).await;
}

/// After a restart nothing is written until the boot is approved; then attempts go on.
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
        let reply = claim(bench, &fresh).await;
        assert_eq!(reply, ClaimReply::GateMoved, "store: a closed gate let a claim pass");
    }
    assert!(rows(bench, &fresh.id).await.is_empty(), "store: a closed gate let a row pass");
    assert_eq!(settle(bench, &held, &answer()).await, Written::GateMoved, "store: settled while closed");
    assert_eq!(release(bench, &held).await, Written::GateMoved, "store: released while closed");
    assert_eq!(doubt(bench, &held, None).await, Written::GateMoved, "store: doubted while closed");
    let beat = bench.store().beat(None).await.expect("store: beat failed");
    assert_eq!(beat, None, "store: a closed gate let a heartbeat pass");
    assert!(is_claimed(&row(bench, &held.id).await), "store: look-ups must go on while the gate is closed");
    fresh.gate = open(bench).await.version;
    wins(bench, &fresh).await;
    let settled = settle(bench, &held, &answer()).await;
    assert_eq!(settled, Written::Done, "store: a held claim survives a restart");
}

/// A claim whose answer was lost finds itself although the gate closed, or moved, in between. It is
/// durable, so "nothing was written" would be wrong.
async fn a_claim_not_confirmed_is_found_after_the_gate_moved(bench: &impl StoreBench) {
    let ask = asks(bench, &id(bench, "unconfirmed"), 1).await;
    let first = claim(bench, &ask).await;
    bench.restart().await;
    assert_eq!(claim(bench, &ask).await, first, "store: a claim must find itself while the gate is closed");
    open(bench).await;
    assert_eq!(claim(bench, &ask).await, first, "store: a claim must find itself after the gate moved");
    let attempt =
        Attempt { id: ask.id.clone(), token: row(bench, &ask.id).await.token, nonce: ask.terms.nonce };
    assert_eq!(release(bench, &attempt).await, Written::Done);
    let ask = asks_again(bench, &ask.id, 2).await;
    let second = claim(bench, &ask).await;
    bench.restart().await;
    assert_eq!(claim(bench, &ask).await, second, "store: a claim on a known basis must find itself too");
}

/// An approval of another version, or another boot than the running one, opens nothing. One that
/// passes moves the version, so that a reader of the former one reads the gate again.
async fn approval_compares_version_and_boot(bench: &impl StoreBench) {
    let before = open(bench).await;
    bench.restart().await;
    let now = gate(bench).await;
    let version = GateVersion(now.version.0 + 1);
    assert_eq!(approve(bench, version, &now.running).await, Written::Lost, "store: approved at {version:?}");
    let others = [
        before.running,
        Boot { system: now.running.system ^ 1, ..now.running.clone() },
        Boot { timeline: now.running.timeline + 1, ..now.running.clone() },
        Boot { started: now.running.started + 1, ..now.running.clone() },
    ];
    for boot in &others {
        assert_eq!(approve(bench, now.version, boot).await, Written::Lost, "store: approved {boot:?}");
    }
    assert_eq!(gate(bench).await, now, "store: a lost approval changed the gate");
    assert_eq!(approve(bench, now.version, &now.running).await, Written::Done, "store: must be approved");
    let opened = gate(bench).await;
    assert!(opened.is_open(), "store: an approved boot must open the gate");
    assert!(opened.version > now.version, "store: an approval must move the gate's version");
    assert_eq!(opened.epoch, now.epoch, "store: an approval must not change the epoch");
    let old = approve(bench, now.version, &now.running).await;
    assert_eq!(old, Written::Lost, "store: an approval at an old version must be lost");
    let mut ask = asks(bench, &id(bench, "old-version"), 1).await;
    ask.gate = now.version;
    let reply = claim(bench, &ask).await;
    assert_eq!(reply, ClaimReply::GateMoved, "store: a claim under the old version passed");
}

async fn approve(bench: &impl StoreBench, version: GateVersion, boot: &Boot) -> Written {
    bench.store().approve(version, boot).await.expect("store: approve failed")
}
