//! Many seeds of one scenario, on all cores, added up.
//!
//! A seed is played on one thread, so that the number of cores changes no result.

#![allow(clippy::disallowed_methods, reason = "it measures real time, for people")]

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use onceway::protocol::plant::{self, Check};
use serde::Serialize;

use crate::outcome::{Breach, Keys, Outcome, Requests};
use crate::play;
use crate::process::locked;
use crate::scenario::Scenario;

/// Acts with one safety check removed, if one is named.
pub fn planted<T>(check: Option<Check>, act: impl FnOnce() -> T) -> T {
    match check {
        Some(check) => plant::planted(check, act),
        None => act(),
    }
}

fn threads() -> u64 {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64
}

/// Does each number's work on all cores, and calls `take` with each result, in any order.
pub fn on_all_cores<T>(count: u64, work: impl Fn(u64) -> T + Sync, take: impl FnMut(u64, T) + Send) {
    let (next, bar, take) = (AtomicU64::new(0), bar(count), Mutex::new(take));
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let done = work(number);
                    locked(&take)(number, done);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
}

/// Plays one seed. A panic is a breach like any other: a gateway would have died.
pub fn play(scenario: &Arc<Scenario>, seed: u64, check: Option<Check>) -> Outcome {
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| {
        planted(check, || play::play(scenario, seed, false)).outcome
    }));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Outcome::broken(seed, "panic", text.unwrap_or_else(|| "a panic".to_owned()))
    })
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Injected {
    pub injected: u64,
    /// The number of injections during which a request had to wait, or a view was agreed on.
    pub mattered: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Broke {
    pub seed: u64,
    pub breach: Breach,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Batch {
    pub scenario: String,
    pub from: u64,
    pub count: u64,
    /// The safety check that was removed.
    pub plant: Option<String>,
    pub simulated_ms: u64,
    /// Real time, in milliseconds, over all threads.
    pub took_ms: u64,
    pub threads: u64,
    /// Messages, statements and requests.
    pub events: u64,
    pub keys: Keys,
    pub requests: Requests,
    /// From the first request of a key to its answer, over all seeds, sorted.
    #[serde(skip)]
    pub latency_ms: Vec<u64>,
    pub faults: BTreeMap<String, Injected>,
    /// Counts of happenings that a batch must have seen.
    pub happened: BTreeMap<String, u64>,
    pub broke: Vec<Broke>,
    /// The directed scenario of the safety check that was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directed: Option<Box<Batch>>,
}

impl Batch {
    pub fn play(scenario: &Arc<Scenario>, from: u64, count: u64, check: Option<Check>) -> Self {
        let begun = Instant::now();
        let mut batch = Self {
            scenario: scenario.name.clone(),
            from,
            count,
            plant: check.map(|check| check.name().to_owned()),
            threads: threads(),
            ..Self::default()
        };
        on_all_cores(count, |number| play(scenario, from + number, check), |_, outcome| batch.add(&outcome));
        batch.took_ms = begun.elapsed().as_millis() as u64;
        batch.latency_ms.sort_unstable();
        batch.broke.sort_by_key(|broke| broke.seed);
        batch
    }

    /// True if no seed broke, here and in the directed scenario.
    pub fn held(&self) -> bool {
        self.broke.is_empty() && self.directed.as_ref().is_none_or(|directed| directed.held())
    }

    fn add(&mut self, outcome: &Outcome) {
        self.simulated_ms += outcome.simulated_ms;
        self.events += outcome.events;
        self.keys += &outcome.keys;
        let (requests, more) = (&mut self.requests, &outcome.requests);
        requests.sent += more.sent;
        requests.answered += more.answered;
        requests.replayed += more.replayed;
        requests.broken += more.broken;
        requests.timed_out += more.timed_out;
        requests.forwarded += more.forwarded;
        for (code, count) in &more.refused {
            *requests.refused.entry(code.clone()).or_default() += count;
        }
        self.latency_ms.extend(&outcome.latency_ms);
        for fault in &outcome.faults {
            let injected = self.faults.entry(fault.kind.clone()).or_default();
            injected.injected += 1;
            injected.mattered += u64::from(fault.mattered);
        }
        for (what, count) in &outcome.happened {
            *self.happened.entry(what.clone()).or_default() += count;
        }
        if let Some(breach) = outcome.breaches.first() {
            self.broke.push(Broke { seed: outcome.seed, breach: breach.clone() });
        }
    }

    /// The names that the scenario expects of a batch of this size, but no seed has seen.
    pub fn missing(&self, scenario: &Scenario) -> Vec<String> {
        let seen = |name: &str| {
            self.happened.get(name).is_some_and(|count| *count > 0)
                || self.faults.get(name).is_some_and(|injected| injected.mattered > 0)
        };
        let names = scenario.expects.names.iter().filter(|_| self.count >= scenario.expects.of);
        names.filter(|name| !seen(name)).cloned().collect()
    }

    /// Simulated time per real time, per thread.
    pub fn speed(&self) -> f64 {
        let busy = Duration::from_millis(self.took_ms.max(1)) * self.threads.max(1) as u32;
        Duration::from_millis(self.simulated_ms).as_secs_f64() / busy.as_secs_f64()
    }
}

fn bar(count: u64) -> ProgressBar {
    let bar = ProgressBar::new(count);
    let template = "{bar:30} {pos}/{len} seeds, {per_sec}, {eta} left";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
