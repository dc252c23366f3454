//! Outcomes of attempts on their way into the store, late ones, and the upstream's word on them.
//!
//! The write is repeated while the hold runs, so a short failure of the store loses nothing. "Did
//! not happen" counts only once the attempt is surely over (docs/protocol.md#rule-13).

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::gateway::instance::{Gateway, InFlight};
use crate::gateway::policy::route::Policy;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::reply;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::store::{Attempt, Unclear, Written};
use crate::ports::upstream::{EffectTokens, Probe, ProbeReply};
use crate::ports::{Audit, Clock, KeyStore, Ports, Upstream};
use crate::protocol::decide::{Word, over_in};
use crate::protocol::key::KeyId;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::{Answer, AnswerBody, Nonce, RequestId, Row, Token};
use crate::protocol::time::Moment;

const RETRY_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub enum Fact {
    /// The final answer, to the attempt that this request made.
    Settled(Arc<Answer>, RequestId),
    Released,
    /// The effect may or may not have happened. Holds the upstream's answer, if it gave one.
    InDoubt(Option<Unclear>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Yes,
    /// Another claim replaced this one: its outcome is stored.
    Lost,
    /// Not yet; the task goes on while the hold runs.
    NotYet,
}

/// Stores a fact. What takes longer than a while goes on in a task of its own.
pub async fn store<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    route: &Arc<str>,
    hold: Duration,
    attempt: Attempt,
    fact: Fact,
) -> Stored {
    let now = gateway.now();
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
    match gateway.before(now + gateway.settings.timings.settle_within, &mut work).await {
        Some(stored) => stored,
        None => {
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
    let (clock, keys) = (gateway.ports.clock(), gateway.store());
    let op = match &fact {
        Fact::Settled(..) => "settle",
        Fact::Released => "release",
        Fact::InDoubt(_) => "doubt",
    };
    loop {
        let write = async {
            match &fact {
                Fact::Settled(answer, _) => keys.settle(attempt, answer).await,
                // Boxes: most answers settle, and would move the room for the rest.
                Fact::Released => Box::pin(keys.release(attempt)).await,
                Fact::InDoubt(answer) => Box::pin(keys.doubt(attempt, answer.clone())).await,
            }
        };
        match metrics::store(op, route, clock, write).await {
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
                metrics::count(observe::SETTLES_RETRIED);
                clock.sleep_until(clock.now() + RETRY_EVERY).await;
            }
        }
    }
}

/// Journals an answer to an attempt that is no longer this region's (docs/protocol.md#rule-10),
/// unless the attempt stands settled. An answer that was replayed already stays.
pub async fn late<P: Ports>(
    gateway: &Gateway<P>,
    route: &Arc<str>,
    attempt: &Attempt,
    (answer, request_id): (&Answer, Option<RequestId>),
    give_up: Moment,
) {
    let clock = gateway.ports.clock();
    loop {
        match metrics::upkeep("late", gateway.store().late(attempt, request_id, answer)).await {
            Ok(false) => return,
            Ok(true) => break,
            Err(_) if clock.now() < give_up => clock.sleep_until(clock.now() + RETRY_EVERY).await,
            Err(_) => break,
        }
    }
    metrics::count_by(observe::LATE_ANSWERS, "route", route.clone());
    tracing::error!(key = %attempt.id.digest(), token = %attempt.token, request = request_id.map(tracing::field::display), status = answer.status, "late: an attempt had its effect that was released or taken over: see `onceway audit`");
}

/// Ends a claim that was not confirmed and never sent, if it appears within its hold.
pub fn release_unconfirmed<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, nonce: Nonce) {
    let (gateway, route, id, hold) = (gateway.clone(), ask.route.clone(), ask.id.clone(), ask.policy.hold);
    let running = gateway.authority.running.begin(&id);
    tokio::spawn(async move {
        let _running = running;
        let clock = gateway.ports.clock();
        let give_up = clock.now() + hold;
        while clock.now() < give_up && !gateway.is_stopping() {
            let rows = gateway.rows(&id).await.unwrap_or_default();
            let own = rows.into_iter().find(|row| row.origin == gateway.origin && row.nonce == nonce);
            if let Some(row) = own {
                let attempt = Attempt { id, token: row.token, nonce };
                persist(&gateway, &route, &attempt, Fact::Released, give_up).await;
                return;
            }
            clock.sleep_until(clock.now() + RETRY_EVERY).await;
        }
    });
}

