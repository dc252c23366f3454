//! A loop beside requests that dies takes its gateway along: nothing is sent from then on.
//!
//! A simulated statement panics in the loop that sent it.

use super::bench::*;

#[test]
fn a_loop_that_dies_takes_its_gateway_along() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        for (point, name) in [(Point::Reap, "reaper"), (Point::Remember, "poll"), (Point::Take, "jobs")] {
            let Node { gateway, process, .. } = bench.launch(settings(&eu), view().ring());
            until("it serves", ms(20_000), async || gateway.readiness().serves).await;
            assert_eq!(gateway.dead_loop(), None);

            process.panics_at(&[point]);
            until("its death", ms(60_000), async || gateway.dead_loop() == Some(name)).await;
            assert_eq!(gateway.loop_died().await, name);
            assert!(!gateway.readiness().serves);
            assert!(!gateway.authority_status().lease.held, "its lease is given up");
            let refused = ask(&gateway, "/probe", &key_of(&eu, name), "{}").await;
            assert_eq!((refused.status, bench.arrived(&eu)), (503, 0), "{refused:?}");
            process.kill();
        }
    });
}

/// Loops end with the gateway that stops: that is no death.
#[test]
fn a_loop_that_ends_as_its_gateway_stops_did_not_die() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        let gateway = bench.gateway(&eu);
        assert_eq!(gateway.stop(ms(100)).await, 0);
        sleep(SWEEP * 5).await;
        assert_eq!((gateway.dead_loop(), Arc::strong_count(&gateway) > 0), (None, true));
    });
}

/// A dropped gateway ends: no background task keeps it alive. A world of many processes relies on
/// this, as a replaced process must not beat on.
#[test]
fn a_dropped_gateway_ends_its_loops() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        for links in [LinkMode::Up, LinkMode::Refuse] {
            bench.links(&eu, links);
            let second = bench.process(settings(&eu));
            sleep(ms(3_000)).await;
            let weak = Arc::downgrade(&second);
            drop(second);
            until("the loops end", ms(1_000), async || weak.strong_count() == 0).await;
        }
    });
}
