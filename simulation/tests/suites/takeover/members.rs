//! Joining the ring and leaving it, with the reasons that an operator gets. Of two regions with a
//! witness each of the three may be lost, and the other two go on.

use super::trio::*;

async fn apply(trio: &Trio, weights: &[(RegionName, u32)]) -> Result<u64, ActError> {
    trio.apply(&a(), ring(weights)).await
}

#[test]
fn a_region_leaves_once_it_owns_nothing() {
    on(Trio::start(41), async |trio| {
        let without = [(a(), 100), (b(), 100)];
        refused(apply(&trio, &without).await, "refused", "`onceway region drain c-east` first");
        trio.drain(&a(), &c(), false).await.unwrap();
        apply(&trio, &without).await.unwrap();
        let votes =
            |name: &RegionName| trio.gateway(&a()).authority_status().voters.contains(&name.to_string());
        trio.until("c votes no more", ms(10_000), async || !votes(&c())).await;
        let listed = trio.gateway(&a()).authority_status().regions;
        assert!(listed.iter().any(|region| region.name == c().as_str() && !region.in_ring), "{listed:?}");
        refused(trio.gateway(&a()).resume(&c(), "test").await, "refused", "left the ring");
        // No region waits for it: it is gone. Another one's keys find their successor, with only
        // the two remaining votes.
        trio.lose(&c());
        trio.drain(&a(), &b(), false).await.unwrap();
        trio.until("a owns all", ms(5_000), async || {
            let regions = trio.gateway(&a()).authority_status();
            regions.opening.is_empty()
                && regions.regions.iter().any(|one| one.name == a().as_str() && one.share > 0.999)
        })
        .await;
    });
}

/// A region joins once it answers, every region knows it, and rows flow both ways.
#[test]
fn a_region_that_does_not_answer_cannot_join() {
    on(Trio::start(42), async |trio| {
        let stranger = RegionName::parse("d-far").unwrap();
        let answer = apply(&trio, &[(a(), 100), (b(), 100), (c(), 100), (stranger, 100)]).await;
        refused(answer, "not-yet", "its gateway does not answer a-west");
    });
}

/// A region that was put back to an older onceway could not serve: it may not join.
#[test]
fn a_region_of_an_older_version_cannot_join() {
    on(Trio::start(44), async |trio| {
        trio.drain(&a(), &c(), false).await.unwrap();
        apply(&trio, &[(a(), 100), (b(), 100)]).await.unwrap();
        let all = [(a(), 100), (b(), 100), (c(), 100)];
        let again = async |name: &RegionName, speaks: Versions| {
            trio.node(name).process.kill();
            trio.begin_speaking(name, speaks);
            sleep(ms(3_000)).await;
        };
        let upgraded = Versions::new(NEWEST, NEXT).unwrap();
        for name in regions() {
            again(&name, upgraded).await;
        }
        trio.ask(async || Ok(trio.gateway(&a()).raise_protocol("test").await?.epoch)).await.unwrap();
        again(&c(), Versions::OURS).await;
        let answer = apply(&trio, &all).await;
        refused(answer, "not-yet", "the regions go by protocol version 2 and it speaks 1-1");
        again(&c(), upgraded).await;
        apply(&trio, &all).await.unwrap();
    });
}

/// An edge owns nothing: it is not counted among those that go on serving.
#[test]
fn the_last_region_that_owns_keys_stays() {
    on(Trio::start(43), async |trio| {
        apply(&trio, &[(a(), 100), (b(), 0), (c(), 0)]).await.unwrap();
        refused(trio.drain(&b(), &a(), true).await, "refused", "the last region");
        trio.drain(&b(), &c(), false).await.unwrap();
        let answer = apply(&trio, &[(a(), 0), (b(), 0), (c(), 100)]).await;
        refused(answer, "refused", "no region that serves would own keys");
    });
}

/// A route comes under escrow with its meaning, so the gateway of the act needs the route.
#[test]
fn a_route_that_the_gateway_does_not_have_comes_under_no_escrow() {
    on(Trio::start(46), async |trio| {
        let gateway = trio.gateway(&a());
        let before = trio.gate(&a()).view;
        let unknown: BTreeSet<Arc<str>> = ["strict", "nowhere"].map(Arc::from).into();
        let answer =
            gateway.apply(ring(&[(a(), 1), (b(), 1), (c(), 2)]), unknown, before.epoch(), "test").await;
        refused(answer, "refused", "no route \"nowhere\"");
        assert_eq!(trio.gate(&a()).view, before, "nothing was changed");
        let agreed: BTreeSet<Arc<str>> = before.escrow().keys().cloned().collect();
        assert!(!before.escrow().is_empty());
        let plan = gateway.plan(before.ring(), &agreed).unwrap();
        assert_eq!((plan.escrow_added, plan.escrow_removed, plan.escrow_changed), (vec![], vec![], vec![]));
    });
}

/// All acceptors have the first view, and its founder dies before it told any region. Each gateway
/// finds it at its own acceptor: nobody has to found anything again.
#[test]
fn a_founding_that_nobody_was_told_of_is_found() {
    for names in [&regions()[..], &[a()]] {
        on(async { Trio::unfounded(1, names, failover(), LIFE) }, async |trio| {
            names.iter().for_each(|name| trio.begin_process(name));
            let unserved = async || trio.send(&a(), "/probe", "early").await.said() == (503, "not-founded");
            trio.until("a request to be told that nothing is founded", ms(5_000), unserved).await;
            let founder = trio.gateway(&a());
            let found = async || founder.found(BTreeSet::new(), None).await.map(|report| report.epoch);
            assert_eq!(trio.ask(found).await, Ok(1));
            names.iter().for_each(|name| trio.node(name).process.kill());
            names.iter().for_each(|name| trio.begin_process(name));
            let serve = async || names.iter().all(|name| trio.serves(name));
            trio.until("all regions serve", ms(20_000), serve).await;
        });
    }
}

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
