//! The audit: keys that ran at risk, and those that ran twice.
//!
//! A key that the window alone allowed carries the lost region's name in its own record. Once that region's rows have come, records are
//! compared: a key with another region's record too is journalled as a double, with both, counted and logged as an error, once.
//! Neighbours: `ports::audit` compares and journals in one statement, [`super::status`] has the life of one key, `cli::audit` prints. It must
//! not change any record: both answers stay as they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use super::status::RowStatus;
use super::{Gateway, metrics, status};
use crate::ports::peers::{Question, Told};
use crate::ports::store::StoreError;
use crate::ports::{Audit as _, Clock, Escrows, Peers, Ports};
use crate::protocol::key::KeyId;
use crate::protocol::region::RegionName;

/// Doubles, and rows of escrow, in one look.
const BATCH: u32 = 200;
/// How long another region may take to tell of a key.
const TELL_WITHIN: Duration = Duration::from_secs(2);

/// One page of the keys that ran at risk in a region.
#[derive(Clone, Debug, Serialize)]
pub struct AuditPage {
    /// The region.
    pub region: String,
    /// The keys, in order.
    pub runs: Vec<RunStatus>,
    /// Whether more follow.
    pub more: bool,
}

/// A key that the window alone allowed to run.
#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    /// The tenant.
    pub tenant: String,
    /// The key.
    pub key: String,
    /// The route of its claim.
    pub route: String,
    /// Lost regions that may have run it too.
    pub risk: Vec<String>,
    /// The own record.
    pub own: RowStatus,
    /// Records of other regions: none so far means that no other run is known.
    pub others: Vec<RowStatus>,
    /// `clean`: no other region has a record of it; `double`: another one has an answer of its own; `possible`: another one has a record
    /// without one.
    pub verdict: &'static str,
}

/// The life of one key, over all regions.
#[derive(Clone, Debug, Serialize)]
pub struct KeyLife {
    /// What each region's store shows; the region asked first.
    pub regions: BTreeMap<String, serde_json::Value>,
    /// Regions that did not answer, and why: what they know is missing here.
    pub silent: BTreeMap<String, String>,
}

/// Starts the audit. It ends when the gateway is dropped.
pub(super) fn start<P: Ports>(gateway: &Arc<Gateway<P>>) {
    tokio::spawn(audit_loop(Arc::downgrade(gateway)));
}

async fn audit_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.ports.clock().now();
        if gateway.store_is_open() && !gateway.is_stopping() {
            look(&gateway).await;
        }
        let next = begun + gateway.settings.timings.reap;
        gateway.rest(next).await;
    }
}

async fn look<P: Ports>(gateway: &Gateway<P>) {
    match metrics::upkeep("audit", gateway.ports.store().audit(BATCH)).await {
        Ok(doubles) => {
            for double in &doubles {
                let (own, other) = (&double.own, &double.other);
                tracing::error!(key = %double.id.digest(), own = %own.origin, own_token = %own.token, other = %other.origin, other_token = %other.token, "a key ran in two regions: see `onceway audit`");
            }
            metrics::doubles(doubles.len());
        }
        Err(error) => tracing::debug!(%error, "runs at risk could not be audited"),
    }
    // Failures are counted; the next look tries again.
    let _ = metrics::upkeep("reap_escrows", gateway.ports.store().reap_escrows(BATCH)).await;
}

impl<P: Ports> Gateway<P> {
    /// One page of the keys that ran at risk here, after a key.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn audit(&self, after: Option<&KeyId>, most: u32) -> Result<AuditPage, StoreError> {
        let store = self.ports.store();
        let mut runs = store.runs_at_risk(after, most.saturating_add(1)).await?;
        let more = runs.len() > most as usize;
        runs.truncate(most as usize);
        let ids: Vec<KeyId> = runs.iter().map(|run| run.id.clone()).collect();
        let rows = crate::ports::KeyStore::look_up(store, &ids).await?;
        let of = |(run, rows): (crate::ports::audit::RunAtRisk, Vec<crate::protocol::record::Row>)| {
            let others: Vec<RowStatus> =
                rows.iter().filter(|row| row.origin != self.origin).map(status::row_status).collect();
            let verdict = match &others[..] {
                [] => "clean",
                some if some.iter().any(|row| row.state == "settled") => "double",
                _open => "possible",
            };
            RunStatus {
                tenant: run.id.tenant().to_string(),
                key: String::from_utf8_lossy(run.id.key().as_bytes()).into_owned(),
                route: run.route.to_string(),
                risk: run.row.risk.iter().map(ToString::to_string).collect(),
                own: status::row_status(&run.row),
                others,
                verdict,
            }
        };
        let runs = runs.into_iter().zip(rows).map(of).collect();
        Ok(AuditPage { region: self.settings.me.to_string(), runs, more })
    }

    /// The life of one key over all regions: claims, epochs, attempts, answers and what the journals say.
    ///
    /// # Errors
    /// The own store does not answer.
    pub async fn key_life(self: &Arc<Self>, id: &KeyId) -> Result<KeyLife, StoreError> {
        let own = self.key_status(id).await?;
        let own = serde_json::to_value(own).unwrap_or_default();
        let mut regions = BTreeMap::from([(self.settings.me.to_string(), own)]);
        let mut silent = BTreeMap::new();
        let names: Vec<RegionName> = self.view().members().keys().cloned().collect();
        for name in names.into_iter().filter(|name| *name != self.settings.me) {
            let question = Question::Key { id: id.clone() };
            match self.ports.peers().ask(&name, question, TELL_WITHIN).await {
                Ok(Told::Key(text)) => {
                    regions.insert(name.to_string(), serde_json::from_str(&text).unwrap_or_default());
                }
                Ok(Told::Refused(why)) => {
                    silent.insert(name.to_string(), why);
                }
                Ok(other) => {
                    silent.insert(name.to_string(), format!("it answered {other:?}"));
                }
                Err(error) => {
                    silent.insert(name.to_string(), error.to_string());
                }
            }
        }
        Ok(KeyLife { regions, silent })
    }
}
