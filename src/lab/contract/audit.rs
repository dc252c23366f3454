//! The promises of [`Audit`], and of [`KeyStore::settle`](onceway_ports::KeyStore::settle) if
//! another origin's answer is there first. Each run of the suite needs a new bench.

pub mod looks;

use super::bench::*;
use super::imports::{answered, copied, import};
use onceway_ports::audit::{Begin, Finding};
use onceway_protocol::double::Why;

pub async fn suite(bench: &impl AuditBench) {
    the_first_answer_stays_and_both_are_journalled(bench).await;
    a_double_says_what_explains_it(bench).await;
    the_same_attempt_is_no_double(bench).await;
    runs_at_risk_are_listed(bench).await;
    looks::suite(bench).await;
    a_late_answer_is_journalled_once(bench).await;
    findings_are_listed_in_order(bench).await;
    everything_is_told_of_each_key(bench).await;
    a_forgotten_key_is_told_by_its_journal(bench).await;
}

async fn the_first_answer_stays_and_both_are_journalled(bench: &impl AuditBench) {
    for in_doubt in [false, true] {
        let attempt = claimed(bench, &format!("audit-first-{in_doubt}"), 1).await;
        if in_doubt {
            assert_eq!(doubt(bench, &attempt, None).await, Done);
        }
        bench.arrives(&attempt.id, Foreign::Settled).await;
        let theirs = settled(bench, &attempt.id, true).await;
        for _ in 0..2 {
            assert_eq!(settle(bench, &attempt, &ours()).await, Lost, "audit: their answer was first");
            let said = settled(bench, &attempt.id, false).await;
            assert_eq!(said, theirs, "audit: the own row must say theirs");
        }
        assert_eq!(journalled(bench, &attempt.id).await, [attempt.token], "audit: a double, journalled once");
    }
}

/// A risk comes before knowledge of the other attempt; a double with neither is unexplained.
async fn a_double_says_what_explains_it(bench: &impl AuditBench) {
    let peer = bench.peers()[0].clone();
    for (name, why) in [("nothing", Why::Unexplained), ("over", Why::Over), ("risk", Why::Risk)] {
        let before = doubles(bench).await;
        let name = format!("audit-explained-{name}");
        let mut ask = asks(bench, &id(bench, &name), 1).await;
        if why != Why::Unexplained {
            ask.basis = over_theirs(bench, bench.arrives(&ask.id, Foreign::InDoubt).await);
        }
        if why == Why::Risk {
            ask.risk = vec![peer.region.clone()];
        }
        let attempt = wins(bench, &ask).await.0;
        let mut theirs = copied(bench, &peer, &name, 1, answered());
        (theirs.row.risk, theirs.row.over) = (Vec::new(), Vec::new());
        let stands = rows(bench, &ask.id).await.into_iter().find(|row| row.origin == peer);
        theirs.row.token = stands.map_or(theirs.row.token, |doubt| doubt.token);
        import(bench, &peer, &[theirs]).await;
        assert_eq!(settle(bench, &attempt, &answer()).await, Lost);
        let explained = journal(bench, &ask.id).await.into_iter().map(|entry| entry.explained);
        assert_eq!(explained.collect::<Vec<_>>(), [Some(why)]);
        let after = doubles(bench).await;
        assert_eq!(after.doubles, before.doubles + 1);
        let unexplained = before.unexplained + u64::from(why == Why::Unexplained);
        assert_eq!(after.unexplained, unexplained, "audit: {name}");
    }
}

async fn the_same_attempt_is_no_double(bench: &impl AuditBench) {
    let attempt = claimed(bench, "audit-same", 1).await;
    let origin = bench.peers()[1].clone();
    let there = row(bench, &attempt.id).await;
    let mut same = copied(bench, &origin, "audit-same", 1, answered());
    (same.row.nonce, same.row.token) = (there.nonce, there.token);
    import(bench, &origin, &[same]).await;
    assert_eq!(settle(bench, &attempt, &ours()).await, Lost);
    assert_eq!(settled(bench, &attempt.id, false).await, answer(), "audit: its answer is known already");
    assert_eq!(journalled(bench, &attempt.id).await, [], "audit: one attempt is no double");
}

