//! Moments and dates, as plain numbers.
//!
//! A [`Moment`] is a reading of one process's boot clock and means nothing to any other process. A
//! [`Date`] is a wall-clock date of a region's Postgres. Dates are shown to people and clients, and
//! never compared with another region's (docs/protocol.md#rule-12).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of this process's boot clock, which counts suspended time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if it is not earlier.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time until `later`; zero if it has passed.
    pub fn until(self, later: Moment) -> Duration {
        later.since(self)
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(span)))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A date on a database's wall clock: milliseconds since 1970-01-01 UTC. Not for safety.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Date(pub i64);

impl Date {
    /// Milliseconds since 1970-01-01 UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ms", self.0)
    }
}

/// The relative drift of clocks, and the fixed margin beside it
/// (docs/protocol.md#promise-and-limits: eps and δ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Parts per million that two clocks' rates may differ.
    pub ppm: u32,
    /// A fixed span taken off on top, for rounding and scheduling.
    pub margin: Duration,
}

impl Drift {
    /// The part of `span` on which a holder may rely: `span · (1 − eps) − δ`, or zero.
    pub fn holder(self, span: Duration) -> Duration {
        span.saturating_sub(self.slack(span)).saturating_sub(self.margin)
    }

    /// The time in which a judge must see nothing new, before a `span` on another clock is surely
    /// over: `span · (1 + eps) + δ`.
    pub fn judge(self, span: Duration) -> Duration {
        span + self.slack(span) + self.margin
    }

    fn slack(self, span: Duration) -> Duration {
        let slack = span.as_nanos() * u128::from(self.ppm) / 1_000_000;
        Duration::from_nanos(u64::try_from(slack).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        let now = Moment::from_nanos(5);
        assert_eq!(now.since(Moment::from_nanos(9)), Duration::ZERO);
        assert_eq!(now.until(Moment::from_nanos(9)), Duration::from_nanos(4));
        assert_eq!(Moment::from_nanos(u64::MAX) + Duration::MAX, Moment::from_nanos(u64::MAX));
    }

    #[test]
    fn a_holder_gives_up_early_by_drift_and_margin() {
        let drift = Drift { ppm: 1_000, margin: Duration::from_millis(50) };
        assert_eq!(drift.holder(Duration::from_secs(10)), Duration::from_millis(9_940));
        assert_eq!(drift.holder(Duration::from_millis(20)), Duration::ZERO);
        assert_eq!(drift.judge(Duration::from_secs(10)), Duration::from_millis(10_060));
    }
}
