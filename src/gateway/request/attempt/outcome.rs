//! Outcomes of attempts: read from the upstream's answer, stored, then given to the client.
//!
//! The write of an outcome is repeated while the hold runs, so a short failure of the store loses
//! nothing. The client gets no settled answer before the store has confirmed it.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, RETRY_AFTER};
use http::{HeaderMap, Response};

use super::claim::Claim;
use super::escrow;
use super::persist::{Fact, Stored, recount, store};
use crate::gateway::instance::Gateway;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::problems::Kind;
use crate::gateway::request::reply::{self, Reply, Step};
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::body::{self, Collected};
use crate::ports::store::Unclear;
use crate::ports::upstream::CredentialRefused;
use crate::ports::{Body, Ports};
use crate::protocol::decide::{Verdict, decide};
use crate::protocol::outcome::Outcome;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{Answer, AnswerBody, Row, State};
use crate::protocol::time::Moment;

/// Bytes that are kept of what an upstream says when it leaves an attempt in doubt.
const EXCERPT: usize = 500;
/// Longest wait for them: the doubt is to be stored soon.
const EXCERPT_WITHIN: Duration = Duration::from_millis(250);

/// Handles the upstream's answer: settle, release or doubt, by the route's outcome sets.
pub async fn answered<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    claim: Claim,
    response: Response<Body>,
    started: Moment,
) -> Reply {
    let (head, rest) = response.into_parts();
    let status = head.status.as_u16();
    let with_retry_after = head.headers.contains_key(RETRY_AFTER);
    match ask.policy.outcomes.classify(status, with_retry_after) {
        Outcome::NothingHappened => {
            metrics::attempt(&ask.route, "nothing_happened");
            released(gateway, ask, &claim).await;
            if head.extensions.get::<CredentialRefused>().is_some() {
                return Reply::Refused(gateway.later(Kind::CredentialRefused), Some(claim.expires));
            }
            let response = Response::from_parts(head, rest);
            Reply::First { response, settled: false, expires: claim.expires }
        }
        Outcome::Unknown => {
            let excerpt = Box::pin(excerpt(gateway, &head.headers, rest));
            let excerpt = ask.waits(gateway.ports.clock(), excerpt).await;
            let said = excerpt.as_deref();
            tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, status, said, "outcome unknown");
            let ends_attempt = ask.policy.status_ends_attempt || is_disabled(Check::StatusEndsNothing);
            doubtful(gateway, ask, &claim, Some(Unclear { status, ends_attempt, excerpt })).await
        }
        Outcome::Final => {
            let collected =
                ask.waits(gateway.ports.clock(), body::collect(rest, ask.policy.stored_limit)).await;
            let took = gateway.now().since(started);
            metrics::upstream(&ask.route, took);
            gateway.live.load().observe_latency(&ask.route, took);
            let (kept, response) = match collected {
                Ok(Collected::Whole(bytes)) => {
                    (AnswerBody::Kept(bytes.to_vec()), reply::whole(head.clone(), bytes))
                }
                Ok(Collected::Over(first, rest)) => {
                    (AnswerBody::NotKept, Response::from_parts(head.clone(), body::chain(first, rest)))
                }
                Err(error) => {
                    tracing::warn!(key = %ask.id.digest(), %error, "the answer broke off");
                    return doubtful(gateway, ask, &claim, None).await;
                }
            };
            metrics::attempt(&ask.route, "final");
            let headers = reply::keep_headers(&head.headers, &ask.policy.replay_headers);
            let answer = Arc::new(Answer { status, headers, body: kept });
            settled(gateway, ask, claim, answer, response).await
        }
    }
}

