//! Two regions and a witness: each of the three may be lost, and the other two go on.

use super::trio::*;

fn keys(trio: &Trio, word: &str) -> (String, String) {
    let view = trio.gate(&a()).view;
    (key_under(&view, &a(), Some(&b()), word), key_under(&view, &b(), Some(&a()), word))
}

/// The one that serves is lost while the other waits to take its arcs back. The remaining one
/// declares that, and serves.
#[test]
fn a_returning_region_takes_over_from_the_last_one() {
    checked(Trio::duo(4), async |trio| {
        let (of_a, of_b) = keys(&trio, "last");
        trio.lose(&a());
        trio.world.network.set_link(&a(), &witness(), LinkMode::Silent, ONE_WAY);
        assert_eq!(trio.insist(&b(), "/park", &of_a, TAKEOVER).await.by, b().as_str());
        trio.world.network.set_link(&a(), &witness(), LinkMode::Up, ONE_WAY);
        trio.bring_back(&a());
        trio.until("a is back", TAKEOVER, async || trio.standing(&a(), &b()) == "sealed").await;
        // Its rows have arrived, and its arcs have not come home.
        trio.until("a knows", TAKEOVER, async || trio.standing(&a(), &a()) == "sealed").await;
        trio.lose(&b());
        trio.world.network.set_link(&b(), &witness(), LinkMode::Silent, ONE_WAY);
        for key in [&of_a, &of_b] {
            assert_eq!(trio.insist(&a(), "/park", key, ms(40_000)).await.status, 201);
        }
        assert_eq!((trio.effects(&of_a).len(), trio.effects(&of_b).len()), (1, 1));
        trio.world.network.set_link(&b(), &witness(), LinkMode::Up, ONE_WAY);
        trio.bring_back(&b());
        trio.all_home(ms(60_000)).await;
    });
}

/// Like the test before, but an operator had drained the other one. No region decides for the
/// operator, who says that the last one is gone and resumes it.
#[test]
fn an_operator_lets_a_drained_region_take_over() {
    checked(Trio::duo(5), async |trio| {
        let (_, of_b) = keys(&trio, "drained");
        trio.drain(&b(), &a(), false).await.unwrap();
        trio.lose(&b());
        trio.world.network.set_link(&b(), &witness(), LinkMode::Silent, ONE_WAY);
        // It stays out by itself.
        trio.refuses(&a(), "/park", &of_b, &[503], 100).await;
        let gateway = trio.gateway(&a());
        gateway.takeover(&b(), false, "test", "it is gone").await.unwrap();
        assert_eq!(trio.send(&a(), "/park", &of_b).await.said(), (503, "home-unavailable"));
        trio.ask(async || gateway.resume(&a(), "test").await).await.unwrap();
        assert_eq!(trio.insist(&a(), "/park", &of_b, ms(40_000)).await.by, a().as_str());
    });
}

/// The lost one cannot hear the one that serves, and the witness reports that it does serve. With a
/// seal, keys would wait for rows that cannot come.
#[test]
fn a_lost_region_without_contact_does_not_seal() {
    checked(Trio::duo(6), async |trio| {
        let (of_a, _) = keys(&trio, "unsealed");
        trio.cut_off(&a(), true);
        trio.world.network.set_link(&a(), &witness(), LinkMode::Silent, ONE_WAY);
        trio.until("a is lost", TAKEOVER, async || trio.standing(&a(), &b()) == "lost").await;
        // It sees the witness again, and not the other one.
        trio.world.network.set_link(&a(), &witness(), LinkMode::Up, ONE_WAY);
        trio.until("a knows", ms(30_000), async || trio.standing(&a(), &a()) == "lost").await;
        for _ in 0..100 {
            sleep(ms(100)).await;
            assert_eq!(trio.standing(&a(), &a()), "lost", "sealed behind a cut link");
        }
        assert_eq!(trio.insist(&b(), "/park", &of_a, TAKEOVER).await.by, b().as_str());
        trio.cut_off(&a(), false);
        trio.all_home(ms(40_000)).await;
    });
}

/// A new witness of another version could not vote for anything: it becomes no voter before it can.
#[test]
fn a_witness_of_another_version_becomes_no_voter() {
    checked(Trio::duo(7), async |trio| {
        let anew = trio.new_witness(&witness(), Versions::new(NEXT, NEXT).unwrap());
        let id = anew.acceptor().id;
        let votes = || trio.gate(&a()).view.voters()[&witness()] == id;
        for _ in 0..100 {
            sleep(ms(100)).await;
            assert!(!votes(), "a voter that cannot vote");
        }
        anew.starts_speaking(Versions::OURS);
        trio.until("it votes", ms(10_000), async || votes()).await;
    });
}

/// b is drained, so it renews nothing: it tells by itself which view it goes by. The new witness
/// does not believe a alone, and is silent for a lease after b told it, too.
#[test]
fn a_new_witness_waits_for_the_drained_region_too() {
    checked(Trio::duo(8), async |trio| {
        trio.drain(&a(), &b(), false).await.unwrap();
        trio.world.network.set_letters(&b(), &witness(), Letter::Adopt, Some(Post::Lost));
        let anew = trio.new_witness(&witness(), Versions::OURS);
        let votes = || trio.gate(&a()).view.voters()[&witness()] == anew.acceptor().id;
        trio.until("it is a voter", ms(10_000), async || votes()).await;
        sleep(LEASE * 4 + ms(10_000)).await;
        assert!(!anew.acceptor().admitted, "it believed one region");
        let answer = Instant::now();
        trio.world.network.set_letters(&b(), &witness(), Letter::Adopt, None);
        trio.until("it votes", ms(20_000), async || anew.acceptor().admitted).await;
        assert!(answer.elapsed() >= LEASE);
    });
}
