//! Claims: each made under exactly one version of the gate, with its basis and all its risks.
//!
//! [`crate::gateway::authority`] gives the permit. A claim that was not confirmed is never sent.
//! This file must not send anything.

use std::sync::Arc;

use super::admit::Ask;
use super::escrow;
use super::finish::later;
use super::outcome::{self, Claim};
use super::problems::{Kind, Problem};
use crate::gateway::authority::{Permit, took};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Policy;
use crate::gateway::telemetry::metrics;
use crate::gateway::upkeep::heartbeat::shut;
use crate::ports::jobs::StoredRequest;
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError};
use crate::ports::{Clock, Dice, Jobs, KeyStore, Ports};
use crate::protocol::decide::Basis;
use crate::protocol::hold::SendBy;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::record::Row;

pub(in crate::gateway) struct ClaimBasis {
    /// The rows that the claim saw.
    pub(in crate::gateway) basis: Basis,
    /// True if those rows say that nothing happened, or if there are none. Only then can absence be
    /// a proof.
    pub(in crate::gateway) untouched: bool,
}

/// Purpose of a claim: to run now, or to store a request for its job.
pub(in crate::gateway) enum ClaimMode {
    Now,
    /// To be run by its job.
    Later(Box<StoredRequest>),
}

pub(in crate::gateway) enum Claimed {
    Ours(Claim),
    /// The key already has these rows.
    Found(Vec<Row>),
    /// The gate is at another version than the permit's; nothing was written. The gate was read
    /// anew.
    Moved,
}

/// Retention, skew and tombstone time of a key under this policy.
pub(in crate::gateway) fn lifetime<P: Ports>(gateway: &Gateway<P>, policy: &Policy) -> Lifetime {
    Lifetime { retention: policy.retention, skew: gateway.settings.skew, tombstone: policy.tombstone }
}

/// Claims the key durably, or returns the rows that it has already. If a commit was not confirmed,
/// the claim is repeated once with its nonce. If it is still not confirmed, it is never sent, and
/// is released in the background.
pub(in crate::gateway) async fn claim<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    permit: &Permit,
    stand: ClaimBasis,
    way: ClaimMode,
) -> Result<Claimed, Problem> {
    // Entered before the claim: a region that gives keys up, or seals, waits for possible claims.
    let running = gateway.authority.running.begin(&ask.id);
    let claim = asked(gateway, ask, permit, stand);
    if !permit.view.allows(claim.life()) {
        tracing::warn!(
            route = &*ask.route,
            "refused: the regions have not agreed yet to remember keys for so long"
        );
        return Err(later(gateway, Kind::NotAuthoritative));
    }
    let now = gateway.ports.clock().now();
    let send_by = SendBy::new(now, ask.policy.hold, ask.policy.upstream_timeout, gateway.settings.drift);
    let mut unconfirmed = false;
    for _ in 0..2 {
        let store = gateway.ports.store();
        let keep = ask.policy.accept.request_retention;
        let written = match &way {
            ClaimMode::Now => metrics::store("claim", &ask.route, gateway, store.claim(&claim)).await,
            ClaimMode::Later(request) => {
                let accepted = Box::pin(store.accept(&claim, request, keep));
                metrics::store("accept", &ask.route, gateway, accepted).await
            }
        };
        match written {
            Ok(ClaimReply::Won { token, expires }) => {
                if !claim.risk.is_empty() && matches!(way, ClaimMode::Now) {
                    at_risk(ask, &claim);
                }
                let won = Claim {
                    attempt: Attempt { id: claim.id, token, nonce: claim.nonce },
                    expires,
                    send_by,
                    permit: permit.clone(),
                    lodges: escrow::is_on(&permit.view, ask),
                    lodged: None,
                    _running: running,
                };
                return Ok(Claimed::Ours(won));
            }
            Ok(ClaimReply::Found(rows)) => return Ok(Claimed::Found(rows)),
            // Nothing was written, not even by the unconfirmed call.
            Ok(ClaimReply::GateMoved) => {
                return Box::pin(look_again(gateway)).await.map(|()| Claimed::Moved);
            }
            Err(StoreError::Definite(why)) if !unconfirmed => return Err(store_unavailable(gateway, why)),
            Err(StoreError::Definite(_)) => break,
            Err(StoreError::Unknown(_)) => {
                metrics::claim_unconfirmed();
                unconfirmed = true;
            }
        }
    }
    match way {
        // An acceptance that proves durable later is no claim: its job runs it, and a retry finds
        // it. So this is no refusal.
        ClaimMode::Later(_) => {
            tracing::warn!(key = %ask.id.digest(), "an acceptance was not confirmed: whether its job will run is not known");
            return Err(later(gateway, Kind::OutcomeUnknown));
        }
        ClaimMode::Now => outcome::release_unconfirmed(gateway, ask, claim.nonce),
    }
    Err(store_unavailable(gateway, "a claim was not confirmed".to_owned()))
}

/// The claim to ask for. A lost region may have run the key without a record here. Unless the key's
/// absence proves that none did, the row itself names those regions. So the journal of such runs is
/// complete (docs/protocol.md#rule-31).
fn asked<P: Ports>(gateway: &Gateway<P>, ask: &Ask, permit: &Permit, stand: ClaimBasis) -> ClaimAsk {
    let risk = match stand.untouched {
        true => gateway.at_risk_unproven(&ask.id, &ask.route, &ask.meanings),
        false => gateway.at_risk(&ask.id),
    };
    ClaimAsk {
        id: ask.id.clone(),
        fingerprint: ask.fingerprint,
        nonce: gateway.ports.dice().nonce(),
        request_id: ask.request_id,
        gate: permit.gate,
        basis: stand.basis,
        risk,
        hold: ask.policy.hold,
        settle_time: ask.policy.settle_time,
        recovery: ask.policy.recovery,
        lifetime: lifetime(gateway, &ask.policy),
        route: ask.route.clone(),
        path: ask.target.path().to_owned(),
        principal: ask.bound_to(),
    }
}

fn at_risk(ask: &Ask, claim: &ClaimAsk) {
    metrics::run_at_risk(&ask.route);
    let lost: Vec<String> = claim.risk.iter().map(ToString::to_string).collect();
    tracing::warn!(key = %ask.id.digest(), lost = lost.join(","), "run at risk: a lost region may have run the key without a trace here");
}

/// Reads the gate anew, after a claim found it at another version.
pub(in crate::gateway) async fn look_again<P: Ports>(gateway: &Gateway<P>) -> Result<(), Problem> {
    match gateway.ports.store().gate_again().await {
        Ok(gate) if gate.is_open() => {
            took(gateway, gate);
            Ok(())
        }
        Ok(_) => {
            let why = "the store restarted and is not approved yet".to_owned();
            shut(gateway, &why);
            Err(store_unavailable(gateway, why))
        }
        Err(error) => Err(store_unavailable(gateway, error.to_string())),
    }
}

/// The refusal while the store does not answer, or is not reliable.
pub(in crate::gateway) fn store_unavailable<P: Ports>(gateway: &Gateway<P>, why: String) -> Problem {
    tracing::warn!(why, "refused: the store is not available");
    later(gateway, Kind::StoreUnavailable)
}
