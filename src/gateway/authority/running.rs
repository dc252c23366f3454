//! Attempts of this process between their claim and their stored outcome.
//!
//! [`crate::gateway::request::follow`] enters them; [`super::moves`] and [`super::failback`] wait
//! for them. Must not decide anything: a drain that runs out of time goes on without them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::protocol::key::KeyId;

#[derive(Clone, Default)]
pub(in crate::gateway) struct Running(Arc<Mutex<BTreeMap<KeyId, usize>>>);

/// One running attempt, for as long as this value lives.
pub(in crate::gateway) struct Run {
    all: Running,
    id: KeyId,
}

impl Running {
    pub(in crate::gateway) fn begin(&self, id: &KeyId) -> Run {
        *self.lock().entry(id.clone()).or_default() += 1;
        Run { all: self.clone(), id: id.clone() }
    }

    /// True if an attempt runs whose key `among` accepts.
    pub(in crate::gateway) fn any(&self, among: impl Fn(&KeyId) -> bool) -> bool {
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
