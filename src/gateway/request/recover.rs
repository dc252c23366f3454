//! Recovery by probe: asks the upstream if an attempt in doubt happened.
//!
//! "Happened" settles the attempt with its own answer. "Did not happen" counts only once the
//! attempt is surely over: before that its request may still arrive (docs/protocol.md#rule-13).
//! "Cannot say" changes nothing. This file must not run anything itself: it returns a basis for the
//! next claim.

use std::sync::Arc;
use std::time::Duration;

use super::admit::Ask;
use super::claim::{lifetime, store_unavailable};
use super::finish::{jittered, later, unknown, waits};
use super::outcome::{self, Fact, Stored};
use super::problems::Kind;
use super::reply::{self, Reply};
use super::stand_in::{self, For, NotWritten};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Policy;
use crate::gateway::telemetry::metrics;
use crate::ports::store::Attempt;
use crate::ports::upkeep::Ruling;
use crate::ports::upstream::{EffectTokens, Probe, ProbeReply};
use crate::ports::{Clock, Ports, Upstream};
use crate::protocol::decide::{Basis, Doubt, Settlement};
use crate::protocol::key::KeyId;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::{Answer, AnswerBody, Token};

/// Result of a probe.
pub(in crate::gateway) enum Recovered {
    /// The attempt surely did not happen: claim again on this basis.
    Claim(Basis),
    Reply(Reply),
}

/// The upstream's answer about an attempt, as far as it counts.
pub(in crate::gateway) enum ProbeAnswer {
    /// The attempt happened, with this final answer.
    Happened(Arc<Answer>),
    /// The attempt did not happen, and is surely over.
    DidNotHappen,
    /// The attempt did not happen so far. It is over after this time.
    TooEarly(Duration),
    /// No answer that counts.
    CannotSay,
}

/// Asks about every attempt in doubt, newest first. A new attempt may begin only if none of them
/// happened.
pub(in crate::gateway) async fn probe<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubts: Vec<Doubt>,
    basis: Basis,
) -> Recovered {
    let mut stays: Option<(Doubt, Duration)> = None;
    for doubt in doubts {
        let (path, policy) = (ask.target.path(), &ask.policy);
        let asked = question(gateway, policy, &ask.id, &doubt, path);
        let after = match waits(gateway, ask, asked).await {
            ProbeAnswer::Happened(answer) => {
                return Recovered::Reply(happened(gateway, ask, doubt, basis, answer).await);
            }
            ProbeAnswer::DidNotHappen => continue,
            ProbeAnswer::TooEarly(after) => after,
            ProbeAnswer::CannotSay => Duration::from_secs(1),
        };
        // Go on: an older attempt may have happened, and then this one's answer is known.
        let longest = stays.as_ref().is_none_or(|(_, longest)| after > *longest);
        if longest {
            stays = Some((doubt, after));
        }
    }
    match stays {
        Some((doubt, after)) => stay(gateway, &doubt, after),
        None => Recovered::Claim(basis),
    }
}

/// Asks the status address of a route.
pub(in crate::gateway) async fn question<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    id: &KeyId,
    doubt: &Doubt,
    path: &str,
) -> ProbeAnswer {
    match asked(gateway, policy, id, doubt.token, path).await {
        ProbeReply::Happened(response)
            if policy.outcomes.classify(response.status().as_u16(), false) == Outcome::Final =>
        {
            metrics::probe("happened");
            let (head, body) = response.into_parts();
            ProbeAnswer::Happened(Arc::new(Answer {
                status: head.status.as_u16(),
                headers: reply::keep_headers(&head.headers, &policy.replay_headers),
                body: body.map_or(AnswerBody::NotKept, |bytes| AnswerBody::Kept(bytes.to_vec())),
            }))
        }
        ProbeReply::Happened(response) => {
            let status = response.status().as_u16();
            tracing::warn!(key = %id.digest(), status, "the probe's answer is not a final one; the key stays in doubt");
            metrics::probe("cannot_say");
            ProbeAnswer::CannotSay
        }
        ProbeReply::DidNotHappen if doubt.over_in.is_zero() => {
            metrics::probe("did_not_happen");
            ProbeAnswer::DidNotHappen
        }
        ProbeReply::DidNotHappen => {
            metrics::probe("too_early");
            ProbeAnswer::TooEarly(doubt.over_in)
        }
        ProbeReply::CannotSay(why) => {
            tracing::info!(key = %id.digest(), why, "the upstream cannot say whether the effect happened");
            metrics::probe("cannot_say");
            ProbeAnswer::CannotSay
        }
    }
}

