//! Looks over all records, and the doubles that they journal: which keys are returned, how far one
//! look goes, what is settled. Pairs are judged by `protocol::double`, as a gateway does.

use std::collections::BTreeMap;

use super::super::bench::*;
use super::super::imports::{answered, copied, import};
use onceway_ports::audit::{Double, Of, Stretch};
use onceway_protocol::double::{Held, Trace, Twice, Why, compare};

pub async fn suite(bench: &impl AuditBench) {
    a_double_is_found_though_no_claim_says_a_risk(bench).await;
    doubles_are_journalled_once_in_either_order(bench).await;
    a_double_met_at_settlement_is_journalled_once(bench).await;
    an_attempt_without_effect_is_no_double(bench).await;
    a_knowingly_superseded_attempt_is_no_double(bench).await;
    two_settled_rows_of_one_place_are_compared(bench).await;
    every_pair_of_regions_has_its_own_double(bench).await;
    a_tombstone_says_whether_it_was_settled(bench).await;
    evidence_has_the_dates_of_its_life(bench).await;
    records_are_looked_at_in_stretches(bench).await;
    runs_at_risk_are_looked_at_in_stretches(bench).await;
}

/// Two regions settled the key, and neither claim names a risk. A look over all records finds the
/// double; a look over the runs at risk does not.
async fn a_double_is_found_though_no_claim_says_a_risk(bench: &impl AuditBench) {
    let before = doubles(bench).await;
    let own = settled_key(bench, "look-silent", 1).await;
    bench.arrives(&own.id, Foreign::Settled).await;
    assert_eq!(look_at(bench, Of::AtRisk, "look-silent").await, None, "audit: no run at risk");
    let traces = look_at(bench, Of::All, "look-silent").await.expect("audit: it must be told");
    assert_eq!(traces.len(), 2, "audit: one row of each region");
    assert!(traces.iter().all(|trace| trace.settled && trace.row.risk.is_empty()));
    assert_eq!(marks(&traces_of(bench, &own.id).await), marks(&traces));
    let double = pair(bench, &own.id, &traces).expect("audit: two answers are a double");
    assert_eq!(Why::of(double.at_risk, double.named), Why::Unexplained);
    assert_eq!(bench.store().journal_doubles(&[double]).await, Ok(vec![true]));
    assert_eq!(journalled(bench, &own.id).await, [own.token]);
    let journal = journal(bench, &own.id).await;
    assert_eq!(journal[0].explained, Some(Why::Unexplained));
    assert_eq!((journal[0].status, journal[0].reason.as_deref()), (Some(201), Some("contract")));
    let after = doubles(bench).await;
    assert_eq!((after.doubles, after.unexplained), (before.doubles + 1, before.unexplained + 1));
}

async fn doubles_are_journalled_once_in_either_order(bench: &impl AuditBench) {
    let certain = runs_at_risk(bench, "look-certain").await;
    assert_eq!(settle(bench, &certain, &answer()).await, Done);
    let possible = runs_at_risk(bench, "look-possible").await;
    assert_eq!(doubt(bench, &possible, None).await, Done);
    assert_eq!(look_at(bench, Of::AtRisk, "look-certain").await, None, "audit: no other row is here yet");
    bench.arrives(&certain.id, Foreign::Settled).await;
    bench.arrives(&possible.id, Foreign::InDoubt).await;
    let mut found = Vec::new();
    for (attempt, name) in [(&certain, "look-certain"), (&possible, "look-possible")] {
        let traces = look_at(bench, Of::AtRisk, name).await.expect("audit: both rows are here");
        assert_eq!(look_at(bench, Of::All, name).await.map(|all| marks(&all)), Some(marks(&traces)));
        found.push(pair(bench, &attempt.id, &traces).expect("audit: it ran at risk"));
    }
    assert!(found.iter().all(|double| double.at_risk && !double.named));
    assert_eq!(bench.store().journal_doubles(&found).await, Ok(vec![true, true]));
    assert_eq!(bench.store().journal_doubles(&found).await, Ok(vec![false, false]), "audit: found twice");
    let turned: Vec<Double> = found.into_iter().map(turned).collect();
    assert_eq!(bench.store().journal_doubles(&turned).await, Ok(vec![false, false]), "audit: turned round");
    assert_eq!(journalled(bench, &certain.id).await, [certain.token]);
    assert_eq!(journalled(bench, &possible.id).await, [possible.token]);
    assert_eq!(bench.store().journal_doubles(&[]).await, Ok(Vec::new()));
}

