//! Recovery by probe: asks the upstream if an attempt in doubt happened. And stand-ins: records of
//! this region that end another region's attempts, whose rows only that region writes.
//!
//! "Did not happen" counts only once the attempt is surely over (docs/protocol.md#rule-13). Nothing
//! runs here. A stand-in is written in one statement: no row that is never sent reads as an
//! attempt.

use std::sync::Arc;
use std::time::Duration;

use super::outcome;
use super::persist::{Fact, ProbeAnswer, Stored, question, store};
use crate::gateway::instance::Gateway;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::problems::Kind;
use crate::gateway::request::reply::Reply;
use crate::gateway::telemetry::metrics;
use crate::gateway::upkeep::store_gate;
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError, Written};
use crate::ports::upkeep::{Ruling, Who};
use crate::ports::{Dice, KeyStore, Ports, Upkeep};
use crate::protocol::decide::{Doubt, Settlement};
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{Answer, Basis, Nonce, Recovery, RequestId};
use crate::protocol::snapshot::Here;

/// Asks about every attempt in doubt, newest first. If none happened, a new one may begin on the
/// returned basis. Otherwise the error is the reply.
pub async fn probe<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubts: Vec<Doubt>,
    basis: Basis,
) -> Result<Basis, Reply> {
    let mut stays: Option<(Doubt, Duration)> = None;
    for doubt in doubts {
        let asked = question(gateway, &ask.policy, &ask.id, &doubt, ask.target.path());
        let after = match ask.waits(gateway.ports.clock(), asked).await {
            ProbeAnswer::Happened(answer) => {
                return Err(happened(gateway, ask, doubt, basis, answer).await);
            }
            ProbeAnswer::DidNotHappen => continue,
            ProbeAnswer::TooEarly(after) => after,
            ProbeAnswer::CannotSay => Duration::from_secs(1),
        };
        // Go on: an older attempt may have happened, and then this one's answer is known.
        if stays.as_ref().is_none_or(|(_, longest)| after > *longest) {
            stays = Some((doubt, after));
        }
    }
    match stays {
        Some((doubt, after)) => {
            let after = gateway.jittered(Duration::from_secs(1)).max(after);
            Err(Reply::Refused(Kind::InDoubt.after(after), Some(doubt.expires)))
        }
        None => Ok(basis),
    }
}

/// Stores the answer of an attempt that happened; another region's gets a stand-in.
async fn happened<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubt: Doubt,
    basis: Basis,
    answer: Arc<Answer>,
) -> Reply {
    let expires = Some(doubt.expires);
    let replay = Settlement {
        answer: answer.clone(),
        age: Duration::ZERO,
        origin: doubt.origin.clone(),
        request_id: doubt.request_id,
        expires: doubt.expires,
    };
    if doubt.origin == gateway.origin {
        let attempt = Attempt { id: ask.id.clone(), token: doubt.token, nonce: doubt.nonce };
        let fact = Fact::Settled(answer, doubt.request_id);
        return match store(gateway, &ask.route, ask.policy.hold, attempt, fact).await {
            Stored::Yes => Reply::Replay(replay),
            Stored::Lost => outcome::stored_instead(gateway, ask).await,
            Stored::NotYet => gateway.unknown(expires),
        };
    }
    let whom = For {
        id: &ask.id,
        fingerprint: ask.fingerprint,
        principal: ask.bound_to(),
        request_id: doubt.request_id,
        nonce: doubt.nonce,
        basis,
        recovery: ask.policy.recovery,
        lifetime: gateway.settings.lifetime(&ask.policy),
        request: (&ask.route, ask.target.path()),
    };
    match stand_in(gateway, whom, &Ruling::Settled((*answer).clone()), None).await {
        Ok(()) => Reply::Replay(replay),
        Err(NotWritten::Changed) => Reply::Refused(gateway.later(Kind::InDoubt), expires),
        Err(NotWritten::Store(error)) => {
            Reply::Refused(gateway.store_unavailable(error.to_string()), expires)
        }
    }
}

pub enum NotWritten {
    /// The rows, or this region's rights, changed meanwhile.
    Changed,
    Store(StoreError),
}

pub struct For<'a> {
    pub id: &'a KeyId,
    pub fingerprint: Fingerprint,
    pub principal: Option<Digest32>,
    pub request_id: RequestId,
    /// The nonce of the attempt. A record that holds its answer has it, too: both rows are then one
    /// attempt. If the other row's answer arrives after all, nothing ran twice.
    pub nonce: Nonce,
    pub basis: Basis,
    /// The rule of the attempts. It says nothing more once their outcome is stored.
    pub recovery: Recovery,
    /// Retention, skew and tombstone time of the key.
    pub lifetime: Lifetime,
    /// The route and the path of its request, if known; else empty.
    pub request: (&'a str, &'a str),
}

/// Ends those attempts with their outcome. Repeats an unconfirmed write: none is written twice.
pub async fn stand_in<P: Ports>(
    gateway: &Gateway<P>,
    whom: For<'_>,
    ruling: &Ruling,
    by: Option<Who<'_>>,
) -> Result<(), NotWritten> {
    let Here::Run(permit) = gateway.here(whom.id) else { return Err(NotWritten::Changed) };
    let ask = ClaimAsk {
        id: whom.id.clone(),
        fingerprint: whom.fingerprint,
        nonce: match ruling {
            Ruling::Settled(_) => whom.nonce,
            Ruling::Released => gateway.ports.dice().nonce(),
        },
        request_id: whom.request_id,
        gate: permit.gate,
        basis: whom.basis,
        risk: permit.known.at_risk(whom.id),
        hold: Duration::ZERO,
        settle_time: Duration::ZERO,
        recovery: whom.recovery,
        lifetime: whom.lifetime,
        route: whom.request.0.into(),
        path: whom.request.1.to_owned(),
        principal: whom.principal,
    };
    if !permit.view.allows(ask.life()) {
        return Err(NotWritten::Changed);
    }
    if is_disabled(Check::StandInWhole) || is_disabled(Check::NamedAnswered) {
        return in_two(gateway, &ask, ruling).await;
    }
    let store = gateway.store();
    let mut written = metrics::upkeep("stand_in", store.stand_in(&ask, ruling, by)).await;
    if let Err(StoreError::Unknown(_)) = written {
        written = metrics::upkeep("stand_in", store.stand_in(&ask, ruling, by)).await;
    }
    match written {
        Ok(Written::Done) => Ok(()),
        Ok(Written::Lost) => Err(NotWritten::Changed),
        Ok(Written::GateMoved) => {
            // So that the next try goes by the present gate; this try is over in any case.
            let _ = store_gate::look_again(gateway).await;
            Err(NotWritten::Changed)
        }
        Err(error) => Err(NotWritten::Store(error)),
    }
}

/// The variant of the plants: a claim that is never sent, and then the known outcome.
async fn in_two<P: Ports>(gateway: &Gateway<P>, ask: &ClaimAsk, ruling: &Ruling) -> Result<(), NotWritten> {
    let store = gateway.store();
    let Ok(ClaimReply::Won { token, .. }) = store.claim(ask).await else { return Err(NotWritten::Changed) };
    let attempt = Attempt { id: ask.id.clone(), token, nonce: ask.nonce };
    let written = match ruling {
        Ruling::Settled(answer) => store.settle(&attempt, answer).await,
        Ruling::Released => store.release(&attempt).await,
    };
    written.map(|_| ()).map_err(NotWritten::Store)
}
