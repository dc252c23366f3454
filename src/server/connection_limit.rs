//! The number of connections that one client address may hold.
//!
//! IPv6 clients are counted by /64, the block that one of them is given. [`super::Listeners::add`]
//! bounds the number of all connections. This file must not know what a connection is for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gateway::limits::concurrency::counted_as;

/// The places that addresses hold.
#[derive(Debug)]
pub struct Places {
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One connection's place. Dropping it frees the place.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    /// Makes a table in which no address holds a place.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default() })
    }

    /// Takes a place for a connection from `address`. `None` if it holds `most` places already.
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
        // No code under the lock can panic half-way.
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
