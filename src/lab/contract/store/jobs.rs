//! Clauses of the store about jobs: accepted with their record, taken by one worker, given back,
//! buried, revived by an operator. A store has one table of jobs: each clause leaves none behind.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri};

use super::super::bench::*;
use onceway_ports::jobs::{Act, Acted, Content, Job, JobRow, StoredRequest, Taken, Turns};
use onceway_protocol::job::JobState;

pub async fn suite(bench: &impl StoreBench) {
    an_acceptance_stores_record_and_job(bench).await;
    an_acceptance_reports_an_obstacle(bench).await;
    an_acceptance_finds_itself(bench).await;
    a_closed_gate_accepts_nothing(bench).await;
    an_acceptance_replaces_a_released_row_only(bench).await;
    one_job_has_one_taker(bench).await;
    jobs_are_taken_by_turns(bench).await;
    a_worker_that_dies_gives_its_job_back(bench).await;
    writes_of_an_older_taking_are_lost(bench).await;
    a_letter_waits_for_its_operator(bench).await;
    a_request_is_erased_when_its_retention_is_over(bench).await;
    a_discarded_job_leaves_a_free_key(bench).await;
}

fn request() -> StoredRequest {
    let mut headers = HeaderMap::new();
    headers.append("x-contract", HeaderValue::from_static("one"));
    headers.append("x-contract", HeaderValue::from_static("two"));
    StoredRequest {
        method: Method::POST,
        target: Uri::from_static("/v1/contract?a=b"),
        headers,
        body: Bytes::from_static(b"the request"),
    }
}

fn act() -> Act {
    Act { actor: "contract".to_owned(), reason: "a clause".to_owned() }
}

async fn accept(bench: &impl StoreBench, ask: &ClaimAsk) -> ClaimReply {
    bench.store().accept(ask, &request(), LONG).await.expect("store: accept failed")
}

async fn accepted(bench: &impl StoreBench, name: &str, nonce: u128) -> KeyId {
    let id = id(bench, name);
    is_accepted(bench, &id, nonce).await;
    id
}

async fn is_accepted(bench: &impl StoreBench, id: &KeyId, nonce: u128) {
    let reply = accept(bench, &asks(bench, id, nonce).await).await;
    assert!(matches!(reply, ClaimReply::Won { .. }), "store: this request must be accepted: {reply:?}");
}

async fn take(bench: &impl StoreBench, nonce: u128, away: Duration) -> Vec<Job> {
    bench.store().take(Nonce(nonce), 10, away, None).await.expect("store: take failed")
}

async fn takes(bench: &impl StoreBench, nonce: u128) -> Job {
    let mut jobs = take(bench, nonce, LONG).await;
    assert_eq!(jobs.len(), 1, "store: one job is due");
    jobs.remove(0)
}

async fn finish(bench: &impl StoreBench, taken: &Taken) {
    assert_eq!(bench.store().finish(taken).await, Ok(Done), "store: a taken job must be finished");
    assert_eq!(bench.store().job(&taken.id).await, Ok(None), "store: a finished job must be gone");
}

async fn shown(bench: &impl StoreBench, id: &KeyId) -> JobRow {
    bench.store().job(id).await.expect("store: job failed").expect("store: a job")
}

/// One statement writes both. The record says that nothing happened and that a job waits; the job
/// gives the request back.
async fn an_acceptance_stores_record_and_job(bench: &impl StoreBench) {
    let id = accepted(bench, "accepted", 1).await;
    let is_marked = async |id: &KeyId| row(bench, id).await.accepted;
    let first = row(bench, &id).await;
    assert!(first.accepted && first.state == State::Released, "store: {:?}", first.state);
    assert_eq!(first.token.attempt, 0, "store: nothing was attempted yet");
    let shown = shown(bench, &id).await;
    assert_eq!((shown.state, shown.runs, shown.kept), (JobState::Waiting, 0, true));
    assert_eq!(bench.store().load().await.map(|load| (load.waiting, load.dead)), Ok((1, 0)));
    let (attempt, _) = wins(bench, &asks_again(bench, &id, 2).await).await;
    assert_eq!(attempt.token.attempt, 1, "store: the first claim of a job is the first attempt");
    assert!(is_marked(&id).await, "store: the row stays marked as accepted while it runs");
    assert_eq!(settle(bench, &attempt, &answer()).await, Done);
    assert!(is_marked(&id).await, "store: the row stays marked as accepted in the end");
    let job = takes(bench, 3).await;
    assert_eq!((&job.taken.id, job.runs, job.over), (&id, 1, false));
    let content = job.content;
    assert_eq!(content, Content::Whole(Box::new(request())), "store: the request must come back as it was");
    assert_eq!(job.request_id, first.request_id);
    finish(bench, &job.taken).await;
    assert_eq!(rows(bench, &id).await.len(), 1, "store: the record outlives its job");
}

