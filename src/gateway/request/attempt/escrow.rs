//! Escrow: a claim is lodged with the next serving region before anything is sent, and other
//! regions' claims are lodged here.
//!
//! With escrow, a destroyed region's claims are known elsewhere. A key without such a claim was
//! never sent (`protocol::escrow`). This file must not decide if anything may be sent.

use crate::gateway::authority::register::learn;
use std::sync::Arc;

use super::claimed::Claim;
use crate::gateway::instance::Gateway;
use crate::gateway::policy::choices::LODGED_WITHIN;
use crate::gateway::policy::route::{Alone, Escrow};
use crate::gateway::request::ask::Ask;
use crate::gateway::telemetry::metrics;
use crate::gateway::upkeep::store_gate;
use crate::ports::authority::{Lodged, Lodging};
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::{Attempt, GateVersion, StoreError, Written};
use crate::ports::{Escrows, KeyStore, Peers, Ports};
use crate::protocol::authority::GateState;
use crate::protocol::escrow::lodges;
use crate::protocol::key::KeyId;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{Answer, Nonce, Row, Token};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::snapshot::Permit;
use crate::protocol::view::View;

/// Reason why a claim is not lodged. It must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum NotLodged {
    /// The target goes by another view than the claim: look at everything anew.
    Stale,
    /// The target cannot be reached, or there is none.
    Unavailable,
}

/// The rule of this route while no other region serves; `None` if its claims are not lodged. The
/// view decides, as all regions must go by the same. If a file asks for escrow before the view
/// does, the gateway follows the file, too. If the files and the view differ about a route under
/// escrow, every claim is lodged.
fn alone(view: &View, ask: &Ask) -> Option<Alone> {
    match ask.policy.escrow {
        Escrow::Claim(alone) | Escrow::ClaimAndAnswer(alone) => Some(alone),
        Escrow::Off => lodges(view, &ask.route, &ask.meanings).then_some(Alone::Refuse),
    }
}

pub(in crate::gateway) fn is_on(view: &View, ask: &Ask) -> bool {
    alone(view, ask).is_some()
}

/// Lodges a claim, if its route asks for that. Returns the region that has it.
pub(in crate::gateway) async fn lodge<P: Ports>(
    gateway: &Gateway<P>,
    ask: &Ask,
    claim: &Claim,
) -> Result<Option<RegionName>, NotLodged> {
    let Permit { view, .. } = &claim.permit;
    let Some(alone) = alone(view, ask) else { return Ok(None) };
    let Some(target) = view.target(&ask.id) else {
        return match alone {
            Alone::Run => {
                metrics::escrow("alone");
                Ok(None)
            }
            Alone::Refuse => {
                metrics::escrow("refused");
                Err(NotLodged::Unavailable)
            }
        };
    };
    let lodging = Lodging {
        id: ask.id.clone(),
        origin: gateway.origin.clone(),
        token: claim.attempt.token,
        nonce: claim.attempt.nonce,
        fingerprint: ask.fingerprint,
        request_id: ask.request_id,
        hold: ask.policy.hold,
        settle_time: ask.policy.settle_time,
        recovery: ask.policy.recovery,
        lifetime: gateway.settings.lifetime(&ask.policy),
        route: ask.route.clone(),
        path: ask.target.path().to_owned(),
        principal: ask.bound_to(),
    };
    let question = Question::Lodge(Box::new(lodging));
    let why = match gateway.ports.peers().ask(target, question, LODGED_WITHIN).await {
        Ok(PeerReply::Lodged(Lodged::Done)) => {
            metrics::escrow("lodged");
            return Ok(Some(target.clone()));
        }
        Ok(PeerReply::Lodged(Lodged::Superseded)) if Box::pin(stands(gateway, &claim.attempt)).await => {
            // The target has a later attempt of this store, or another one under the same token.
            tracing::error!(key = %ask.id.digest(), %target, "this store has forgotten an attempt that was lodged");
            store_gate::went_back(gateway);
            return Err(NotLodged::Unavailable);
        }
        Ok(PeerReply::Lodged(Lodged::GateMoved | Lodged::Superseded) | PeerReply::Refused(_)) => {
            metrics::escrow("stale");
            return Err(NotLodged::Stale);
        }
        Ok(_) => "the peer answered something else".to_owned(),
        Err(error) => error.to_string(),
    };
    metrics::escrow("unavailable");
    tracing::warn!(key = %ask.id.digest(), %target, why, "a claim could not be lodged; it is released unsent");
    Err(NotLodged::Unavailable)
}

