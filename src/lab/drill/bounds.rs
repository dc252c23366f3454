//! The bounds of a drill, with their parts.
//!
//! `verdict` compares, and reports print the parts. [`Takeover`] has the formula for the first run
//! after a loss; its values come from the deployment's own ring file. This file must not measure.

use std::time::Duration;

use serde::Serialize;

use crate::ring_file::RingFile;

const BESIDE: Duration = Duration::from_millis(250);
/// Longest pause of any arc in a clean move, at 60 ms between regions.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Longest time from `start` or `resume` until a lost region's arcs are home.
pub const HOME_WITHIN: Duration = Duration::from_secs(60);

/// `lease·(1 + 2·drift) + margin + window + 6 round trips + 250 ms`: the longest time from the
/// death of a home to the first run of one of its keys elsewhere. All in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Takeover {
    pub lease: f64,
    pub drift: f64,
    pub margin: f64,
    /// The longest window that successors reported, or the one computed from the lag observed
    /// before the death if that is longer.
    pub window: f64,
    pub round_trips: f64,
    pub beside: f64,
    pub bound: f64,
}

impl Takeover {
    /// The bound under these settings and after this window.
    pub fn of(file: &RingFile, window: Duration, rtt: Duration) -> Takeover {
        let lease = millis(file.failover.lease);
        let drift = lease * 2.0 * f64::from(file.clock.drift_ppm) / 1e6;
        let (margin, window, round_trips) = (millis(file.clock.margin), millis(window), 6.0 * millis(rtt));
        let beside = millis(BESIDE);
        let bound = lease + drift + margin + window + round_trips + beside;
        Takeover { lease, drift, margin, window, round_trips, beside, bound }
    }
}

pub fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}
