//! A gateway's report about itself: readiness, status, and the life of one key.
//!
//! Field names are a contract: add, never rename. It holds no secrets.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use serde::Serialize;

use super::readiness::{PeerStatus, Readiness};
use crate::gateway::authority::failback::UpstreamStatus;
use crate::gateway::authority::status::AuthorityStatus;
use crate::gateway::instance::Gateway;
use crate::gateway::reloadable::ConfigStatus;
use crate::gateway::upkeep::looks::AuditStatus;
use crate::ports::store::Subscription;
use crate::ports::{Authority as _, Clock, KeyStore, Ports, Replica};
use crate::protocol::snapshot::StoreHealth;
use crate::protocol::time::Date;

#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub region: String,
    /// Moment of this report, milliseconds since 1970, by the gateway's clock.
    pub at_ms: i64,
    pub origin: String,
    pub epoch: u64,
    /// The protocol version that its view goes by.
    pub protocol: u16,
    /// The protocol versions that it speaks, such as `1-1`.
    pub speaks: String,
    pub view: String,
    pub shared: String,
    /// The register, the lease and the gate.
    pub authority: AuthorityStatus,
    /// Its upstream, if that is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamStatus>,
    /// Comparison of the running settings with its files.
    pub config: ConfigStatus,
    pub readiness: Readiness,
    pub store: StoreStatus,
    pub audit: AuditStatus,
    /// Keys on the region's list of doubts, as counted last; absent before.
    pub doubts: Option<u64>,
    pub in_flight: usize,
    /// Share of the ring per region, between 0 and 1.
    pub shares: BTreeMap<String, f64>,
    pub peers: BTreeMap<String, PeerStatus>,
    /// Incoming replications; absent while the store does not answer.
    pub subscriptions: Option<Vec<Subscription>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StoreStatus {
    /// True if claims pass.
    pub open: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Kinds of calls that are spared for now, since the store did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spared: Option<String>,
    /// The gate's version, if it is open.
    pub gate_version: Option<u64>,
    pub heartbeat: Option<u64>,
}

impl<P: Ports> Gateway<P> {
    /// The date on this gateway's clock, for people. No key is decided by it.
    pub fn date(&self) -> Date {
        self.ports.clock().date()
    }

    /// The state of this gateway.
    pub async fn status(&self) -> Status {
        let store = self.store();
        let (subscriptions, views) = match &self.shadow {
            Some(_) => (None, Vec::new()),
            None => {
                let (found, views) = tokio::join!(store.subscriptions(), store.views());
                (found.ok(), views.unwrap_or_default())
            }
        };
        let (readiness, peers) = (self.readiness(), self.peers_status());
        let mut authority = self.authority_status();
        for region in &mut authority.regions {
            let known = views.iter().find(|(view, _)| view.epoch() == region.since_epoch);
            region.since_ms = known.map(|(_, ago)| ago.as_millis() as u64);
            let own = (region.name == self.settings.me.as_str()).then_some(&readiness);
            region.describe(own, peers.get(&region.name), authority.mode);
        }
        let view = self.view();
        let ring = view.ring();
        let shares = ring.regions().iter().map(|region| (region.name.to_string(), ring.share(&region.name)));
        Status {
            region: self.settings.me.to_string(),
            at_ms: self.date().as_millis(),
            origin: self.origin.to_string(),
            epoch: self.view().epoch(),
            protocol: self.view().protocol(),
            speaks: self.settings.speaks.to_string(),
            view: self.view().digest().to_string(),
            shared: self.live().shared.to_string(),
            authority,
            upstream: self.upstream_status(),
            config: (**self.config.load()).clone(),
            readiness,
            store: self.store_status(),
            audit: self.audit_status(),
            doubts: *self.doubted.lock().unwrap_or_else(PoisonError::into_inner),
            in_flight: self.requests.load(std::sync::atomic::Ordering::SeqCst),
            shares: shares.collect(),
            peers,
            subscriptions,
        }
    }

    fn store_status(&self) -> StoreStatus {
        let heartbeat = self.health().beat.map(|(seq, _)| seq);
        let (gate, reason) = match &*self.snapshot().store {
            StoreHealth::Open(gate) => (Some(gate.version.0), None),
            StoreHealth::Closed { why, .. } => (None, Some(why.clone())),
        };
        let spared = self.store().breaker_status();
        StoreStatus { open: gate.is_some(), reason, spared, gate_version: gate, heartbeat }
    }
}