async fn runs_at_risk_are_listed(bench: &impl AuditBench) {
    let safe = claimed(bench, "audit-list-0", 1).await;
    let mut at_risk = Vec::new();
    for at in 1..=3 {
        at_risk.push(runs_at_risk(bench, &format!("audit-list-{at}")).await);
    }
    assert_eq!(settle(bench, &at_risk[1], &answer()).await, Done);
    let (mut found, mut after) = (Vec::new(), Some(safe.id));
    for _ in 0..2 {
        let page = bench.store().runs_at_risk(after.as_ref(), 2).await.expect("audit: runs_at_risk failed");
        after = page.last().map(|run| run.id.clone());
        found.extend(page);
    }
    let keys: Vec<&KeyId> = found.iter().map(|run| &run.id).collect();
    let all = at_risk.iter().map(|attempt| &attempt.id).collect::<Vec<_>>();
    assert_eq!(keys, all, "audit: all of them, no other");
    for run in &found {
        assert_eq!(run.row.risk, [bench.peers()[0].region.clone()], "audit: the claim must say its risk");
        assert_eq!((&*run.route, run.path.as_str()), ("contract", "/v1/contract"));
    }
    let again = Basis::Known { own: None, over: Vec::new(), attempt: 0 };
    let ask = asks_on(bench, &id(bench, "audit-list-4"), 1, again).await;
    let ask = ClaimAsk { risk: vec![bench.peers()[1].region.clone()], ..ask };
    wins(bench, &ask).await;
    assert_eq!(row(bench, &ask.id).await.risk, ask.risk, "audit: a claim on a known basis must say its risk");
}

/// An answer whose attempt is released or replaced is journalled, with its request. A settled
/// attempt's answer is never late: a probe, or another region, had brought it.
async fn a_late_answer_is_journalled_once(bench: &impl AuditBench) {
    let first = released_key(bench, "audit-late", 1).await;
    let released = row(bench, &first.id).await;
    assert!(late(bench, &first).await, "audit: the answer to a released attempt is late");
    assert!(!late(bench, &first).await, "audit: journalled twice");
    let second = wins(bench, &asks_on(bench, &first.id, 2, known(&released)).await).await.0;
    assert!(!late(bench, &first).await, "audit: journalled twice");
    assert_eq!(settle(bench, &second, &answer()).await, Done);
    let never = Attempt { nonce: Nonce(77), ..first.clone() };
    assert!(late(bench, &never).await, "audit: another attempt of that token is another answer");
    let journal = journal(bench, &first.id).await;
    assert_eq!(journal.len(), 2, "audit: {journal:?}");
    let entry = journal.last().expect("audit: two entries");
    assert_eq!((entry.kind.as_str(), entry.token), ("late", Some(first.token)), "audit: {entry:?}");
    assert_eq!((entry.status, entry.request_id), (Some(299), Some(RequestId(5))), "audit: {entry:?}");
    let probed = settled_key(bench, "audit-known", 1).await;
    assert!(!late(bench, &probed).await, "audit: what became of it is known");
    let other = claimed(bench, "audit-known-double", 1).await;
    bench.arrives(&other.id, Foreign::Settled).await;
    assert_eq!(settle(bench, &other, &ours()).await, Lost);
    assert!(!late(bench, &other).await, "audit: it is a double, and journalled as one");
    assert_eq!(journalled(bench, &other.id).await, [other.token]);
}

/// Doubles and late answers, in the journal's order, after one; the count is of all doubles.
async fn findings_are_listed_in_order(bench: &impl AuditBench) {
    let before = doubles(bench).await;
    let seen = findings(bench, None, LONG).await.last().map(|finding| finding.place);
    let double = claimed(bench, "audit-finding-1", 1).await;
    bench.arrives(&double.id, Foreign::Settled).await;
    assert_eq!(settle(bench, &double, &ours()).await, Lost);
    let gone = released_key(bench, "audit-finding-2", 1).await;
    assert!(late(bench, &gone).await);
    bench.store().note("contract-finding", "no finding").await.expect("audit: note failed");
    let found = findings(bench, seen, LONG).await;
    let kinds: Vec<(&str, &KeyId)> = found.iter().map(|one| (one.entry.kind.as_str(), &one.id)).collect();
    assert_eq!(kinds, [("double", &double.id), ("late", &gone.id)], "audit: each once, in order");
    assert_eq!(found[0].entry.status, Some(299), "audit: the own answer's status");
    let next = findings(bench, Some(found[0].place), LONG).await;
    assert_eq!(next, found[1..], "audit: a page goes on after a place");
    assert_eq!(doubles(bench).await.doubles, before.doubles + 1, "audit: all count, whoever met them");
    bench.pass(SHORT).await;
    assert_eq!(findings(bench, seen, Duration::ZERO).await, [], "audit: older ones are left out");
}

