//! Questions to the upstream's status address about one attempt.
//!
//! "Did not happen" counts only once the attempt is surely over (docs/protocol.md#rule-13).

use std::sync::Arc;
use std::time::Duration;

use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Policy;
use crate::gateway::request::reply;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::upstream::{Probe, ProbeReply};
use crate::ports::{Ports, Upstream};
use crate::protocol::decide::Doubt;
use crate::protocol::key::KeyId;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::{Answer, AnswerBody, Token};

/// The upstream's answer about an attempt, as far as it counts.
pub enum ProbeAnswer {
    /// The attempt happened, with this final answer.
    Happened(Arc<Answer>),
    /// The attempt did not happen, and is surely over.
    DidNotHappen,
    /// The attempt did not happen so far. It is over after this time.
    TooEarly(Duration),
    /// No answer that counts.
    CannotSay,
}

/// Asks the status address of a route.
pub async fn question<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    id: &KeyId,
    doubt: &Doubt,
    path: &str,
) -> ProbeAnswer {
    let (result, answer) = match asked(gateway, policy, id, doubt.token, path).await {
        ProbeReply::Happened(response)
            if policy.outcomes.classify(response.status().as_u16(), false) == Outcome::Final =>
        {
            let (head, body) = response.into_parts();
            let answer = Answer {
                status: head.status.as_u16(),
                headers: reply::keep_headers(&head.headers, &policy.replay_headers),
                body: body.map_or(AnswerBody::NotKept, |bytes| AnswerBody::Kept(bytes.to_vec())),
            };
            ("happened", ProbeAnswer::Happened(Arc::new(answer)))
        }
        ProbeReply::Happened(response) => {
            let status = response.status().as_u16();
            tracing::warn!(key = %id.digest(), status, "the probe's answer is not a final one; the key stays in doubt");
            ("cannot_say", ProbeAnswer::CannotSay)
        }
        ProbeReply::DidNotHappen if doubt.over_in.is_zero() => ("did_not_happen", ProbeAnswer::DidNotHappen),
        ProbeReply::DidNotHappen => ("too_early", ProbeAnswer::TooEarly(doubt.over_in)),
        ProbeReply::CannotSay(why) => {
            tracing::info!(key = %id.digest(), why, "the upstream cannot say whether the effect happened");
            ("cannot_say", ProbeAnswer::CannotSay)
        }
    };
    metrics::count_by(observe::PROBES, "result", result);
    answer
}

pub(super) async fn asked<P: Ports>(
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
