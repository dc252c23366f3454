//! A region is gone, or cut off: its keys are refused until nothing of it can run any more. Then its
//! successors run them, and it comes home.

use super::trio::*;

#[test]
pub fn a_successor_runs_lost_keys_after_lease_and_window() {
    checked(Trio::start(1), async |trio| {
        let (known, fresh) = (key_of(&a(), &b(), "known"), key_of(&a(), &b(), "fresh"));
        assert_eq!(trio.send(&b(), "/park", &known).await.by, a().as_str());
        sleep(ms(500)).await;
        let lost = Instant::now();
        trio.lose(&a());
        let mut refused = 0;
        let first = loop {
            let replay = trio.send(&b(), "/park", &known).await;
            assert!(
                replay.replayed && replay.status == 201,
                "a settled copy replays at any time: {replay:?}"
            );
            let answer = trio.send(&b(), "/park", &fresh).await;
            if answer.status == 201 {
                break answer;
            }
            assert_eq!(answer.said(), (503, "home-unavailable"));
            assert!(answer.retry_after.is_some());
            refused += 1;
            assert!(lost.elapsed() < TAKEOVER, "{:?}", trio.standing(&a(), &b()));
            trio.check();
            sleep(ms(100)).await;
        };
        let took = lost.elapsed();
        assert!(took >= LEASE * 2 / 3 + FLOOR, "too early: {took:?}");
        assert!(refused > 5, "the window must be seen to run");
        assert_eq!((first.by.as_str(), first.replayed), (b().as_str(), false));
        let again = trio.send(&c(), "/park", &fresh).await;
        assert_eq!((again.status, again.replayed), (201, true));
        assert_eq!(trio.effects(&fresh).len(), 1);
        assert_eq!(trio.effects(&known).len(), 1);
        assert!(trio.risk(&fresh).contains(&a()), "it ran by the window alone");
    });
}

#[test]
fn a_key_running_at_the_loss_becomes_a_doubt() {
    keyed(Trio::start(2), async |trio, key| {
        trio.upstream(&a(), receipt(2_500));
        // Long enough for the claim to arrive at the others, not for the answer.
        let begun = trio.begun(&a(), "/park", &key, ms(300)).await;
        trio.lose(&a());
        assert_eq!(begun.await.unwrap().status, 0);
        trio.refuses(&b(), "/park", &key, &[409, 503, 504], 150).await;
        assert_eq!(trio.standing(&a(), &b()), "lost");
        assert_eq!(trio.send(&b(), "/park", &key).await.status, 409);
        assert_eq!(trio.effects(&key).len(), 1, "the lost region's");
        assert_eq!(trio.arrived(&b(), &key), 0);
    });
}

#[test]
fn nothing_runs_without_a_majority_after_one_lease() {
    checked(Trio::start(4), async |trio| {
        trio.lose(&a());
        trio.lose(&b());
        sleep(LEASE).await;
        let key = key_of(&c(), &a(), "alone");
        trio.refuses(&c(), "/park", &key, &[503], 100).await;
        assert_eq!(trio.arrived(&c(), &key), 0);
        trio.bring_back(&b());
        assert_eq!(trio.insist(&c(), "/park", &key, ms(10_000)).await.by, c().as_str());
    });
}

