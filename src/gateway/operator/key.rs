//! One key, in the words that all lists share, and its life as all regions know it.
//!
//! A store keeps the last attempt of each region: earlier ones appear only as far as journals name
//! them. Field names are a contract: add, never rename. No body and no header is shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::everywhere::Answers;
use crate::gateway::instance::Gateway;
use crate::ports::audit::HistoryRow;
use crate::ports::peers::Question;
use crate::ports::store::StoreError;
use crate::ports::upkeep::Entry;
use crate::ports::{Audit as _, Ports, Upkeep};
use crate::protocol::double::Why;
use crate::protocol::key::KeyId;
use crate::protocol::record::{Reading, Row, State};
use crate::protocol::region::Origin;

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

#[derive(Clone, Debug, Default, Serialize)]
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
    /// Explanation of a double: `risk` (one ran at risk), `over` (one knew of the other), or
    /// `unexplained`: a bug.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<&'static str>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct KeyLife {
    /// Each region's copy of the key; the region that was asked comes first.
    pub regions: BTreeMap<String, Value>,
    /// Regions that did not answer, and the reasons: their knowledge is missing here.
    pub silent: BTreeMap<String, String>,
    /// Everything that happened to it, in the order of time.
    pub life: Vec<LifeEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LifeEvent {
    /// Moment of it, milliseconds since 1970; absent if nobody knows it.
    pub at_ms: Option<i64>,
    /// The region that made or wrote it.
    pub region: String,
    /// The attempt, as epoch and number.
    pub token: Option<String>,
    /// `claimed`, `settled`, `in-doubt`, `released`, `expired`, or the kind of a journal's entry.
    pub what: String,
    /// More of it, for people.
    pub text: String,
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
        let held = self.store().rows_of_key(id).await?;
        let described = |held: &HistoryRow| {
            let more = MoreOfRow {
                route: held.route.to_string(),
                path: held.path.clone(),
                claimed_ms: held.claimed.map(|at| at.as_millis()),
                settled_ms: held.settled.map(|at| at.as_millis()),
                source: source(held, &self.origin),
            };
            RowStatus { more: Some(more), ..row_status(&held.row) }
        };
        let rows = held.iter().map(described).collect();
        let journal = self.store().journal(id).await?;
        let journal = journal.into_iter().map(journal_entry).collect();
        let reading = self.read(held.into_iter().map(|held| held.row).collect());
        let excerpt = match &reading {
            Reading::InDoubt(..) => self.store().excerpt(id).await?,
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
            rows,
            excerpt,
            journal,
        })
    }

    /// The life of one key over all regions: claims, epochs, attempts, answers and journal entries.
    pub async fn key_life(self: &Arc<Self>, id: &KeyId) -> Result<KeyLife, StoreError> {
        let own = self.key_status(id).await?;
        let own = serde_json::to_value(own).unwrap_or_default();
        let Answers { given, silent } = self.ask_others(&Question::Key { id: id.clone() }).await;
        let mut regions: BTreeMap<String, Value> =
            given.into_iter().map(|(name, status)| (name.to_string(), status)).collect();
        regions.insert(self.settings.me.to_string(), own);
        let life = life(&regions);
        Ok(KeyLife { regions, silent, life })
    }
}

pub fn journal_entry(entry: Entry) -> JournalEntry {
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

pub fn source(held: &HistoryRow, me: &Origin) -> &'static str {
    match (held.row.origin == *me, held.imported) {
        (true, _) => "own",
        (false, false) => "replicated",
        (false, true) => "imported",
    }
}

pub fn row_status(row: &Row) -> RowStatus {
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

pub fn word(reading: &Reading) -> &'static str {
    match reading {
        Reading::Absent => "absent",
        Reading::Released(..) => "released",
        Reading::InProgress(_) => "in-progress",
        Reading::InDoubt(..) => "in-doubt",
        Reading::Settled(_) => "settled",
        Reading::Gone(_) => "expired",
    }
}

pub fn cursor(id: &KeyId) -> String {
    format!("{}/{}", id.tenant(), id.key().as_str())
}

