//! A region's store is destroyed with rows that never left it: routes under escrow lose nothing and
//! run nothing twice.
//!
//! `early.rs` has the reasons that deny a proof.

use super::trio::*;

fn hold(trio: &Trio) {
    for other in [b(), c()] {
        trio.world.cluster.hold(&a(), &other, true);
    }
}

#[test]
fn an_escrowed_claim_of_a_destroyed_store_never_reruns() {
    checked(Trio::start(1), async |trio| {
        let key = key_of(&a(), &b(), "destroyed");
        hold(&trio);
        assert_eq!(trio.send(&a(), "/strict", &key).await.status, 201);
        trio.lose(&a());
        trio.world.cluster.destroy(&a());
        trio.until("a is lost", TAKEOVER, async || trio.standing(&a(), &b()) == "lost").await;
        trio.refuses(&b(), "/strict", &key, &[409, 503], 100).await;
        assert_eq!(trio.send(&c(), "/strict", &key).await.status, 409);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// If absence proves that nothing was sent, the key does not wait for the window.
#[test]
fn a_key_whose_absence_is_proven_runs_before_the_window_ends() {
    checked(Trio::start(2), async |trio| {
        // A lag that makes the window long.
        for other in [b(), c()] {
            trio.world.cluster.set_delay(&a(), &other, ms(4_000));
        }
        sleep(ms(10_000)).await;
        let (proven, unknown) = (key_of(&a(), &b(), "proven"), key_of(&a(), &b(), "unknown"));
        trio.lose(&a());
        let lost = Instant::now();
        assert_eq!(trio.insist(&b(), "/strict", &proven, TAKEOVER).await.by, b().as_str());
        assert_eq!(trio.send(&b(), "/park", &unknown).await.said(), (503, "home-unavailable"));
        assert!(lost.elapsed() < ms(8_000));
        assert_eq!(trio.insist(&b(), "/park", &unknown, ms(20_000)).await.by, b().as_str());
    });
}
