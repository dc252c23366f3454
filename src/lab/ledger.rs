//! The ledger of the sample payments service: an append-only file with one line per effect, flushed
//! before any answer. It never deduplicates. Totals, answers and calls in progress are in memory,
//! for probes. It plays another company's machine, and knows of no claims, holds or gateways.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Serialize;

use super::lock;

/// An effect that a caller orders, once per call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// The caller's idempotency key; empty if it sent none.
    pub key: String,
    /// The account; empty if it sent none.
    pub tenant: String,
    pub path: String,
}

/// The answer to an effect, given or kept for a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// JSON body before padding.
    pub body: Bytes,
    /// Length in bytes, with blanks behind the JSON. 0 for an ordinary answer.
    pub padded_to: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The effect happened; this was the answer to the first one.
    Happened(Answer),
    /// A call is in progress and is going to have its effect.
    Pending,
    /// No effect so far, and none on the way.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Idempotency key; empty for calls without one, which belong together by tenant only.
    pub key: String,
    pub tenant: String,
    /// Number of effects. More than 1 with a key is the fault that this project prevents.
    pub effects: u64,
    /// Regions whose upstreams performed them, each once, in order.
    pub regions: Vec<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    effect: u64,
    key: &'a str,
    tenant: &'a str,
    region: &'a str,
    path: &'a str,
    amount: Option<u64>,
    at_ms: u64,
}

#[derive(Debug)]
struct Journal {
    file: File,
    effects: u64,
}

#[derive(Debug, Default)]
struct Book {
    totals: Vec<Totals>,
    places: BTreeMap<(String, String), usize>,
    answers: HashMap<Order, Answer>,
    pending: HashMap<Order, usize>,
}

/// The ledger. Share it in an [`Arc`].
#[derive(Debug)]
pub struct Ledger {
    journal: Mutex<Journal>,
    book: Mutex<Book>,
}

impl Ledger {
    /// Starts a ledger in a new file: effects of different runs must not mix.
    pub fn create(path: &Path) -> io::Result<Arc<Ledger>> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        Ok(Arc::new(Ledger { journal: Mutex::new(Journal { file, effects: 0 }), book: Mutex::default() }))
    }

    /// Performs one effect: writes and flushes its line, then keeps the answer that `answer` makes
    /// from the effect's number (from 1). Blocks on the disk. On an error nothing is counted, but
    /// the file may contain a torn line.
    pub fn perform(
        &self,
        order: &Order,
        region: &str,
        amount: Option<u64>,
        answer: impl FnOnce(u64) -> Answer,
    ) -> io::Result<Answer> {
        let answer = answer(self.write_line(order, region, amount)?);
        let mut book = lock(&self.book);
        // A probe gets the first answer, as a retry would.
        book.answers.entry(order.clone()).or_insert_with(|| answer.clone());
        book.count(order, region);
        Ok(answer)
    }

    fn write_line(&self, order: &Order, region: &str, amount: Option<u64>) -> io::Result<u64> {
        let mut journal = lock(&self.journal);
        let effect = journal.effects + 1;
        let at_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let line =
            Line { effect, key: &order.key, tenant: &order.tenant, region, path: &order.path, amount, at_ms };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        journal.file.write_all(&text)?;
        journal.file.sync_data()?;
        journal.effects = effect;
        Ok(effect)
    }

    /// Notes that a call is on its way to its effect, until the guard is dropped.
    pub fn begin(self: &Arc<Self>, order: &Order) -> InProgress {
        *lock(&self.book).pending.entry(order.clone()).or_default() += 1;
        InProgress { ledger: self.clone(), order: order.clone() }
    }

    /// Outcome of an order. An empty path means any path.
    pub fn probe(&self, order: &Order) -> Outcome {
        let book = lock(&self.book);
        let same = |other: &&Order| {
            other.key == order.key
                && other.tenant == order.tenant
                && (order.path.is_empty() || other.path == order.path)
        };
        let anywhere = || book.answers.iter().find(|(other, _)| same(other)).map(|(_, answer)| answer);
        let exact = book.answers.get(order);
        match if order.path.is_empty() { exact.or_else(anywhere) } else { exact } {
            Some(answer) => Outcome::Happened(answer.clone()),
            None if book.pending.keys().any(|other| same(&other)) => Outcome::Pending,
            None => Outcome::Nothing,
        }
    }

    /// Totals in the order of first effects, of all keys or of one (under every tenant).
    pub fn totals(&self, key: Option<&str>) -> Vec<Totals> {
        let book = lock(&self.book);
        book.totals.iter().filter(|totals| key.is_none_or(|key| totals.key == key)).cloned().collect()
    }
}

