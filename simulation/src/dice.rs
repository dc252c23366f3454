//! Simulated randomness: one ChaCha8 stream per process, all from one seed.
//!
//! No two processes share a stream: one more draw in one would change the actions of all others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceway::ports::Dice;
use onceway::protocol::record::{Nonce, RequestId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::process::locked;

/// One stream of the seed's randomness. Cheap to clone; clones draw from the same stream.
#[derive(Clone, Debug)]
pub struct SimDice(Arc<Mutex<ChaCha8Rng>>);

impl SimDice {
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(Arc::new(Mutex::new(rng)))
    }

    pub fn bits(&self) -> u64 {
        locked(&self.0).next_u64()
    }

    fn wide(&self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }
}

impl Dice for SimDice {
    fn nonce(&self) -> Nonce {
        Nonce(self.wide())
    }

    fn request_id(&self) -> RequestId {
        RequestId(self.wide())
    }

    fn jitter(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let part = u128::from(most) * u128::from(self.bits()) / u128::from(u64::MAX);
        Duration::from_nanos(u64::try_from(part).unwrap_or(most))
    }
}

/// The first number of these streams. Streams of processes count upwards from 0.
const FIRST: u64 = 1 << 32;

/// One stream of choices of clients and faults, which no process of the deployment draws from.
/// Every client has a stream of its own, so that one more draw in one changes no other.
pub(crate) struct Chance {
    dice: SimDice,
    seed: u64,
    next: Arc<AtomicU64>,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: SimDice::new(seed, FIRST), seed, next: Arc::new(AtomicU64::new(FIRST + 1)) }
    }

    pub(crate) fn split(&self) -> Self {
        let stream = self.next.fetch_add(1, Ordering::Relaxed);
        Self { dice: SimDice::new(self.seed, stream), seed: self.seed, next: self.next.clone() }
    }

    /// A number below `end`, which must not be 0.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.dice.bits() % end
    }

    /// True in so many of a hundred draws.
    pub(crate) fn percent(&self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    pub(crate) fn within(&self, most: Duration) -> Duration {
        self.dice.jitter(most)
    }

    /// A random span with this mean, as between independent events, at most eight times as long.
    pub(crate) fn about(&self, mean: Duration) -> Duration {
        // In whole steps of a thousandth, so that no platform's logarithm shows: -ln(x) by halving.
        let draw = (self.below(1_000_000) + 1) as u32;
        let halvings = f64::from(draw) / 1_000_000.0;
        mean.mul_f64(-halvings.ln()).min(mean * 8)
    }
}