/// Settles, then answers: the client gets nothing before the answer is durable.
async fn settled<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    claim: Claim,
    answer: Arc<Answer>,
    response: Response<Body>,
) -> Reply {
    let fact = Fact::Settled(answer.clone(), ask.request_id);
    match store(gateway, &ask.route, ask.policy.hold, claim.attempt.clone(), fact).await {
        Stored::Yes => {
            escrow::lodge_answer(gateway, ask, &claim, &answer).await;
            recount(gateway, ask, &claim.attempt);
            gateway.attached.wake(&ask.id, vec![settled_row(gateway, ask, &claim, answer)]);
            Reply::First { response, settled: true, expires: claim.expires }
        }
        Stored::Lost => Box::pin(stored_instead(gateway, ask)).await,
        Stored::NotYet => gateway.unknown(Some(claim.expires)),
    }
}

pub async fn doubtful<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    claim: &Claim,
    answer: Option<Unclear>,
) -> Reply {
    metrics::attempt(&ask.route, "unknown");
    let status = answer.as_ref().map(|answer| answer.status);
    let fact = Fact::InDoubt(answer);
    match store(gateway, &ask.route, ask.policy.hold, claim.attempt.clone(), fact).await {
        Stored::Yes | Stored::NotYet => {
            let problem = match status {
                None => gateway.later(Kind::OutcomeUnknown),
                Some(status) => gateway
                    .later(Kind::UpstreamUnclear)
                    .because(format_args!("The upstream answered {status}"))
                    .with_status(status),
            };
            Reply::Refused(problem, Some(claim.expires))
        }
        Stored::Lost => Box::pin(stored_instead(gateway, ask)).await,
    }
}

/// The beginning of a body, without control characters; `None` if empty, encoded, or not here soon.
async fn excerpt<P: Ports>(gateway: &Gateway<P>, headers: &HeaderMap, body: Body) -> Option<String> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let collected = gateway.before(gateway.now() + EXCERPT_WITHIN, body::collect(body, EXCERPT));
    let (Collected::Whole(bytes) | Collected::Over(bytes, _)) = Box::pin(collected).await?.ok()?;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT)]);
    let text: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Releases a claim of which nothing happened. Unstored, it ends with its hold: that costs time.
pub async fn released<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: &Claim) {
    store(gateway, &ask.route, ask.policy.hold, claim.attempt.clone(), Fact::Released).await;
}

/// Releases a claim that surely was never sent, also where it is lodged. `again`: the facts have
/// changed, and the key is looked at anew.
pub async fn unsent<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    claim: &Claim,
    why: Kind,
    again: bool,
) -> Step {
    released(gateway, ask, claim).await;
    escrow::void(gateway, ask, claim);
    let problem = gateway.later(why);
    if again { Step::Again(problem) } else { Step::Ended(Reply::Refused(problem, Some(claim.expires))) }
}

/// The reply after the claim was lost: the other's outcome, if it is of this very request.
pub async fn stored_instead<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Reply {
    metrics::count_of(observe::CLAIMS_LOST, &ask.route, ask.id.tenant());
    tracing::error!(key = %ask.id.digest(), "claim lost: the outcome of this attempt found no claim of its token");
    let reading = gateway.read(gateway.rows(&ask.id).await.unwrap_or_default());
    let expires = reading.row().map(|row| row.expires);
    match decide(reading, &ask.fingerprint, ask.principal) {
        Verdict::Replay(settlement) => Reply::Replay(settlement),
        _ => gateway.unknown(expires),
    }
}

fn settled_row<P: Ports>(gateway: &Gateway<P>, ask: &Ask, claim: &Claim, answer: Arc<Answer>) -> Row {
    Row {
        origin: gateway.origin.clone(),
        token: claim.attempt.token,
        nonce: claim.attempt.nonce,
        fingerprint: ask.fingerprint,
        state: State::Settled { answer, age: Duration::ZERO, expired: false },
        over: Vec::new(),
        risk: Vec::new(),
        request_id: ask.request_id,
        expires: claim.expires,
        principal: ask.bound_to(),
        accepted: false,
        doubted: 0,
        settle_time: ask.policy.settle_time,
        recovery: ask.policy.recovery,
    }
}
