//! Recovery by probe: asks the upstream whether an attempt in doubt happened.
//!
//! Neighbours: [`super::request`] comes here with the verdict `Probe`. "Happened" settles the attempt with its own answer. "Did not
//! happen" counts only once the attempt is surely over (protocol reference, 3.3): before that its request may still arrive.
//! "Cannot say" changes nothing. It must not run anything itself: it hands a basis for the next claim back.

use std::sync::Arc;
use std::time::Duration;

use super::admit::Ask;
use super::ending::{jittered, unknown};
use super::outcome::{self, Fact, Stored};
use super::problems::Problem;
use super::reply::{self, Reply};
use super::{Gateway, metrics};
use crate::ports::store::Attempt;
use crate::ports::upstream::{Probe, ProbeReply};
use crate::ports::{Ports, Upstream};
use crate::protocol::decide::{Basis, Doubt, Settlement};
use crate::protocol::outcome::Outcome;
use crate::protocol::record::{Answer, AnswerBody};

/// What a probe came to.
pub(super) enum Recovered {
    /// It surely did not happen: claim again on this basis.
    Claim(Basis),
    /// The reply to give.
    Reply(Reply),
}

/// Asks about the newest attempt in doubt.
pub(super) async fn probe<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubt: Doubt,
    basis: Basis,
) -> Recovered {
    let Some(address) = &ask.policy.probe else { return stay(gateway, &doubt, Duration::from_secs(60)) };
    let question = Probe {
        id: ask.id.clone(),
        token: doubt.token,
        region: doubt.origin.region.clone(),
        address: address.clone(),
        path: ask.target.path().to_owned(),
    };
    let timings = &gateway.settings.timings;
    let said = gateway.ports.upstream().probe(question, timings.probe_within, ask.policy.stored_limit).await;
    match said {
        ProbeReply::Happened(response)
            if ask.policy.outcomes.classify(response.status().as_u16()) == Outcome::Final =>
        {
            metrics::probe("happened");
            let (head, body) = response.into_parts();
            let answer = Arc::new(Answer {
                status: head.status.as_u16(),
                headers: reply::keep_headers(&head.headers, &ask.policy.replay_headers),
                body: body.map_or(AnswerBody::NotKept, |bytes| AnswerBody::Kept(bytes.to_vec())),
            });
            Recovered::Reply(happened(gateway, ask, doubt, answer).await)
        }
        ProbeReply::Happened(response) => {
            let status = response.status().as_u16();
            tracing::warn!(key = %ask.id.digest(), status, "the probe's answer is not a final one; the key stays in doubt");
            metrics::probe("cannot_say");
            stay(gateway, &doubt, Duration::from_secs(1))
        }
        ProbeReply::DidNotHappen if doubt.over_in.is_zero() => {
            metrics::probe("did_not_happen");
            Recovered::Claim(basis)
        }
        ProbeReply::DidNotHappen => {
            metrics::probe("too_early");
            let after = doubt.over_in;
            stay(gateway, &doubt, after)
        }
        ProbeReply::CannotSay(why) => {
            tracing::info!(key = %ask.id.digest(), why, "the upstream cannot say whether the effect happened");
            metrics::probe("cannot_say");
            stay(gateway, &doubt, Duration::from_secs(1))
        }
    }
}

async fn happened<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubt: Doubt,
    answer: Arc<Answer>,
) -> Reply {
    let attempt = Attempt { id: ask.id.clone(), token: doubt.token, nonce: doubt.nonce };
    match outcome::store(gateway, ask, attempt, Fact::Settled(answer.clone())).await {
        Stored::Yes => Reply::Replay(Settlement {
            answer,
            age: Duration::ZERO,
            origin: doubt.origin,
            request_id: doubt.request_id,
            expires: doubt.expires,
        }),
        Stored::Lost => outcome::stored_instead(gateway, ask).await,
        Stored::NotYet => unknown(gateway, Some(doubt.expires)),
    }
}

fn stay<P: Ports>(gateway: &Gateway<P>, doubt: &Doubt, after: Duration) -> Recovered {
    let after = jittered(gateway, Duration::from_secs(1)).max(after);
    Recovered::Reply(Reply::Refused(Problem::InDoubt { after }, Some(doubt.expires)))
}
