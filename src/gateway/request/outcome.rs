//! Outcomes of attempts: read from the upstream's answer, stored, then given to the client.
//!
//! The write of an outcome is repeated while the hold runs, so a short failure of the store loses
//! nothing. The client gets no settled answer before the store has confirmed it. This file must not
//! send anything to the upstream.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, RETRY_AFTER};
use http::{HeaderMap, Response};
use tracing::Instrument;

use super::admit::Ask;
use super::finish::{InFlight, later, read, unknown, waits};
use super::problems::Kind;
use super::reply::{self, Reply};
use super::{escrow, recover};
use crate::gateway::authority::{Permit, Run};
use crate::gateway::instance::Gateway;
use crate::gateway::race::{Won, race};
use crate::gateway::telemetry::metrics;
use crate::ports::body::{self, Collected};
use crate::ports::store::{Attempt, Unclear, Written};
use crate::ports::upstream::CredentialRefused;
use crate::ports::{Audit, Body, Clock, KeyStore, Ports};
use crate::protocol::decide::{same_request, settlement};
use crate::protocol::hold::SendBy;
use crate::protocol::outcome::Outcome;
use crate::protocol::plant::{Plant, removed};
use crate::protocol::record::{Answer, AnswerBody, Nonce, Reading, RequestId, Row, State};
use crate::protocol::region::RegionName;
use crate::protocol::time::{Date, Moment};

/// Pause between two tries to store an outcome.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// Bytes that are kept of what an upstream says when it leaves an attempt in doubt.
const EXCERPT: usize = 500;
/// Longest wait for them: the doubt is to be stored soon.
const EXCERPT_WITHIN: Duration = Duration::from_millis(250);

/// A durable claim of one request.
pub(in crate::gateway) struct Claim {
    pub(in crate::gateway) attempt: Attempt,
    pub(in crate::gateway) expires: Date,
    pub(in crate::gateway) send_by: SendBy,
    pub(in crate::gateway) permit: Permit,
    /// True if its route is under escrow, so it may be lodged elsewhere.
    pub(in crate::gateway) lodges: bool,
    /// The region where it surely is lodged.
    pub(in crate::gateway) lodged: Option<RegionName>,
    /// The attempt counts as running as long as this lives.
    pub(in crate::gateway) _running: Run,
}

#[derive(Clone)]
pub(in crate::gateway) enum Fact {
    /// The final answer, to the attempt that this request made.
    Settled(Arc<Answer>, RequestId),
    /// Nothing happened.
    Released,
    /// The effect may or may not have happened. Holds the upstream's answer, if it gave one.
    InDoubt(Option<Unclear>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum Stored {
    /// Durable.
    Yes,
    /// Another claim replaced this one: its outcome is stored.
    Lost,
    /// Not yet; the task goes on while the hold runs.
    NotYet,
}

/// Handles the upstream's answer: settle, release or doubt, by the route's outcome sets.
pub(in crate::gateway) async fn answered<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    claim: Claim,
    response: Response<Body>,
    started: Moment,
) -> Reply {
    let (head, rest) = response.into_parts();
    let status = head.status.as_u16();
    let told_when = head.headers.contains_key(RETRY_AFTER);
    match ask.policy.outcomes.classify(status, told_when) {
        Outcome::NothingHappened => {
            metrics::attempt(&ask.route, "nothing_happened");
            released(gateway, ask, &claim).await;
            if head.extensions.get::<CredentialRefused>().is_some() {
                return Reply::Refused(later(gateway, Kind::CredentialRefused), Some(claim.expires));
            }
            Reply::First {
                response: Response::from_parts(head, rest),
                settled: false,
                expires: claim.expires,
            }
        }
        Outcome::Unknown => {
            let excerpt = waits(gateway, ask, Box::pin(excerpt(gateway, &head.headers, rest))).await;
            let said = excerpt.as_deref();
            tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, status, said, "outcome unknown");
            let ends_attempt = ask.policy.status_ends_attempt || removed(Plant::StatusEndsNothing);
            doubtful(gateway, ask, &claim, Some(Unclear { status, ends_attempt, excerpt })).await
        }
        Outcome::Final => {
            let collected = waits(gateway, ask, body::collect(rest, ask.policy.stored_limit)).await;
            gateway.observe_upstream(ask, started);
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
            recover::recount(gateway, ask, &claim.attempt);
            gateway.attached.wake(&ask.id, vec![settled_row(gateway, ask, &claim, answer)]);
            Reply::First { response, settled: true, expires: claim.expires }
        }
        Stored::Lost => Box::pin(stored_instead(gateway, ask)).await,
        Stored::NotYet => unknown(gateway, Some(claim.expires)),
    }
}

