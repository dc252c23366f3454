//! Choices of clients and faults, from the seed.
//!
//! [`crate::dice`] has the streams. Every client has a stream of its own, so that one more draw in
//! one changes no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::dice::SimDice;

/// The first number of these streams. Streams of processes count upwards from 0.
const FIRST: u64 = 1 << 32;

/// One stream of choices.
pub struct Chance {
    dice: SimDice,
    seed: u64,
    next: Arc<AtomicU64>,
}

impl Chance {
    /// The first stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { dice: SimDice::new(seed, FIRST), seed, next: Arc::new(AtomicU64::new(FIRST + 1)) }
    }

    /// A new stream.
    pub fn split(&self) -> Self {
        let stream = self.next.fetch_add(1, Ordering::Relaxed);
        Self { dice: SimDice::new(self.seed, stream), seed: self.seed, next: self.next.clone() }
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&self, end: u64) -> u64 {
        self.dice.bits() % end
    }

    /// True in so many of a hundred draws.
    pub fn percent(&self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Any span up to `most`.
    pub fn within(&self, most: Duration) -> Duration {
        onceway::ports::Dice::jitter(&self.dice, most)
    }

    /// A random span with this mean, as between independent events, at most eight times as long.
    pub fn about(&self, mean: Duration) -> Duration {
        // In whole steps of a thousandth, so that no platform's logarithm shows: -ln(x) by halving.
        let draw = (self.below(1_000_000) + 1) as u32;
        let halvings = f64::from(draw) / 1_000_000.0;
        mean.mul_f64(-halvings.ln()).min(mean * 8)
    }
}
