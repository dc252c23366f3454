//! A sick upstream drains its region and lets it come home; no region drains if no other one would
//! do better.

use super::trio::*;

/// Longer than checks must fail, and the move that follows.
const DRAINED: Duration = ms(4_000);

fn sealed(trio: &Trio, name: &RegionName) -> bool {
    regions().iter().all(|by| trio.standing(name, by) == "sealed")
}

fn serving(trio: &Trio, name: &RegionName) -> bool {
    regions().iter().all(|by| trio.standing(name, by) == "serving")
}

#[test]
fn a_sick_upstream_drains_its_region_and_lets_it_come_home() {
    checked(Trio::start(31), async |trio| {
        let (before, meanwhile) = (key_of(&a(), &b(), "before"), key_of(&a(), &b(), "meanwhile"));
        assert_eq!(trio.insist(&c(), "/park", &before, ms(1_000)).await.by, a().as_str());
        trio.world.upstreams.set_sick(&a(), true);
        trio.until("a is out", DRAINED, async || sealed(&trio, &a())).await;
        let status = trio.gateway(&a()).upstream_status().unwrap();
        assert!(status.sick && status.keeps_out, "{status:?}");
        let seen = trio.gateway(&b()).authority_status().regions;
        assert!(
            seen.iter().all(|region| region.upstream_failing == (region.name == a().as_str())),
            "{seen:?}"
        );
        assert_eq!(trio.insist(&a(), "/park", &meanwhile, ms(1_000)).await.by, b().as_str());
        assert!(trio.insist(&b(), "/park", &before, ms(1_000)).await.replayed);
        // It stays out as long as its upstream fails, longer than a region must be well.
        sleep(STABLE * 4).await;
        assert!(sealed(&trio, &a()), "it came home sick");
        trio.world.upstreams.set_sick(&a(), false);
        sleep(STABLE / 2).await;
        assert!(sealed(&trio, &a()), "it came home before it was well for long enough");
        trio.until("a is home", STABLE + ms(3_000), async || serving(&trio, &a())).await;
        assert!(trio.insist(&a(), "/park", &meanwhile, ms(2_000)).await.replayed);
        assert_eq!((trio.effects(&before).len(), trio.effects(&meanwhile).len()), (1, 1));
    });
}

/// All are sick at once: no region drains. Two are, then the third: those that were out come home,
/// sick as they are.
#[test]
fn no_region_stays_drained_when_all_are_sick() {
    on(Trio::start(33), async |trio| {
        for name in regions() {
            trio.world.upstreams.set_sick(&name, true);
        }
        for _ in 0..10 {
            sleep(ms(1_000)).await;
            assert!(regions().iter().all(|name| serving(&trio, name)), "somebody drained");
        }
        for name in regions() {
            trio.world.upstreams.set_sick(&name, name != c());
        }
        let both = async || sealed(&trio, &a()) && sealed(&trio, &b());
        // One of the two comes second, and tries again after a while.
        trio.until("a and b are out", DRAINED * 5, both).await;
        trio.world.upstreams.set_sick(&c(), true);
        let home = async || serving(&trio, &a()) && serving(&trio, &b());
        trio.until("a and b are home", DRAINED + STABLE * 2 + ms(5_000), home).await;
        assert!(serving(&trio, &c()), "the last region was drained");
    });
}

#[test]
fn a_health_drain_respects_operators_and_minimum_regions() {
    on(Trio::start(34), async |trio| {
        trio.drain(&a(), &b(), false).await.unwrap();
        trio.drain(&a(), &c(), false).await.unwrap();
        trio.world.upstreams.set_sick(&a(), true);
        sleep(DRAINED * 3).await;
        assert!(serving(&trio, &a()), "the last region was drained");
        assert_eq!((trio.standing(&b(), &a()), trio.standing(&c(), &a())), ("drained", "drained"));
        // An operator can tell a region that is out for its health to stay out.
        trio.ask(async || trio.node(&a()).gateway.resume(&b(), "test").await).await.unwrap();
        trio.until("a is out", DRAINED * 2, async || sealed(&trio, &a())).await;
        trio.drain(&b(), &a(), false).await.unwrap();
        trio.world.upstreams.set_sick(&a(), false);
        sleep(STABLE * 4).await;
        assert_eq!(trio.standing(&a(), &b()), "drained");
    });
}
