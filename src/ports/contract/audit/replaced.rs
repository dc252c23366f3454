//! Runs at risk of several origins: which of two is told, who speaks for a store that was replaced, and how far one look goes.
//!
//! Neighbours: [`super`] has the clauses of the own runs. It must not test which answer is served: `protocol::record` does.

use std::time::Duration;

use super::super::imports::{copied, import};
use super::super::store::{Foreign, LONG, answer, asks, id, settle, wins};
use super::{AuditBench, audit, audit_beside, journalled, runs_at_risk, stretch};
use crate::ports::audit::DoublesPage;
use crate::ports::store::Written;
use crate::protocol::decide::Basis;
use crate::protocol::record::{Nonce, State, Token};
use crate::protocol::region::Origin;

/// All of them.
pub async fn suite<B: AuditBench>(bench: &B) {
    replaced_stores_are_spoken_for(bench).await;
    one_of_two_runs_at_risk_is_told(bench).await;
    of_two_runs_at_risk_the_one_that_counts_is_told(bench).await;
    each_run_has_its_own_double_with_one_row(bench).await;
    runs_at_risk_are_looked_at_in_stretches(bench).await;
}

/// Two other origins ran a key, one of them at risk: nobody else may ever have both rows once either store is replaced.
pub async fn replaced_stores_are_spoken_for<B: AuditBench>(bench: &B) {
    audit(bench).await;
    let [first, second] = [bench.peers()[0].clone(), bench.peers()[1].clone()];
    for (name, replaced) in [("audit-beside-1", &first), ("audit-beside-2", &second)] {
        let id = id(bench, name);
        let token = bench.arrives(&id, Foreign::Settled).await;
        let answered = State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
        let at_risk = copied(bench, &second, name, 2, answered);
        import(bench, &second, std::slice::from_ref(&at_risk)).await;
        assert_eq!(audit(bench).await, [], "audit: both are there to find it themselves");
        let found = audit_beside(bench, std::slice::from_ref(replaced)).await;
        let [double] = found.as_slice() else { panic!("audit: {found:?}") };
        assert_eq!((&double.at_risk.origin, double.at_risk.token), (&second, at_risk.row.token));
        assert_eq!((&double.other.origin, double.other.token), (&first, token));
        assert_eq!(journalled(bench, &id).await, [at_risk.row.token], "audit: it must be in the journal");
        let all = [first.clone(), second.clone()];
        assert_eq!(audit_beside(bench, &all).await, [], "audit: found twice");
    }
}

/// The own run at risk comes first, and an older copy of a row says nothing.
pub async fn one_of_two_runs_at_risk_is_told<B: AuditBench>(bench: &B) {
    audit(bench).await;
    let second = bench.peers()[1].clone();
    let own = runs_at_risk(bench, "audit-both").await;
    assert_eq!(settle(bench, &own, &answer()).await, Written::Done);
    let answered = State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
    import(bench, &second, &[copied(bench, &second, "audit-both", 2, answered)]).await;
    let found = audit_beside(bench, std::slice::from_ref(&second)).await;
    assert_eq!(found.len(), 1, "audit: one pair, one double: {found:?}");
    assert_eq!(found[0].at_risk.origin, bench.origin(), "audit: the own run is the first");

    let first = bench.peers()[0].clone();
    let outdone = id(bench, "audit-outdone");
    bench.arrives(&outdone, Foreign::Released).await;
    let answered = State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
    let mut safe = copied(bench, &second, "audit-outdone", 2, answered);
    safe.row.risk.clear();
    import(bench, &second, &[safe]).await;
    let doubt = State::InDoubt { status: None, left: LONG, past: Duration::ZERO };
    let mut older = copied(bench, &first, "audit-outdone", 1, doubt);
    older.row.nonce = Nonce(9);
    import(bench, &first, &[older]).await;
    let found = audit_beside(bench, &[first, second]).await;
    assert_eq!(found, [], "audit: what it came to at last was nothing");
}

/// Where one run superseded the other knowingly, or the other's answer is forgotten, only one of the two directions is a double; the name
/// must not choose the other one.
pub async fn of_two_runs_at_risk_the_one_that_counts_is_told<B: AuditBench>(bench: &B) {
    audit(bench).await;
    let [first, second] = [bench.peers()[0].clone(), bench.peers()[1].clone()];
    let answered = || State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
    let doubt = || State::InDoubt { status: None, left: LONG, past: Duration::ZERO };
    let run = |origin: &Origin, name: &str, attempt, state, over: &[(Origin, Token)]| {
        let mut run = copied(bench, origin, name, attempt, state);
        run.row.nonce = Nonce(u128::from(attempt) + 20);
        run.row.over = over.to_vec();
        run
    };
    for (name, state) in [("audit-both-over", doubt()), ("audit-both-forgotten", State::Tombstone)] {
        for (lower, higher) in [(&first, &second), (&second, &first)] {
            let name = format!("{name}-{}", lower.region);
            let ended = run(lower, &name, 1, state.clone(), &[]);
            let over = [(lower.clone(), ended.row.token)];
            let again = run(higher, &name, 2, answered(), &over);
            import(bench, lower, std::slice::from_ref(&ended)).await;
            import(bench, higher, std::slice::from_ref(&again)).await;
            let found = audit_beside(bench, std::slice::from_ref(lower)).await;
            let [double] = found.as_slice() else { panic!("audit: {name}: {found:?}") };
            assert_eq!((&double.at_risk.origin, &double.other.origin), (lower, higher), "audit: {name}");
            assert_eq!(
                journalled(bench, &again.id).await,
                [ended.row.token],
                "audit: {name}: not journalled"
            );
            assert_eq!(audit_beside(bench, &[first.clone(), second.clone()]).await, [], "audit: found twice");
        }
    }

    let ended = run(&first, "audit-both-over-own", 1, doubt(), &[]);
    import(bench, &first, std::slice::from_ref(&ended)).await;
    let mut ask = asks(bench, &ended.id, 1).await;
    let over = vec![(first.clone(), ended.row.token)];
    (ask.basis, ask.risk) = (Basis::Known { own: None, over, attempt: 1 }, vec![first.region.clone()]);
    let own = wins(bench, &ask).await.0;
    assert_eq!(settle(bench, &own, &answer()).await, Written::Done);
    assert_eq!(audit(bench).await, [], "audit: the other one is there to find it itself");
    let found = audit_beside(bench, std::slice::from_ref(&first)).await;
    let [double] = found.as_slice() else { panic!("audit: {found:?}") };
    assert_eq!((&double.at_risk.origin, &double.other.origin), (&first, &bench.origin()));
    assert_eq!(journalled(bench, &ended.id).await, [ended.row.token]);
    let answer_after_all = run(&first, "audit-both-over-own", 1, answered(), &[]);
    import(bench, &first, &[answer_after_all]).await;
    assert_eq!(audit_beside(bench, std::slice::from_ref(&first)).await, [], "audit: one pair, one double");
}

