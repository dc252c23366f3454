//! Outcomes of attempts on their way into the store, and those that come too late.
//!
//! The write of an outcome is repeated while the hold runs, so a short failure of the store loses
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::probe;
use crate::gateway::instance::{Gateway, InFlight};
use crate::gateway::request::ask::Ask;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::store::{Attempt, Unclear, Written};
use crate::ports::upstream::{EffectTokens, ProbeReply};
use crate::ports::{Audit, Clock, KeyStore, Ports};
use crate::protocol::record::{Answer, AnswerBody, Nonce, RequestId};
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
    /// Durable.
    Yes,
    /// Another claim replaced this one: its outcome is stored.
    Lost,
    /// Not yet; the task goes on while the hold runs.
    NotYet,
}

/// Stores a fact. What takes longer than a while goes on in a task of its own. Nobody cancels
/// callers.
pub async fn store<P: Ports>(
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
    tokio::select! {
        biased;
        stored = &mut work => stored,
        () = clock.sleep_until(now + gateway.settings.timings.settle_within) => {
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
    let (attempt, path) = (attempt.clone(), ask.target.path().to_owned());
    tokio::spawn(async move {
        let said = probe::asked(&gateway, &policy, &attempt.id, attempt.token, &path).await;
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
