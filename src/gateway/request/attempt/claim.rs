//! Claims: each made under exactly one version of the gate, with its basis and all its risks.
//!
//! [`crate::gateway::authority`] gives the permit. A claim that was not confirmed is never sent.

use std::sync::Arc;

use super::persist;
use crate::gateway::authority::state::Run;
use crate::gateway::instance::Gateway;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::problems::{Kind, Problem};
use crate::gateway::telemetry::metrics::{self, observe};
use crate::gateway::upkeep::store_gate;
use crate::ports::jobs::StoredRequest;
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError, Terms};
use crate::ports::{Dice, Jobs, KeyStore, Ports};
use crate::protocol::lease::SendBy;
use crate::protocol::record::{Basis, Nonce, Row};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Permit;
use crate::protocol::time::Date;

pub struct Claim {
    pub attempt: Attempt,
    pub expires: Date,
    pub send_by: SendBy,
    pub permit: Permit,
    /// The region where it surely is lodged.
    pub lodged: Option<RegionName>,
    /// The attempt counts as running as long as this lives.
    _running: Run,
}

pub enum Claimed {
    Ours(Claim),
    Found(Vec<Row>),
    /// The gate was at another version; nothing was written, and it was read anew.
    Moved,
}

/// Claims the key durably, to run now or to store the request for its job (`later`); or returns its
/// rows. `untouched`: the rows of the basis say that nothing happened, and only then can absence be
/// a proof. An unconfirmed claim is repeated once with its nonce. After that it is never sent, and
/// is released in the background.
pub async fn claim<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    permit: &Permit,
    basis: Basis,
    untouched: bool,
    later: Option<&StoredRequest>,
) -> Result<Claimed, Problem> {
    // Entered before the claim: a region that gives keys up, or seals, waits for possible claims.
    let running = gateway.authority.running.begin(&ask.id);
    let claim = asked(gateway, ask, permit, basis, untouched);
    if !permit.view.allows(claim.life()) {
        let route = &*ask.route;
        tracing::warn!(route, "refused: the regions have not agreed yet to remember keys for so long");
        return Err(gateway.later(Kind::NotAuthoritative));
    }
    let now = gateway.now();
    let send_by = SendBy::new(now, ask.policy.hold, ask.policy.upstream_timeout, gateway.settings.drift);
    let mut unconfirmed = false;
    for _ in 0..2 {
        let store = gateway.store();
        let keep = ask.policy.accept.request_retention;
        let written = match later {
            None => metrics::store("claim", &ask.route, gateway.ports.clock(), store.claim(&claim)).await,
            Some(request) => {
                let accepted = Box::pin(store.accept(&claim, request, keep));
                metrics::store("accept", &ask.route, gateway.ports.clock(), accepted).await
            }
        };
        match written {
            Ok(ClaimReply::Won { token, expires }) => {
                if !claim.risk.is_empty() && later.is_none() {
                    metrics::count_by(observe::RUNS_AT_RISK, "route", ask.route.clone());
                    let lost: Vec<String> = claim.risk.iter().map(ToString::to_string).collect();
                    tracing::warn!(key = %ask.id.digest(), lost = lost.join(","), "run at risk: a lost region may have run the key without a trace here");
                }
                let attempt = Attempt { id: claim.id, token, nonce: claim.terms.nonce };
                let (permit, lodged) = (permit.clone(), None);
                let won = Claim { attempt, expires, send_by, permit, lodged, _running: running };
                return Ok(Claimed::Ours(won));
            }
            Ok(ClaimReply::Found(rows)) => return Ok(Claimed::Found(rows)),
            // Nothing was written, not even by the unconfirmed call.
            Ok(ClaimReply::GateMoved) => {
                return Box::pin(store_gate::look_again(gateway)).await.map(|()| Claimed::Moved);
            }
            Err(StoreError::Definite(why)) if !unconfirmed => return Err(gateway.store_unavailable(why)),
            Err(StoreError::Definite(_)) => break,
            Err(StoreError::Unknown(_)) => {
                metrics::count(observe::CLAIMS_UNCONFIRMED);
                unconfirmed = true;
            }
        }
    }
    if later.is_some() {
        // An acceptance that proves durable later is no claim: its job runs it, and a retry finds
        // it. So this is no refusal.
        tracing::warn!(key = %ask.id.digest(), "an acceptance was not confirmed: whether its job will run is not known");
        return Err(gateway.later(Kind::OutcomeUnknown));
    }
    persist::release_unconfirmed(gateway, ask, claim.terms.nonce);
    Err(gateway.store_unavailable("a claim was not confirmed".to_owned()))
}

/// The claim to ask for. A lost region may have run the key without a record here. Unless the key's
/// absence proves that none did, the row itself names those regions, so the journal of such runs is
/// complete (docs/protocol.md#rule-31).
fn asked<P: Ports>(
    gateway: &Gateway<P>,
    ask: &Ask,
    permit: &Permit,
    basis: Basis,
    untouched: bool,
) -> ClaimAsk {
    let risk = match untouched {
        true => permit.known.at_risk_unproven(&ask.id, &ask.route, &ask.meanings),
        false => permit.known.at_risk(&ask.id),
    };
    let (gate, terms) = (permit.gate, terms(gateway, ask, gateway.ports.dice().nonce()));
    ClaimAsk { id: ask.id.clone(), gate, basis, risk, terms }
}

/// The terms of an attempt of a request.
pub(super) fn terms<P: Ports>(gateway: &Gateway<P>, ask: &Ask, nonce: Nonce) -> Terms {
    Terms {
        nonce,
        fingerprint: ask.fingerprint,
        request_id: ask.request_id,
        hold: ask.policy.hold,
        settle_time: ask.policy.settle_time,
        recovery: ask.policy.recovery,
        lifetime: gateway.settings.lifetime(&ask.policy),
        route: ask.route.clone(),
        path: ask.request.target.path().to_owned(),
        principal: ask.bound_to(),
    }
}