/// Looks for another effect of a key that a later attempt settled: an earlier one may have happened
/// after its release. An upstream that names the tokens of all effects shows it. It is journalled
/// like a late answer, and the client does not wait.
pub fn recount<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, attempt: &Attempt) {
    if ask.policy.probe.is_none() || attempt.token.attempts() < 2 {
        return;
    }
    let (gateway, policy, route) = (gateway.clone(), ask.policy.clone(), ask.route.clone());
    let (attempt, path) = (attempt.clone(), ask.request.target.path().to_owned());
    tokio::spawn(async move {
        let said = asked(&gateway, &policy, &attempt.id, attempt.token, &path).await;
        let ProbeReply::Happened(response) = said else { return };
        let Some(EffectTokens(all)) = response.extensions().get() else { return };
        let Some(token) = all.iter().copied().find(|token| *token != attempt.token) else { return };
        let answer =
            Answer { status: response.status().as_u16(), headers: Vec::new(), body: AnswerBody::NotKept };
        let other = Attempt { token, ..attempt };
        let give_up = gateway.now() + policy.hold;
        late(&gateway, &route, &other, (&answer, None), give_up).await;
    });
}

/// The upstream's word on an attempt, as far as it counts. With a time: it did not happen so far,
/// and is over after that.
pub async fn question<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    id: &KeyId,
    doubt: &Row,
    path: &str,
) -> (Word, Option<Duration>) {
    let (result, word, over) = match asked(gateway, policy, id, doubt.token, path).await {
        ProbeReply::Happened(response)
            if policy.outcomes.classify(response.status().as_u16(), false) == Outcome::Final =>
        {
            let (head, body) = response.into_parts();
            let answer = Answer {
                status: head.status.as_u16(),
                headers: reply::keep_headers(&head.headers, &policy.replay_headers),
                body: body.map_or(AnswerBody::NotKept, |bytes| AnswerBody::Kept(bytes.to_vec())),
            };
            ("happened", Word::Happened(Arc::new(answer)), None)
        }
        ProbeReply::Happened(response) => {
            let status = response.status().as_u16();
            tracing::warn!(key = %id.digest(), status, "the probe's answer is not a final one; the key stays in doubt");
            ("cannot_say", Word::Unknown, None)
        }
        ProbeReply::DidNotHappen if over_in(doubt).is_zero() => ("did_not_happen", Word::DidNotHappen, None),
        ProbeReply::DidNotHappen => ("too_early", Word::Unknown, Some(over_in(doubt))),
        ProbeReply::CannotSay(why) => {
            tracing::info!(key = %id.digest(), why, "the upstream cannot say whether the effect happened");
            ("cannot_say", Word::Unknown, None)
        }
    };
    metrics::count_by(observe::PROBES, "result", result);
    (word, over)
}

async fn asked<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    id: &KeyId,
    token: Token,
    path: &str,
) -> ProbeReply {
    // Every route whose recovery is `probe` has an address: other configurations are refused.
    let Some(address) = &policy.probe else { return ProbeReply::CannotSay("no status address".to_owned()) };
    // The owner of then, not the region of the row: a lodged claim is a row of the region that took
    // over. If all who agreed on that view are gone, no region may know that owner.
    let region = gateway.known_view(token.epoch).and_then(|view| view.owner(id).cloned());
    if region.is_none() {
        tracing::info!(key = %id.digest(), %token, "the view of the attempt is not known here: only an upstream of all regions can say");
    }
    let (upstream, id) = (policy.upstream.clone(), id.clone());
    let question = Probe { upstream, id, token, region, address: address.clone(), path: path.to_owned() };
    let within = gateway.settings.timings.probe_within;
    gateway.ports.upstream().probe(question, within, policy.stored_limit).await
}
