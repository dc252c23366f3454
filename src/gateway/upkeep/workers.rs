//! The workers of one gateway: their places, and the number of jobs that each tenant has there.
//!
//! [`super::jobs`] uses them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::protocol::key::Tenant;
use crate::protocol::time::Moment;

/// Jobs that one gateway runs at a time, at most; oldest first.
const MOST_AT_ONCE: usize = 16;

/// Further jobs while those are busy, for tenants with less than a quarter of them here.
const SPARE: usize = 4;

pub(super) const QUARTER: usize = MOST_AT_ONCE / 4;

pub struct Workers {
    pub(super) free: Arc<Semaphore>,
    pub(super) spare: Arc<Semaphore>,
    pub(super) busy: Counts,
    pub(super) turns: Mutex<Turn>,
}

/// Turns of the spare workers: the last tenant, and the moment of the next turn.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) after: Option<Tenant>,
    pub(super) from: Option<Moment>,
}

impl Default for Workers {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        let (free, spare) = (places(MOST_AT_ONCE), places(SPARE));
        Self { free, spare, busy: Arc::default(), turns: Mutex::default() }
    }
}

pub(super) type Counts = Arc<Mutex<BTreeMap<Tenant, usize>>>;

pub(super) struct Busy(Counts, Tenant);

impl Busy {
    pub(super) fn with(busy: &Counts, tenant: &Tenant) -> Self {
        *lock(busy).entry(tenant.clone()).or_default() += 1;
        Self(busy.clone(), tenant.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut busy = lock(&self.0);
        if let Some(count) = busy.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&self.1);
            }
        }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