async fn an_acceptance_reports_an_obstacle(bench: &impl StoreBench) {
    let held = claimed(bench, "accept-held", 1).await;
    let elsewhere = id(bench, "accept-elsewhere");
    bench.arrives(&elsewhere, Foreign::Settled).await;
    for id in [held.id, elsewhere] {
        let ask = asks(bench, &id, 2).await;
        assert!(matches!(accept(bench, &ask).await, ClaimReply::Found(rows) if rows.len() == 1));
    }
    assert_eq!(take(bench, 4, LONG).await, [], "store: what was not accepted must leave no job");
}

async fn an_acceptance_finds_itself(bench: &impl StoreBench) {
    let ask = asks(bench, &id(bench, "accept-twice"), 1).await;
    let both = together(vec![accept(bench, &ask), accept(bench, &ask)]).await;
    assert!(both.iter().all(|reply| matches!(reply, ClaimReply::Won { .. })), "store: {both:?}");
    bench.restart().await;
    assert_eq!(accept(bench, &ask).await, both[0], "store: it must find itself while the gate is closed");
    open(bench).await;
    let other = asks(bench, &ask.id, 2).await;
    assert!(matches!(accept(bench, &other).await, ClaimReply::Found(rows) if rows[0].accepted));
    finish(bench, &takes(bench, 3).await.taken).await;
}

async fn a_closed_gate_accepts_nothing(bench: &impl StoreBench) {
    let mut ask = asks(bench, &id(bench, "accept-closed"), 1).await;
    ask.gate = GateVersion(ask.gate.0 + 1);
    assert_eq!(accept(bench, &ask).await, ClaimReply::GateMoved, "store: accepted at another version");
    bench.restart().await;
    ask.gate = gate(bench).await.version;
    assert_eq!(accept(bench, &ask).await, ClaimReply::GateMoved, "store: accepted while closed");
    assert!(rows(bench, &ask.id).await.is_empty() && bench.store().job(&ask.id).await == Ok(None));
    open(bench).await;
}

async fn an_acceptance_replaces_a_released_row_only(bench: &impl StoreBench) {
    let attempt = claimed(bench, "accept-over", 1).await;
    for nonce in [2, 3] {
        let ask = asks_again(bench, &attempt.id, nonce).await;
        assert!(matches!(accept(bench, &ask).await, ClaimReply::Found(_)), "store: accepted over an attempt");
        let written =
            if nonce == 2 { doubt(bench, &attempt, None).await } else { release(bench, &attempt).await };
        assert_eq!(written, Done);
    }
    let ask = asks_again(bench, &attempt.id, 5).await;
    assert!(matches!(accept(bench, &ask).await, ClaimReply::Won { .. }), "store: a released row must yield");
    let now = row(bench, &attempt.id).await;
    assert!(now.accepted && now.token.attempt == 1, "store: an acceptance uses up no attempt: {}", now.token);
    let stale = Basis::Known { own: Some((attempt.token, attempt.nonce)), over: Vec::new(), attempt: 1 };
    let stale = asks_on(bench, &attempt.id, 6, stale).await;
    finds(bench, &stale, "a claim on the row as it was before must be lost").await;
    finish(bench, &takes(bench, 7).await.taken).await;
}