async fn a_double_met_at_settlement_is_journalled_once(bench: &impl AuditBench) {
    let met = runs_at_risk(bench, "look-met").await;
    bench.arrives(&met.id, Foreign::Settled).await;
    assert_eq!(settle(bench, &met, &answer()).await, Lost);
    let traces = look_at(bench, Of::All, "look-met").await.expect("audit: both rows are here");
    let double = pair(bench, &met.id, &traces).expect("audit: both have their answers");
    assert_eq!(bench.store().journal_doubles(&[double]).await, Ok(vec![false]));
    assert_eq!(journalled(bench, &met.id).await, [met.token], "audit: by the settlement, and once");
}

async fn an_attempt_without_effect_is_no_double(bench: &impl AuditBench) {
    let released = runs_at_risk(bench, "look-released").await;
    assert_eq!(release(bench, &released).await, Done);
    bench.arrives(&released.id, Foreign::Settled).await;
    let there = runs_at_risk(bench, "look-nothing-there").await;
    assert_eq!(settle(bench, &there, &answer()).await, Done);
    bench.arrives(&there.id, Foreign::Released).await;
    for (attempt, name) in [(&released, "look-released"), (&there, "look-nothing-there")] {
        let traces = look_at(bench, Of::All, name).await.expect("audit: both rows are here");
        assert_eq!(pair(bench, &attempt.id, &traces), None, "audit: nothing happened on one side");
    }
}

/// An open row that the own one names is no double until it is settled after all. A later attempt
/// of that origin is one too. An older copy of a row says nothing.
async fn a_knowingly_superseded_attempt_is_no_double(bench: &impl AuditBench) {
    let peer = bench.peers()[0].clone();
    let doubt = State::InDoubt { status: None, left: LONG, past: Duration::ZERO };
    for (name, later, state, twice) in
        [("look-over", 1, answered(), Twice::Surely), ("look-over-again", 2, doubt.clone(), Twice::Perhaps)]
    {
        let key = id(bench, name);
        let over = over_theirs(bench, bench.arrives(&key, Foreign::InDoubt).await);
        let mut ask = asks_on(bench, &key, 1, over).await;
        ask.risk = vec![peer.region.clone()];
        let attempt = wins(bench, &ask).await.0;
        assert_eq!(settle(bench, &attempt, &answer()).await, Done);
        let traces = look_at(bench, Of::All, name).await.expect("audit: both rows are here");
        assert_eq!(pair(bench, &attempt.id, &traces), None, "audit: it was superseded knowingly");
        let mut late = copied(bench, &peer, name, later, state);
        late.row.token.epoch = attempt.token.epoch;
        import(bench, &peer, &[late]).await;
        let traces = look_at(bench, Of::All, name).await.expect("audit: both rows are here");
        assert_eq!(traces.len(), 2, "audit: of two copies of a row the later one: {traces:?}");
        assert_eq!(*traces[0].route, *ask.terms.route, "audit: the route that made the claim");
        let double = compare(&traces[0], &traces[1], &traces, &held(bench));
        let double = double.map(|double| (double.twice, double.named));
        assert_eq!(double, Some((twice, twice == Twice::Surely)), "audit: {name}");
    }
}

/// A replicated row and an imported one of one origin are two attempts if their nonces differ.
async fn two_settled_rows_of_one_place_are_compared(bench: &impl AuditBench) {
    let peer = bench.peers()[0].clone();
    for (name, same) in [("look-place", false), ("look-place-copy", true)] {
        let id = id(bench, name);
        bench.arrives(&id, Foreign::Settled).await;
        let nonce = if same { traces_of(bench, &id).await[0].row.nonce.0 } else { 31 };
        import(bench, &peer, &[settled(bench, &peer, name, nonce)]).await;
        let traces = look_at(bench, Of::All, name).await;
        assert_eq!(traces.is_none(), same, "audit: a copy is no second row: {traces:?}");
        let Some(traces) = traces else { continue };
        let found = pair(bench, &id, &traces).expect("audit: two attempts of one place");
        assert_eq!((&found.first.origin, &found.second.origin), (&peer, &peer));
        assert_eq!(bench.store().journal_doubles(std::slice::from_ref(&found)).await, Ok(vec![true]));
        assert_eq!(bench.store().journal_doubles(&[turned(found)]).await, Ok(vec![false]));
    }
}

async fn every_pair_of_regions_has_its_own_double(bench: &impl AuditBench) {
    let [first, second] = [bench.peers()[0].clone(), bench.peers()[1].clone()];
    let own = settled_key(bench, "look-three", 1).await;
    for (origin, nonce) in [(&first, 31), (&second, 32)] {
        import(bench, origin, &[settled(bench, origin, "look-three", nonce)]).await;
    }
    let traces = look_at(bench, Of::All, "look-three").await.expect("audit: all rows are here");
    assert_eq!(traces.len(), 3);
    let mut found = Vec::new();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let two = [traces[one].clone(), traces[other].clone()];
        found.push(pair(bench, &own.id, &two).expect("audit: each pair is a double"));
    }
    assert_eq!(bench.store().journal_doubles(&found).await, Ok(vec![true; 3]));
    assert_eq!(bench.store().journal_doubles(&found).await, Ok(vec![false; 3]));
    assert_eq!(journalled(bench, &own.id).await.len(), 3);
}

