//! What [`Audit`] promises, and [`KeyStore::settle`](crate::ports::KeyStore::settle) where another origin's answer is there first.
//!
//! Neighbours: [`super::store`] gives the bench, a new one for each run of the suite. It must not test which answer is served:
//! `protocol::record` does.

use std::time::Duration;

use super::imports::{ImportBench, copied, import};
use super::store::{
    Foreign, LONG, StoreBench, answer, asks, claimed, doubt, id, release, row, rows, settle, wins,
};
use crate::ports::audit::Double;
use crate::ports::store::{Attempt, Written};
use crate::ports::{Audit, Upkeep};
use crate::protocol::decide::Basis;
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, State, Token};

/// A bench whose store audits.
pub trait AuditBench: ImportBench<Store: Audit> {}

impl<B: ImportBench<Store: Audit>> AuditBench for B {}

/// All clauses of the audit.
pub async fn suite<B: AuditBench>(bench: &B) {
    the_first_answer_stays_and_both_are_journalled(bench).await;
    the_same_attempt_is_no_double(bench).await;
    runs_at_risk_are_listed(bench).await;
    doubles_are_found_and_journalled_once(bench).await;
    what_came_to_nothing_is_no_double(bench).await;
    what_was_superseded_knowingly_is_no_double(bench).await;
}

/// Whatever the own answer is, the one that stood there stays the key's, here too.
pub async fn the_first_answer_stays_and_both_are_journalled<B: AuditBench>(bench: &B) {
    for in_doubt in [false, true] {
        let attempt = claimed(bench, &format!("audit-first-{in_doubt}"), 1).await;
        if in_doubt {
            assert_eq!(doubt(bench, &attempt, None).await, Written::Done);
        }
        bench.arrives(&attempt.id, Foreign::Settled).await;
        let theirs = settled(bench, &attempt.id, true).await;
        let ours = Answer { status: 299, ..answer() };
        for _ in 0..2 {
            assert_eq!(settle(bench, &attempt, &ours).await, Written::Lost, "audit: their answer was first");
            assert_eq!(
                settled(bench, &attempt.id, false).await,
                theirs,
                "audit: the own row must say theirs"
            );
        }
        assert_eq!(journalled(bench, &attempt.id).await, [attempt.token], "audit: a double, journalled once");
    }
}

/// An escrow that became an own row and the row that it stood for.
pub async fn the_same_attempt_is_no_double<B: AuditBench>(bench: &B) {
    let attempt = claimed(bench, "audit-same", 1).await;
    let origin = bench.peers()[1].clone();
    let there = row(bench, &attempt.id).await;
    let answered = State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
    let mut same = copied(bench, &origin, "audit-same", 1, answered);
    (same.row.nonce, same.row.token) = (there.nonce, there.token);
    import(bench, &origin, &[same]).await;
    assert_eq!(settle(bench, &attempt, &Answer { status: 299, ..answer() }).await, Written::Lost);
    assert_eq!(settled(bench, &attempt.id, false).await, answer(), "audit: its answer is known already");
    assert_eq!(journalled(bench, &attempt.id).await, [], "audit: one attempt is no double");
}

/// With their regions, in the order of keys, after one; whatever became of them.
pub async fn runs_at_risk_are_listed<B: AuditBench>(bench: &B) {
    let safe = claimed(bench, "audit-list-0", 1).await;
    let mut at_risk = Vec::new();
    for at in 1..=3 {
        at_risk.push(runs_at_risk(bench, &format!("audit-list-{at}")).await);
    }
    assert_eq!(settle(bench, &at_risk[1], &answer()).await, Written::Done);
    let (mut found, mut after) = (Vec::new(), Some(safe.id));
    for _ in 0..2 {
        let page = bench.store().runs_at_risk(after.as_ref(), 2).await.expect("audit: runs_at_risk failed");
        after = page.last().map(|run| run.id.clone());
        found.extend(page);
    }
    let keys: Vec<&KeyId> = found.iter().map(|run| &run.id).collect();
    assert_eq!(
        keys,
        at_risk.iter().map(|attempt| &attempt.id).collect::<Vec<_>>(),
        "audit: all of them, no other"
    );
    for run in &found {
        assert_eq!(run.row.risk, [bench.peers()[0].region.clone()], "audit: the claim must say its risk");
        assert_eq!((&*run.route, run.path.as_str()), ("contract", "/v1/contract"));
    }
    let again = Basis::Known { own: None, over: Vec::new(), attempt: 0 };
    let ask = asks(bench, &id(bench, "audit-list-4"), 1).await;
    let ask =
        crate::ports::store::ClaimAsk { basis: again, risk: vec![bench.peers()[1].region.clone()], ..ask };
    wins(bench, &ask).await;
    assert_eq!(row(bench, &ask.id).await.risk, ask.risk, "audit: a claim on a known basis must say its risk");
}

