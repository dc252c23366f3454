//! The keys that a region's store knows: exported page by page, and searched.
//!
//! The export has an entry for each record and for each journal entry, to compare with a provider's
//! records. Field names are a contract: add, never rename. No header and no body is shown.

use serde::Serialize;

use super::key::{self, cursor, word};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::readiness::PeerStatus;
use crate::ports::audit::{Begin, History, HistoryRow};
use crate::ports::store::StoreError;
use crate::ports::upkeep::Entry;
use crate::ports::{Audit as _, Clock, Ports};
use crate::protocol::key::{KeyId, Tenant};
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
    /// `record`, or a journal entry's: `late`, `double`, `settled-by-hand`, `released-by-hand`.
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
    /// Source of the row: `own`, `replicated` or `imported` (from a survivor of a lost region).
    pub source: &'static str,
    pub actor: Option<String>,
    pub note: Option<String>,
}

impl<P: Ports> Gateway<P> {
    /// The keys after one, at most so many, with everything that this region's store holds of each.
    pub async fn export(&self, after: Option<&KeyId>, most: u32) -> Result<ExportPage, StoreError> {
        let histories = self.store().histories(after.into(), most).await?;
        let next = histories.last().filter(|_| histories.len() >= most as usize);
        let next = next.map(|last| cursor(&last.id));
        let copy = |(region, peer): (String, PeerStatus)| {
            let PeerStatus { up, lag_ms, heard_ms_ago, .. } = peer;
            CopyStatus { region, up, lag_ms, heard_ms_ago }
        };
        Ok(ExportPage {
            region: self.settings.me.to_string(),
            at_ms: self.ports.clock().date().as_millis(),
            copies: self.peers_status().into_iter().map(copy).collect(),
            entries: histories.into_iter().flat_map(|history| self.entries(history)).collect(),
            next,
        })
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

/// States that a key can have, as [`FoundKey::state`] says them.
pub const STATES: [&str; 5] = ["in-progress", "in-doubt", "settled", "released", "expired"];
const MOST_LOOKED_AT: usize = 5_000;
const STRETCH: u32 = 250;

/// Properties of the keys that are looked for; absent ones do not matter.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Their account. Without one all keys are walked.
    pub tenant: Option<Tenant>,
    pub route: Option<String>,
    /// Their state, one of [`STATES`].
    pub state: Option<String>,
    /// The earliest claim of one of their attempts, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    /// The end of that span: later claims do not count.
    pub before_ms: Option<i64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FoundPage {
    pub region: String,
    /// Moment of the page, milliseconds since 1970, by the gateway's clock.
    pub at_ms: i64,
    pub keys: Vec<FoundKey>,
    pub looked_at: usize,
    /// Cursor from which the search goes on; absent if all keys were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct FoundKey {
    pub tenant: String,
    pub key: String,
    /// The meaning of all its records together.
    pub state: &'static str,
    /// Route and path of its last attempt.
    pub route: String,
    pub path: String,
    /// Moment of its last claim, milliseconds since 1970. `null` if it is not known.
    pub claimed_ms: Option<i64>,
    /// The upstream's status, if one is known.
    pub status: Option<u16>,
    pub origins: Vec<String>,
}

impl<P: Ports> Gateway<P> {
    /// The keys behind one that have these properties, at most so many.
    pub async fn search(
        &self,
        wanted: &Wanted,
        after: Option<&KeyId>,
        most: u32,
    ) -> Result<FoundPage, StoreError> {
        // A cursor of another tenant is none of this search.
        let is_of_it = |after: &&KeyId| wanted.tenant.as_ref().is_none_or(|tenant| tenant == after.tenant());
        let (mut keys, mut looked_at, mut last) = (Vec::new(), 0, after.filter(is_of_it).cloned());
        let next = 'walk: loop {
            let begin = match (&last, &wanted.tenant) {
                (Some(after), _) => Begin::After(after),
                (None, Some(tenant)) => Begin::At(tenant),
                (None, None) => Begin::First,
            };
            let stretch = self.store().histories(begin, STRETCH).await?;
            let is_end = stretch.len() < STRETCH as usize;
            for history in stretch {
                if wanted.tenant.as_ref().is_some_and(|tenant| tenant != history.id.tenant()) {
                    break 'walk None;
                }
                looked_at += 1;
                last = Some(history.id.clone());
                keys.extend(self.found_key(history, wanted));
                if keys.len() >= most as usize || looked_at >= MOST_LOOKED_AT {
                    break 'walk last.as_ref();
                }
            }
            if is_end {
                break None;
            }
        };
        let (region, at_ms) = (self.settings.me.to_string(), self.ports.clock().date().as_millis());
        Ok(FoundPage { region, at_ms, keys, looked_at, next: next.map(cursor) })
    }

    /// A key that is wanted; `None` also if only the journal knows it.
    fn found_key(&self, history: History, wanted: &Wanted) -> Option<FoundKey> {
        let History { id, rows, journal: _ } = history;
        let claimed = |held: &HistoryRow| held.claimed.map(|at| at.as_millis());
        let last = rows.iter().max_by_key(|held| claimed(held))?;
        let state = word(&self.read(rows.iter().map(|held| held.row.clone()).collect()));
        let attempts: Vec<_> = rows.iter().map(|held| (&*held.route, claimed(held))).collect();
        wanted.has(state, &attempts).then(|| FoundKey {
            tenant: id.tenant().to_string(),
            key: id.key().as_str().to_owned(),
            state,
            route: last.route.to_string(),
            path: last.path.clone(),
            claimed_ms: claimed(last),
            status: key::row_status(&last.row).status,
            origins: rows.iter().map(|held| held.row.origin.to_string()).collect(),
        })
    }
}

impl Wanted {
    /// True for a key in this state, with the route and the claim of each attempt.
    fn has(&self, state: &str, attempts: &[(&str, Option<i64>)]) -> bool {
        let in_time =
            |at: i64| self.from_ms.is_none_or(|from| at >= from) && self.before_ms.is_none_or(|end| at < end);
        let any_time = self.from_ms.is_none() && self.before_ms.is_none();
        self.route.as_ref().is_none_or(|route| attempts.iter().any(|(of, _)| of == route))
            && self.state.as_ref().is_none_or(|wanted| wanted == state)
            && (any_time || attempts.iter().filter_map(|(_, at)| *at).any(in_time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_any_of_its_attempts() {
        let attempts = [("charges", Some(10)), ("payouts", Some(20))];
        let text = |text: &str| Some(text.to_owned());
        let any = Wanted::default();
        for (wanted, expected) in [
            (any.clone(), true),
            (Wanted { route: text("charges"), ..any.clone() }, true),
            (Wanted { route: text("charge"), ..any.clone() }, false),
            (Wanted { state: text("in-doubt"), ..any.clone() }, true),
            (Wanted { state: text("settled"), ..any.clone() }, false),
            (Wanted { from_ms: Some(20), ..any.clone() }, true),
            (Wanted { from_ms: Some(21), ..any.clone() }, false),
            (Wanted { before_ms: Some(10), ..any.clone() }, false),
            // One attempt has to be in the span: one before it and one behind it are none.
            (Wanted { from_ms: Some(11), before_ms: Some(20), ..any.clone() }, false),
            (Wanted { from_ms: Some(10), before_ms: Some(11), ..any.clone() }, true),
        ] {
            assert_eq!(wanted.has("in-doubt", &attempts), expected, "{wanted:?}");
        }
        // An imported record does not tell when it was claimed.
        let imported = [("charges", None)];
        assert!(any.has("in-doubt", &imported));
        assert!(!Wanted { from_ms: Some(0), ..any }.has("in-doubt", &imported));
    }
}
