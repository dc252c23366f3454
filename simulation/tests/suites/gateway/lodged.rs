//! The checks between a claim and its send, escrow and lease, and doubts that other regions left.
//!
//! `claims.rs` has the window to send. After each refusal here nothing was sent, and the same key
//! runs once.

use super::accepted::asked;
use super::bench::*;

/// The region where the key's claims are lodged.
fn target(key: &str) -> RegionName {
    view().target(&id(key)).unwrap().clone()
}

#[test]
fn a_claim_that_cannot_be_lodged_is_not_sent() {
    for mode in [LinkMode::Refuse, LinkMode::LoseRequest, LinkMode::LoseReply, LinkMode::Silent] {
        served(Bench::under_escrow(1), async |bench, [eu, ..]| {
            let key = key_of(&eu, "lodged");
            bench.world.network.set_link(&eu, &target(&key), mode, ONE_WAY);
            assert_eq!(bench.send(&eu, "/park", &key).await.said(), (503, "escrow-unavailable"), "{mode:?}");
            assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (0, "released"), "{mode:?}");
            bench.world.network.set_link(&eu, &target(&key), LinkMode::Up, ONE_WAY);
            bench.all_serve().await;
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201, "{mode:?}");
            assert_eq!(bench.effects(&key).len(), 1, "{mode:?}");
        });
    }
}

#[test]
fn a_target_whose_store_fails_takes_nothing() {
    served(Bench::under_escrow(2), async |bench, [eu, ..]| {
        let key = key_of(&eu, "refused");
        bench.store(&target(&key), StoreMode::Refuse);
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), (503, "escrow-unavailable"));
        assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (0, "released"));
        // Other routes do not need it.
        let free = key_of(&eu, "free");
        assert_eq!(bench.send(&eu, "/rerun", &free).await.status, 201);
    });
}

/// Cut off from all others, a region cannot renew: it runs nothing more, and replays final answers.
#[test]
fn a_region_without_a_lease_replays_and_refuses() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        let (old, fresh) = (key_of(&eu, "old"), key_of(&eu, "fresh"));
        assert_eq!(bench.send(&eu, "/park", &old).await.status, 201);
        for other in regions().iter().filter(|other| **other != eu) {
            bench.world.cut(&eu, other, true, ONE_WAY);
        }
        sleep(ms(4_000)).await;
        assert_eq!(bench.send(&eu, "/park", &fresh).await.said(), (503, "not-authoritative"));
        // Others may run it by now: its absence here says nothing.
        assert_eq!(asked(&bench.gateway(&eu), &fresh).await.1["code"], "not-authoritative");
        assert_eq!(asked(&bench.gateway(&eu), &old).await.1["state"], "settled");
        let answer = bench.send(&eu, "/park", &old).await;
        assert_eq!((answer.status, answer.replayed, bench.arrived(&eu)), (201, true, 1));
    });
}
