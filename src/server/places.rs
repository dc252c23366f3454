//! How many connections one client address may hold.
//!
//! Neighbours: `public` takes a place per connection; the whole number is bounded in [`super::Listeners::add`]. IPv6 clients are
//! counted by /64, which is what one of them is given. It must not know what a connection is for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gateway::crowd::counted_as;

/// The places of all addresses.
#[derive(Debug)]
pub struct Places {
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One connection's place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    /// Nobody has a place.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default() })
    }

    /// A place for a connection from `address`, unless it holds `most` of them, all it may have.
    pub fn take(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let address = counted_as(address);
        let mut taken = self.taken();
        let count = taken.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), address })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        // Nothing under the lock can panic half-way.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_places_and_gets_them_back() {
        let places = Places::new();
        let take = |address: &str| places.take(address.parse().unwrap(), 2);
        let first = take("192.0.2.1").unwrap();
        let second = take("::ffff:192.0.2.1").unwrap();
        assert!(take("192.0.2.1").is_none());
        assert!(take("192.0.2.2").is_some());
        let near = [take("2001:db8::1").unwrap(), take("2001:db8::2").unwrap()];
        assert!(take("2001:db8::3").is_none());
        assert!(take("2001:db8:0:1::3").is_some());
        drop((first, near));
        let again = take("192.0.2.1").unwrap();
        drop((second, again));
        assert!(places.taken().is_empty());
    }
}
