//! The store as this process sees it: open to claims, closed for now, or refused.
//!
//! The heartbeat opens and closes it; a claim that met another version of the gate reads it anew.

use std::sync::Arc;

use crate::gateway::instance::Gateway;
use crate::gateway::request::problems::Problem;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::store::Gate;
use crate::ports::{KeyStore, Ports};
use crate::protocol::snapshot::StoreHealth;

pub const NOT_APPROVED: &str = "the store restarted and is not approved yet";

/// Lets claims pass. The only place that opens a store, so it asks whether that went back.
pub fn open<P: Ports>(gateway: &Gateway<P>, gate: Gate) {
    if gateway.health().went_back {
        return went_back(gateway);
    }
    let (version, epoch) = (gate.version.0, gate.epoch);
    let opened = Arc::new(StoreHealth::Open(gate.clone()));
    let was = gateway.authority.change(|known, _| std::mem::replace(&mut known.store, opened));
    gateway.install_gate(gate);
    if let StoreHealth::Closed { why: was, .. } = &*was {
        tracing::info!(was, version, epoch, "the store is open");
        // The acceptors hear of a new start at once: while this process lives, it can say that
        // nothing of the one before is relied on.
        if gateway.holds_lease(gateway.now()) {
            gateway.authority.wakes.renewal.notify_one();
        }
    }
    metrics::tell(observe::STORE_UP, true);
}

/// Closes the store for now. Each heartbeat calls this; it is logged once.
pub fn close<P: Ports>(gateway: &Gateway<P>, why: String) {
    if shut(gateway, &why) {
        tracing::warn!(why, "the store is closed: no key is run here");
    }
}

/// Closes a store that only a rebuild opens again.
pub fn refuse<P: Ports>(gateway: &Gateway<P>, why: String) {
    if shut(gateway, &why) {
        tracing::error!(why, "the store is refused: no key is run here");
    }
}

/// Refuses the store from now on: it is an old copy.
pub fn went_back<P: Ports>(gateway: &Gateway<P>) {
    gateway.health().went_back = true;
    let why = "the store went back while it ran: it is an old copy, has forgotten claims and must be rebuilt from its peers";
    refuse(gateway, why.to_owned());
}

/// Closes the store. True if that is news: it was open, or closed for another reason.
pub fn shut<P: Ports>(gateway: &Gateway<P>, why: &str) -> bool {
    let now = gateway.now();
    let is_news = gateway.authority.change(|known, _| known.close(why, now));
    metrics::tell(observe::STORE_UP, false);
    is_news
}

/// Reads the gate anew, after a claim found it at another version.
pub async fn look_again<P: Ports>(gateway: &Gateway<P>) -> Result<(), Problem> {
    match gateway.store().gate_again().await {
        Ok(gate) if gate.is_open() => {
            gateway.install_gate(gate);
            Ok(())
        }
        Ok(_) => {
            shut(gateway, NOT_APPROVED);
            Err(gateway.store_unavailable(NOT_APPROVED.to_owned()))
        }
        Err(error) => Err(gateway.store_unavailable(error.to_string())),
    }
}
