//! The life of a keyed request, top to bottom.
//!
//! Neighbours: [`super::admit`] hands requests in; [`super::forward`] takes those whose owner is elsewhere; [`super::recover`] asks
//! about keys in doubt; [`super::outcome`] stores what came of an attempt. The order in [`run`] is the safety argument: *claim durably →
//! check the right to send → send → settle → answer*. Checking before the claim would let a handler that slept send after
//! somebody else recovered the key. A client that hangs up cancels nothing: the work runs in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use http::Response;

use super::admit::{Ask, By};
use super::ending::{InFlight, finish, jittered, read, unknown};
use super::outcome::Claim;
use super::problems::Problem;
use super::race::{Won, race};
use super::recover::{self, Recovered};
use super::reply::Reply;
use super::{Gateway, StoreHealth, accept, forward, metrics, outcome};
use crate::ports::jobs::StoredRequest;
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, GateVersion, StoreError};
use crate::ports::upstream::{Send, SendError};
use crate::ports::{Body, Clock, Dice, Jobs, KeyStore, Ports, Upstream};
use crate::protocol::decide::{Basis, Facts, Verdict, decide, retry_after};
use crate::protocol::hold::SendBy;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::record::{Reading, Row};

/// How often one request may lose a race for its key before it is told that another is in progress.
const ROUNDS: usize = 32;

/// Answers an admitted client's request: here if this region owns the key, else from the local copy or the owner.
pub(super) async fn answer<P: Ports>(gateway: &Arc<Gateway<P>>, ask: Ask) -> Response<Body> {
    match gateway.view().owner(&ask.id) {
        Some(owner) if *owner == gateway.settings.me => answer_here(gateway, ask).await,
        Some(owner) => {
            let owner = owner.clone();
            detached(gateway, ask, move |gateway, ask| async move {
                forward::answer(&gateway, &ask, &owner).await
            })
            .await
        }
        None => {
            let after = jittered(gateway, Duration::from_secs(1));
            finish(gateway, &ask, Reply::Refused(Problem::HomeUnavailable { after }, None))
        }
    }
}

/// Answers a request whose key this region owns.
pub(super) async fn answer_here<P: Ports>(gateway: &Arc<Gateway<P>>, ask: Ask) -> Response<Body> {
    detached(gateway, ask, |gateway, ask| async move {
        let reply = serve(&gateway, &ask).await;
        finish(&gateway, &ask, reply)
    })
    .await
}

/// Runs the work in a task of its own, counted, so that neither a client that hangs up nor a stop cuts it short.
async fn detached<P, F, W>(gateway: &Arc<Gateway<P>>, ask: Ask, work: F) -> Response<Body>
where
    P: Ports,
    F: FnOnce(Arc<Gateway<P>>, Arc<Ask>) -> W + std::marker::Send + 'static,
    W: Future<Output = Response<Body>> + std::marker::Send + 'static,
{
    let ask = Arc::new(ask);
    // Counted before the look: a stop that saw nothing in flight has been seen here.
    let begun = InFlight::begin(gateway.clone());
    if gateway.is_stopping() {
        let after = jittered(gateway, Duration::from_secs(1));
        return finish(gateway, &ask, Reply::Refused(Problem::Stopping { after }, None));
    }
    let task = {
        let (gateway, ask) = (gateway.clone(), ask.clone());
        tokio::spawn(async move {
            let response = work(gateway, ask).await;
            drop(begun);
            response
        })
    };
    match task.await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, key = %ask.id.digest(), "a request's task ended before its answer");
            finish(gateway, &ask, unknown(gateway, None))
        }
    }
}

/// Serves a key that this region owns.
async fn serve<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Reply {
    if let Some(peer) = gateway.disputed() {
        return forward::local_copy(gateway, ask).await.unwrap_or_else(|| {
            tracing::warn!(%peer, "refused: a peer goes by another view, so the key may have two owners");
            Reply::Refused(Problem::Moving { after: jittered(gateway, Duration::from_secs(1)) }, None)
        });
    }
    match begin(gateway, ask, Basis::Absent, true).await {
        Begun::Ended(reply) => reply,
        Begun::Found(rows) => {
            metrics::duplicate(ask.id.tenant());
            follow(gateway, ask, rows).await
        }
    }
}

/// What a beginning came to.
enum Begun {
    /// The reply to give.
    Ended(Reply),
    /// These rows stand in the way.
    Found(Vec<Row>),
}

