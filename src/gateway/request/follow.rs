//! The life of a keyed request, top to bottom.
//!
//! The order in [`run`] is the safety argument: *claim durably → check the right to send → send →
//! settle → answer*. A check before the claim would let a handler that slept send after another
//! handler recovered the key. A client that hangs up cancels nothing: the work runs in a task of
//! its own. Must not send anything before its claim is durable.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::Response;
use tracing::Instrument;

use super::admit::{Ask, By};
use super::claim::{ClaimBasis, ClaimMode, Claimed, claim, store_unavailable};
use super::escrow::NotLodged;
use super::finish::{InFlight, finish, jittered, later, moving, read, unknown, waits};
use super::outcome::Claim;
use super::problems::{Kind, Problem};
use super::recover::{self, Recovered};
use super::reply::Reply;
use super::{accept, escrow, forward, outcome};
use crate::gateway::authority::{Here, Permit, Unfit};
use crate::gateway::instance::Gateway;
use crate::gateway::race::{Won, race};
use crate::gateway::telemetry::{metrics, spans};
use crate::gateway::upkeep::catching_up;
use crate::gateway::upkeep::supervise::supervise;
use crate::ports::upstream::{Send, SendError};
use crate::ports::{Body, Clock, KeyStore, Ports, Upstream};
use crate::protocol::authority::Closed;
use crate::protocol::decide::{Basis, Facts, Verdict, decide, retry_after};
use crate::protocol::record::{Reading, Row};
use crate::protocol::region::RegionName;
use crate::protocol::time::{Date, Moment};

/// Races for its key that one request may lose. After that the client gets `in-progress`.
const ROUNDS: usize = 32;

pub(in crate::gateway) enum Step {
    Ended(Reply),
    /// Nothing was sent, and facts that it relied on have changed. Look at everything anew, or else
    /// give this problem.
    Again(Problem),
}

impl Step {
    /// The reply, if there is no further look.
    pub(in crate::gateway) fn reply(self) -> Reply {
        match self {
            Step::Ended(reply) => reply,
            Step::Again(problem) => Reply::Refused(problem, None),
        }
    }
}

/// Answers an admitted client's request: here if this region owns the key, else from the local copy
/// or from the owner.
pub(in crate::gateway) async fn answer<P: Ports>(gateway: &Arc<Gateway<P>>, ask: Arc<Ask>) -> Response<Body> {
    detached(gateway, ask, |gateway, ask| {
        Box::pin(async move {
            match serve(&gateway, &ask).await {
                Ok(reply) => finish(&gateway, &ask, reply),
                Err(owner) => Box::pin(forward::answer(&gateway, &ask, owner)).await,
            }
        })
    })
    .await
}

/// Answers a request that was forwarded to this region. It is never forwarded again.
pub(in crate::gateway) async fn answer_here<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: Arc<Ask>,
) -> Response<Body> {
    detached(gateway, ask, |gateway, ask| {
        Box::pin(async move {
            let reply =
                serve(&gateway, &ask).await.unwrap_or_else(|_| Reply::Refused(moving(&gateway), None));
            finish(&gateway, &ask, reply)
        })
    })
    .await
}

/// Runs the work in a task of its own, and counts it. Neither a client that hangs up nor a stop
/// cuts it short. It comes in a box, since a task moves its future several times.
async fn detached<P, F, W>(gateway: &Arc<Gateway<P>>, ask: Arc<Ask>, work: F) -> Response<Body>
where
    P: Ports,
    F: FnOnce(Arc<Gateway<P>>, Arc<Ask>) -> Pin<Box<W>> + std::marker::Send + 'static,
    W: Future<Output = Response<Body>> + std::marker::Send + 'static,
{
    // Counted before the look: if a stop saw nothing in flight, this request sees the stop.
    let begun = InFlight::begin(gateway.clone());
    if gateway.is_stopping() {
        return finish(gateway, &ask, Reply::Refused(later(gateway, Kind::Stopping), None));
    }
    let task = {
        let (gateway, ask) = (gateway.clone(), ask.clone());
        let work = async move {
            let response = work(gateway, ask).await;
            drop(begun);
            response
        };
        tokio::spawn(work.in_current_span())
    };
    match task.await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, key = %ask.id.digest(), "a request's task ended before its answer");
            finish(gateway, &ask, unknown(gateway, None))
        }
    }
}

/// Looks at a key while its conditions change, at most. One move changes the gate up to three times
/// (given up, adopted, opened). A key that stays must not get the answer that it moves.
const LOOKS: u32 = 4;

