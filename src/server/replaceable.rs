//! Values that are replaced while a process runs: one pointer, swapped whole.
//!
//! [`super::reload`] replaces them. A listener loads a value once per connection or request and
//! keeps it to the end. This file must not lock.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// A value that may be replaced. Cheap to clone: all clones share the same value.
#[derive(Debug)]
pub struct Replaceable<T>(Arc<ArcSwap<T>>);

impl<T> Replaceable<T> {
    pub fn now(&self) -> Arc<T> {
        self.0.load_full()
    }

    pub fn replace(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

impl<T> Clone for Replaceable<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> From<T> for Replaceable<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }
}
