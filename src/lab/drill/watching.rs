//! Watches the regions' statuses while a drill runs, and lists their changes with times.
//!
//! Reports print the list: it is the schedule of a run that went wrong. The watch asks the admin
//! listeners, as anybody could, and waits for no region that does not answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::deployment::Deployment;
use crate::{lock, status, wait};

const EVERY: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Event {
    pub at: Instant,
    pub what: String,
}

#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    /// The last status of each region, with its digest in words.
    now: BTreeMap<String, (String, Value)>,
    /// The longest reported wait of each kind for each region: kind, region.
    waits: BTreeMap<(String, String), u64>,
}

pub struct Watching {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

impl Watching {
    pub fn start(deployment: &Deployment) -> Watching {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let regions = deployment.regions.iter();
        let watches = regions.map(|region| watch(seen.clone(), region.name.to_string(), region.admin()));
        let _tasks = watches.collect();
        Watching { seen, _tasks }
    }

    pub fn note(&self, what: impl Into<String>) {
        self.seen().events.push(Event { at: Instant::now(), what: what.into() });
    }

    pub fn events(&self) -> Vec<Event> {
        self.seen().events.clone()
    }

    /// The last status of a region; null if it gave none.
    pub fn last(&self, region: &str) -> Value {
        self.seen().now.get(region).map(|(_, status)| status.clone()).unwrap_or_default()
    }

    pub fn now(&self) -> Vec<String> {
        self.seen().now.iter().map(|(name, (words, _))| format!("{name}: {words}")).collect()
    }

    /// The longest remaining wait of this kind for this region, as any region reported it.
    pub fn longest_wait(&self, kind: &str, region: &str) -> Option<Duration> {
        self.seen().waits.get(&(kind.to_owned(), region.to_owned())).copied().map(Duration::from_millis)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

async fn watch(seen: Arc<Mutex<Seen>>, name: String, admin: String) {
    let mut due = Instant::now();
    loop {
        wait::pause_until(due).await;
        due = Instant::now() + EVERY;
        let status = status(&admin, PATIENCE).await;
        let words = in_words(&status);
        let mut seen = lock(&seen);
        for wait in status["authority"]["opening"].as_array().into_iter().flatten() {
            let text = |field: &str| wait[field].as_str().unwrap_or_default().to_owned();
            let longest = seen.waits.entry((text("what"), text("region"))).or_default();
            *longest = (*longest).max(wait["left_ms"].as_u64().unwrap_or(0));
        }
        let before = seen.now.insert(name.clone(), (words.clone(), status)).map(|(words, _)| words);
        if before.as_ref() != Some(&words) {
            let what = format!("{name}: {words}");
            seen.events.push(Event { at: Instant::now(), what });
        }
    }
}

/// A status on one line. Waits stand without their remaining time, which changes all the time.
fn in_words(status: &Value) -> String {
    if status.is_null() {
        return "does not answer".to_owned();
    }
    let authority = &status["authority"];
    let mut words = format!("epoch {}", authority["epoch"]);
    for region in authority["regions"].as_array().into_iter().flatten() {
        let _ = write!(words, ", {} {}", text(&region["name"]), text(&region["standing"]));
    }
    words.push_str(if authority["lease"]["held"] == true { "; lease held" } else { "; no lease" });
    if let Some(pending) = authority["pending"].as_u64() {
        let _ = write!(words, "; gave keys up for epoch {pending}");
    }
    let waits = authority["opening"].as_array().into_iter().flatten();
    let waits: Vec<String> =
        waits.map(|wait| format!("{} ({})", text(&wait["what"]), text(&wait["region"]))).collect();
    if !waits.is_empty() {
        let _ = write!(words, "; waits for {}", waits.join(", "));
    }
    for reason in status["readiness"]["reasons"].as_array().into_iter().flatten() {
        let _ = write!(words, "; {}", text(reason));
    }
    words
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_one_line_without_what_runs_down() {
        let status = |left: u64| {
            json!({
                "authority": {
                    "epoch": 3, "lease": { "held": true, "left_ms": left }, "pending": null,
                    "regions": [{ "name": "eu", "standing": "lost" }],
                    "opening": [{ "what": "window", "region": "eu", "left_ms": left }],
                },
                "readiness": { "reasons": ["peer eu does not answer"] },
            })
        };
        let words = "epoch 3, eu lost; lease held; waits for window (eu); peer eu does not answer";
        assert_eq!(in_words(&status(9)), words);
        assert_eq!(in_words(&status(8)), words);
        assert_eq!(in_words(&Value::Null), "does not answer");
    }
}