/// Serves a key as far as this region may. If facts that it relied on have changed, it looks again.
/// An error is the region that owns the key.
// Boxes, here and below: a request would move the room for what few requests come to.
pub(in crate::gateway) async fn serve<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
) -> Result<Reply, RegionName> {
    let mut told = None;
    for look in 0..LOOKS {
        let step = match gateway.here(&ask.id) {
            Here::Run(permit) => start(gateway, ask, &permit, look == 0).await,
            Here::Closed(Closed::CatchingUp) => Box::pin(catching_up::serve(gateway, ask)).await,
            Here::Closed(Closed::Moving) => copy_or(gateway, ask, moving(gateway)).await,
            Here::Closed(Closed::NoLease) => {
                copy_or(gateway, ask, later(gateway, Kind::NotAuthoritative)).await
            }
            Here::Elsewhere(owner) => return Err(owner),
            Here::Nobody => Step::Ended(Reply::Refused(later(gateway, Kind::HomeUnavailable), None)),
            Here::Unfit(why) => {
                metrics::claim_failed(&ask.route, ask.id.tenant());
                copy_or(gateway, ask, unfit(gateway, &why)).await
            }
        };
        match step {
            Step::Ended(reply) => return Ok(reply),
            Step::Again(problem) => told = Some(problem),
        }
    }
    let told = told.unwrap_or_else(|| moving(gateway));
    Ok(Reply::Refused(told, None))
}

/// The refusal of a gateway that runs no key at all.
pub(in crate::gateway) fn unfit<P: Ports>(gateway: &Gateway<P>, why: &Unfit) -> Problem {
    tracing::warn!(why = why.told(), "refused: no key is run here");
    let kind = match why {
        Unfit::NotFounded => Kind::NotFounded,
        Unfit::Outgrown(_) => Kind::Outgrown,
        Unfit::Store(_) => Kind::StoreUnavailable,
    };
    later(gateway, kind)
}

/// Replays a final record, even if this region may not run the key; else refuses.
async fn copy_or<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, problem: Problem) -> Step {
    let copy = Box::pin(forward::local_copy(gateway, ask)).await;
    Step::Ended(copy.unwrap_or(Reply::Refused(problem, None)))
}

/// Serves a key that this region may run.
async fn start<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, permit: &Permit, first: bool) -> Step {
    let stand = ClaimBasis { basis: Basis::Absent, untouched: true };
    match begin(gateway, ask, permit, stand).await {
        Begun::Done(step) => step,
        Begun::Found(rows) => {
            if first {
                metrics::duplicate(ask.id.tenant());
            }
            follow(gateway, ask, rows).await
        }
    }
}

pub(in crate::gateway) enum Begun {
    /// The request has its result.
    Done(Step),
    /// The key already has these rows.
    Found(Vec<Row>),
}

/// Claims under this permit and runs. If the client need not wait and nothing happened so far,
/// accepts.
pub(in crate::gateway) async fn begin<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    permit: &Permit,
    stand: ClaimBasis,
) -> Begun {
    // A claim finds out by itself if the key is new, but writes it if it is.
    let is_new = matches!(stand.basis, Basis::Absent);
    if is_new && let Err(again) = gateway.may_start_a_key(ask.id.tenant()) {
        return Box::pin(full(gateway, ask, again)).await;
    }
    let later = stand.untouched && matches!(ask.by, By::Later { .. });
    let way = if later { ClaimMode::Later(Box::new(accept::stored(gateway, ask))) } else { ClaimMode::Now };
    let claimed = claim(gateway, ask, permit, stand, way).await;
    if is_new && matches!(claimed, Ok(Claimed::Ours(_))) {
        gateway.started_a_key(ask.id.tenant());
    }
    let step = match claimed {
        Ok(Claimed::Ours(claim)) if later => Step::Ended(accept::accepted(gateway, ask, claim.expires)),
        Ok(Claimed::Ours(claim)) => Box::pin(run(gateway, ask, claim)).await,
        Ok(Claimed::Found(rows)) => return Begun::Found(rows),
        Ok(Claimed::Moved) => Step::Again(moving(gateway)),
        Err(problem) => {
            metrics::claim_failed(&ask.route, ask.id.tenant());
            Step::Ended(Reply::Refused(problem, None))
        }
    };
    Begun::Done(step)
}