/// A take gives each tenant's longest due job, after the tenant that had its turn last.
async fn jobs_are_taken_by_turns(bench: &impl StoreBench) {
    let (busy, own) = (bench.tenant("busy"), id(bench, "turns").tenant().clone());
    let of = |tenant: &Tenant, name: &str| KeyId::new(tenant.clone(), Key::parse(name).expect("a key"));
    for (nonce, (tenant, name)) in (1..).zip([
        (&busy, "busy-1"),
        (&busy, "busy-2"),
        (&busy, "busy-3"),
        (&own, "turns-1"),
        (&own, "turns-2"),
    ]) {
        is_accepted(bench, &of(tenant, name), nonce).await;
    }
    let turns = async |nonce, but_of: &[&Tenant], after: Option<&Tenant>| {
        let but_of = but_of.iter().map(|tenant| (*tenant).clone()).collect();
        let turns = Turns { but_of, after: after.cloned() };
        let taken = bench.store().take(Nonce(nonce), 9, LONG, Some(&turns)).await;
        taken.expect("store: take failed").into_iter().map(|job| job.taken).collect::<Vec<Taken>>()
    };
    let ids = |taken: &[Taken]| {
        let mut ids: Vec<KeyId> = taken.iter().map(|taken| taken.id.clone()).collect();
        ids.sort();
        ids
    };
    let first = turns(20, &[&busy], None).await;
    assert_eq!(ids(&first), [of(&own, "turns-1")], "store: one of each other tenant, the oldest");
    let last = busy.clone().max(own.clone());
    assert_eq!(ids(&turns(21, &[], Some(&last)).await), [], "store: nobody is behind the last one");
    let first_of = |tenant: &Tenant| if *tenant == busy { of(&busy, "busy-1") } else { of(&own, "turns-2") };
    let second = turns(22, &[], Some(&busy.clone().min(own.clone()))).await;
    let taken = ids(&second);
    assert_eq!(taken, [first_of(&last)], "store: what was taken is not due, and who was had is behind");
    assert_eq!(ids(&turns(23, &[&busy, &own], None).await), [], "store: everybody is named");
    let third = turns(24, &[&last], None).await;
    assert_eq!(ids(&third), [first_of(&busy.clone().min(own.clone()))]);
    let rest: Vec<Taken> = take(bench, 25, LONG).await.into_iter().map(|job| job.taken).collect();
    assert_eq!(rest.len(), 2, "store: all that is due, whosever it is: {rest:?}");
    for taken in [first, second, third, rest].concat() {
        finish(bench, &taken).await;
    }
}

