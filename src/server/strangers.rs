//! Connections to the peer listener before they show a certificate: limited, so that places stay
//! for peers.
//!
//! Strangers hold at most half of all places, and one address at most [`MOST_OF_ADDRESS`]. After a
//! peer's handshake its address is known, and handshakes from there may take any place. This file
//! must not take an address for an identity: a peer's rights depend on its certificate.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection_limit::{Place, Places};

/// Most handshakes of an unknown address at a time.
const MOST_OF_ADDRESS: usize = 32;
/// Most known addresses. The one whose last handshake is oldest is forgotten first.
const MOST_KNOWN: usize = 1_024;

pub struct Strangers {
    places: Arc<Places>,
    there: AtomicUsize,
    known: Mutex<VecDeque<IpAddr>>,
}

/// A connection that may do its handshake. Dropped once the handshake succeeded or failed.
pub struct Stranger {
    _place: Option<Place>,
    counted: Option<Arc<Strangers>>,
}

impl Strangers {
    /// Makes a set without strangers and without known addresses.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { places: Places::new(), there: AtomicUsize::new(0), known: Mutex::default() })
    }

    /// Lets a connection from `address` do its handshake. The listener has `most` places in all.
    ///
    /// `None` if strangers hold as many places as they may.
    pub fn admit(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Stranger> {
        if self.known().contains(&address.to_canonical()) {
            return Some(Stranger { _place: None, counted: None });
        }
        let place = self.places.take(address, MOST_OF_ADDRESS)?;
        let there = self.there.fetch_add(1, Ordering::SeqCst);
        let stranger = Stranger { _place: Some(place), counted: Some(self.clone()) };
        (there < most.div_ceil(2)).then_some(stranger)
    }

    /// Notes a peer's handshake from that address.
    pub fn shook(&self, address: IpAddr) {
        let address = address.to_canonical();
        let mut known = self.known();
        known.retain(|before| *before != address);
        known.truncate(MOST_KNOWN - 1);
        known.push_front(address);
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<IpAddr>> {
        // No code under the lock can panic half-way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        if let Some(strangers) = &self.counted {
            strangers.there.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_half_of_the_places_and_one_address_few_of_them() {
        let strangers = Strangers::new();
        let from = |last: u8, most: usize| strangers.admit(IpAddr::from([192, 0, 2, last]), most);
        let one: Vec<_> = std::iter::from_fn(|| from(1, 1_000)).take(100).collect();
        assert_eq!(one.len(), MOST_OF_ADDRESS);
        let others: Vec<_> = (2..=9).map_while(|last| from(last, 72)).collect();
        assert_eq!(others.len(), 4, "with the others, half of them");
        strangers.shook(IpAddr::from([192, 0, 2, 1]));
        assert!(from(1, 72).is_some(), "it is known by now");
        drop((one, others));
        assert_eq!(strangers.there.load(Ordering::SeqCst), 0);
        for number in 0..2 * MOST_KNOWN {
            strangers.shook(IpAddr::from([10, 0, (number / 256) as u8, (number % 256) as u8]));
        }
        assert_eq!(strangers.known().len(), MOST_KNOWN);
    }
}
