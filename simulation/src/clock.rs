//! Simulated clocks: tokio's paused time, seen through one process's boot clock and one region's wall clock.
//!
//! Neighbours: every other file takes its time from here. It must not advance time: tokio does, when all tasks wait.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onceway::ports::Clock;
use onceway::protocol::time::{Date, Moment};
use tokio::time::{Instant, sleep_until};

/// The wall date at which each simulated world begins, in microseconds since 1970: 2026-01-01 00:00 UTC.
const BEGIN_MICROS: i64 = 1_767_225_600_000_000;

/// The clocks of one region. Cheap to clone; clones are the same clocks.
#[derive(Clone, Debug)]
pub struct SimClock {
    begin: Instant,
    boot: Duration,
    skew_micros: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock that counts from `begin`. Its boot clock shows `boot` then, so that no two processes' moments can be mixed up
    /// unnoticed; its wall clock is off by `skew_micros`.
    pub fn new(begin: Instant, boot: Duration, skew_micros: i64) -> Self {
        Self { begin, boot, skew_micros: Arc::new(AtomicI64::new(skew_micros)) }
    }

    /// Steps the wall clock, ahead or back. The boot clock runs on.
    pub fn step(&self, micros: i64) {
        self.skew_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Time since the world began, the same for all.
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.begin)
    }

    /// The wall clock in microseconds since 1970, as Postgres would tell it.
    pub fn micros(&self) -> i64 {
        let elapsed = i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX);
        BEGIN_MICROS.saturating_add(elapsed).saturating_add(self.skew_micros.load(Ordering::Relaxed))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(0) + self.boot + self.elapsed()
    }

    fn date(&self) -> Date {
        Date(self.micros().div_euclid(1_000))
    }

    async fn sleep_until(&self, deadline: Moment) {
        let now = self.now();
        if deadline <= now {
            return;
        }
        match Instant::now().checked_add(now.until(deadline)) {
            Some(instant) => sleep_until(instant).await,
            None => pending().await,
        }
    }
}

/// Sleeps for `span`; no time at all if it is zero.
pub(crate) async fn pause(span: Duration) {
    if !span.is_zero() {
        tokio::time::sleep(span).await;
    }
}
