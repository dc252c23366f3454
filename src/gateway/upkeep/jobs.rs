//! The workers: an accepted request runs on the path of a client's, again and again, up to a bound.
//!
//! If a worker dies, its job is due again by itself, and the record holds its result. If this
//! region no longer owns the key, the request is handed to the owner.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::RETRY_AFTER;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::workers::{Busy, QUARTER, Turn, lock};
use crate::gateway::instance::{Gateway, InFlight};
use crate::gateway::limits::quota::Charged;
use crate::gateway::policy::route::{Matched, Policy};
use crate::gateway::request::ask::{Ask, By};
use crate::gateway::request::follow;
use crate::gateway::request::problems::Kind;
use crate::gateway::request::reply::{self, Reply};
use crate::gateway::telemetry::{metrics, times, trace};
use crate::ports::jobs::{Content, Job, StoredRequest, Turns};
use crate::ports::peers::ForwardReply;
use crate::ports::{Dice, Jobs, Peers, Ports};
use crate::protocol::fingerprint;
use crate::protocol::key::Tenant;
use crate::protocol::record::{Reading, Row};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Here;

const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Time that a job stays away if only another region may run it.
const ELSEWHERE: Duration = Duration::from_secs(30);

enum End {
    /// The record has its final state, or nothing waits for this job any more.
    Done,
    /// Another run, after this time at least. A run that did not count says nothing about the job.
    Again {
        after: Duration,
        counted: bool,
        trouble: String,
    },
    Dead(String),
}

pub async fn take_loop<P: Ports>(gateway: Weak<Gateway<P>>, span: Option<trace::Begin>) {
    while let Some(gateway) = gateway.upgrade().filter(|gateway| !gateway.is_stopping()) {
        take(&gateway, span).await;
        let next = gateway.now() + gateway.settings.timings.jobs_poll;
        gateway.rest_or(|wakes| &wakes.jobs, next).await;
    }
}

pub async fn load_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(gateway) = gateway.upgrade() {
        let store = gateway.store();
        // Failures here are tried again soon; the store's own health is reported elsewhere.
        if let Ok(erased @ 1..) = store.erase().await {
            tracing::info!(erased, "stored requests of dead letters are past their retention");
        }
        if let Ok(load) = store.load().await {
            metrics::job_load(&load);
        }
        let next = gateway.now() + COUNT_EVERY;
        gateway.rest(next).await;
    }
}

async fn take<P: Ports>(gateway: &Arc<Gateway<P>>, span: Option<trace::Begin>) {
    if !gateway.store_is_open() {
        return;
    }
    // Counted before the look: if a stop saw nothing in flight, this call sees the stop.
    let taking = InFlight::look(gateway.clone());
    if gateway.is_stopping() {
        return;
    }
    let workers = &gateway.jobs;
    take_for(gateway, &workers.free, None, span).await;
    if workers.free.available_permits() == 0 && !gateway.is_stopping() {
        spare(gateway, span).await;
    }
    drop(taking);
}

/// Gives spare workers to tenants that have few, in turn.
async fn spare<P: Ports>(gateway: &Arc<Gateway<P>>, span: Option<trace::Begin>) {
    let (workers, begun) = (&gateway.jobs, gateway.now());
    let much = |(tenant, count): (&Tenant, &usize)| (*count >= QUARTER).then(|| tenant.clone());
    let but_of: Vec<Tenant> = lock(&workers.busy).iter().filter_map(much).collect();
    let mut turns = {
        let turn = lock(&workers.turns);
        let rests = turn.from.is_some_and(|from| begun < from);
        if but_of.is_empty() || rests || workers.spare.available_permits() == 0 {
            return;
        }
        Turns { but_of, after: turn.after.clone() }
    };
    let mut last = take_for(gateway, &workers.spare, Some(&turns), span).await;
    if last.is_none() && turns.after.take().is_some() {
        // From the first tenant again.
        last = take_for(gateway, &workers.spare, Some(&turns), span).await;
    }
    let ended = gateway.now();
    // However often the workers are woken, this takes a fifth of the time at most; and no other
    // tenant may have a due job.
    let pause = match last {
        Some(_) => ended.since(begun) * 4,
        None => gateway.settings.timings.jobs_poll,
    };
    *lock(&workers.turns) = Turn { after: last, from: Some(ended + pause) };
}

/// Takes jobs for these places, and runs them. Returns the last tenant by name.
async fn take_for<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    places: &Arc<Semaphore>,
    turns: Option<&Turns>,
    span: Option<trace::Begin>,
) -> Option<Tenant> {
    let free = places.available_permits();
    if free == 0 {
        return None;
    }
    let nonce = gateway.ports.dice().nonce();
    let taken = gateway.store().take(nonce, free, away(gateway), turns);
    let mut last = None;
    for mut job in metrics::upkeep("take", taken).await.unwrap_or_default() {
        let Ok(permit) = places.clone().try_acquire_owned() else { return last };
        last = last.max(Some(job.taken.id.tenant().clone()));
        let busy = Busy::with(&gateway.jobs.busy, job.taken.id.tenant());
        let (gateway, begun) = (gateway.clone(), InFlight::begin(gateway.clone()));
        let span = trace::job(span, &mut job);
        tokio::spawn(async move {
            run(&gateway, job).instrument(span).await;
            drop((permit, busy));
            gateway.authority.wakes.jobs.notify_one();
            drop(begun);
        });
    }
    last
}

