//! Simulated randomness: one ChaCha8 stream per process, all from one seed.
//!
//! [`crate::world`] gives out the streams. A stream must not be shared between processes. One more
//! draw in one of them would change the actions of all the others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceway::ports::Dice;
use onceway::protocol::record::{Nonce, RequestId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One stream of the seed's randomness. Cheap to clone; clones draw from the same stream.
#[derive(Clone, Debug)]
pub struct SimDice(Arc<Mutex<ChaCha8Rng>>);

impl SimDice {
    /// Stream number `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(Arc::new(Mutex::new(rng)))
    }

    /// 64 random bits.
    pub fn bits(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
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