/// The rows of a key whose tenant may have no further key: a retry is served as before.
async fn full<P: Ports>(gateway: &Gateway<P>, ask: &Ask, again: Duration) -> Begun {
    let found = gateway.ports.store().look_up(std::slice::from_ref(&ask.id));
    let refused = match metrics::store("look_up", &ask.route, gateway, found).await {
        Ok(mut found) => match found.pop().unwrap_or_default() {
            rows if rows.is_empty() => gateway.has_too_many_keys(ask.id.tenant(), again),
            rows => return Begun::Found(rows),
        },
        Err(error) => {
            metrics::claim_failed(&ask.route, ask.id.tenant());
            store_unavailable(gateway, error.to_string())
        }
    };
    Begun::Done(Step::Ended(Reply::Refused(refused, None)))
}

/// Follows the rows of the key until there is a reply.
pub(in crate::gateway) async fn follow<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    mut rows: Vec<Row>,
) -> Step {
    for _ in 0..ROUNDS {
        let stand = match stand_on(gateway, ask, rows).await {
            Ok(stand) => stand,
            Err(reply) => return Step::Ended(reply),
        };
        // A new permit each time: the earlier one does not hold after waiting or asking.
        let Here::Run(permit) = gateway.here(&ask.id) else {
            return Step::Again(moving(gateway));
        };
        rows = match begin(gateway, ask, &permit, stand).await {
            Begun::Done(step) => return step,
            Begun::Found(rows) => rows,
        };
    }
    Step::Ended(Reply::Refused(later(gateway, Kind::InProgress), None))
}

/// The basis of the key's next claim, or the reply. Before that, waits for the running attempt and
/// asks the upstream about doubts.
async fn stand_on<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    mut rows: Vec<Row>,
) -> Result<ClaimBasis, Reply> {
    let attach_until = ask.arrived + ask.policy.wait.min(ask.deadline);
    loop {
        if let Some(reply) = accept::standing(gateway, ask, &rows).await {
            return Err(reply);
        }
        let reading = read(gateway, rows);
        let untouched = matches!(reading, Reading::Absent | Reading::Released(..));
        match verdict(ask, reading) {
            Verdict::Claim(basis) => return Ok(ClaimBasis { basis, untouched }),
            Verdict::Attach { left, expires } => {
                let mut waiter = gateway.attached.join(&ask.id);
                let ended = race(waiter.ended(), gateway.ports.clock().sleep_until(attach_until));
                match waits(gateway, ask, ended).await {
                    Won::First(ended) => {
                        metrics::attached("replayed");
                        rows = ended;
                    }
                    Won::Second(()) => {
                        metrics::attached("waited_out");
                        return Err(running(gateway, ask, left, expires));
                    }
                }
            }
            Verdict::Probe { doubts, basis } => {
                match Box::pin(recover::probe(gateway, ask, doubts, basis)).await {
                    Recovered::Claim(basis) => return Ok(ClaimBasis { basis, untouched: false }),
                    Recovered::Reply(reply) => return Err(reply),
                }
            }
            Verdict::Parked { expires } => {
                let after = jittered(gateway, Duration::from_secs(60));
                let parked = Kind::Parked.after(after).because("The key is parked for an operator");
                return Err(Reply::Refused(parked, Some(expires)));
            }
            Verdict::Replay(settlement) => return Err(Reply::Replay(settlement)),
            Verdict::KeyReused { expires } => return Err(reused(ask, expires)),
            Verdict::KeyExpired { expires } => return Err(expired(expires)),
        }
    }
}

/// The refusal while another request runs the key.
pub(in crate::gateway) fn running<P: Ports>(
    gateway: &Gateway<P>,
    ask: &Ask,
    left: Duration,
    expires: Date,
) -> Reply {
    let after = retry_after(left.saturating_sub(ask.policy.wait), gateway.typical(&ask.route));
    Reply::Refused(Kind::InProgress.after(after), Some(expires))
}

/// The refusal of a key that was used for another request.
pub(in crate::gateway) fn reused(ask: &Ask, expires: Date) -> Reply {
    Reply::Refused(ask.policy.mismatch.into(), Some(expires))
}

pub(in crate::gateway) fn expired(expires: Date) -> Reply {
    Reply::Refused(Kind::KeyExpired.problem(), Some(expires))
}

/// Runs a claimed key: lodge, check, send, settle, answer.
async fn run<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, mut claim: Claim) -> Step {
    match escrow::lodge(gateway, ask, &claim).await {
        Ok(lodged) => claim.lodged = lodged,
        Err(failed) => {
            outcome::unsent(gateway, ask, &claim).await;
            let problem = later(gateway, Kind::EscrowUnavailable);
            return match failed {
                NotLodged::Stale => Step::Again(problem),
                NotLodged::Unavailable => Step::Ended(Reply::Refused(problem, Some(claim.expires))),
            };
        }
    }
    send(gateway, ask, claim).await
}