/// Time that a taken job is left to its worker: longer than any run, and than a dead one's hold.
fn away<P: Ports>(gateway: &Gateway<P>) -> Duration {
    let live = gateway.live();
    let policies = live.routes.policies();
    policies.map(|policy| policy.hold + gateway.settings.patience(policy)).max().unwrap_or(ELSEWHERE)
}

async fn run<P: Ports>(gateway: &Arc<Gateway<P>>, job: Job) {
    let (mut route, mut limit, mut trace) = (Arc::from("unknown"), None, trace::NONE);
    let mut end = match prepared(gateway, &job).await {
        Err(end) => end,
        Ok((ask, rows)) => {
            (route, limit) = (ask.route.clone(), Some(ask.policy.accept.max_runs));
            trace = trace::of(&ask.request.headers);
            if job.runs > ask.policy.accept.max_runs {
                End::Dead(format!("its workers never came back: run {} times", job.runs - 1))
            } else {
                let reply = follow::follow(gateway, &ask, rows).await.reply();
                trace::answered(reply.verdict(), reply.code(), reply.status());
                ended(gateway, &ask.policy, job.runs, reply)
            }
        }
    };
    if let End::Again { counted: true, trouble, .. } = &end
        && limit.is_some_and(|limit| job.runs >= limit)
    {
        end = End::Dead(format!("{trouble}; run {} times", job.runs));
    }
    let (store, key) = (gateway.store(), job.taken.id.digest());
    let (result, trouble) = match &end {
        End::Done => ("settled", ""),
        End::Again { counted: true, trouble, .. } => ("retried", trouble.as_str()),
        End::Again { counted: false, trouble, .. } => ("waited", trouble.as_str()),
        End::Dead(trouble) => ("dead", trouble.as_str()),
    };
    let (region, epoch) = (&gateway.settings.me, gateway.view().epoch());
    tracing::info!(
        request = %job.request_id, %route, tenant = %job.taken.id.tenant(), %key, %region, epoch, runs = job.runs,
        result, trouble, %trace, "job"
    );
    trace::ran(&job, &route, region, epoch, result, trouble);
    metrics::job(&route, result);
    // If a write fails, the job comes back by itself; the record stops it from happening twice.
    let written = match &end {
        End::Done => store.finish(&job.taken).await,
        End::Again { after, counted, trouble } => store.put_off(&job.taken, *after, *counted, trouble).await,
        End::Dead(trouble) => store.bury(&job.taken, trouble).await,
    };
    if let Err(error) = written {
        tracing::warn!(%key, %error, "what a job came to could not be stored; it is due again by itself");
    }
}

/// The job as a request, with the rows of its key; or the reason why it is not run now.
async fn prepared<P: Ports>(gateway: &Arc<Gateway<P>>, job: &Job) -> Result<(Ask, Vec<Row>), End> {
    let id = &job.taken.id;
    let dead = |why: &str| End::Dead(why.to_owned());
    let Ok(rows) = metrics::upkeep("look_up", gateway.rows(id)).await else {
        return Err(waits(Duration::from_secs(1), "the store does not answer"));
    };
    match gateway.read(rows.clone()) {
        Reading::Settled(_) => return Err(End::Done),
        Reading::Gone(_) => return Err(dead("its key is past its retention")),
        Reading::Absent => return Err(dead("its record is gone")),
        Reading::Released(..) | Reading::InProgress(_) | Reading::InDoubt(..) => {}
    }
    let own = rows.iter().find(|row| row.origin == gateway.origin);
    let Some(own) = own.filter(|own| own.accepted) else { return Err(End::Done) };
    let is_over =
        |row: &Row| row.over.iter().any(|(origin, token)| *origin == own.origin && *token >= own.token);
    if rows.iter().any(|row| row.accepted && is_over(row)) {
        // Another region has accepted it since, over this acceptance: its job ends it.
        return Err(End::Done);
    }
    let request = match &job.content {
        Content::Unreadable(why) => return Err(dead(why)),
        Content::Erased => return Err(dead("its stored request was erased")),
        Content::Whole(_) if job.over => return Err(dead("the retention of its stored request is over")),
        Content::Whole(request) => (**request).clone(),
    };
    if !is_of(&request, own) {
        return Err(dead("its stored request is not the one that was accepted"));
    }
    let here = gateway.here(id);
    if let Here::Closed(_) | Here::Nobody | Here::Unfit(_) = here {
        return Err(waits(Duration::from_secs(1), "the region may not run its key now"));
    }
    let ask = ask(gateway, job, own, request).ok_or_else(|| dead("no route takes its request any more"))?;
    match here {
        Here::Elsewhere(owner) => Err(handed_on(gateway, ask, &owner).await),
        _run => Ok((ask, rows)),
    }
}