async fn one_job_has_one_taker(bench: &impl StoreBench) {
    for (at, name) in ["taken-a", "taken-b", "taken-c", "taken-d"].into_iter().enumerate() {
        accepted(bench, name, at as u128).await;
    }
    let takers = (10..14).map(|nonce| bench.store().take(Nonce(nonce), 2, LONG, None)).collect();
    let mut got = Vec::new();
    for taken in together(takers).await {
        got.extend(taken.expect("store: take failed").into_iter().map(|job| job.taken));
    }
    // Takers that met each other's locks may have left some.
    got.extend(take(bench, 20, LONG).await.into_iter().map(|job| job.taken));
    let mut ids: Vec<KeyId> = got.iter().map(|taken| taken.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((got.len(), ids.len()), (4, 4), "store: a job was taken twice, or not at all");
    for taken in &got {
        finish(bench, taken).await;
    }
}

async fn a_worker_that_dies_gives_its_job_back(bench: &impl StoreBench) {
    let id = accepted(bench, "given-back", 1).await;
    assert_eq!((take(bench, 2, SHORT).await.len(), take(bench, 3, SHORT).await.len()), (1, 0));
    bench.pass(SHORT).await;
    let again = takes(bench, 4).await;
    assert_eq!((&again.taken.id, again.runs), (&id, 2), "store: a taken job must come back by itself");
    assert_eq!(bench.store().put_off(&again.taken, Duration::ZERO, false, "not counted").await, Ok(Done));
    let third = takes(bench, 5).await;
    assert_eq!(third.runs, 2, "store: a run that did not count must be taken back");
    let put = bench.store().put_off(&third.taken, SHORT, true, "counted").await;
    assert_eq!((put, take(bench, 6, SHORT).await.len()), (Ok(Done), 0), "store: it is put off");
    let shown = shown(bench, &id).await;
    assert_eq!((shown.runs, shown.trouble.as_deref()), (2, Some("counted")));
    bench.pass(SHORT).await;
    let last = takes(bench, 7).await;
    assert_eq!(last.runs, 3);
    finish(bench, &last.taken).await;
}

async fn writes_of_an_older_taking_are_lost(bench: &impl StoreBench) {
    accepted(bench, "job-older", 1).await;
    let older = take(bench, 2, SHORT).await.remove(0).taken;
    bench.pass(SHORT).await;
    let newer = takes(bench, 3).await.taken;
    let store = bench.store();
    assert_eq!(store.finish(&older).await, Ok(Lost));
    assert_eq!(store.put_off(&older, Duration::ZERO, true, "late").await, Ok(Lost));
    assert_eq!(store.bury(&older, "late").await, Ok(Lost));
    finish(bench, &newer).await;
}

async fn a_letter_waits_for_its_operator(bench: &impl StoreBench) {
    let id = accepted(bench, "letter", 1).await;
    let store = bench.store();
    assert_eq!(store.revive(&id, &act()).await, Ok(Acted::Waiting));
    let job = takes(bench, 2).await;
    assert_eq!(store.bury(&job.taken, "poison").await, Ok(Done));
    assert_eq!(take(bench, 3, LONG).await, [], "store: a dead letter must not be taken");
    let dead = store.jobs(Some(JobState::Dead), 10).await.expect("store: jobs failed");
    let [job] = dead.as_slice() else { panic!("store: one dead letter, not {dead:?}") };
    assert_eq!((&job.id, job.trouble.as_deref()), (&id, Some("poison")));
    assert_eq!(store.jobs(Some(JobState::Waiting), 10).await, Ok(Vec::new()));
    assert_eq!(store.jobs(None, 10).await.map(|all| all.len()), Ok(1));
    assert_eq!(store.load().await.map(|load| (load.waiting, load.dead)), Ok((0, 1)));
    assert_eq!(store.revive(&id, &act()).await, Ok(Acted::Done));
    let again = takes(bench, 4).await;
    assert_eq!(again.runs, 1);
    finish(bench, &again.taken).await;
    assert_eq!(store.revive(&id, &act()).await, Ok(Acted::Absent));
}

async fn a_request_is_erased_when_its_retention_is_over(bench: &impl StoreBench) {
    let store = bench.store();
    let ask = asks(bench, &id(bench, "job-erased"), 1).await;
    let reply = store.accept(&ask, &request(), SHORT).await;
    assert!(matches!(reply, Ok(ClaimReply::Won { .. })), "store: {reply:?}");
    let job = takes(bench, 2).await;
    assert!(!job.over);
    let put = store.put_off(&job.taken, LONG, true, "for longer than it is kept").await;
    assert_eq!((put, take(bench, 3, LONG).await.len()), (Ok(Done), 0));
    assert_eq!(store.erase().await, Ok(0), "store: a request is kept while its retention runs");
    bench.pass(SHORT).await;
    assert_eq!(store.erase().await, Ok(0), "store: a waiting one's is kept for its worker");
    let job = takes(bench, 6).await;
    assert!(job.over, "store: the retention of the request is over");
    assert_eq!(store.bury(&job.taken, "late").await, Ok(Done));
    assert_eq!(store.erase().await, Ok(1));
    assert!(!shown(bench, &ask.id).await.kept, "store: past its retention the request must be erased");
    assert_eq!(store.revive(&ask.id, &act()).await, Ok(Acted::Erased));
    assert_eq!(store.discard(&ask.id, &act()).await, Ok(Acted::Done));
}

/// Discarding frees the key and stops a worker that read the row before. A running attempt cannot
/// be discarded, and a doubt stays one.
async fn a_discarded_job_leaves_a_free_key(bench: &impl StoreBench) {
    let store = bench.store();
    let id = accepted(bench, "discarded", 1).await;
    let stale = asks_again(bench, &id, 2).await;
    assert_eq!(store.discard(&id, &act()).await, Ok(Acted::Done));
    assert_eq!((store.job(&id).await, row(bench, &id).await.accepted), (Ok(None), false));
    finds(bench, &stale, "a worker that read the row before must not claim").await;
    assert_eq!(store.discard(&id, &act()).await, Ok(Acted::Absent));

    let id = accepted(bench, "discard-running", 3).await;
    let (attempt, _) = wins(bench, &asks_again(bench, &id, 4).await).await;
    assert_eq!(store.discard(&id, &act()).await, Ok(Acted::Running));
    assert_eq!(doubt(bench, &attempt, None).await, Done);
    assert_eq!(store.discard(&id, &act()).await, Ok(Acted::Done));
    assert_eq!(settle(bench, &attempt, &answer()).await, Done, "store: a doubt keeps its nonce");

    // Whatever its record says, that worker goes on with the request that it has read.
    let id = accepted(bench, "discard-taken", 5).await;
    let job = takes(bench, 6).await;
    assert_eq!(store.discard(&id, &act()).await, Ok(Acted::Running), "store: a worker has it");
    assert_eq!(store.put_off(&job.taken, LONG, true, "later").await, Ok(Done));
    assert_eq!(store.discard(&id, &act()).await, Ok(Acted::Done), "store: no worker has it any more");
    let id = accepted(bench, "discard-given-up", 7).await;
    assert_eq!(take(bench, 8, SHORT).await.len(), 1);
    bench.pass(SHORT).await;
    assert_eq!(store.discard(&id, &act()).await, Ok(Acted::Done), "store: its worker was given up");
}
