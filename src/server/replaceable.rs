//! Values that are replaced while a process runs: one pointer, swapped whole.
//!
//! Neighbours: [`super::reload`] replaces, the listeners look once per connection or request and keep what they saw to its end. It must not lock.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// A value that may be replaced. Cheap to clone: all clones are the same one.
#[derive(Debug)]
pub struct Replaceable<T>(Arc<ArcSwap<T>>);

impl<T> Replaceable<T> {
    /// What it is now.
    pub fn now(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// Makes it another, for whoever looks from now on.
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
