//! Attempts of this process that are between their claim and their stored outcome.
//!
//! Neighbours: [`super::super::request`] enters them, [`super::moves`] waits for those that move away, [`super::home`] for all. It must not
//! decide anything: a drain that runs out of time goes on without them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::protocol::key::KeyId;

/// How many attempts of each key are under way.
#[derive(Clone, Default)]
pub(in crate::gateway) struct Running(Arc<Mutex<BTreeMap<KeyId, usize>>>);

/// One attempt under way, for as long as this lives.
pub(in crate::gateway) struct Run {
    all: Running,
    id: KeyId,
}

impl Running {
    /// An attempt begins.
    pub(in crate::gateway) fn begin(&self, id: &KeyId) -> Run {
        *self.lock().entry(id.clone()).or_default() += 1;
        Run { all: self.clone(), id: id.clone() }
    }

    /// Whether an attempt is under way whose key is among these.
    pub(super) fn any(&self, among: impl Fn(&KeyId) -> bool) -> bool {
        self.lock().keys().any(among)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<KeyId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut running = self.all.lock();
        if let Some(count) = running.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.id);
            }
        }
    }
}