async fn a_tombstone_says_whether_it_was_settled(bench: &impl AuditBench) {
    let mut ends = Vec::new();
    for (name, settles) in [("look-expired", true), ("look-expired-released", false)] {
        let brief = lived(SHORT, Duration::ZERO);
        let attempt = claimed_as(bench, name, 1, |ask| ask.terms.lifetime = brief).await;
        let written = match settles {
            true => settle(bench, &attempt, &answer()).await,
            false => release(bench, &attempt).await,
        };
        assert_eq!(written, Done);
        ends.push((attempt, settles));
    }
    bench.pass(SHORT).await;
    bench.store().reap(1_000, None).await.expect("audit: reap failed");
    for (attempt, settles) in ends {
        let [trace] = &traces_of(bench, &attempt.id).await[..] else { panic!("audit: one row") };
        assert_eq!((&trace.row.state, trace.settled), (&State::Tombstone, settles));
    }
    let peer = bench.peers()[1].clone();
    let mut over = settled(bench, &peer, "look-over-life", 33);
    (over.lives, over.tombstone) = (Duration::ZERO, Duration::ZERO);
    import(bench, &peer, std::slice::from_ref(&over)).await;
    let traces = traces_of(bench, &over.id).await;
    let marks = (traces[0].settled, traces[0].over);
    assert_eq!(marks, (true, true), "audit: it was settled, and its life is over: {traces:?}");
}

/// Evidence has the time of its claim, the time as a tombstone and the end of its life, which
/// counts the tombstone in. The claim's time is not known of a row that a survivor handed over.
async fn evidence_has_the_dates_of_its_life(bench: &impl AuditBench) {
    let brief = lived(SHORT, Duration::ZERO);
    let attempt = claimed_as(bench, "look-dates", 1, |ask| ask.terms.lifetime = brief).await;
    let read = async |id: &KeyId| traces_of(bench, id).await.into_iter().next().expect("audit: one row");
    let open = read(&attempt.id).await;
    assert_eq!(settle(bench, &attempt, &answer()).await, Done);
    let young = read(&attempt.id).await;
    bench.pass(SHORT).await;
    let old = read(&attempt.id).await;
    assert_eq!([open.settled, young.settled, old.settled], [false, true, true]);
    assert_eq!((old.over, old.tombstone), (false, LONG), "audit: it lives on as a tombstone: {old:?}");
    let claimed = young.claimed.expect("audit: the own claim has a date");
    assert_eq!((open.claimed, old.claimed), (young.claimed, young.claimed), "audit: and one only");
    let promised = young.row.expires.as_millis() - SHORT.as_millis() as i64;
    assert!((claimed.as_millis() - promised).abs() <= 1_000, "audit: {claimed:?}, not {promised}");
    let lifetime = Lifetime { tombstone: Duration::ZERO, ..lived(Duration::ZERO, Duration::ZERO) };
    let (brief, _) = settled_for(bench, "look-dates-brief", lifetime).await;
    assert!(read(&brief.id).await.over, "audit: past its retention and its tombstone");
    let peer = bench.peers()[0].clone();
    let imported = settled(bench, &peer, "look-dates-imported", 35);
    import(bench, &peer, std::slice::from_ref(&imported)).await;
    let imported = read(&imported.id).await;
    assert_eq!((imported.settled, imported.over, imported.claimed), (true, false, None), "{imported:?}");
}

async fn records_are_looked_at_in_stretches(bench: &impl AuditBench) {
    let name = |at: u32| format!("look-all-{at}");
    let mut own = Vec::new();
    for at in 1..=5 {
        own.push(settled_key(bench, &name(at), 1).await.id);
    }
    bench.arrives(&own[1], Foreign::Released).await;
    let peer = bench.peers()[1].clone();
    import(bench, &peer, &[settled(bench, &peer, &name(4), 34)]).await;
    let first = stretch(bench, Of::All, Some(&id(bench, "look-all-")), 2).await;
    assert_eq!((first.through.as_ref(), first.looked_at, first.more), (Some(&own[1]), 3, true));
    assert_eq!(first.shared.len(), 1, "audit: shared with the released row: {first:?}");
    assert_eq!((&first.shared[0].0, first.shared[0].1.len()), (&own[1], 2));
    let next = stretch(bench, Of::All, first.through.as_ref(), 1).await;
    assert_eq!((next.through.as_ref(), next.shared.len(), next.more), (Some(&own[2]), 0, true));
    let next = stretch(bench, Of::All, next.through.as_ref(), 3).await;
    assert_eq!((next.through.as_ref(), next.looked_at, next.more), (Some(&own[4]), 3, true));
    assert_eq!(next.shared.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&own[3]]);
    let mut after = Some(own[4].clone());
    for _ in 0..1_000 {
        let rest = stretch(bench, Of::All, after.as_ref(), 1_000).await;
        if !rest.more {
            let none = stretch(bench, Of::All, rest.through.as_ref().or(after.as_ref()), 1_000).await;
            assert_eq!(none, Stretch::default(), "audit: behind the last");
            return;
        }
        after = rest.through;
    }
    panic!("audit: it never ends");
}