/// Both rows, once, however often it is asked; a settlement that met the other one has journalled it already.
pub async fn doubles_are_found_and_journalled_once<B: AuditBench>(bench: &B) {
    audit(bench).await;
    let certain = runs_at_risk(bench, "audit-certain").await;
    assert_eq!(settle(bench, &certain, &answer()).await, Written::Done);
    let possible = runs_at_risk(bench, "audit-possible").await;
    assert_eq!(doubt(bench, &possible, None).await, Written::Done);
    assert_eq!(audit(bench).await, [], "audit: no other row is here yet");
    bench.arrives(&certain.id, Foreign::Settled).await;
    bench.arrives(&possible.id, Foreign::InDoubt).await;
    let met = runs_at_risk(bench, "audit-met").await;
    bench.arrives(&met.id, Foreign::Settled).await;
    assert_eq!(settle(bench, &met, &answer()).await, Written::Lost);

    let mut found = bench.store().audit(1).await.expect("audit: audit failed");
    assert_eq!(found.len(), 1, "audit: at most so many at a time");
    found.extend(audit(bench).await);
    let keys: Vec<&KeyId> = found.iter().map(|double| &double.id).collect();
    assert_eq!(keys, [&certain.id, &possible.id], "audit: each double once");
    for double in &found {
        assert_eq!((&double.own.origin, &double.other.origin), (&bench.origin(), &bench.peers()[0]));
        assert_eq!(
            journalled(bench, &double.id).await,
            [double.own.token],
            "audit: it must be in the journal"
        );
    }
    assert!(
        matches!(found[0].other.state, State::Settled { .. })
            && matches!(found[1].own.state, State::InDoubt { .. })
    );
    assert_eq!(audit(bench).await, [], "audit: found twice");
    assert_eq!(
        journalled(bench, &met.id).await,
        [met.token],
        "audit: journalled by the settlement, and once"
    );
}

/// A released run, a released row there, a run without risk.
pub async fn what_came_to_nothing_is_no_double<B: AuditBench>(bench: &B) {
    audit(bench).await;
    let released = runs_at_risk(bench, "audit-released").await;
    assert_eq!(release(bench, &released).await, Written::Done);
    bench.arrives(&released.id, Foreign::Settled).await;
    let there = runs_at_risk(bench, "audit-nothing-there").await;
    assert_eq!(settle(bench, &there, &answer()).await, Written::Done);
    bench.arrives(&there.id, Foreign::Released).await;
    assert_eq!(audit(bench).await, [], "audit: nothing happened on one side");
}

/// An open row that the own one names; once it is settled after all, it is a double.
pub async fn what_was_superseded_knowingly_is_no_double<B: AuditBench>(bench: &B) {
    audit(bench).await;
    let mut ask = asks(bench, &id(bench, "audit-over"), 1).await;
    let over = vec![(bench.peers()[0].clone(), bench.arrives(&ask.id, Foreign::InDoubt).await)];
    (ask.basis, ask.risk) =
        (Basis::Known { own: None, over, attempt: 1 }, vec![bench.peers()[0].region.clone()]);
    let attempt = wins(bench, &ask).await.0;
    assert_eq!(settle(bench, &attempt, &answer()).await, Written::Done);
    assert_eq!(audit(bench).await, [], "audit: it was superseded knowingly");
    let answered = State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
    let mut late = copied(bench, &bench.peers()[0], "audit-over", 1, answered);
    late.row.token.epoch = attempt.token.epoch;
    import(bench, &bench.peers()[0], &[late]).await;
    let found = audit(bench).await;
    assert_eq!(found.len(), 1, "audit: it happened after all: {found:?}");
}

async fn runs_at_risk<B: StoreBench>(bench: &B, name: &str) -> Attempt {
    let mut ask = asks(bench, &id(bench, name), 1).await;
    ask.risk = vec![bench.peers()[0].region.clone()];
    ask.hold = LONG;
    wins(bench, &ask).await.0
}

async fn audit<B: AuditBench>(bench: &B) -> Vec<Double> {
    bench.store().audit(100).await.expect("audit: audit failed")
}

/// The answer of the own row, or of another one.
async fn settled<B: StoreBench>(bench: &B, id: &KeyId, theirs: bool) -> Answer {
    let is = |row: &crate::protocol::record::Row| (row.origin != bench.origin()) == theirs;
    match rows(bench, id).await.into_iter().find(is).map(|row| row.state) {
        Some(State::Settled { answer, .. }) => (*answer).clone(),
        other => panic!("audit: a settled row was expected, not {other:?}"),
    }
}

/// The attempts of the key's doubles in the journal.
async fn journalled<B: StoreBench>(bench: &B, id: &KeyId) -> Vec<Token> {
    let all = bench.store().journal(id).await.expect("audit: journal failed");
    all.into_iter().filter(|entry| entry.kind == "double").filter_map(|entry| entry.token).collect()
}
