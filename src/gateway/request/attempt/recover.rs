//! Recovery by probe: asks the upstream if an attempt in doubt happened.
//!
//! "Happened" settles the attempt with its own answer. "Did not happen" counts only once the
//! attempt is surely over: before that its request may still arrive (docs/protocol.md#rule-13).
//! "Cannot say" changes nothing. This file must not run anything itself: it returns a basis for the
//! next claim.

use std::sync::Arc;
use std::time::Duration;

use super::outcome;
use super::persist::{Fact, Stored, store};
use super::probe::{ProbeAnswer, question};
use super::stand_in::{self, For, NotWritten};
use crate::gateway::instance::Gateway;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::problems::Kind;
use crate::gateway::request::reply::Reply;
use crate::ports::Ports;
use crate::ports::store::Attempt;
use crate::ports::upkeep::Ruling;
use crate::protocol::decide::{Basis, Doubt, Settlement};
use crate::protocol::record::Answer;

/// Result of a probe.
pub(in crate::gateway) enum Recovered {
    /// The attempt surely did not happen: claim again on this basis.
    Claim(Basis),
    Reply(Reply),
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
        let after = match ask.waits(gateway.ports.clock(), asked).await {
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
    match store(gateway, &ask.route, ask.policy.hold, attempt, fact).await {
        Stored::Yes => Reply::Replay(replay),
        Stored::Lost => outcome::stored_instead(gateway, ask).await,
        Stored::NotYet => gateway.unknown(Some(doubt.expires)),
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
        lifetime: gateway.settings.lifetime(&ask.policy),
        request: (&ask.route, ask.target.path()),
    };
    let ruling = Ruling::Settled(answer.clone());
    stand_in::end(gateway, whom, &ruling, None).await.map_err(|failed| match failed {
        NotWritten::Changed => Reply::Refused(gateway.later(Kind::InDoubt), Some(doubt.expires)),
        NotWritten::Store(error) => {
            Reply::Refused(gateway.store_unavailable(error.to_string()), Some(doubt.expires))
        }
    })
}

fn stay<P: Ports>(gateway: &Gateway<P>, doubt: &Doubt, after: Duration) -> Recovered {
    let after = gateway.jittered(Duration::from_secs(1)).max(after);
    Recovered::Reply(Reply::Refused(Kind::InDoubt.after(after), Some(doubt.expires)))
}
