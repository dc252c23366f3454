//! One budget for the heads of all requests of a process, in bytes.
//!
//! The first [`FREE`] bytes of each head do not count, so usual heads pass while others fill the
//! budget. [`super::guard`] counts unfinished heads of HTTP/1, [`super::blocks`] those of HTTP/2,
//! `public` those of requests in work. Nobody waits: without room, a head is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a head that do not count.
pub const FREE: usize = 4 * 1024;

/// The heads of a process.
#[derive(Debug, Default)]
pub struct Heads {
    held: AtomicUsize,
}

/// The part of the budget of one connection or request. Dropping it gives the part back.
#[derive(Debug)]
pub struct Held {
    heads: Arc<Heads>,
    most: usize,
    bytes: usize,
}

impl Heads {
    /// Makes a part that holds nothing. All parts together may hold `most` bytes.
    pub fn nothing(self: &Arc<Self>, most: usize) -> Held {
        Held { heads: self.clone(), most, bytes: 0 }
    }
}

impl Held {
    /// Holds a head of this many bytes in place of the one before.
    ///
    /// `false` if there is no room: then the part stays as it was. A smaller head always has room.
    pub fn hold(&mut self, head: usize) -> bool {
        let bytes = head.saturating_sub(FREE);
        let (before, most) = (self.bytes, self.most);
        let room = self.heads.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |all| {
            let after = all - before + bytes;
            (bytes <= before || after <= most).then_some(after)
        });
        if room.is_ok() {
            self.bytes = bytes;
        }
        room.is_ok()
    }

    /// True if it holds a part of the budget: the head is larger than most.
    pub fn counts(&self) -> bool {
        self.bytes > 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.heads.held.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_bytes_beyond_the_free_ones_are_counted() {
        let heads = Arc::<Heads>::default();
        let (mut one, mut other) = (heads.nothing(100), heads.nothing(100));
        assert!(one.hold(FREE + 70) && other.hold(FREE));
        assert!(!other.hold(FREE + 31), "no room");
        assert!(other.hold(FREE + 30) && other.hold(FREE + 20), "less is always possible");
        assert!(one.hold(FREE + 80));
        drop(one);
        assert!(other.hold(FREE + 100));
        let mut lowered = heads.nothing(10);
        assert!(!lowered.hold(FREE + 1) && lowered.hold(FREE));
        drop((other, lowered));
        assert_eq!(heads.held.load(Ordering::SeqCst), 0);
    }
}