/// Handles an answer to an attempt that is no longer this region's: journalled, counted, and an
/// error in the log (docs/protocol.md#rule-10). An answer that was replayed already stays. Does
/// nothing if the attempt stands settled: its outcome is known. If that is another region's answer,
/// the store has journalled both.
pub(in crate::gateway) async fn late<P: Ports>(
    gateway: &Gateway<P>,
    route: &Arc<str>,
    attempt: &Attempt,
    (answer, request_id): (&Answer, Option<RequestId>),
    give_up: Moment,
) {
    let clock = gateway.ports.clock();
    loop {
        match metrics::upkeep("late", gateway.ports.store().late(attempt, request_id, answer)).await {
            Ok(false) => return,
            Ok(true) => break,
            Err(_) if clock.now() < give_up => clock.sleep_until(clock.now() + RETRY_EVERY).await,
            Err(_) => break,
        }
    }
    metrics::late(route);
    tracing::error!(key = %attempt.id.digest(), token = %attempt.token, request = request_id.map(tracing::field::display), status = answer.status, "late: an attempt had its effect that was released or taken over: see `onceway audit`");
}

/// Stores that the attempt's outcome is not known (in doubt), and replies so.
pub(in crate::gateway) async fn doubtful<P: Ports>(
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
                None => later(gateway, Kind::OutcomeUnknown),
                Some(status) => later(gateway, Kind::UpstreamUnclear)
                    .because(format_args!("The upstream answered {status}"))
                    .with_status(status),
            };
            Reply::Refused(problem, Some(claim.expires))
        }
        Stored::Lost => Box::pin(stored_instead(gateway, ask)).await,
    }
}

/// The beginning of an answer's body, as text without control characters. `None` if it is empty,
/// encoded, or not here soon.
async fn excerpt<P: Ports>(gateway: &Gateway<P>, headers: &HeaderMap, body: Body) -> Option<String> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let clock = gateway.ports.clock();
    let collected = body::collect(body, EXCERPT);
    let Won::First(Ok(Collected::Whole(bytes) | Collected::Over(bytes, _))) =
        race(Box::pin(collected), clock.sleep_until(clock.now() + EXCERPT_WITHIN)).await
    else {
        return None;
    };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT)]);
    let text: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Releases a claim of which nothing happened. If that cannot be stored, the claim ends with its
/// hold. That costs time, not safety.
pub(in crate::gateway) async fn released<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: &Claim) {
    store(gateway, &ask.route, ask.policy.hold, claim.attempt.clone(), Fact::Released).await;
}

/// Releases the claim of an attempt that surely was never sent, and takes it back from the target
/// where it is lodged.
pub(in crate::gateway) async fn unsent<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: &Claim) {
    released(gateway, ask, claim).await;
    escrow::void(gateway, claim);
}

/// The reply after the claim was lost: the other claim's outcome, but only if it is of this very
/// request. Other requests of the tenant under the key, and other principals, are not shown to this
/// client.
pub(in crate::gateway) async fn stored_instead<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Reply {
    metrics::claim_lost(&ask.route, ask.id.tenant());
    tracing::error!(key = %ask.id.digest(), "claim lost: the outcome of this attempt found no claim of its token");
    let rows = gateway.ports.store().look_up(std::slice::from_ref(&ask.id)).await;
    let rows = rows.ok().and_then(|mut found| found.pop()).unwrap_or_default();
    match read(gateway, rows) {
        Reading::Settled(row) if same_request(&row, &ask.fingerprint, ask.principal) => {
            match settlement(&row) {
                Some(settlement) => Reply::Replay(settlement),
                None => unknown(gateway, Some(row.expires)),
            }
        }
        Reading::Absent => unknown(gateway, None),
        Reading::Settled(row)
        | Reading::Released(row, _)
        | Reading::InProgress(row)
        | Reading::InDoubt(row, _)
        | Reading::Gone(row) => unknown(gateway, Some(row.expires)),
    }
}