/// True if the claim is still the key's newest attempt in the own store. Tokens of one store grow.
/// So its target knows no attempt beyond that one, unless this store went back
/// (docs/protocol.md#rule-8).
async fn stands<P: Ports>(gateway: &Gateway<P>, attempt: &Attempt) -> bool {
    let found = gateway.ports.store().look_up(std::slice::from_ref(&attempt.id)).await;
    let own =
        |row: &Row| row.origin == gateway.origin && (row.token, row.nonce) == (attempt.token, attempt.nonce);
    found.is_ok_and(|found| found.iter().flatten().any(own))
}

/// Takes back a claim that was never sent, wherever it may be lodged. In the background and once.
/// If it stays lodged and this region is lost, it is in doubt: that costs an answer, not safety.
pub(in crate::gateway) fn void<P: Ports>(gateway: &Arc<Gateway<P>>, claim: &Claim) {
    if !claim.lodges {
        return;
    }
    let Some(target) = claim.permit.view.target(&claim.attempt.id).cloned() else { return };
    let Attempt { id, token, nonce } = claim.attempt.clone();
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let question = Question::Void { id, token, nonce };
        if let Err(error) = gateway.ports.peers().ask(&target, question, LODGED_WITHIN).await {
            tracing::info!(%target, %error, "an escrow could not be taken back");
        }
    });
}

/// Lodges the answer beside its claim, if the route asks for that, before the client gets it. A
/// failure is counted: after a takeover the claim would be in doubt.
pub(in crate::gateway) async fn lodge_answer<P: Ports>(
    gateway: &Gateway<P>,
    ask: &Ask,
    claim: &Claim,
    answer: &Arc<Answer>,
) {
    let (Some(target), Escrow::ClaimAndAnswer(_)) = (&claim.lodged, ask.policy.escrow) else { return };
    let Attempt { id, token, nonce } = claim.attempt.clone();
    let question = Question::LodgeAnswer { id, token, nonce, answer: answer.clone() };
    match gateway.ports.peers().ask(target, question, LODGED_WITHIN).await {
        Ok(PeerReply::Done) => metrics::escrow("answer_lodged"),
        Ok(_) | Err(_) => metrics::escrow("answer_failed"),
    }
}

/// Checks that this region is the target of that claim, under the view of its gate.
fn belongs(state: &GateState, me: &RegionName, from: &RegionName, lodging: &Lodging) -> Result<(), String> {
    if is_disabled(Check::EscrowGate) {
        return Ok(());
    }
    let view = &state.view;
    if view.epoch() != lodging.token.epoch {
        return Err(format!(
            "this region goes by epoch {}, the claim by {}",
            view.epoch(),
            lodging.token.epoch
        ));
    }
    if view.origin(from).as_ref() != Some(&lodging.origin) {
        return Err("the claim is of another origin than its sender's".to_owned());
    }
    if view.owner(&lodging.id) != Some(from) {
        return Err("the sender does not own the key".to_owned());
    }
    if view.target(&lodging.id) != Some(me) {
        return Err("this region is not where the key's claims are lodged".to_owned());
    }
    Ok(())
}

