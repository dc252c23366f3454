//! The clocks and the randomness of this machine, and locks.
//!
//! `ports::Clock` and `ports::Dice` say what they promise. No other code reads a clock or draws a
//! number for the gateway.

#![allow(clippy::disallowed_methods, reason = "the clocks of the Clock port")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::TryRng;
use rand::rngs::SysRng;
use rustix::time::{ClockId, clock_gettime};

use crate::ports::{Clock, Dice};
use crate::protocol::record::{Nonce, RequestId};
use crate::protocol::time::{Date, Moment};

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// Reads CLOCK_BOOTTIME, as `std::time::Instant` stands still while the machine is suspended
    /// (docs/protocol.md#rule-11).
    fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    fn date(&self) -> Date {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Date(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    async fn sleep_until(&self, deadline: Moment) {
        // The runtime's timer uses another clock, so its result is checked against this one.
        loop {
            let left = self.now().until(deadline);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// The operating system's randomness. Nonces come from it directly, as a copy of a machine's memory
/// must not repeat them; the rest comes from a generator that it seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDice;

impl Dice for SystemDice {
    /// Panics if the operating system gives no random bytes: two claims could then share a nonce.
    fn nonce(&self) -> Nonce {
        let mut bytes = [0; 16];
        SysRng.try_fill_bytes(&mut bytes).expect("the operating system gives random bytes");
        Nonce(u128::from_le_bytes(bytes))
    }

    fn request_id(&self) -> RequestId {
        RequestId(rand::random())
    }

    fn jitter(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(rand::random_range(0..=most))
    }
}

/// No holder of a lock in this room panics halfway through a change, so a poisoned value is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_jitter_stays_within_its_span() {
        let dice = SystemDice;
        assert_ne!(dice.nonce(), dice.nonce());
        assert_ne!(dice.request_id(), dice.request_id());
        assert_eq!(dice.jitter(Duration::ZERO), Duration::ZERO);
        let most = Duration::from_millis(10);
        let drawn: Vec<Duration> = (0..200).map(|_| dice.jitter(most)).collect();
        assert!(drawn.iter().all(|span| *span <= most));
        assert!(drawn.iter().any(|span| *span > most / 2) && drawn.iter().any(|span| *span < most / 2));
        assert!(dice.jitter(Duration::MAX) <= Duration::from_nanos(u64::MAX));
    }
}
