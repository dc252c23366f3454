//! Limits on requests at once, and on bytes of their bodies, enforced before they are read.
//!
//! A place is kept by a request's task and by its answer's body. Clients and peers have places of
//! their own, and the last eighth is for tenants that have little here. Nothing waits in a queue.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ::metrics::Gauge;
use http_body_util::BodyExt;

use crate::gateway::telemetry::metrics;
use crate::ports::Body;
use crate::protocol::key::Tenant;

/// One in so many places, and bytes, is kept for tenants that have fewer than that.
const KEPT: usize = 8;
/// Counters for tenants, without a lock or a growing table; two may share one.
const SHARES: usize = 1024;

/// Limits of one gateway: for its clients, and the same again for its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostAtOnce {
    /// Requests.
    pub requests: usize,
    /// Bytes of their bodies: as announced while they are read, or the route's limit.
    pub bodies: usize,
}

impl Default for MostAtOnce {
    fn default() -> Self {
        Self { requests: 4_000, bodies: 256 << 20 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Whose {
    Client,
    /// Another region, which forwarded it.
    Peer,
}

#[derive(Debug)]
pub(in crate::gateway) struct Concurrency([Arc<Count>; 2]);

impl Default for Concurrency {
    fn default() -> Self {
        Self([Count::of("clients"), Count::of("peers")])
    }
}

#[derive(Debug)]
struct Count {
    all: Share,
    shares: Box<[Share]>,
    /// Requests without a key, by the sender's address.
    addresses: Box<[AtomicUsize]>,
    /// Shows how many there are. Looked up once, as each request moves it twice.
    shown: Gauge,
}

/// Counts of all tenants, or of some.
#[derive(Debug, Default)]
struct Share {
    requests: AtomicUsize,
    bodies: AtomicUsize,
}

impl Count {
    fn of(whose: &'static str) -> Arc<Self> {
        Arc::new(Self {
            shown: metrics::at_once(whose),
            all: Share::default(),
            shares: (0..SHARES).map(|_| Share::default()).collect(),
            addresses: (0..SHARES).map(|_| AtomicUsize::default()).collect(),
        })
    }
}

/// Room that the listener gave a request's head: kept as long as the request's place.
#[derive(Clone, Debug)]
pub struct HeadRoom(pub Arc<dyn Any + Send + Sync>);

/// One request's place; free again when the last copy is dropped.
#[derive(Clone, Debug)]
pub struct Place(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    count: Arc<Count>,
    most: MostAtOnce,
    share: OnceLock<usize>,
    body: AtomicUsize,
    head: OnceLock<HeadRoom>,
    address: OnceLock<usize>,
}

impl Concurrency {
    /// Takes a place for one more request, unless the limit is reached.
    pub(in crate::gateway) fn place(&self, whose: Whose, most: MostAtOnce) -> Option<Place> {
        let count = self.of(whose).clone();
        let there = count.all.requests.fetch_add(1, Ordering::SeqCst);
        if there >= most.requests {
            count.all.requests.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        count.shown.increment(1.0);
        let (share, address, head, body) = Default::default();
        Some(Place(Arc::new(Taken { count, most, share, body, head, address })))
    }

    fn of(&self, whose: Whose) -> &Arc<Count> {
        &self.0[whose as usize]
    }
}

impl Place {
    /// Names the request's tenant, once known; requests without a key count as one tenant. `false`:
    /// the remaining places are for others.
    pub(in crate::gateway) fn is_of(&self, tenant: Option<&Tenant>) -> bool {
        let (count, number) = (&self.0.count, share_of(tenant));
        let own = &count.shares[number].requests;
        is_counted(own, &count.all.requests, self.0.most.requests, || self.0.share.set(number))
    }

    /// Notes that the request has no key, and its sender's address. `false`: as above.
    pub(in crate::gateway) fn has_no_key(&self, from: Option<IpAddr>) -> bool {
        let (count, most) = (&self.0.count, self.0.most.requests);
        let number = number_of(&from.map(counted_as));
        let (own, all) = (&count.addresses[number], &count.shares[share_of(None)].requests);
        self.is_of(None) && is_counted(own, all, most - most / KEPT, || self.0.address.set(number))
    }

    pub(in crate::gateway) fn keeps(&self, head: Option<&HeadRoom>) {
        if let Some(head) = head {
            // A request comes in once.
            let _first = self.0.head.set(head.clone());
        }
    }

    /// Makes room for the body instead of that before, always for less. `false`: too little.
    pub(in crate::gateway) fn has_room_for(&self, bytes: usize) -> bool {
        let (count, most) = (&self.0.count, self.0.most.bodies);
        let before = self.0.body.load(Ordering::SeqCst);
        let (kept, share) = (most / KEPT, self.0.share());
        let others = share.map_or(0, |share| share.bodies.fetch_add(bytes, Ordering::SeqCst) - before);
        // A tenant's only body may use all the room: otherwise a large body could never fit.
        let little = others == 0 || others + bytes <= kept;
        // One step, so that a failed try takes no room from others meanwhile.
        let room = count.all.bodies.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |there| {
            let after = there - before + bytes;
            let may = after <= most && (little || after <= most - kept);
            (bytes <= before || may).then_some(after)
        });
        let over = if room.is_ok() { self.0.body.swap(bytes, Ordering::SeqCst) } else { bytes };
        if let Some(share) = share {
            share.bodies.fetch_sub(over, Ordering::SeqCst);
        }
        room.is_ok()
    }

    /// Keeps the place until the last piece of the answer was handed on, or it was given up.
    pub(in crate::gateway) fn until_sent(self, body: Body) -> Body {
        // The closure owns the place, and lives as long as the body.
        let keeps = move |error| {
            let _place = &self;
            error
        };
        body.map_err(keeps).boxed_unsync()
    }
}

/// Counts one more of `own`, once. `false`: the remaining places are for those with less of `all`.
fn is_counted(
    own: &AtomicUsize,
    all: &AtomicUsize,
    most: usize,
    note: impl FnOnce() -> Result<(), usize>,
) -> bool {
    let there = own.fetch_add(1, Ordering::SeqCst);
    let kept = most / KEPT;
    let may = there < kept || all.load(Ordering::SeqCst) <= most - kept;
    if !may || note().is_err() {
        own.fetch_sub(1, Ordering::SeqCst);
    }
    may
}

impl Taken {
    fn share(&self) -> Option<&Share> {
        self.share.get().map(|number| &self.count.shares[*number])
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let body = self.body.load(Ordering::SeqCst);
        for share in [Some(&self.count.all), self.share()].into_iter().flatten() {
            share.bodies.fetch_sub(body, Ordering::SeqCst);
            share.requests.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(number) = self.address.get() {
            self.count.addresses[*number].fetch_sub(1, Ordering::SeqCst);
        }
        self.count.shown.decrement(1.0);
    }
}

fn share_of(tenant: Option<&Tenant>) -> usize {
    number_of(&tenant.map(Tenant::as_str))
}

fn number_of(counted: &impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    counted.hash(&mut hasher);
    (hasher.finish() % SHARES as u64) as usize
}

/// The address that a client is counted under; of IPv6 the /64, one client's usual allocation.
pub fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;
    use crate::ports::body::full;

    const FEW: MostAtOnce = MostAtOnce { requests: 2, bodies: 100 };

    /// True if everything that was taken was given back.
    fn is_free(crowd: &Concurrency) -> bool {
        crowd.0.iter().all(|count| {
            let shares = count.shares.iter().chain([&count.all]);
            let counts = shares.flat_map(|share| [&share.requests, &share.bodies]).chain(&count.addresses);
            counts.map(|count| count.load(Ordering::SeqCst)).all(|left| left == 0)
        })
    }

    #[test]
    fn clients_and_peers_have_separate_places() {
        let crowd = Concurrency::default();
        let first = crowd.place(Whose::Client, FEW).unwrap();
        let second = crowd.place(Whose::Client, FEW).unwrap();
        assert!(crowd.place(Whose::Client, FEW).is_none());
        let peers = crowd.place(Whose::Peer, FEW).unwrap();
        let sent = second.clone().until_sent(full("an answer"));
        drop(second);
        assert!(crowd.place(Whose::Client, FEW).is_none(), "the answer is still being sent");
        assert_eq!(sent.size_hint().exact(), Some(9));
        drop(sent);
        let third = crowd.place(Whose::Client, FEW).unwrap();
        drop((first, third, peers));
        assert!(is_free(&crowd));
    }

    #[test]
    fn bodies_share_the_room_and_return_it() {
        let crowd = Concurrency::default();
        let first = crowd.place(Whose::Client, FEW).unwrap();
        let second = crowd.place(Whose::Client, FEW).unwrap();
        assert!(first.has_room_for(90));
        assert!(!second.has_room_for(11), "it was told so before it was read");
        assert!(crowd.place(Whose::Peer, FEW).unwrap().has_room_for(100), "peers have room of their own");
        assert!(first.has_room_for(95), "its own room counts once");
        assert!(first.has_room_for(20), "less was sent than announced");
        assert!(second.has_room_for(80));
        assert!(!first.has_room_for(21));
        let raised = crowd.place(Whose::Client, MostAtOnce { requests: 3, bodies: 1_000 }).unwrap();
        assert!(raised.has_room_for(500), "it came after a reload");
        assert!(second.has_room_for(80) && second.has_room_for(79), "what there was room for, there is");
        assert!(!second.has_room_for(81));
        drop((first, second, raised));
        assert!(is_free(&crowd));
    }

    const SOME: MostAtOnce = MostAtOnce { requests: 16, bodies: 800 };

    /// A place of this tenant, or of requests without a key; `None` without room.
    fn place_of(crowd: &Concurrency, tenant: &str) -> Option<Place> {
        let place = crowd.place(Whose::Client, SOME)?;
        let tenant = Tenant::parse(tenant).ok();
        place.is_of(tenant.as_ref()).then_some(place)
    }

    #[test]
    fn the_last_places_are_for_tenants_that_have_few() {
        let crowd = Concurrency::default();
        let mut all: Vec<Place> = std::iter::from_fn(|| place_of(&crowd, "a")).take(20).collect();
        assert_eq!(all.len(), 14, "a tenant that is alone may have all but an eighth");
        assert!(place_of(&crowd, "").is_some(), "requests without a key, too");
        let mut second: Vec<Place> = std::iter::from_fn(|| place_of(&crowd, "b")).take(20).collect();
        assert_eq!(second.len(), 2);
        assert!(place_of(&crowd, "c").is_none(), "it is full");
        drop(all.pop());
        assert!(place_of(&crowd, "a").is_none() && place_of(&crowd, "b").is_none());
        let third = place_of(&crowd, "c").unwrap();
        drop((all, second.pop(), second, third));
        assert!(is_free(&crowd));
    }

    #[test]
    fn one_address_cannot_take_all_keyless_places() {
        let crowd = Concurrency::default();
        let from = |address: &str| {
            let place = crowd.place(Whose::Client, SOME)?;
            place.has_no_key(address.parse().ok()).then_some(place)
        };
        let mut one: Vec<Place> = std::iter::from_fn(|| from("192.0.2.1")).take(20).collect();
        assert_eq!(one.len(), 13, "all of the fourteen but an eighth");
        assert!(from("::ffff:192.0.2.1").is_none(), "it is the same address");
        let other = from("2001:db8::1").unwrap();
        assert!(from("2001:db8::2").is_none(), "their share is full");
        assert!(place_of(&crowd, "a").is_some(), "tenants have theirs");
        drop(one.pop());
        assert!(from("192.0.2.1").is_none(), "what is left is for others");
        let near = from("2001:db8:0:1::1").unwrap();
        drop((one, other, near));
        assert!(is_free(&crowd));
    }

    #[test]
    fn one_tenant_cannot_take_all_body_room() {
        let crowd = Concurrency::default();
        let [one, two, other] = ["a", "a", "b"].map(|tenant| place_of(&crowd, tenant).unwrap());
        assert!(one.has_room_for(700), "an eighth is left");
        assert!(!two.has_room_for(1));
        assert!(other.has_room_for(100));
        assert!(one.has_room_for(500), "less is always possible");
        assert!(!two.has_room_for(101) && two.has_room_for(100));
        drop((one, other));
        assert!(two.has_room_for(800), "it is all that the tenant has here");
        drop(two);
        assert!(is_free(&crowd));
    }
}
