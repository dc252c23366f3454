//! A region lives and is cut off: it stops by itself, its successors go on, and it comes home once
//! the links are mended.
//!
//! `losses.rs` has regions that die.

use super::trio::*;

#[test]
fn an_isolated_region_stops_before_its_successor_starts() {
    checked(Trio::start(1), async |trio| {
        let (early, fresh) = (key_of(&a(), &b(), "early"), key_of(&a(), &b(), "fresh"));
        trio.cut_off(&a(), true);
        assert_eq!(trio.send(&a(), "/park", &early).await.status, 201, "its lease still runs");
        sleep(LEASE).await;
        assert_eq!(trio.send(&a(), "/park", &fresh).await.said(), (503, "not-authoritative"));
        assert_eq!(trio.insist(&b(), "/park", &fresh, TAKEOVER).await.by, b().as_str());
        assert_eq!(trio.arrived(&a(), &fresh), 0);
        trio.cut_off(&a(), false);
        trio.comes_home(&a(), STABLE + ms(15_000)).await;
        let replay = trio.send(&c(), "/park", &early).await;
        assert_eq!((replay.status, replay.replayed), (201, true), "what it ran alone is known everywhere");
    });
}

/// The lease is the failure detector: a region that cannot write its own store does not renew.
#[test]
fn a_region_whose_store_stalls_is_taken_over() {
    checked(Trio::start(3), async |trio| {
        let key = key_of(&a(), &b(), "stalled");
        trio.store(&a(), StoreMode::Stall(ms(500)));
        // Its pings go on, and the age of its last heartbeat counts as lag: the window is longer
        // than after a death.
        assert_eq!(trio.insist(&c(), "/park", &key, TAKEOVER + ms(6_000)).await.by, b().as_str());
        assert_eq!(trio.effects(&key).len(), 1);
    });
}
