//! Writes what became of another region's attempt: only that region writes its row, so this one stands in with a record of its own.
//!
//! A claim whose hold is over from the start supersedes the attempts in doubt; then it is ended with what is known of them. Nobody may send
//! under it. If nothing more than the claim is written it is in doubt, and hides nothing: a row in doubt masks none
//! (`protocol::record`). Neighbours: [`super::recover`], [`super::sweep`] and [`super::operator`] come here. It must not judge anything.

use std::time::Duration;

use super::authority::Here;
use super::claim::look_again;
use super::{Gateway, metrics};
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError};
use crate::ports::{Dice, KeyStore, Ports};
use crate::protocol::decide::Basis;
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::record::{Nonce, RequestId};

/// Why there is no such claim.
pub(super) enum NotClaimed {
    /// The rows, or what this region may do, changed meanwhile.
    Changed,
    /// The store failed.
    Store(StoreError),
}

/// What a claim takes over from the attempt that it stands in for.
pub(super) struct For<'a> {
    /// The key.
    pub(super) id: &'a KeyId,
    /// What its request asked.
    pub(super) fingerprint: Fingerprint,
    /// To whom it is bound.
    pub(super) principal: Option<Digest32>,
    /// The request that made it.
    pub(super) request_id: RequestId,
    /// The nonce of the attempt whose answer this claim is to hold: then both rows are one attempt, and where the answer of the other one
    /// comes home after all, nothing ran twice. `None` if nothing happened.
    pub(super) nonce: Option<Nonce>,
    /// What the claim supersedes.
    pub(super) basis: Basis,
    /// How long the key is remembered.
    pub(super) lifetime: Lifetime,
    /// The route and the path of its request, where they are known; else empty.
    pub(super) request: (&'a str, &'a str),
}

/// Claims the key over those attempts.
pub(super) async fn claim<P: Ports>(gateway: &Gateway<P>, whom: For<'_>) -> Result<Attempt, NotClaimed> {
    let Here::Run(permit) = gateway.here(whom.id) else { return Err(NotClaimed::Changed) };
    let ask = ClaimAsk {
        id: whom.id.clone(),
        fingerprint: whom.fingerprint,
        nonce: whom.nonce.unwrap_or_else(|| gateway.ports.dice().nonce()),
        request_id: whom.request_id,
        gate: permit.gate,
        basis: whom.basis,
        risk: gateway.at_risk(whom.id),
        hold: Duration::ZERO,
        lifetime: whom.lifetime,
        route: whom.request.0.into(),
        path: whom.request.1.to_owned(),
        principal: whom.principal,
    };
    let store = gateway.ports.store();
    let mut claimed = metrics::upkeep("claim", store.claim(&ask)).await;
    if let Err(StoreError::Unknown(_)) = claimed {
        claimed = metrics::upkeep("claim", store.claim(&ask)).await;
    }
    match claimed {
        Ok(ClaimReply::Won { token, .. }) => Ok(Attempt { id: ask.id, token, nonce: ask.nonce }),
        Ok(ClaimReply::Found(_)) => Err(NotClaimed::Changed),
        Ok(ClaimReply::GateMoved) => {
            // So that the next try goes by what the gate says now; whether that succeeds or not, this one is over.
            let _ = look_again(gateway).await;
            Err(NotClaimed::Changed)
        }
        Err(error) => Err(NotClaimed::Store(error)),
    }
}
