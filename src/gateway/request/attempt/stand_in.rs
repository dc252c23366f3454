//! Stand-ins: records of this region that end another region's attempts, whose rows only that
//! region writes.
//!
//! A stand-in is final or released from its first moment, in one statement. A crash leaves all of
//! it or nothing, and no row that is never sent reads as an attempt. This file must not judge
//! anything.

use std::time::Duration;

use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::gateway::upkeep::store_gate;
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError, Written};
use crate::ports::upkeep::{Ruling, Who};
use crate::ports::{Dice, KeyStore, Ports, Upkeep};
use crate::protocol::decide::Basis;
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{Nonce, Recovery, RequestId};
use crate::protocol::snapshot::Here;

/// Reason why nothing was written.
pub(in crate::gateway) enum NotWritten {
    /// The rows, or this region's rights, changed meanwhile.
    Changed,
    Store(StoreError),
}

/// A record to be made in the place of others.
pub(in crate::gateway) struct For<'a> {
    pub(in crate::gateway) id: &'a KeyId,
    pub(in crate::gateway) fingerprint: Fingerprint,
    /// The principal to which the key is bound.
    pub(in crate::gateway) principal: Option<Digest32>,
    pub(in crate::gateway) request_id: RequestId,
    /// The nonce of the attempt whose answer this record holds; `None` if nothing happened. With
    /// it, both rows are one attempt. If the other row's answer arrives after all, nothing ran
    /// twice.
    pub(in crate::gateway) nonce: Option<Nonce>,
    pub(in crate::gateway) basis: Basis,
    /// The rule of the attempts. It says nothing more once their outcome is stored.
    pub(in crate::gateway) recovery: Recovery,
    /// Retention, skew and tombstone time of the key.
    pub(in crate::gateway) lifetime: Lifetime,
    /// The route and the path of its request, if known; else empty.
    pub(in crate::gateway) request: (&'a str, &'a str),
}

/// Ends those attempts with their known outcome. An unconfirmed write is repeated: nothing is
/// written twice.
pub(in crate::gateway) async fn end<P: Ports>(
    gateway: &Gateway<P>,
    whom: For<'_>,
    ruling: &Ruling,
    by: Option<Who<'_>>,
) -> Result<(), NotWritten> {
    let Here::Run(permit) = gateway.here(whom.id) else { return Err(NotWritten::Changed) };
    let ask = ClaimAsk {
        id: whom.id.clone(),
        fingerprint: whom.fingerprint,
        nonce: whom.nonce.unwrap_or_else(|| gateway.ports.dice().nonce()),
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
    let store = gateway.ports.store();
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

/// The variant of the plants, in two statements: a claim that is never sent, and then the known
/// outcome.
async fn in_two<P: Ports>(gateway: &Gateway<P>, ask: &ClaimAsk, ruling: &Ruling) -> Result<(), NotWritten> {
    let store = gateway.ports.store();
    let Ok(ClaimReply::Won { token, .. }) = store.claim(ask).await else { return Err(NotWritten::Changed) };
    let attempt = Attempt { id: ask.id.clone(), token, nonce: ask.nonce };
    let written = match ruling {
        Ruling::Settled(answer) => store.settle(&attempt, answer).await,
        Ruling::Released => store.release(&attempt).await,
    };
    written.map(|_| ()).map_err(NotWritten::Store)
}
