//! Two of three regions are gone: nobody runs anything until an operator says that they are stopped.

use std::collections::BTreeSet;

use tokio::time::sleep;

use super::trio::{LEASE, STABLE, Trio, a, b, c, key_of, ms, play};

#[test]
fn the_last_region_goes_on_once_an_operator_attests_that_the_others_are_stopped() {
    play(async {
        let trio = Trio::start(1).await;
        let (own, gained) = (key_of(&c(), &a(), "own"), key_of(&a(), &b(), "gained"));
        let stopped = BTreeSet::from([a(), b()]);
        let gateway = trio.node(&c()).gateway;
        let refused = gateway.break_glass(&stopped, "ann", "both are off").await.unwrap_err();
        assert_eq!(refused.code, "refused", "a majority answers: {refused}");
        trio.lose(&a());
        trio.lose(&b());
        sleep(LEASE).await;
        for _ in 0..60 {
            assert_eq!(trio.send(&c(), "/park", &own).await.status, 503);
            assert_eq!(trio.send(&c(), "/park", &gained).await.status, 503);
            sleep(ms(100)).await;
        }
        let wrong = gateway.break_glass(&BTreeSet::from([a()]), "ann", "one is off").await.unwrap_err();
        assert_eq!(wrong.code, "not-yet", "{wrong}");
        gateway.break_glass(&stopped, "ann", "both are off").await.unwrap();
        assert_eq!(trio.insist(&c(), "/park", &own, LEASE).await.by, c().as_str());
        let told = trio.insist(&c(), "/park", &gained, ms(10_000)).await;
        assert_eq!(told.by, c().as_str());
        assert!(trio.risk(&gained).contains(&a()), "by the window alone");
        let noted = trio.world.cluster.notes(&c());
        assert!(noted.iter().any(|entry| entry.kind == "glass-broken"), "{noted:?}");
        trio.bring_back(&a());
        trio.bring_back(&b());
        trio.all_home(STABLE + ms(60_000)).await;
        for key in [&own, &gained] {
            assert!(trio.insist(&b(), "/park", key, ms(5_000)).await.replayed, "{key}");
            assert_eq!(trio.effects(key).len(), 1, "{key}");
        }
        trio.check();
    });
}
