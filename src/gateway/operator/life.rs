//! One key's life in the order of time, from what all regions know of it.
//!
//! A record that several regions hold is told once, with the regions that hold it. A store keeps
//! the last attempt of each region, so earlier ones appear only as far as the journals name them.
//! Times are those of the region that wrote them. Pure: no store and no peer.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// One thing that happened to a key.
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

/// The life of a key, oldest first, from the status that each region gave. Events without a time
/// come last.
pub(in crate::gateway) fn life(regions: &BTreeMap<String, Value>) -> Vec<LifeEvent> {
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
    let held_by: Vec<&str> = held.keys().copied().collect();
    let held_by = format!(
        "record of {origin}, held by {} of {asked} regions that answered: {}",
        held.len(),
        held_by.join(", ")
    );
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
        let told: Vec<_> = life(&regions)
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
        assert_eq!(told, expected);
    }
}
