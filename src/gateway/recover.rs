//! Recovery by probe: asks the upstream whether an attempt in doubt happened.
//!
//! Neighbours: [`super::request`] comes here with the verdict `Probe`, [`super::sweep`] with what
//! no client asks about. "Happened" settles the attempt with its own answer. "Did not happen"
//! counts only once the attempt is surely over (docs/protocol.md#rule-13): before that its request
//! may still arrive. "Cannot say" changes nothing. It must not run anything itself: it hands a
//! basis for the next claim back.

use std::sync::Arc;
use std::time::Duration;

use super::admit::Ask;
use super::claim::{lifetime, store_unavailable};
use super::ending::{jittered, unknown};
use super::outcome::{self, Fact, Stored};
use super::problems::Problem;
use super::reply::{self, Reply};
use super::route::Policy;
use super::stand_in::{self, For, NotWritten};
use super::{Gateway, metrics};
use crate::ports::store::Attempt;
use crate::ports::upkeep::Ruling;
use crate::ports::upstream::{Probe, ProbeReply};
use crate::ports::{Ports, Upstream};
use crate::protocol::decide::{Basis, Doubt, Settlement};
use crate::protocol::key::KeyId;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::{Answer, AnswerBody};

/// What a probe came to.
pub(super) enum Recovered {
    /// It surely did not happen: claim again on this basis.
    Claim(Basis),
    /// The reply to give.
    Reply(Reply),
}

/// What the upstream says of an attempt, as far as it counts.
pub(super) enum Said {
    /// It happened, with this final answer.
    Happened(Arc<Answer>),
    /// It did not happen, and the attempt is surely over.
    DidNotHappen,
    /// It did not happen so far; the attempt is over in this long.
    TooEarly(Duration),
    /// Nothing that counts.
    CannotSay,
}

/// Asks about every attempt in doubt, newest first. Only if none of them happened may another one begin.
pub(super) async fn probe<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubts: Vec<Doubt>,
    basis: Basis,
) -> Recovered {
    let mut stays: Option<(Doubt, Duration)> = None;
    for doubt in doubts {
        let (path, policy) = (ask.target.path(), &ask.policy);
        let after = match question(gateway, policy, &ask.id, &doubt, path).await {
            Said::Happened(answer) => {
                return Recovered::Reply(happened(gateway, ask, doubt, basis, answer).await);
            }
            Said::DidNotHappen => continue,
            Said::TooEarly(after) => after,
            Said::CannotSay => Duration::from_secs(1),
        };
        // Go on: an older one may have happened, and then this one's answer is known.
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
pub(super) async fn question<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    id: &KeyId,
    doubt: &Doubt,
    path: &str,
) -> Said {
    // Every route whose recovery is `probe` has one: the configuration is refused otherwise.
    let Some(address) = &policy.probe else { return Said::CannotSay };
    // Not the region whose row it is: a claim that was lodged is a row of whoever took over, and was sent by its owner of then. Who that was may be
    // known to nobody any more, where all who agreed on that view are gone.
    let region = gateway.known_view(doubt.token.epoch).and_then(|view| view.owner(id).cloned());
    if region.is_none() {
        tracing::info!(key = %id.digest(), token = %doubt.token, "the view of the attempt is not known here: only an upstream of all regions can say");
    }
    let question =
        Probe { id: id.clone(), token: doubt.token, region, address: address.clone(), path: path.to_owned() };
    let within = gateway.settings.timings.probe_within;
    match gateway.ports.upstream().probe(question, within, policy.stored_limit).await {
        ProbeReply::Happened(response)
            if policy.outcomes.classify(response.status().as_u16(), false) == Outcome::Final =>
        {
            metrics::probe("happened");
            let (head, body) = response.into_parts();
            Said::Happened(Arc::new(Answer {
                status: head.status.as_u16(),
                headers: reply::keep_headers(&head.headers, &policy.replay_headers),
                body: body.map_or(AnswerBody::NotKept, |bytes| AnswerBody::Kept(bytes.to_vec())),
            }))
        }
        ProbeReply::Happened(response) => {
            let status = response.status().as_u16();
            tracing::warn!(key = %id.digest(), status, "the probe's answer is not a final one; the key stays in doubt");
            metrics::probe("cannot_say");
            Said::CannotSay
        }
        ProbeReply::DidNotHappen if doubt.over_in.is_zero() => {
            metrics::probe("did_not_happen");
            Said::DidNotHappen
        }
        ProbeReply::DidNotHappen => {
            metrics::probe("too_early");
            Said::TooEarly(doubt.over_in)
        }
        ProbeReply::CannotSay(why) => {
            tracing::info!(key = %id.digest(), why, "the upstream cannot say whether the effect happened");
            metrics::probe("cannot_say");
            Said::CannotSay
        }
    }
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

/// Another region's attempt happened, whose row only that region writes.
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
        lifetime: lifetime(gateway, &ask.policy),
        request: (&ask.route, ask.target.path()),
    };
    let ruling = Ruling::Settled(answer.clone());
    stand_in::end(gateway, whom, &ruling, None).await.map_err(|failed| match failed {
        NotWritten::Changed => {
            let after = jittered(gateway, Duration::from_secs(1));
            Reply::Refused(Problem::InDoubt { after }, Some(doubt.expires))
        }
        NotWritten::Store(error) => {
            Reply::Refused(store_unavailable(gateway, error.to_string()), Some(doubt.expires))
        }
    })
}

fn stay<P: Ports>(gateway: &Gateway<P>, doubt: &Doubt, after: Duration) -> Recovered {
    let after = jittered(gateway, Duration::from_secs(1)).max(after);
    Recovered::Reply(Reply::Refused(Problem::InDoubt { after }, Some(doubt.expires)))
}