/// Two runs at risk and the lost region's own one: each of the two has a double with that, and one with the other.
pub async fn each_run_has_its_own_double_with_one_row<B: AuditBench>(bench: &B) {
    audit(bench).await;
    let [first, second] = [bench.peers()[0].clone(), bench.peers()[1].clone()];
    let answered = || State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
    let own = runs_at_risk(bench, "audit-own-too").await;
    assert_eq!(settle(bench, &own, &answer()).await, Written::Done);
    let mut home = copied(bench, &second, "audit-own-too", 1, answered());
    (home.row.risk, home.row.nonce) = (Vec::new(), Nonce(31));
    let mut other = copied(bench, &first, "audit-own-too", 2, answered());
    (other.row.over, other.row.nonce) = (Vec::new(), Nonce(32));
    import(bench, &second, std::slice::from_ref(&home)).await;
    import(bench, &first, std::slice::from_ref(&other)).await;
    let found = audit_beside(bench, std::slice::from_ref(&first)).await;
    let pairs: Vec<(&Origin, &Origin)> =
        found.iter().map(|double| (&double.at_risk.origin, &double.other.origin)).collect();
    let me = bench.origin();
    assert_eq!(pairs.len(), 3, "audit: {pairs:?}");
    assert_eq!((pairs[0].0, pairs[1].0), (&me, &me), "audit: the own run's doubles come first");
    assert!([&first, &second].iter().all(|other| pairs[..2].contains(&(&me, *other))), "audit: {pairs:?}");
    assert_eq!(pairs[2], (&first, &second), "audit: {pairs:?}");
    let mut tokens = journalled(bench, &own.id).await;
    tokens.sort();
    let mut expected = [own.token, own.token, other.row.token];
    expected.sort();
    assert_eq!(tokens, expected, "audit: each of them in the journal");
    assert_eq!(audit_beside(bench, &[first, second]).await, [], "audit: found twice");
}

/// However many there are, whether anything is found or not; a key's runs are not parted.
pub async fn runs_at_risk_are_looked_at_in_stretches<B: AuditBench>(bench: &B) {
    let second = bench.peers()[1].clone();
    let name = |at: u32| format!("audit-stretch-{at}");
    let mut own = Vec::new();
    for at in 1..=5 {
        let attempt = runs_at_risk(bench, &name(at)).await;
        assert_eq!(settle(bench, &attempt, &answer()).await, Written::Done);
        own.push(attempt.id);
    }
    bench.arrives(&own[4], Foreign::Settled).await;
    let before = Some(id(bench, "audit-stretch-"));
    let empty = stretch(bench, before.as_ref(), 2, &[]).await;
    assert_eq!(empty, DoublesPage { doubles: Vec::new(), through: Some(own[1].clone()), more: true });
    let empty = stretch(bench, empty.through.as_ref(), 2, &[]).await;
    assert_eq!((empty.doubles.len(), empty.through.as_ref(), empty.more), (0, Some(&own[3]), true));
    let last = stretch(bench, empty.through.as_ref(), 1_000, &[]).await;
    assert_eq!((last.doubles.len(), last.more), (1, false), "audit: {last:?}");
    assert_eq!(last.doubles[0].id, own[4]);
    let none = stretch(bench, last.through.as_ref(), 1_000, &[]).await;
    assert_eq!(none, DoublesPage::default(), "audit: behind the last");

    // Runs of other origins belong to a stretch while a store is replaced: of a key that this region never had, and beside the own one.
    for (key, attempt) in [(format!("{}b", name(2)), 1), (name(3), 2)] {
        let answered = State::Settled { answer: answer().into(), age: Duration::ZERO, expired: false };
        import(bench, &second, &[copied(bench, &second, &key, attempt, answered)]).await;
    }
    let replaced = std::slice::from_ref(&second);
    let foreign = stretch(bench, Some(&own[1]), 1, replaced).await;
    assert_eq!((foreign.doubles.len(), foreign.more), (0, true));
    assert_eq!(foreign.through, Some(id(bench, "audit-stretch-2b")), "audit: it is looked at too");
    let both = stretch(bench, foreign.through.as_ref(), 1, replaced).await;
    assert_eq!((both.doubles.len(), both.through), (1, Some(own[2].clone())), "audit: both of the key");
    let unasked = stretch(bench, Some(&own[1]), 1, &[]).await;
    assert_eq!(unasked.through.as_ref(), Some(&own[2]), "audit: own ones only, where no store was replaced");
}
