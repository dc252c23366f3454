//! Claims: made under exactly one version of the gate, with everything they stand on and everything that is risked.
//!
//! Neighbours: [`super::request`] claims before it runs anything, [`super::authority`] gives the permit, [`super::outcome`] ends what was claimed. A
//! claim that was not confirmed is never sent. It must not send anything.

use std::sync::Arc;
use std::time::Duration;

use super::admit::Ask;
use super::authority::{Permit, took};
use super::ending::jittered;
use super::heartbeat::shut;
use super::outcome::{self, Claim};
use super::problems::Problem;
use super::route::Policy;
use super::{Gateway, escrow, metrics};
use crate::ports::jobs::StoredRequest;
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError};
use crate::ports::{Clock, Dice, Jobs, KeyStore, Ports};
use crate::protocol::decide::Basis;
use crate::protocol::hold::SendBy;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::record::Row;

/// What a claim stands on.
pub(super) struct Stand {
    /// The rows it saw.
    pub(super) basis: Basis,
    /// Those rows say that nothing happened, or there are none: only then the absence of more can be a proof.
    pub(super) untouched: bool,
}

/// Whether a claim is made to be run now, or a request is stored to be run by its job.
pub(super) enum Way {
    /// Now.
    Now,
    /// By its job.
    Later(Box<StoredRequest>),
}

/// What a claim came to.
pub(super) enum Claimed {
    /// It is durable.
    Ours(Claim),
    /// These rows stand in the way.
    Found(Vec<Row>),
    /// The gate is at another version than the permit says; nothing was written. It was read anew.
    Moved,
}

/// How long a key under this policy is remembered.
pub(super) fn lifetime<P: Ports>(gateway: &Gateway<P>, policy: &Policy) -> Lifetime {
    Lifetime { retention: policy.retention, skew: gateway.settings.skew, tombstone: policy.tombstone }
}

/// Claims the key durably, or says what stands in the way. A claim whose commit was not confirmed is read again by its nonce,
/// once; what is still not confirmed is never sent, and released in the background.
pub(super) async fn claim<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    permit: &Permit,
    stand: Stand,
    way: Way,
) -> Result<Claimed, Problem> {
    // From before the claim: whoever gives keys up, or seals, waits for what may have been claimed.
    let running = gateway.authority.running.begin(&ask.id);
    let claim = asked(gateway, ask, permit, stand);
    let now = gateway.ports.clock().now();
    let send_by = SendBy::new(now, ask.policy.hold, ask.policy.upstream_timeout, gateway.settings.drift);
    let mut unconfirmed = false;
    for _ in 0..2 {
        let store = gateway.ports.store();
        let keep = ask.policy.accept.request_retention;
        let written = match &way {
            Way::Now => metrics::store("claim", &ask.route, gateway, store.claim(&claim)).await,
            Way::Later(request) => {
                metrics::store("accept", &ask.route, gateway, store.accept(&claim, request, keep)).await
            }
        };
        match written {
            Ok(ClaimReply::Won { token, expires }) => {
                if !claim.risk.is_empty() && matches!(way, Way::Now) {
                    at_risk(ask, &claim);
                }
                let attempt = Attempt { id: claim.id, token, nonce: claim.nonce };
                return Ok(Claimed::Ours(Claim {
                    attempt,
                    expires,
                    send_by,
                    permit: permit.clone(),
                    lodges: escrow::is_on(&permit.view, ask),
                    lodged: None,
                    _running: running,
                }));
            }
            Ok(ClaimReply::Found(rows)) => return Ok(Claimed::Found(rows)),
            // Nothing was written, by the unconfirmed call neither.
            Ok(ClaimReply::GateMoved) => {
                return look_again(gateway).await.map(|()| Claimed::Moved);
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
        // An acceptance that shows up after all is no claim: its job runs it, and a retry finds it. So this is no refusal.
        Way::Later(_) => {
            tracing::warn!(key = %ask.id.digest(), "an acceptance was not confirmed: whether its job will run is not known");
            let after = jittered(gateway, Duration::from_secs(1));
            return Err(Problem::OutcomeUnknown { upstream: None, after });
        }
        Way::Now => outcome::release_unconfirmed(gateway, ask, claim.nonce),
    }
    Err(store_unavailable(gateway, "a claim was not confirmed".to_owned()))
}

/// The claim as it is asked for. What no record here speaks against, and what is recovered, on an
/// arc of a region that was lost with its last records, says so in the row itself: the journal of
/// such runs cannot miss one (docs/protocol.md#rule-31).
fn asked<P: Ports>(gateway: &Gateway<P>, ask: &Ask, permit: &Permit, stand: Stand) -> ClaimAsk {
    let proven = stand.untouched && gateway.absence_is_proven(&ask.id, &ask.route, &ask.meanings);
    ClaimAsk {
        id: ask.id.clone(),
        fingerprint: ask.fingerprint,
        nonce: gateway.ports.dice().nonce(),
        request_id: ask.request_id,
        gate: permit.gate,
        basis: stand.basis,
        risk: if proven { Vec::new() } else { gateway.at_risk(&ask.id) },
        hold: ask.policy.hold,
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
pub(super) async fn look_again<P: Ports>(gateway: &Gateway<P>) -> Result<(), Problem> {
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

/// The refusal while the store does not answer, or may not be relied on.
pub(super) fn store_unavailable<P: Ports>(gateway: &Gateway<P>, why: String) -> Problem {
    tracing::warn!(why, "refused: the store is not available");
    Problem::StoreUnavailable { after: jittered(gateway, Duration::from_secs(1)) }
}