impl Book {
    fn count(&mut self, order: &Order, region: &str) {
        let fresh = self.totals.len();
        let place = *self.places.entry((order.tenant.clone(), order.key.clone())).or_insert(fresh);
        if place == fresh {
            let Order { key, tenant, .. } = order.clone();
            self.totals.push(Totals { key, tenant, effects: 0, regions: Vec::new() });
        }
        let totals = &mut self.totals[place];
        totals.effects += 1;
        if !totals.regions.iter().any(|seen| seen == region) {
            totals.regions.push(region.to_owned());
        }
    }
}

#[derive(Debug)]
pub struct InProgress {
    ledger: Arc<Ledger>,
    order: Order,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut book = lock(&self.ledger.book);
        if let Some(count) = book.pending.get_mut(&self.order) {
            *count -= 1;
            if *count == 0 {
                book.pending.remove(&self.order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(key: &str) -> Order {
        Order { key: key.into(), tenant: "acme".into(), path: "/v1/charges".into() }
    }

    fn numbered(effect: u64) -> Answer {
        Answer { body: Bytes::from(format!("answer {effect}")), ..Answer::default() }
    }

    #[test]
    fn every_effect_is_a_line_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.jsonl");
        let ledger = Ledger::create(&path).unwrap();
        ledger.perform(&order("k1"), "us-east", Some(2000), numbered).unwrap();
        ledger.perform(&order("k2"), "us-east", None, numbered).unwrap();
        ledger.perform(&order("k1"), "eu-west", Some(2000), numbered).unwrap();
        ledger.perform(&order("k1"), "us-east", Some(2000), numbered).unwrap();

        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!((&lines[2]["effect"], &lines[2]["region"]), (&3.into(), &"eu-west".into()));
        assert_eq!(lines[2]["amount"], 2000);
        assert!(lines[1]["amount"].is_null() && lines[1]["at_ms"].as_u64().unwrap() > 0);

        let all = ledger.totals(None);
        let first = (all[0].key.as_str(), all[0].effects, all[0].regions.join(" "));
        assert_eq!(first, ("k1", 3, "us-east eu-west".to_owned()));
        assert_eq!((all[1].key.as_str(), all[1].effects), ("k2", 1));
        assert_eq!(ledger.totals(Some("k2")), all[1..]);
        assert_eq!(ledger.totals(Some("k")), []);
        assert!(Ledger::create(&path).is_err(), "an old ledger was taken over");
    }

    #[test]
    fn a_probe_tells_the_first_answer_or_what_is_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(&dir.path().join("ledger.jsonl")).unwrap();
        assert_eq!(ledger.probe(&order("k")), Outcome::Nothing);
        let (first, second) = (ledger.begin(&order("k")), ledger.begin(&order("k")));
        let anywhere = Order { path: String::new(), ..order("k") };
        drop(first);
        assert_eq!(ledger.probe(&order("k")), Outcome::Pending);
        assert_eq!(ledger.probe(&anywhere), Outcome::Pending);
        assert_eq!(ledger.probe(&Order { tenant: "globex".into(), ..order("k") }), Outcome::Nothing);
        ledger.perform(&order("k"), "us-east", None, numbered).unwrap();
        ledger.perform(&order("k"), "us-east", None, numbered).unwrap();
        assert_eq!(ledger.probe(&order("k")), Outcome::Happened(numbered(1)));
        assert_eq!(ledger.probe(&anywhere), Outcome::Happened(numbered(1)));
        assert_eq!(ledger.probe(&Order { path: "/v1/payouts".into(), ..order("k") }), Outcome::Nothing);
        drop(second);
        assert_eq!(ledger.probe(&order("other")), Outcome::Nothing);
    }
}
