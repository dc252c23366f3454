//! The lives that keys were promised, which the store keeps: for so long a lost region is a risk.
//!
//! A promise must be durable before the first key has it. `protocol::observed` says when one is
//! over.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::{Gateway, metrics};
use crate::ports::store::Written;
use crate::ports::{Ports, Upkeep};
use crate::protocol::plant::{Plant, removed};

/// Lost races with other gateways of the region, at most. After that this one waits for its next
/// turn.
const TRIES: usize = 4;

impl<P: Ports> Gateway<P> {
    /// Stores that keys are promised these lives from now on. True once it is durable.
    pub(super) async fn keep_promises(&self, promised: &[Option<Duration>]) -> bool {
        let store = self.ports.store();
        for _ in 0..TRIES {
            let Ok((version, before, now)) = store.promises().await else { return false };
            let next = before.next(now, promised);
            match metrics::upkeep("promise", store.promise(version, &next)).await {
                Ok(Written::Done) => {
                    *self.longest_kept() = Some(next.longest());
                    return true;
                }
                // Another gateway was faster.
                Ok(Written::Lost | Written::GateMoved) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// True once this process's promises are durable.
    pub(super) fn has_promised(&self) -> bool {
        self.longest_kept().is_some()
    }

    /// The longest life of a key that may still be remembered, by the promises that the store has
    /// kept. `None`: for ever, or not known.
    pub(super) fn longest_life(&self) -> Option<Duration> {
        if removed(Plant::LivesKept) {
            let now = self.promised_lives();
            return now.iter().try_fold(Duration::ZERO, |longest, life| Some(longest.max((*life)?)));
        }
        (*self.longest_kept()).flatten()
    }

    fn longest_kept(&self) -> MutexGuard<'_, Option<Option<Duration>>> {
        self.longest_kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
