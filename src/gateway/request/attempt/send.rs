//! A claimed key, run. The order is the safety argument: *claim durably → check the right to send →
//! send → settle → answer*.
//!
//! A check before the claim would let a handler that slept send after another recovered the key.

use std::sync::{Arc, OnceLock};

use tracing::Instrument;

use super::claim::Claim;
use super::escrow::{self, NotLodged};
use super::outcome;
use crate::gateway::instance::Gateway;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::problems::Kind;
use crate::gateway::request::reply::Step;
use crate::gateway::telemetry::metrics::observe;
use crate::gateway::telemetry::{metrics, trace};
use crate::ports::jobs::StoredRequest;
use crate::ports::upstream::{Send, SendError};
use crate::ports::{Ports, Upstream};
use crate::protocol::time::Moment;

pub async fn run<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, mut claim: Claim) -> Step {
    match escrow::lodge(gateway, ask, &claim).await {
        Ok(lodged) => claim.lodged = lodged,
        Err(failed) => {
            let again = failed == NotLodged::Stale;
            return outcome::unsent(gateway, ask, &claim, Kind::EscrowUnavailable, again).await;
        }
    }
    send(gateway, ask, claim).await
}

#[derive(Clone, Copy, Debug)]
struct Unsendable {
    why: &'static str,
    /// True if the key is looked at anew: a clean move ends no request.
    again: bool,
}

/// Checks that a claimed request may be sent now: only here, for clients, jobs and recoveries.
fn may_send<P: Ports>(gateway: &Gateway<P>, claim: &Claim, now: Moment) -> Result<(), Unsendable> {
    if !claim.send_by.allows(now) {
        return Err(Unsendable { why: "the time to send was over", again: false });
    }
    if !gateway.snapshot().may_send(claim.permit.tenure, now) {
        let why = "the lease lapsed, or keys were lost, since the claim";
        return Err(Unsendable { why, again: true });
    }
    Ok(())
}

async fn send<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: Claim) -> Step {
    let StoredRequest { method, target, headers, body } = ask.request.clone();
    let send = Send {
        upstream: ask.policy.upstream.clone(),
        key: ask.policy.key_headers.to.clone(),
        id: ask.id.clone(),
        token: claim.attempt.token,
        request_id: ask.request_id,
        method,
        target,
        headers,
        body,
    };
    // From here to the send there is no await: what is checked is still true when the first byte is
    // written.
    let started = gateway.now();
    if let Err(why) = may_send(gateway, &claim, started) {
        return unsendable(gateway, ask, &claim, why).await;
    }
    // Making a connection may take seconds, so the check is repeated after it.
    let refused = OnceLock::new();
    let still = || may_send(gateway, &claim, gateway.now()).map_err(|why| refused.set(why)).is_ok();
    let sent = gateway.ports.upstream().send(send, ask.policy.upstream_timeout, still);
    let answered = ask.waits(gateway.ports.clock(), sent.instrument(trace::upstream())).await;
    Step::Ended(match answered {
        Ok(response) => outcome::answered(gateway, ask, claim, response, started).await,
        Err(SendError::NotSent(_)) if let Some(why) = refused.get() => {
            return unsendable(gateway, ask, &claim, *why).await;
        }
        Err(SendError::NotSent(why)) => {
            tracing::warn!(key = %ask.id.digest(), why, "the upstream cannot be reached; released");
            metrics::attempt(&ask.route, "nothing_happened");
            return outcome::unsent(gateway, ask, &claim, Kind::UpstreamUnavailable, false).await;
        }
        Err(SendError::Unknown(why) | SendError::Late(why)) => {
            tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, why, "outcome unknown");
            outcome::doubtful(gateway, ask, &claim, None).await
        }
    })
}

/// Releases a claim whose request was not sent, because the right to send it ended.
async fn unsendable<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    claim: &Claim,
    Unsendable { why, again }: Unsendable,
) -> Step {
    metrics::count(observe::SENDS_REFUSED);
    tracing::warn!(key = %ask.id.digest(), token = %claim.attempt.token, why, "released unsent");
    outcome::unsent(gateway, ask, claim, Kind::NotAuthoritative, again).await
}