/// Reason why a claimed request is not sent.
#[derive(Clone, Copy, Debug)]
enum Unsendable {
    /// The time to send is over.
    Late,
    /// The lease lapsed, or keys were lost, since the claim; perhaps not this key.
    OtherTenure,
}

/// Checks that a claimed request may be sent now. The only place that says so, for clients'
/// requests, jobs and recoveries.
fn may_send<P: Ports>(gateway: &Gateway<P>, claim: &Claim, now: Moment) -> Result<(), Unsendable> {
    if !claim.send_by.allows(now) {
        return Err(Unsendable::Late);
    }
    if !gateway.may_send(claim.permit.tenure, now) {
        return Err(Unsendable::OtherTenure);
    }
    Ok(())
}

/// Sends the claimed request, if it still may, and stores the outcome.
async fn send<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: Claim) -> Step {
    let send = Send {
        upstream: ask.policy.upstream.clone(),
        key: ask.policy.key_headers.to.clone(),
        id: ask.id.clone(),
        token: claim.attempt.token,
        request_id: ask.request_id,
        method: ask.method.clone(),
        target: ask.target.clone(),
        headers: ask.headers.clone(),
        body: ask.body.clone(),
    };
    // From here to the send there is no await: what is checked is still true when the first byte is
    // written.
    let started = gateway.ports.clock().now();
    if let Err(why) = may_send(gateway, &claim, started) {
        return unsendable(gateway, ask, &claim, why).await;
    }
    // Making a connection may take seconds, so the check is repeated after it.
    let refused = OnceLock::new();
    let still = || match may_send(gateway, &claim, gateway.ports.clock().now()) {
        Ok(()) => true,
        Err(why) => {
            let _first = refused.set(why);
            false
        }
    };
    let sent = gateway.ports.upstream().send(send, ask.policy.upstream_timeout, still);
    let answered = waits(gateway, ask, sent.instrument(spans::upstream())).await;
    Step::Ended(match answered {
        Ok(response) => outcome::answered(gateway, ask, claim, response, started).await,
        Err(SendError::NotSent(_)) if let Some(why) = refused.get() => {
            return unsendable(gateway, ask, &claim, *why).await;
        }
        Err(SendError::NotSent(why)) => {
            tracing::warn!(key = %ask.id.digest(), why, "the upstream cannot be reached; released");
            metrics::attempt(&ask.route, "nothing_happened");
            outcome::unsent(gateway, ask, &claim).await;
            Reply::Refused(later(gateway, Kind::UpstreamUnavailable), Some(claim.expires))
        }
        Err(SendError::Unknown(why) | SendError::Late(why)) => {
            tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, why, "outcome unknown");
            outcome::doubtful(gateway, ask, &claim, None).await
        }
    })
}

/// Releases a claim whose request was not sent, because the right to send it ended.
async fn unsendable<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: &Claim, why: Unsendable) -> Step {
    metrics::send_refused();
    let told = match why {
        Unsendable::Late => "the time to send was over",
        Unsendable::OtherTenure => "the lease lapsed, or keys were lost, since the claim",
    };
    tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, why = told, "released unsent");
    outcome::unsent(gateway, ask, claim).await;
    let problem = later(gateway, Kind::NotAuthoritative);
    match why {
        Unsendable::Late => Step::Ended(Reply::Refused(problem, Some(claim.expires))),
        // A clean move ends no request: the key stays here, or another region is known to own it by
        // now.
        Unsendable::OtherTenure => Step::Again(problem),
    }
}

/// The verdict on the rows of the request's key, under its route.
pub(in crate::gateway) fn verdict(ask: &Ask, reading: Reading) -> Verdict {
    let facts = Facts { fingerprint: &ask.fingerprint, principal: ask.principal };
    decide(reading, &facts)
}

/// Looks for all duplicates of this process at once: have their attempts ended elsewhere?
pub(in crate::gateway) fn start_poller<P: Ports>(gateway: &Arc<Gateway<P>>) {
    supervise(gateway, "waiters", poll_loop);
}

async fn poll_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(gateway) = gateway.upgrade() {
        let ids = gateway.attached.keys();
        if ids.is_empty() {
            let attached = gateway.attached.clone();
            drop(gateway);
            attached.somebody_joined().await;
            continue;
        }
        if let Ok(found) = gateway.ports.store().look_up(&ids).await {
            for (id, rows) in ids.iter().zip(found) {
                if !matches!(read(&gateway, rows.clone()), Reading::InProgress(_)) {
                    gateway.attached.wake(id, rows);
                }
            }
        }
        let next = gateway.ports.clock().now() + gateway.settings.timings.attach_poll;
        gateway.rest(next).await;
    }
}
