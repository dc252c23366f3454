//! Most connections of one client address, and of peers that have shown no certificate yet.
//!
//! IPv6 clients are counted by /64, the block that one of them is given. [`super::Listeners::add`]
//! bounds the number of all connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use super::locked;
use crate::gateway::limits::concurrency::counted_as;

#[derive(Debug, Default)]
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
    /// Takes a place for a connection from `address`. `None` if it holds `most` places already.
    pub fn take(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Place> {
        let address = counted_as(address);
        let mut taken = locked(&self.taken);
        let count = taken.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = locked(&self.places.taken);
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// Most handshakes of an unknown address at a time.
const MOST_OF_ADDRESS: usize = 32;
/// Most known addresses. The one whose last handshake is oldest is forgotten first.
const MOST_KNOWN: usize = 1_024;

/// Connections to the peer listener without a certificate: places must stay for peers.
///
/// They hold at most half of all places, and one address at most [`MOST_OF_ADDRESS`]. After a
/// peer's handshake its address is known, and handshakes from there may take any place. An address
/// is no identity: a peer's rights depend on its certificate.
#[derive(Default)]
pub struct Strangers {
    places: Arc<Places>,
    /// Each connection that is counted has a copy.
    there: Arc<()>,
    known: Mutex<VecDeque<IpAddr>>,
}

/// A connection that may do its handshake, and counts if its address is unknown. Dropped once the
/// handshake succeeded or failed.
pub type Stranger = Option<(Place, Arc<()>)>;

impl Strangers {
    /// Lets a connection do its handshake, if strangers hold not too many of the `most` places.
    pub fn admit(&self, address: IpAddr, most: usize) -> Option<Stranger> {
        if locked(&self.known).contains(&address.to_canonical()) {
            return Some(None);
        }
        let stranger = (self.places.take(address, MOST_OF_ADDRESS)?, self.there.clone());
        // One copy more is `there` itself.
        (Arc::strong_count(&self.there) - 1 <= most.div_ceil(2)).then_some(Some(stranger))
    }

    pub fn shook(&self, address: IpAddr) {
        let address = address.to_canonical();
        let mut known = locked(&self.known);
        known.retain(|before| *before != address);
        known.truncate(MOST_KNOWN - 1);
        known.push_front(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_places_and_gets_them_back() {
        let places = Arc::<Places>::default();
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
        assert!(locked(&places.taken).is_empty());
    }

    #[test]
    fn strangers_have_half_of_the_places_and_one_address_few_of_them() {
        let strangers = Arc::<Strangers>::default();
        let from = |last: u8, most: usize| strangers.admit(IpAddr::from([192, 0, 2, last]), most);
        let one: Vec<_> = std::iter::from_fn(|| from(1, 1_000)).take(100).collect();
        assert_eq!(one.len(), MOST_OF_ADDRESS);
        let others: Vec<_> = (2..=9).map_while(|last| from(last, 72)).collect();
        assert_eq!(others.len(), 4, "with the others, half of them");
        strangers.shook(IpAddr::from([192, 0, 2, 1]));
        assert!(from(1, 72).is_some(), "it is known by now");
        drop((one, others));
        assert_eq!(Arc::strong_count(&strangers.there), 1);
        for number in 0..2 * MOST_KNOWN {
            strangers.shook(IpAddr::from([10, 0, (number / 256) as u8, (number % 256) as u8]));
        }
        assert_eq!(locked(&strangers.known).len(), MOST_KNOWN);
    }
}