/// Both were lost before the last one was. So no remaining region serves or waits to: only they
/// themselves can bring them back (swarm, seed 13912).
#[test]
fn lost_regions_take_over_from_the_last_serving_one() {
    checked(Trio::start(5), async |trio| {
        let key = key_of(&c(), &a(), "later");
        // Their writes do not reach the last region any more. So they cannot come home, while their
        // acceptors answer.
        trio.hold(&a(), &[c()], true);
        trio.hold(&b(), &[c()], true);
        sleep(ms(3_000)).await;
        for lost in [a(), b()] {
            trio.lose(&lost);
            // A region that came back before grants nothing for the length of a lease.
            trio.until("it is lost", LEASE + TAKEOVER, async || trio.standing(&lost, &c()) == "lost").await;
            trio.store(&lost, StoreMode::Up);
            trio.world.cluster.restart(&lost);
            for other in regions().iter().filter(|other| **other != lost) {
                for (from, to) in [(&lost, other), (other, &lost)] {
                    trio.world.network.set_link(from, to, LinkMode::Up, ONE_WAY);
                    trio.hold(from, std::slice::from_ref(to), *to == c());
                }
            }
            trio.begin_process(&lost);
            trio.until("it answers", TAKEOVER, async || trio.standing(&lost, &lost) == "lost").await;
        }
        let before = trio.send(&c(), "/park", &key_of(&c(), &a(), "before")).await;
        assert_eq!((before.status, before.by.as_str()), (201, c().as_str()));
        sleep(ms(1_000)).await;
        trio.lose_disk(&c());
        let taken = async || trio.standing(&c(), &a()) == "lost" && (trio.serves(&a()) || trio.serves(&b()));
        // They seal once the last one's lease is over, and declare it lost once no lease of that
        // view can run.
        trio.until("somebody serves", LEASE + STABLE + TAKEOVER + TAKEOVER, taken).await;
        assert_eq!(trio.insist(&a(), "/park", &key, STABLE + TAKEOVER).await.status, 201);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

#[test]
fn a_region_without_its_store_forwards_until_takeover() {
    checked(Trio::start(40), async |trio| {
        trio.store(&a(), StoreMode::Refuse);
        let (gateway, begun) = (trio.gateway(&a()), Instant::now());
        while begun.elapsed() < TAKEOVER + LEASE * 2 {
            let readiness = gateway.readiness();
            assert!(readiness.ready, "{:?} after {:?}", readiness.reasons, begun.elapsed());
            sleep(ms(100)).await;
        }
        assert_eq!((trio.standing(&a(), &b()), trio.standing(&a(), &a())), ("lost", "lost"));
    });
}

#[test]
fn without_takeover_a_region_without_store_refuses_clients() {
    checked(Trio::manual(41), async |trio| {
        trio.store(&a(), StoreMode::Refuse);
        let gateway = trio.gateway(&a());
        sleep(LEASE * 2 - ms(500)).await;
        assert!(gateway.readiness().ready, "{:?}", gateway.readiness().reasons);
        trio.until("its clients to be sent away", ms(2_000), async || !gateway.readiness().ready).await;
        assert_eq!(trio.standing(&a(), &b()), "serving");
        // Another process in its place, which has never seen the store.
        trio.node(&a()).process.kill();
        trio.begin_process(&a());
        let gateway = trio.gateway(&a());
        trio.until("its clients to be sent away again", LEASE * 4, async || !gateway.readiness().ready).await;
        trio.store(&a(), StoreMode::Up);
        trio.until("its clients to be let come", LEASE * 2, async || gateway.readiness().ready).await;
    });
}

/// With a witness four acceptors vote, and only b answers. The region cannot know that it was taken
/// over, because no majority shows it that view: one region's word is not enough.
#[test]
fn a_region_without_a_majority_sends_its_clients_away() {
    checked(Trio::witnessed(42, vec![witness()]), async |trio| {
        for other in [c(), witness()] {
            trio.link(&a(), &other, LinkMode::Silent);
        }
        let gateway = trio.gateway(&a());
        trio.until_lost(&a(), &b()).await;
        trio.until("its clients to be sent away", LEASE * 4, async || !gateway.readiness().ready).await;
        assert_eq!(trio.standing(&a(), &a()), "serving", "as far as it knows");
        trio.world.network.set_link(&a(), &c(), LinkMode::Up, ONE_WAY);
        trio.until("it knows", LEASE, async || trio.standing(&a(), &a()) == "lost").await;
        assert!(gateway.readiness().ready, "{:?}", gateway.readiness().reasons);
    });
}

#[test]
fn a_long_drained_region_stays_ready_while_returning() {
    checked(Trio::start(44), async |trio| {
        let gateway = trio.gateway(&a());
        trio.drain(&b(), &a(), false).await.unwrap();
        sleep(LEASE * 4).await;
        assert!(gateway.readiness().ready, "it forwards");
        trio.ask(async || gateway.resume(&a(), "test").await).await.unwrap();
        let begun = Instant::now();
        while !trio.is_home(&a()) || !trio.serves(&a()) {
            assert!(begun.elapsed() < ms(20_000), "a is not home");
            let readiness = gateway.readiness();
            assert!(readiness.ready, "{:?}", readiness.reasons);
            sleep(ms(2)).await;
        }
    });
}

/// a ran the key when it was lost, and its claim has arrived. Until c may start its gained keys,
/// a's settlement may be on its way: the attempt counts as running.
#[test]
fn a_lost_regions_claim_runs_on_until_everything_gained_may_start() {
    checked(Trio::start(9), async |trio| {
        let key = key_of(&a(), &c(), "running");
        super::early::long_window(&trio).await;
        trio.upstream(&a(), UpstreamMode::Hang);
        drop(trio.begin(&a(), "/park", &key));
        sleep(ms(500)).await;
        trio.lose_before(&a(), &c()).await;
        assert!(!trio.gate(&c()).is_open(), "its window is long");
        assert_eq!(trio.send(&c(), "/park", &key).await.said(), (409, "in-progress"));
        trio.until("everything gained may start", ms(30_000), async || trio.gate(&c()).is_open()).await;
        assert_eq!(trio.send(&c(), "/park", &key).await.said(), (409, "outcome-unknown"));
    });
}

#[test]
fn a_region_that_dies_while_returning_returns_again() {
    on(Trio::start(11), async |trio| {
        let mut ran = Vec::new();
        for standing in ["lost", "sealed", "serving"] {
            let key = key_of(&a(), &b(), standing);
            if standing != "lost" {
                trio.bring_back(&a());
                let seen = async || trio.standing(&a(), &b()) == standing;
                trio.until("its death comes in time", TAKEOVER + STABLE + ms(20_000), seen).await;
            }
            trio.lose(&a());
            // Where it is sealed its keys are elsewhere already.
            assert_eq!(trio.insist(&c(), "/park", &key, TAKEOVER).await.by, b().as_str());
            ran.push(key);
            trio.check();
        }
        trio.bring_back(&a());
        trio.all_home(TAKEOVER + STABLE + ms(20_000)).await;
        for key in &ran {
            assert_eq!(trio.effects(key).len(), 1, "{key}");
            let replay = trio.send(&a(), "/park", key).await;
            let said = (replay.status, replay.replayed, replay.by.as_str());
            assert_eq!(said, (201, true, b().as_str()), "{key}");
        }
        let later = key_of(&a(), &b(), "later");
        assert_eq!(trio.insist(&c(), "/park", &later, ms(3_000)).await.by, a().as_str());
        assert_eq!(trio.effects(&later).len(), 1);
        trio.finish();
    });
}

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
    keyed(Trio::start(3), async |trio, key| {
        trio.store(&a(), StoreMode::Stall(ms(500)));
        // Its pings go on, and the age of its last heartbeat counts as lag: the window is longer
        // than after a death.
        assert_eq!(trio.insist(&c(), "/park", &key, TAKEOVER + ms(6_000)).await.by, b().as_str());
        assert_eq!(trio.effects(&key).len(), 1);
    });
}