/// Hands a request to the owner, because the key's arc has moved since. The owner gets it as a
/// client's retry: as safe as any, so it is repeated until the key has its end.
async fn handed_on<P: Ports>(gateway: &Gateway<P>, ask: Ask, owner: &RegionName) -> End {
    let forward = ask.forward(gateway.view().epoch());
    let until = gateway.now() + ask.deadline;
    let asked = gateway.ports.peers().forward(owner, forward).instrument(trace::forward(owner));
    match gateway.before(until, asked).await {
        Some(Ok(ForwardReply::Answer(answer))) => {
            let status = answer.status().as_u16();
            let why = format!("another region owns the key: {owner} was asked, and answered {status}");
            waits(ELSEWHERE, &why)
        }
        Some(Ok(ForwardReply::NotOwner { .. }) | Err(_)) | None => {
            waits(ELSEWHERE, "another region owns the key")
        }
    }
}

/// True if this request is the record's: an unsealed one may have been damaged at rest.
fn is_of(request: &StoredRequest, own: &Row) -> bool {
    let target = request.target.path_and_query().map_or("/", |target| target.as_str());
    fingerprint::raw(request.method.as_str(), target, &request.body) == own.fingerprint.raw
}

/// The accepted request, under the fingerprint in its record.
fn ask<P: Ports>(gateway: &Gateway<P>, job: &Job, own: &Row, request: StoredRequest) -> Option<Ask> {
    let live = gateway.live();
    let found = live.routes.find(&request.method, request.target.path(), &request.headers);
    let Matched::Route(route) = found else { return None };
    let policy = route.policy()?.clone();
    Some(Ask {
        id: job.taken.id.clone(),
        echo: request.headers.get(&reply::KEY)?.clone(),
        route: route.name.clone(),
        deadline: gateway.settings.patience(&policy),
        policy,
        meanings: live.meanings.clone(),
        request,
        fingerprint: own.fingerprint,
        principal: own.principal,
        request_id: job.request_id,
        arrived: gateway.now(),
        charged: Charged::default(),
        times: None,
        waited: times::Waited::default(),
        _place: None,
        by: By::Worker,
    })
}

fn waits(after: Duration, why: &str) -> End {
    End::Again { after, counted: false, trouble: why.to_owned() }
}

/// Meaning for the job of the reply that a client would have got.
fn ended<P: Ports>(gateway: &Gateway<P>, policy: &Policy, runs: u32, reply: Reply) -> End {
    let span = policy.accept.backoff.after(runs);
    let backed_off = span / 2 + gateway.ports.dice().jitter(span / 2);
    let again = |hint: Option<Duration>, trouble: &str| {
        // All runs have their time before the request is erased, even if an upstream asks for a
        // long delay.
        let most = policy.accept.request_retention / policy.accept.max_runs.max(1);
        let hint = hint.unwrap_or_default().min(most);
        End::Again { after: backed_off.max(hint), counted: true, trouble: trouble.to_owned() }
    };
    let problem = match reply {
        Reply::First { settled: true, .. } | Reply::Replay(_) => return End::Done,
        Reply::First { settled: false, response, .. } => {
            let asked = response.headers().get(RETRY_AFTER).and_then(|text| text.to_str().ok()?.parse().ok());
            let trouble = format!("the upstream answered {}: nothing happened", response.status().as_u16());
            return again(asked.map(Duration::from_secs), &trouble);
        }
        Reply::Accepted(_) => return waits(backed_off, "it was accepted once more"),
        Reply::Refused(problem, _) => problem,
    };
    let (code, hint) = (problem.code(), problem.after);
    match problem.kind {
        Kind::UpstreamUnavailable => again(None, "the upstream cannot be reached"),
        Kind::CredentialRefused => again(None, "the upstream refuses our credential"),
        Kind::UpstreamUnclear => {
            again(None, &format!("the upstream answered {}: the outcome is not known", problem.status))
        }
        Kind::OutcomeUnknown => again(None, "the outcome is not known"),
        Kind::InDoubt => again(hint, "in doubt, and the upstream cannot say yet whether it happened"),
        Kind::Parked => {
            End::Dead("in doubt: the route parks such keys, or its attempts are used up".to_owned())
        }
        // An operator discarded it while it was under way.
        Kind::KeyUnknown => End::Done,
        // Whoever is told when to ask again has only to wait.
        _other => match hint {
            Some(hint) => waits(hint, code),
            None => End::Dead(format!("refused: {code}")),
        },
    }
}