/// A history has rows of all origins, with route, path and dates, and the journal. Of a replicated
/// and an imported row the later one is shown.
async fn everything_is_told_of_each_key(bench: &impl AuditBench) {
    let own = settled_key(bench, "audit-told-1", 1).await;
    let both = runs_at_risk(bench, "audit-told-2").await;
    let arrived = bench.arrives(&both.id, Foreign::Settled).await;
    assert_eq!(settle(bench, &both, &ours()).await, Lost);
    let origin = bench.peers()[1].clone();
    let imported = copied(bench, &origin, "audit-told-3", 1, answered());
    import(bench, &origin, std::slice::from_ref(&imported)).await;

    let mut found = Vec::new();
    let mut after = Some(id(bench, "audit-told-"));
    for _ in 0..3 {
        let page = bench.store().histories(after.as_ref().into(), 1).await.expect("audit: histories failed");
        assert_eq!(page.len(), 1, "audit: at most so many, and all of them");
        after = page.last().map(|last| last.id.clone());
        found.extend(page);
    }
    let ids: Vec<&KeyId> = found.iter().map(|one| &one.id).collect();
    assert_eq!(ids, [&own.id, &both.id, &imported.id], "audit: in the order of keys");
    let [held] = found[0].rows.as_slice() else { panic!("audit: {:?}", found[0]) };
    assert_eq!((&*held.route, held.path.as_str(), held.imported), ("contract", "/v1/contract", false));
    assert!(held.claimed.is_some() && held.claimed <= held.settled, "audit: {held:?}");
    let State::Settled { answer: light, .. } = &held.row.state else { panic!("audit: {held:?}") };
    assert_eq!((light.status, light.headers.len()), (201, 0), "audit: an answer without its headers");
    assert!(light.body == AnswerBody::NotKept, "audit: an answer without its body");
    assert_eq!(found[1].rows.len(), 2, "audit: a row for each origin");
    let theirs = found[1].rows.iter().find(|held| held.row.origin == bench.peers()[0]);
    assert_eq!(theirs.map(|held| held.row.token), Some(arrived));
    assert_eq!(found[1].journal.iter().map(|entry| entry.kind.as_str()).collect::<Vec<_>>(), ["double"]);
    let [held] = found[2].rows.as_slice() else { panic!("audit: {:?}", found[2]) };
    assert_eq!((&held.row.origin, held.imported, held.claimed), (&origin, true, None));
}

async fn a_forgotten_key_is_told_by_its_journal(bench: &impl AuditBench) {
    let before = id(bench, "audit-forgotte");
    let id = id(bench, "audit-forgotten");
    let never = Attempt { id: id.clone(), token: Token { epoch: 1, attempt: 1 }, nonce: Nonce(78) };
    assert!(late(bench, &never).await, "audit: the answer to an attempt whose row is gone is late");
    let page = bench.store().histories(Begin::After(&before), 1).await.expect("audit: histories failed");
    assert_eq!((&page[0].id, page[0].rows.len(), page[0].journal.len()), (&id, 0, 1), "audit: {page:?}");
    let first = bench.store().histories(Begin::First, 1).await.expect("audit: histories failed");
    let at = bench.store().histories(Begin::At(first[0].id.tenant()), 1).await;
    let at = at.expect("audit: histories failed");
    assert_eq!(at[0].id, first[0].id, "audit: a tenant's keys begin with its first");
}

fn ours() -> Answer {
    Answer { status: 299, ..answer() }
}

async fn late(bench: &impl AuditBench, attempt: &Attempt) -> bool {
    bench.store().late(attempt, Some(RequestId(5)), &ours()).await.expect("audit: late failed")
}

async fn findings(bench: &impl AuditBench, after: Option<Place>, back: Duration) -> Vec<Finding> {
    bench.store().findings(after, back, 1_000).await.expect("audit: findings failed")
}

async fn settled(bench: &impl StoreBench, id: &KeyId, theirs: bool) -> Answer {
    let is = |row: &Row| (row.origin != bench.origin()) == theirs;
    match rows(bench, id).await.into_iter().find(is).map(|row| row.state) {
        Some(State::Settled { answer, .. }) => (*answer).clone(),
        other => panic!("audit: a settled row was expected, not {other:?}"),
    }
}