/// Claims on this basis and runs; or, where the client need not wait and `untouched` says that nothing happened so far, accepts.
async fn begin<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, basis: Basis, untouched: bool) -> Begun {
    let later = untouched && matches!(ask.by, By::Later { .. });
    let way = if later { Way::Later(Box::new(accept::stored(gateway, ask))) } else { Way::Now };
    match claim(gateway, ask, basis, way).await {
        Ok(Claimed::Ours(claim)) if later => Begun::Ended(accept::accepted(gateway, ask, claim.expires)),
        Ok(Claimed::Ours(claim)) => Begun::Ended(run(gateway, ask, claim).await),
        Ok(Claimed::Found(rows)) => Begun::Found(rows),
        Err(problem) => {
            metrics::claim_failed(&ask.route, ask.id.tenant());
            Begun::Ended(Reply::Refused(problem, None))
        }
    }
}

/// Does what the rows of the key ask for, until there is a reply.
pub(super) async fn follow<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, mut rows: Vec<Row>) -> Reply {
    let attach_until = ask.arrived + ask.policy.wait.min(ask.deadline);
    for _ in 0..ROUNDS {
        let (basis, untouched) = loop {
            if let Some(reply) = accept::standing(gateway, ask, &rows).await {
                return reply;
            }
            let reading = read(gateway, rows);
            let untouched = matches!(reading, Reading::Released(..));
            match verdict(ask, reading) {
                Verdict::Claim(next) => break (next, untouched),
                Verdict::Replay(settlement) => return Reply::Replay(settlement),
                Verdict::KeyReused { expires } => {
                    let dialect = ask.policy.mismatch;
                    return Reply::Refused(Problem::KeyReused { dialect }, Some(expires));
                }
                Verdict::KeyExpired { expires } => return Reply::Refused(Problem::KeyExpired, Some(expires)),
                Verdict::Parked { expires } => {
                    let after = jittered(gateway, Duration::from_secs(60));
                    return Reply::Refused(Problem::Parked { after }, Some(expires));
                }
                Verdict::Attach { left, expires } => {
                    let mut waiter = gateway.attached.join(&ask.id);
                    match race(waiter.ended(), gateway.ports.clock().sleep_until(attach_until)).await {
                        Won::First(ended) => {
                            metrics::attached("replayed");
                            rows = ended;
                        }
                        Won::Second(()) => {
                            metrics::attached("waited_out");
                            let after = retry_after(
                                left.saturating_sub(ask.policy.wait),
                                gateway.typical(&ask.route),
                            );
                            return Reply::Refused(Problem::InProgress { after }, Some(expires));
                        }
                    }
                }
                Verdict::Probe { doubt, basis } => match recover::probe(gateway, ask, doubt, basis).await {
                    Recovered::Claim(next) => break (next, false),
                    Recovered::Reply(reply) => return reply,
                },
            }
        };
        rows = match begin(gateway, ask, basis, untouched).await {
            Begun::Ended(reply) => return reply,
            Begun::Found(rows) => rows,
        };
    }
    Reply::Refused(Problem::InProgress { after: jittered(gateway, Duration::from_secs(1)) }, None)
}

/// Runs a claimed key: check, send, settle, answer.
async fn run<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: Claim) -> Reply {
    let send = Send {
        id: ask.id.clone(),
        token: claim.attempt.token,
        request_id: ask.request_id,
        method: ask.method.clone(),
        target: ask.target.clone(),
        headers: ask.headers.clone(),
        body: ask.body.clone(),
    };
    // From here to the send there is no await: what is checked is still true when the first byte is written.
    let started = gateway.ports.clock().now();
    if !claim.send_by.allows(started) {
        metrics::send_refused();
        tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, "the time to send was over; released unsent");
        outcome::released(gateway, ask, &claim).await;
        let after = jittered(gateway, Duration::from_secs(1));
        return Reply::Refused(Problem::NotAuthoritative { after }, Some(claim.expires));
    }
    let answered = gateway.ports.upstream().send(send, ask.policy.upstream_timeout).await;
    match answered {
        Ok(response) => outcome::answered(gateway, ask, claim, response, started).await,
        Err(SendError::NotSent(why)) => {
            tracing::warn!(key = %ask.id.digest(), why, "the upstream cannot be reached; released");
            metrics::attempt(&ask.route, "nothing_happened");
            outcome::released(gateway, ask, &claim).await;
            let after = jittered(gateway, Duration::from_secs(1));
            Reply::Refused(Problem::UpstreamUnavailable { after }, Some(claim.expires))
        }
        Err(SendError::Unknown(why)) => {
            tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, why, "outcome unknown");
            outcome::doubtful(gateway, ask, &claim, None).await
        }
    }
}

/// Whether a claim is made to be run now, or a request is stored to be run by its job.
enum Way {
    Now,
    Later(Box<StoredRequest>),
}

enum Claimed {
    Ours(Claim),
    Found(Vec<Row>),
}