impl<P: Ports> Gateway<P> {
    /// Stores a claim of another region. Refused unless both go by the same view. The statement
    /// that stores it compares that, too: once a gate has adopted a newer view, no escrow of an
    /// older one is stored (docs/protocol.md#rule-37).
    pub(in crate::gateway) async fn lodged(
        self: &Arc<Self>,
        from: &RegionName,
        lodging: Lodging,
    ) -> PeerReply {
        let mut refused = "the store is closed".to_owned();
        for _ in 0..2 {
            let Some((gate, state)) = self.gate_state() else { break };
            match belongs(&state, &self.settings.me, from, &lodging) {
                Err(why) => refused = why,
                Ok(()) => match self.keep_lodging(&lodging, gate).await {
                    Ok(Lodged::GateMoved) => refused = "the gate moved".to_owned(),
                    Ok(lodged) => return PeerReply::Lodged(lodged),
                    Err(error) => return PeerReply::Refused(error.to_string()),
                },
            }
            if lodging.token.epoch > state.view.epoch() {
                learn::from_peer(self, from).await;
            } else if store_gate::look_again(self).await.is_err() {
                break;
            }
        }
        tracing::info!(%from, key = %lodging.id.digest(), refused, "refused an escrow");
        PeerReply::Refused(refused)
    }

    /// Stores a lodging, and again if the first try is not confirmed: nothing is stored twice.
    async fn keep_lodging(&self, lodging: &Lodging, gate: GateVersion) -> Result<Lodged, StoreError> {
        match metrics::upkeep("lodge", self.ports.store().lodge(lodging, gate)).await {
            Err(StoreError::Unknown(_)) => {
                metrics::upkeep("lodge", self.ports.store().lodge(lodging, gate)).await
            }
            other => other,
        }
    }

    /// Stores the answer to a claim that is lodged here. A fact is never refused for its epoch. If
    /// the claim has become this region's own record meanwhile, that record is settled.
    pub(in crate::gateway) async fn answer_lodged(
        self: &Arc<Self>,
        from: &RegionName,
        id: &KeyId,
        token: Token,
        nonce: Nonce,
        answer: &Arc<Answer>,
    ) -> PeerReply {
        let Some(origin) = self.origin_then(from, token.epoch) else { return no_such_region() };
        let store = self.ports.store();
        let mut written =
            metrics::upkeep("lodge", store.lodge_answer(id, &origin, token, nonce, answer)).await;
        if written == Ok(Written::Lost) && self.was_its_key(from, id, token) {
            let attempt = Attempt { id: id.clone(), token, nonce };
            written = metrics::upkeep("settle", store.settle(&attempt, answer)).await;
        }
        match written {
            Ok(Written::Done) => PeerReply::Done,
            Ok(Written::Lost) => PeerReply::Refused("no such claim is lodged here".to_owned()),
            Ok(Written::GateMoved) => PeerReply::Refused("the store is not approved yet".to_owned()),
            Err(error) => PeerReply::Refused(error.to_string()),
        }
    }

    /// Takes back a claim that was lodged here and never sent. Does so too if it has become this
    /// region's own record meanwhile.
    pub(in crate::gateway) async fn voided(
        self: &Arc<Self>,
        from: &RegionName,
        id: &KeyId,
        token: Token,
        nonce: Nonce,
    ) -> PeerReply {
        let Some(origin) = self.origin_then(from, token.epoch) else { return no_such_region() };
        let store = self.ports.store();
        if let Err(error) = metrics::upkeep("lodge", store.void(id, &origin, token, nonce)).await {
            return PeerReply::Refused(error.to_string());
        }
        if self.view().epoch() > token.epoch && self.was_its_key(from, id, token) {
            let attempt = Attempt { id: id.clone(), token, nonce };
            if let Err(error) = metrics::upkeep("release", store.release(&attempt)).await {
                return PeerReply::Refused(error.to_string());
            }
        }
        PeerReply::Done
    }

    fn origin_then(&self, region: &RegionName, epoch: u64) -> Option<Origin> {
        let then = self.known_view(epoch).unwrap_or_else(|| self.view());
        then.origin(region)
    }

    /// True if the sender owned the key in the token's epoch. Then a record of this region under
    /// that token is a claim of the sender that was lodged here, and no attempt of its own.
    fn was_its_key(&self, from: &RegionName, id: &KeyId, token: Token) -> bool {
        self.known_view(token.epoch).is_some_and(|then| then.owner(id) == Some(from))
    }
}

fn no_such_region() -> PeerReply {
    PeerReply::Refused("the sender is not a region of the view".to_owned())
}

#[cfg(test)]
mod tests;
