//! A lock for state of a process, which stays usable after a panic.
//!
//! A panic ends one task: the others go on with the state as it stands.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that is used by one task at a time, and over nothing slow.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// A lock around this value.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// The value, once nobody else holds it: blocks the thread until then.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