/// Claims the key durably, or says what stands in the way. A claim whose commit was not confirmed is read again by its nonce,
/// once; what is still not confirmed is never sent, and released in the background.
async fn claim<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    basis: Basis,
    way: Way,
) -> Result<Claimed, Problem> {
    let policy = &ask.policy;
    let mut claim = ClaimAsk {
        risk: Vec::new(),
        id: ask.id.clone(),
        fingerprint: ask.fingerprint,
        nonce: gateway.ports.dice().nonce(),
        request_id: ask.request_id,
        gate: gate_version(gateway, false).await?,
        basis,
        hold: policy.hold,
        lifetime: Lifetime {
            retention: policy.retention,
            skew: gateway.settings.skew,
            tombstone: policy.tombstone,
        },
        route: ask.route.clone(),
        path: ask.target.path().to_owned(),
        principal: ask.bound_to(),
    };
    let asked = gateway.ports.clock().now();
    let send_by = SendBy::new(asked, policy.hold, policy.upstream_timeout, gateway.settings.drift);
    let mut unconfirmed = false;
    for _ in 0..2 {
        let store = gateway.ports.store();
        let keep = policy.accept.request_retention;
        let written = match &way {
            Way::Now => metrics::store("claim", &ask.route, gateway, store.claim(&claim)).await,
            Way::Later(request) => {
                metrics::store("accept", &ask.route, gateway, store.accept(&claim, request, keep)).await
            }
        };
        match written {
            Ok(ClaimReply::Won { token, expires }) => {
                let attempt = Attempt { id: claim.id, token, nonce: claim.nonce };
                return Ok(Claimed::Ours(Claim { attempt, expires, send_by }));
            }
            Ok(ClaimReply::Found(rows)) => return Ok(Claimed::Found(rows)),
            Ok(ClaimReply::GateMoved) => match gate_version(gateway, true).await {
                Ok(version) => claim.gate = version,
                Err(problem) if !unconfirmed => return Err(problem),
                Err(_) => break,
            },
            Err(StoreError::Definite(why)) if !unconfirmed => return Err(store_unavailable(gateway, why)),
            Err(StoreError::Definite(_)) => break,
            Err(StoreError::Unknown(_)) => {
                metrics::claim_unconfirmed();
                unconfirmed = true;
            }
        }
    }
    match way {
        // An acceptance that shows up after all is no claim: its job runs it, and a retry finds it. So this is no refusal.
        Way::Later(_) if unconfirmed => {
            tracing::warn!(key = %ask.id.digest(), "an acceptance was not confirmed: whether its job will run is not known");
            let after = jittered(gateway, Duration::from_secs(1));
            return Err(Problem::OutcomeUnknown { upstream: None, after });
        }
        Way::Now if unconfirmed => outcome::release_unconfirmed(gateway, ask, claim.nonce),
        Way::Now | Way::Later(_) => {}
    }
    Err(store_unavailable(gateway, "a claim was not confirmed".to_owned()))
}

/// The version of the open gate, as known or read anew.
async fn gate_version<P: Ports>(gateway: &Arc<Gateway<P>>, anew: bool) -> Result<GateVersion, Problem> {
    let known = match &**gateway.store.load() {
        StoreHealth::Open(gate) if !anew => Ok(gate.version),
        StoreHealth::Open(_) => Err(None),
        StoreHealth::Closed(why) => Err(Some(why.clone())),
    };
    match known {
        Ok(version) => Ok(version),
        Err(Some(why)) => Err(store_unavailable(gateway, why)),
        Err(None) => match gateway.ports.store().gate().await {
            Ok(gate) if gate.is_open() && gate.epoch == gateway.view().epoch() => {
                let version = gate.version;
                gateway.store.store(Arc::new(StoreHealth::Open(gate)));
                Ok(version)
            }
            Ok(_) => {
                let why = "the store restarted and is not approved yet".to_owned();
                gateway.store.store(Arc::new(StoreHealth::Closed(why.clone())));
                Err(store_unavailable(gateway, why))
            }
            Err(error) => Err(store_unavailable(gateway, error.to_string())),
        },
    }
}

fn verdict(ask: &Ask, reading: Reading) -> Verdict {
    let facts = Facts {
        fingerprint: &ask.fingerprint,
        principal: ask.principal,
        recovery: ask.policy.recovery,
        settle_time: ask.policy.settle_time,
    };
    decide(reading, &facts)
}

fn store_unavailable<P: Ports>(gateway: &Gateway<P>, why: String) -> Problem {
    tracing::warn!(why, "refused: the store is not available");
    Problem::StoreUnavailable { after: jittered(gateway, Duration::from_secs(1)) }
}

/// Looks, for all duplicates of this process at once, whether the attempts they wait for have ended elsewhere.
pub(super) fn start_poller<P: Ports>(gateway: &Arc<Gateway<P>>) {
    let gateway = Arc::downgrade(gateway);
    tokio::spawn(async move {
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
    });
}
