//! Jobs: accepted requests that a worker runs without their client, and the wait between two runs.
//!
//! A job runs by the same path as a client's request. A job only says that work is left.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The span between two runs of one job: doubles with each run, up to a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// After the first run.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
}

impl Backoff {
    /// The span after this many runs, before jitter.
    pub fn after(&self, runs: u32) -> Duration {
        let doubled = 2_u32.checked_pow(runs.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.most)
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// A worker runs it when it is due.
    Waiting,
    /// A dead letter: no worker touches it until an operator says so.
    Dead,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_doubles_up_to_its_bound() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };
        let spans: Vec<u64> = (0..12).map(|runs| backoff.after(runs).as_secs()).collect();
        assert_eq!(spans, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.after(u32::MAX), backoff.most);
        let endless = Backoff { first: Duration::MAX, most: Duration::MAX };
        assert_eq!(endless.after(40), Duration::MAX);
    }
}