/// The life of a key, oldest first; events without a time come last.
fn life(regions: &BTreeMap<String, Value>) -> Vec<LifeEvent> {
    // Rows by origin and attempt, each with the regions that hold it.
    let mut records: BTreeMap<(String, String), BTreeMap<&str, &Value>> = BTreeMap::new();
    let mut all: Vec<LifeEvent> = Vec::new();
    for (region, status) in regions {
        for row in list(&status["rows"]) {
            let named = (text(&row["origin"]), text(&row["token"]));
            records.entry(named).or_default().insert(region, row);
        }
        for entry in list(&status["journal"]) {
            all.push(journalled(region, entry));
        }
    }
    for ((origin, token), held) in &records {
        all.extend(record(origin, token, held, regions.len()));
    }
    // A claim comes before its end, also within one millisecond.
    all.sort_by_key(|event| (event.at_ms.unwrap_or(i64::MAX), event.what != "claimed"));
    all
}

/// The claim of a record and its end so far, as its own region has it if that answered.
fn record(origin: &str, token: &str, held: &BTreeMap<&str, &Value>, asked: usize) -> Vec<LifeEvent> {
    let home = origin.split('#').next().unwrap_or(origin);
    let Some(row) = held.get(home).or_else(|| held.values().next()) else { return Vec::new() };
    let event = |at: &Value, what: &str, text: String| LifeEvent {
        at_ms: at.as_i64(),
        region: home.to_owned(),
        token: Some(token.to_owned()),
        what: what.to_owned(),
        text,
    };
    let claim = format!("on route {}, request {}", text(&row["route"]), text(&row["request_id"]));
    let (number, names) = (held.len(), held.keys().copied().collect::<Vec<_>>().join(", "));
    let held_by = format!("record of {origin}, held by {number} of {asked} regions that answered: {names}");
    let state = text(&row["state"]);
    let end = match (state.as_str(), row["status"].as_u64()) {
        ("settled", Some(status)) => format!("answer {status}; {held_by}"),
        ("in-doubt", Some(status)) => format!("the upstream said {status}; {held_by}"),
        _ => held_by,
    };
    let mut events = vec![event(&row["claimed_ms"], "claimed", claim)];
    match state.as_str() {
        "claimed" => events[0].text.push_str(&format!("; it may be running; {end}")),
        _ => events.push(event(&row["settled_ms"], &state, end)),
    }
    events
}

fn journalled(region: &str, entry: &Value) -> LifeEvent {
    let by = entry["actor"].as_str().map_or(String::new(), |actor| format!("by {actor}: "));
    LifeEvent {
        at_ms: entry["at_ms"].as_i64(),
        region: region.to_owned(),
        token: entry["token"].as_str().map(str::to_owned),
        what: text(&entry["kind"]),
        text: format!("{by}{}", text(&entry["reason"])),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_life_tells_each_record_once_with_its_holders() {
        let row = |state: &str| {
            json!({
                "origin": "eu#1", "token": "3.2", "request_id": "r", "state": state, "status": 201, "route": "pay",
                "claimed_ms": 20, "settled_ms": 20,
            })
        };
        let acted = json!({ "at_ms": 10, "kind": "released-by-hand", "token": "3.1", "actor": "ada", "reason": "none" });
        let lagging = json!({
            "origin": "eu#1", "token": "3.1", "request_id": "q", "state": "in-doubt", "status": 500, "route": "pay",
            "claimed_ms": 5, "settled_ms": null,
        });
        let regions = BTreeMap::from([
            ("ap".to_owned(), json!({ "rows": [lagging], "journal": [] })),
            ("eu".to_owned(), json!({ "rows": [row("settled")], "journal": [acted] })),
            ("us".to_owned(), json!({ "rows": [row("claimed")], "journal": [] })),
        ]);
        let lines: Vec<_> = life(&regions)
            .into_iter()
            .map(|event| {
                format!("{:?} {} {:?} {}: {}", event.at_ms, event.region, event.token, event.what, event.text)
            })
            .collect();
        let expected = [
            "Some(5) eu Some(\"3.1\") claimed: on route pay, request q",
            "Some(10) eu Some(\"3.1\") released-by-hand: by ada: none",
            "Some(20) eu Some(\"3.2\") claimed: on route pay, request r",
            "Some(20) eu Some(\"3.2\") settled: answer 201; record of eu#1, held by 2 of 3 regions that answered: eu, us",
            "None eu Some(\"3.1\") in-doubt: the upstream said 500; record of eu#1, held by 1 of 3 regions that answered: ap",
        ];
        assert_eq!(lines, expected);
    }
}
