//! Times of clients' requests at the door: the whole of each, and the part that onceway took.
//!
//! A request carries the series of its route, so recording takes no lock and no look-up. What peers
//! forward, and what jobs run, has no times: its client is elsewhere, or waits for nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::StatusCode;
use metrics::{Histogram, histogram};

use crate::ports::observe;

/// The words of the log, and `failed`: a refusal that is no fault of its client.
const VERDICTS: [&str; 12] = [
    "settled",
    "released",
    "replayed",
    "accepted",
    "in_progress",
    "key_reused",
    "key_expired",
    "in_doubt",
    "passed",
    "looked_up",
    "refused",
    "failed",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Here,
    /// The request was sent on to the key's owner, whatever came of it.
    Forwarded,
}

/// The series of one route; `failed` begins at once, as a rate sees no beginning.
#[derive(Debug)]
pub struct RouteTimes {
    route: Arc<str>,
    /// By place and verdict.
    requests: [[OnceLock<Histogram>; VERDICTS.len()]; 2],
    overhead: OnceLock<Histogram>,
    /// Running mean of its upstream's latency.
    pub typical: Mutex<Option<Duration>>,
}

impl RouteTimes {
    pub fn new(route: Arc<str>) -> Self {
        let (requests, overhead, typical) = Default::default();
        let times = Self { route, requests, overhead, typical };
        times.series("failed", Where::Here);
        times
    }

    pub fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// Records one request of a client, from its arrival to the head of its answer.
    pub fn request(&self, verdict: &'static str, status: StatusCode, from: Where, took: Duration) {
        let failed = verdict == "refused" && status.is_server_error();
        self.series(if failed { "failed" } else { verdict }, from).record(took.as_secs_f64());
    }

    /// Records the part of a keyed request's time that onceway took.
    pub fn overhead(&self, took: Duration) {
        let series = || histogram!(observe::OVERHEAD_SECONDS, "route" => self.route.clone());
        self.overhead.get_or_init(series).record(took.as_secs_f64());
    }

    fn series(&self, verdict: &'static str, from: Where) -> &Histogram {
        let place = ["here", "forwarded"][from as usize];
        // A word that is not listed would be a mistake: it counts as the last one, so it is seen.
        let number = VERDICTS.iter().position(|known| *known == verdict).unwrap_or(VERDICTS.len() - 1);
        let labels = || {
            let route = self.route.clone();
            histogram!(observe::REQUEST_SECONDS, "route" => route, "verdict" => VERDICTS[number], "where" => place)
        };
        self.requests[from as usize][number].get_or_init(labels)
    }
}

/// Time that a request waited for its client's body, its upstream, or an earlier attempt.
#[derive(Debug, Default)]
pub struct Waited(AtomicU64);

impl Waited {
    pub fn add(&self, span: Duration) {
        self.0.fetch_add(span.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn all(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl Clone for Waited {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}