/// Stores a fact, and waits a while for the result. What takes longer goes on in a task of its own.
/// Its callers are in tasks that nobody cancels.
pub(in crate::gateway) async fn store<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    route: &Arc<str>,
    hold: Duration,
    attempt: Attempt,
    fact: Fact,
) -> Stored {
    let clock = gateway.ports.clock();
    let now = clock.now();
    let give_up = now + hold;
    let begun = (InFlight::begin(gateway.clone()), gateway.authority.running.begin(&attempt.id));
    let mut work = {
        let (gateway, route) = (gateway.clone(), route.clone());
        Box::pin(async move {
            let stored = persist(&gateway, &route, &attempt, fact, give_up).await;
            drop(begun);
            stored
        })
    };
    match race(&mut work, clock.sleep_until(now + gateway.settings.timings.settle_within)).await {
        Won::First(stored) => stored,
        Won::Second(()) => {
            tokio::spawn(work.in_current_span());
            Stored::NotYet
        }
    }
}

async fn persist<P: Ports>(
    gateway: &Gateway<P>,
    route: &Arc<str>,
    attempt: &Attempt,
    fact: Fact,
    give_up: Moment,
) -> Stored {
    let (clock, keys) = (gateway.ports.clock(), gateway.ports.store());
    // Boxes: most answers settle, and would move the room for the rest.
    loop {
        let written = match &fact {
            Fact::Settled(answer, _) => {
                metrics::store("settle", route, gateway, keys.settle(attempt, answer)).await
            }
            Fact::Released => {
                metrics::store("release", route, gateway, Box::pin(keys.release(attempt))).await
            }
            Fact::InDoubt(answer) => {
                metrics::store("doubt", route, gateway, Box::pin(keys.doubt(attempt, answer.clone()))).await
            }
        };
        match written {
            Ok(Written::Done) => return Stored::Yes,
            Ok(Written::Lost) => {
                if let Fact::Settled(answer, request_id) = &fact {
                    Box::pin(late(gateway, route, attempt, (answer, Some(*request_id)), give_up)).await;
                }
                return Stored::Lost;
            }
            // An unknown result is repeated too: the write compares token and nonce, and returns
            // `Done` if it was done already.
            Ok(Written::GateMoved) | Err(_) => {
                if clock.now() >= give_up {
                    tracing::error!(key = %attempt.id.digest(), token = %attempt.token, "an outcome could not be stored while its hold ran; the key is in doubt");
                    return Stored::NotYet;
                }
                metrics::settle_retried();
                clock.sleep_until(clock.now() + RETRY_EVERY).await;
            }
        }
    }
}

/// Ends a claim that may have been written, but was not confirmed and never sent, if it appears
/// within its hold.
pub(in crate::gateway) fn release_unconfirmed<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, nonce: Nonce) {
    let (gateway, route, id, hold) = (gateway.clone(), ask.route.clone(), ask.id.clone(), ask.policy.hold);
    let running = gateway.authority.running.begin(&id);
    tokio::spawn(async move {
        let _running = running;
        let clock = gateway.ports.clock();
        let give_up = clock.now() + hold;
        while clock.now() < give_up && !gateway.is_stopping() {
            let found = gateway.ports.store().look_up(std::slice::from_ref(&id)).await;
            let rows = found.ok().and_then(|mut found| found.pop()).unwrap_or_default();
            if let Some(row) = rows.into_iter().find(|row| row.origin == gateway.origin && row.nonce == nonce)
            {
                let attempt = Attempt { id, token: row.token, nonce };
                persist(&gateway, &route, &attempt, Fact::Released, give_up).await;
                return;
            }
            clock.sleep_until(clock.now() + RETRY_EVERY).await;
        }
    });
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