async fn runs_at_risk_are_looked_at_in_stretches(bench: &impl AuditBench) {
    let second = bench.peers()[1].clone();
    let name = |at: u32| format!("look-stretch-{at}");
    let mut own = Vec::new();
    for at in 1..=5 {
        let attempt = match at {
            3 => claimed(bench, &name(at), 1).await,
            _ => runs_at_risk(bench, &name(at)).await,
        };
        assert_eq!(settle(bench, &attempt, &answer()).await, Done);
        own.push(attempt.id);
    }
    bench.arrives(&own[4], Foreign::Settled).await;
    let first = stretch(bench, Of::AtRisk, Some(id(bench, "look-stretch-")).as_ref(), 2).await;
    assert_eq!((first.through.as_ref(), first.looked_at, first.more), (Some(&own[1]), 2, true));
    let next = stretch(bench, Of::AtRisk, first.through.as_ref(), 2).await;
    assert_eq!((next.through.as_ref(), next.looked_at), (Some(&own[4]), 2), "audit: the third is none");
    assert_eq!(next.shared.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&own[4]]);
    // A run at risk of another origin, of a key that this region never had.
    import(bench, &second, &[copied(bench, &second, &format!("{}b", name(2)), 1, answered())]).await;
    let foreign = stretch(bench, Of::AtRisk, Some(&own[1]), 1).await;
    assert_eq!(foreign.through, Some(id(bench, "look-stretch-2b")), "audit: it is looked at too");
    assert_eq!((foreign.shared.len(), foreign.more), (0, true));
}

fn held(bench: &impl StoreBench) -> Held {
    Held { me: bench.origin(), beats: BTreeMap::new(), views: Arc::default() }
}

fn settled(bench: &impl StoreBench, origin: &Origin, name: &str, nonce: u128) -> CopiedRow {
    let answer = Answer { status: 200, ..answer() };
    let state = State::Settled { answer: answer.into(), age: Duration::ZERO, expired: false };
    let mut row = copied(bench, origin, name, 1, state);
    (row.row.nonce, row.row.over, row.row.risk) = (Nonce(nonce), Vec::new(), Vec::new());
    row
}

/// The double of two rows, the own one first; `None` if they are none.
fn pair(bench: &impl StoreBench, id: &KeyId, traces: &[Trace]) -> Option<Double> {
    let [one, other] = traces else { panic!("audit: two rows were expected: {traces:?}") };
    let found = compare(one, other, traces, &held(bench))?;
    let (first, second) = if other.row.origin == bench.origin() { (other, one) } else { (one, other) };
    Some(Double {
        id: id.clone(),
        first: first.row.clone(),
        second: second.row.clone(),
        at_risk: found.at_risk,
        named: found.named,
        reason: "contract".to_owned(),
    })
}

async fn traces_of(bench: &impl AuditBench, id: &KeyId) -> Vec<Trace> {
    let all = traced(bench, std::slice::from_ref(id)).await;
    let [traces] = <[Vec<Trace>; 1]>::try_from(all).expect("audit: one id, one vector");
    traces
}

/// The facts of rows that their reader's clock does not change.
fn marks(traces: &[Trace]) -> Vec<(Origin, Token, bool)> {
    traces.iter().map(|trace| (trace.row.origin.clone(), trace.row.token, trace.settled)).collect()
}

fn turned(double: Double) -> Double {
    Double { first: double.second, second: double.first, ..double }
}

calls! { AuditBench:
    stretch = stretch(of: Of, after: Option<&KeyId>, most: u32) -> Stretch;
    traced = traces(ids: &[KeyId]) -> Vec<Vec<Trace>>;
}

async fn look_at(bench: &impl AuditBench, of: Of, name: &str) -> Option<Vec<Trace>> {
    let wanted = id(bench, name);
    let mut after = None;
    loop {
        let page = stretch(bench, of, after.as_ref(), 100).await;
        if let Some((_, traces)) = page.shared.into_iter().find(|(id, _)| *id == wanted) {
            return Some(traces);
        }
        if !page.more {
            return None;
        }
        after = page.through;
    }
}
