//! Simulated clocks: tokio's paused time, through a process's boot clock and a region's wall clock.
//!
//! Every other file takes its time from here. Tokio advances it, when all tasks wait.

use std::future::pending;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceway::ports::Clock;
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::time::{Date, Moment};
use tokio::time::{Instant, sleep_until};

use crate::process::{Process, locked};

/// The wall date at which each world begins, in microseconds since 1970: 2026-01-01 00:00 UTC.
const BEGIN_MICROS: i64 = 1_767_225_600_000_000;

/// The clocks of one process, or of one region's Postgres. Cheap to clone; clones are the same.
#[derive(Clone, Debug)]
pub struct SimClock {
    begin: Instant,
    boot: Arc<Mutex<Boot>>,
    skew_micros: Arc<AtomicI64>,
    process: Process,
}

/// A boot clock: what it showed at one moment of the world, and its rate since.
#[derive(Clone, Copy, Debug)]
struct Boot {
    at: Duration,
    showed: Duration,
    ppm: i64,
}

impl Boot {
    fn shows(self, elapsed: Duration) -> Duration {
        let passed = i128::try_from(elapsed.saturating_sub(self.at).as_nanos()).unwrap_or(i128::MAX);
        let counted = passed + passed * i128::from(self.ppm) / 1_000_000;
        self.showed + Duration::from_nanos(u64::try_from(counted).unwrap_or(0))
    }

    /// The least time of the world until this clock has counted `span`.
    fn takes(self, span: Duration) -> Duration {
        if self.ppm == 0 {
            return span;
        }
        let rate = u128::try_from(1_000_000 + self.ppm).unwrap_or(1).max(1);
        let nanos = (span.as_nanos() * 1_000_000).div_ceil(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl SimClock {
    /// A clock that counts from `begin`. Its boot clock shows `boot` then, so that a mix-up of two
    /// processes' moments is noticed. Its wall clock is off by `skew_micros`.
    pub fn new(begin: Instant, boot: Duration, skew_micros: i64) -> Self {
        let boot = Arc::new(Mutex::new(Boot { at: Duration::ZERO, showed: boot, ppm: 0 }));
        Self { begin, boot, skew_micros: Arc::new(AtomicI64::new(skew_micros)), process: Process::default() }
    }

    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    /// Sets the boot clock's rate from now on: so many parts per million fast or, below zero, slow.
    pub fn drift(&self, ppm: i64) {
        let elapsed = self.elapsed();
        let mut boot = locked(&self.boot);
        *boot = Boot { at: elapsed, showed: boot.shows(elapsed), ppm };
    }

    fn boot(&self) -> Boot {
        *locked(&self.boot)
    }

    /// Steps the wall clock, ahead or back. The boot clock runs on.
    pub fn step(&self, micros: i64) {
        self.skew_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Time since the world began, the same for all.
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.begin)
    }

    /// The wall clock in microseconds since 1970, as Postgres would report it.
    pub fn micros(&self) -> i64 {
        let elapsed = i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX);
        BEGIN_MICROS.saturating_add(elapsed).saturating_add(self.skew_micros.load(Ordering::Relaxed))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        let mut elapsed = self.elapsed();
        if is_disabled(Check::BootClock) {
            elapsed = elapsed.saturating_sub(self.process.slept());
        }
        Moment::from_nanos(0) + self.boot().shows(elapsed)
    }

    fn date(&self) -> Date {
        Date(self.micros().div_euclid(1_000))
    }

    async fn sleep_until(&self, deadline: Moment) {
        // In a loop, because the clock's rate may change meanwhile.
        while self.now() < deadline {
            let left = self.boot().takes(self.now().until(deadline));
            match Instant::now().checked_add(left) {
                Some(instant) => sleep_until(instant).await,
                None => pending().await,
            }
        }
        self.process.runs().await;
    }
}

/// Sleeps for `span`; no time at all if it is zero.
pub(crate) async fn pause(span: Duration) {
    if !span.is_zero() {
        tokio::time::sleep(span).await;
    }
}