/// The status address's answer about one attempt.
async fn asked<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    id: &KeyId,
    token: Token,
    path: &str,
) -> ProbeReply {
    // Every route whose recovery is `probe` has an address: other configurations are refused.
    let Some(address) = &policy.probe else { return ProbeReply::CannotSay("no status address".to_owned()) };
    // The owner of then, not the region of the row. A lodged claim is a row of the region that took
    // over, but its owner of then sent it. If all who agreed on that view are gone, no region may
    // know that owner.
    let region = gateway.known_view(token.epoch).and_then(|view| view.owner(id).cloned());
    if region.is_none() {
        tracing::info!(key = %id.digest(), %token, "the view of the attempt is not known here: only an upstream of all regions can say");
    }
    let (upstream, id) = (policy.upstream.clone(), id.clone());
    let question = Probe { upstream, id, token, region, address: address.clone(), path: path.to_owned() };
    let within = gateway.settings.timings.probe_within;
    gateway.ports.upstream().probe(question, within, policy.stored_limit).await
}

/// Looks for another effect of a key that has just been settled, and not by its first attempt: an
/// earlier one may have happened after its release. An upstream that names the tokens of all
/// effects shows it. It is journalled like a late answer, and the client does not wait. A process
/// that dies meanwhile does not ask again.
pub(in crate::gateway) fn recount<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, attempt: &Attempt) {
    if ask.policy.probe.is_none() || attempt.token.attempts() < 2 {
        return;
    }
    let (gateway, policy, route) = (gateway.clone(), ask.policy.clone(), ask.route.clone());
    let (attempt, path) = (attempt.clone(), ask.target.path().to_owned());
    tokio::spawn(async move {
        let said = asked(&gateway, &policy, &attempt.id, attempt.token, &path).await;
        let ProbeReply::Happened(response) = said else { return };
        let Some(EffectTokens(all)) = response.extensions().get() else { return };
        let Some(token) = all.iter().copied().find(|token| *token != attempt.token) else { return };
        let answer =
            Answer { status: response.status().as_u16(), headers: Vec::new(), body: AnswerBody::NotKept };
        let other = Attempt { token, ..attempt };
        let give_up = gateway.ports.clock().now() + policy.hold;
        outcome::late(&gateway, &route, &other, (&answer, None), give_up).await;
    });
}

async fn happened<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubt: Doubt,
    basis: Basis,
    answer: Arc<Answer>,
) -> Reply {
    let replay = Settlement {
        answer: answer.clone(),
        age: Duration::ZERO,
        origin: doubt.origin.clone(),
        request_id: doubt.request_id,
        expires: doubt.expires,
    };
    if doubt.origin != gateway.origin {
        return match in_its_place(gateway, ask, &doubt, basis, &answer).await {
            Ok(()) => Reply::Replay(replay),
            Err(reply) => reply,
        };
    }
    let attempt = Attempt { id: ask.id.clone(), token: doubt.token, nonce: doubt.nonce };
    let fact = Fact::Settled(answer, doubt.request_id);
    match outcome::store(gateway, &ask.route, ask.policy.hold, attempt, fact).await {
        Stored::Yes => Reply::Replay(replay),
        Stored::Lost => outcome::stored_instead(gateway, ask).await,
        Stored::NotYet => unknown(gateway, Some(doubt.expires)),
    }
}

/// Stores the outcome of another region's attempt, whose own row only that region writes.
async fn in_its_place<P: Ports>(
    gateway: &Gateway<P>,
    ask: &Ask,
    doubt: &Doubt,
    basis: Basis,
    answer: &Answer,
) -> Result<(), Reply> {
    let whom = For {
        id: &ask.id,
        fingerprint: ask.fingerprint,
        principal: ask.bound_to(),
        request_id: doubt.request_id,
        nonce: Some(doubt.nonce),
        basis,
        recovery: ask.policy.recovery,
        lifetime: lifetime(gateway, &ask.policy),
        request: (&ask.route, ask.target.path()),
    };
    let ruling = Ruling::Settled(answer.clone());
    stand_in::end(gateway, whom, &ruling, None).await.map_err(|failed| match failed {
        NotWritten::Changed => Reply::Refused(later(gateway, Kind::InDoubt), Some(doubt.expires)),
        NotWritten::Store(error) => {
            Reply::Refused(store_unavailable(gateway, error.to_string()), Some(doubt.expires))
        }
    })
}

fn stay<P: Ports>(gateway: &Gateway<P>, doubt: &Doubt, after: Duration) -> Recovered {
    let after = jittered(gateway, Duration::from_secs(1)).max(after);
    Recovered::Reply(Reply::Refused(Kind::InDoubt.after(after), Some(doubt.expires)))
}
