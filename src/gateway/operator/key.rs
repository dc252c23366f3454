//! The life of one key, as this region's store shows it, in the words that all lists share.
//!
//! Field names are a contract: add, never rename. Must not hold secrets: no body, no header of an
//! answer.

use serde::Serialize;

use crate::gateway::instance::Gateway;
use crate::ports::audit::HistoryRow;
use crate::ports::store::StoreError;
use crate::ports::upkeep::Entry;
use crate::ports::{Audit as _, Ports, Upkeep};
use crate::protocol::double::Why;
use crate::protocol::key::KeyId;
use crate::protocol::record::{Reading, Row, State};
use crate::protocol::region::Origin;

/// The life of one key, as this region's store shows it.
#[derive(Clone, Debug, Serialize)]
pub struct KeyStatus {
    pub tenant: String,
    /// The key's digest, as in the logs.
    pub digest: String,
    pub arc: u16,
    /// Its regions, in order of preference.
    pub order: Vec<String>,
    /// Its owner in the view.
    pub owner: Option<String>,
    /// Meaning of its rows together: absent, released, in-progress, in-doubt, settled or expired.
    pub state: &'static str,
    /// Its rows, one per origin.
    pub rows: Vec<RowStatus>,
    /// The beginning of what the upstream said when it left the key in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<String>,
    /// The journal's entries about it, newest first.
    pub journal: Vec<JournalEntry>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RowStatus {
    pub origin: String,
    /// claimed, in-doubt, released, settled or expired.
    pub state: &'static str,
    /// Its token, epoch and attempt.
    pub token: String,
    pub request_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_left_ms: Option<u64>,
    /// The status that was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// End of the key's promised retention, milliseconds since 1970.
    pub expires_ms: i64,
    /// Digest of the raw request.
    pub fingerprint: String,
    /// More of it, where one key is asked about.
    #[serde(flatten)]
    pub more: Option<MoreOfRow>,
}

/// Times and origin of a row, for people.
#[derive(Clone, Debug, Serialize)]
pub struct MoreOfRow {
    pub route: String,
    pub path: String,
    /// Moment of its last attempt's claim, milliseconds since 1970, by its origin's clock.
    pub claimed_ms: Option<i64>,
    /// Moment of its settlement, likewise.
    pub settled_ms: Option<i64>,
    /// Source of the row here: `own`, `replicated` or `imported`.
    pub source: &'static str,
}

/// One entry of the journal about a key.
#[derive(Clone, Debug, Serialize)]
pub struct JournalEntry {
    /// Moment of the entry, milliseconds since 1970.
    pub at_ms: i64,
    /// `settled-by-hand`, `released-by-hand`, `rule-by-hand`, `double` or `late`.
    pub kind: String,
    pub token: Option<String>,
    /// The request that made the attempt, if the entry names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The status of the attempt's answer, if the entry is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub actor: Option<String>,
    pub reason: Option<String>,
    /// Explanation of a double: `risk` (one of the two ran at risk), `over` (one of them knew of
    /// the other), or `unexplained`: a bug.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<&'static str>,
}

impl JournalEntry {
    /// True if this is a double without an explanation.
    pub fn is_unexplained(&self) -> bool {
        self.explained == Some(Why::Unexplained.name())
    }
}

impl<P: Ports> Gateway<P> {
    /// This region's copy of a key.
    pub async fn key_status(&self, id: &KeyId) -> Result<KeyStatus, StoreError> {
        let held = self.ports.store().rows_of_key(id).await?;
        let described = held.iter().map(|held| told_status(held, &self.origin)).collect();
        let journal = self.ports.store().journal(id).await?;
        let journal = journal.into_iter().map(journal_entry).collect();
        let reading = self.read(held.into_iter().map(|held| held.row).collect());
        let excerpt = match &reading {
            Reading::InDoubt(..) => self.ports.store().excerpt(id).await?,
            _known => None,
        };
        let state = word(&reading);
        let view = self.view();
        let ring = view.ring();
        Ok(KeyStatus {
            tenant: id.tenant().to_string(),
            digest: id.digest().to_string(),
            arc: ring.arc(id).0,
            order: ring.order(id).names().map(ToString::to_string).collect(),
            owner: self.view().owner(id).map(ToString::to_string),
            state,
            rows: described,
            excerpt,
            journal,
        })
    }
}

pub(in crate::gateway) fn journal_entry(entry: Entry) -> JournalEntry {
    JournalEntry {
        at_ms: entry.at.as_millis(),
        kind: entry.kind,
        token: entry.token.map(|token| token.to_string()),
        request_id: entry.request_id.map(|id| id.to_string()),
        status: entry.status,
        actor: entry.actor,
        reason: entry.reason,
        explained: entry.explained.map(Why::name),
    }
}

fn told_status(held: &HistoryRow, me: &Origin) -> RowStatus {
    let more = MoreOfRow {
        route: held.route.to_string(),
        path: held.path.clone(),
        claimed_ms: held.claimed.map(|at| at.as_millis()),
        settled_ms: held.settled.map(|at| at.as_millis()),
        source: source(held, me),
    };
    RowStatus { more: Some(more), ..row_status(&held.row) }
}

/// Source of a row in this region's store.
pub(in crate::gateway) fn source(held: &HistoryRow, me: &Origin) -> &'static str {
    match (held.row.origin == *me, held.imported) {
        (true, _) => "own",
        (false, false) => "replicated",
        (false, true) => "imported",
    }
}

pub(in crate::gateway) fn row_status(row: &Row) -> RowStatus {
    let (state, left, status) = match &row.state {
        State::Claimed { left, past: _ } => ("claimed", Some(left), None),
        State::InDoubt { status, left, past: _ } => ("in-doubt", Some(left), *status),
        State::Released => ("released", None, None),
        State::Settled { answer, expired: false, .. } => ("settled", None, Some(answer.status)),
        State::Settled { expired: true, .. } | State::Tombstone => ("expired", None, None),
    };
    RowStatus {
        origin: row.origin.to_string(),
        state,
        token: row.token.to_string(),
        request_id: row.request_id.to_string(),
        hold_left_ms: left.map(|left| left.as_millis() as u64),
        status,
        expires_ms: row.expires.as_millis(),
        fingerprint: row.fingerprint.raw.to_string(),
        more: None,
    }
}

/// A reading in one word.
pub(in crate::gateway) fn word(reading: &Reading) -> &'static str {
    match reading {
        Reading::Absent => "absent",
        Reading::Released(..) => "released",
        Reading::InProgress(_) => "in-progress",
        Reading::InDoubt(..) => "in-doubt",
        Reading::Settled(_) => "settled",
        Reading::Gone(_) => "expired",
    }
}

pub(in crate::gateway) fn cursor(id: &KeyId) -> String {
    format!("{}/{}", id.tenant(), id.key().as_str())
}
