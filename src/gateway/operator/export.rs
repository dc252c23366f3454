//! Export of a region's knowledge about its keys, page by page, to compare with a provider's
//! records.
//!
//! One entry for each record (an origin's last attempt), and one for each journal entry. Rows
//! replicate, so one region knows all of them, as far as its copies have arrived. The page says how
//! far behind each may be. Field names are a contract: add, never rename. No header and no body is
//! shown.

use serde::Serialize;

use super::key::{self, cursor, word};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::readiness::PeerStatus;
use crate::ports::audit::{History, HistoryRow};
use crate::ports::store::StoreError;
use crate::ports::upkeep::Entry;
use crate::ports::{Audit as _, Clock, Ports};
use crate::protocol::key::KeyId;
use crate::protocol::record::Row;

#[derive(Clone, Debug, Serialize)]
pub struct ExportPage {
    pub region: String,
    /// Moment of the page, milliseconds since 1970, by the gateway's clock.
    pub at_ms: i64,
    pub copies: Vec<CopyStatus>,
    /// The entries, in the order of their keys; all of a key are on one page.
    pub entries: Vec<ExportEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Lag of the copies of one region's rows.
#[derive(Clone, Debug, Serialize)]
pub struct CopyStatus {
    pub region: String,
    pub up: bool,
    /// Upper bound of the missing span, in milliseconds; absent if it was never measured.
    pub lag_ms: Option<f64>,
    /// Milliseconds since it last answered.
    pub heard_ms_ago: Option<u64>,
}

/// A record, or an entry of the journal, of one key.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExportEntry {
    pub tenant: String,
    pub key: String,
    /// Meaning of all records of the key together: absent, released, in-progress, in-doubt, settled
    /// or expired.
    pub key_state: &'static str,
    /// `record`, or the kind of a journal entry: `late`, `double`, `settled-by-hand`,
    /// `released-by-hand`.
    pub kind: String,
    /// The region and generation that made the attempt. For a journal entry, the journal's.
    pub origin: String,
    pub region: String,
    pub epoch: Option<u64>,
    pub attempt: Option<u32>,
    /// The request that made it, as the upstream got it.
    pub request_id: Option<String>,
    /// claimed, in-doubt, released, settled or expired; `null` for a journal entry.
    pub state: Option<&'static str>,
    /// The upstream's status, if it gave one that is still known.
    pub status: Option<u16>,
    /// Moment when the attempt was claimed, or the entry journalled; milliseconds since 1970, by
    /// its origin's clock. `null` if it is not known.
    pub at_ms: Option<i64>,
    /// Moment of its settlement. Present also for an expired record that had been settled.
    pub settled_ms: Option<i64>,
    pub expires_ms: Option<i64>,
    pub route: String,
    pub path: String,
    /// Lost regions whose window alone allowed the attempt.
    pub risk: Vec<String>,
    /// Attempts of other origins that it knowingly superseded, as `ORIGIN EPOCH.ATTEMPT`.
    pub over: Vec<String>,
    /// True if it was accepted to run without its client.
    pub accepted: bool,
    /// Source of the row here: `own`, `replicated` or `imported` (a survivor of a lost region
    /// handed it over).
    pub source: &'static str,
    pub actor: Option<String>,
    pub note: Option<String>,
}

impl<P: Ports> Gateway<P> {
    /// The keys after one, at most so many, with everything that this region's store holds of each.
    pub async fn export(&self, after: Option<&KeyId>, most: u32) -> Result<ExportPage, StoreError> {
        let histories = self.ports.store().histories(after.into(), most).await?;
        let next = histories.last().filter(|_| histories.len() >= most as usize);
        let next = next.map(|last| cursor(&last.id));
        Ok(ExportPage {
            region: self.settings.me.to_string(),
            at_ms: self.ports.clock().date().as_millis(),
            copies: self.copies(),
            entries: histories.into_iter().flat_map(|history| self.entries(history)).collect(),
            next,
        })
    }

    fn copies(&self) -> Vec<CopyStatus> {
        let of = |(region, PeerStatus { up, lag_ms, heard_ms_ago, .. })| CopyStatus {
            region,
            up,
            lag_ms,
            heard_ms_ago,
        };
        self.peers_status().into_iter().map(of).collect()
    }

    fn entries(&self, history: History) -> Vec<ExportEntry> {
        let rows: Vec<Row> = history.rows.iter().map(|held| held.row.clone()).collect();
        let state = word(&self.read(rows));
        let records = history.rows.iter().map(|held| self.record(&history.id, state, held));
        let journal = history.journal.into_iter().map(|entry| self.journalled(&history.id, state, entry));
        records.chain(journal).collect()
    }

    fn record(&self, id: &KeyId, key_state: &'static str, held: &HistoryRow) -> ExportEntry {
        let row = &held.row;
        let shown = key::row_status(row);
        let over = row.over.iter().map(|(origin, token)| format!("{origin} {token}"));
        ExportEntry {
            kind: "record".to_owned(),
            origin: shown.origin,
            region: row.origin.region.to_string(),
            epoch: Some(row.token.epoch),
            attempt: Some(row.token.attempt),
            request_id: Some(shown.request_id),
            state: Some(shown.state),
            status: shown.status,
            at_ms: held.claimed.map(|at| at.as_millis()),
            settled_ms: held.settled.map(|at| at.as_millis()),
            expires_ms: Some(shown.expires_ms),
            route: held.route.to_string(),
            path: held.path.clone(),
            risk: row.risk.iter().map(ToString::to_string).collect(),
            over: over.collect(),
            accepted: row.accepted,
            source: key::source(held, &self.origin),
            ..ExportEntry::of(id, key_state)
        }
    }

    fn journalled(&self, id: &KeyId, key_state: &'static str, entry: Entry) -> ExportEntry {
        ExportEntry {
            kind: entry.kind,
            origin: self.origin.to_string(),
            region: self.settings.me.to_string(),
            epoch: entry.token.map(|token| token.epoch),
            attempt: entry.token.map(|token| token.attempt),
            request_id: entry.request_id.map(|id| id.to_string()),
            status: entry.status,
            at_ms: Some(entry.at.as_millis()),
            source: "own",
            actor: entry.actor,
            note: entry.reason,
            ..ExportEntry::of(id, key_state)
        }
    }
}

impl ExportEntry {
    fn of(id: &KeyId, key_state: &'static str) -> Self {
        let (tenant, key) = (id.tenant().to_string(), id.key().as_str().to_owned());
        Self { tenant, key, key_state, ..Self::default() }
    }
}
