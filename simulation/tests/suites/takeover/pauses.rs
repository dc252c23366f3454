//! A process sleeps in the middle of a step, and wakes when its region was taken over; or its clock
//! runs wrong within the allowance.

use super::trio::*;

/// A claims, sleeps before it sends, and wakes when b has run the key: it must not send
/// (docs/protocol.md#rule-9).
#[test]
pub fn a_region_that_wakes_after_its_takeover_sends_nothing() {
    keyed(Trio::start(1), async |trio, key| {
        trio.world.cluster.set_latency(&a(), ms(200));
        // The claim is durable by now, and its confirmation on its way.
        let begun = trio.begun(&a(), "/probe", &key, ms(150)).await;
        assert_eq!(trio.arrived(&a(), &key), 0, "not sent yet");
        let node = trio.node(&a());
        node.process.pause();
        trio.world.cluster.set_latency(&a(), ms(2));
        assert_eq!(trio.insist(&b(), "/probe", &key, TAKEOVER + ms(45_000)).await.by, b().as_str());
        node.process.resume();
        let answer = begun.await.unwrap();
        assert!(answer.status == 503 || answer.replayed, "{answer:?}");
        sleep(ms(5_000)).await;
        assert_eq!(trio.arrived(&a(), &key), 0, "sent after it woke");
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// The confirmation of a claim is very slow: its handler goes on when its region was taken over and
/// is home again. The lease is valid, the time to send is not over, and only the tenure has changed
/// (docs/protocol.md#rule-9).
#[test]
pub fn a_handler_that_slept_through_takeover_and_return_sends_nothing() {
    checked(Trio::start(2), async |trio| {
        // Off the beat: none of the process's own loops is at the store in the millisecond in which
        // that is slow.
        sleep(ms(13)).await;
        let key = key_of(&a(), &b(), "slept");
        let slow = ms(24_000);
        trio.world.cluster.set_latency(&a(), slow);
        let begun = trio.begun(&a(), "/park", &key, ms(1)).await;
        trio.world.cluster.set_latency(&a(), ms(2));
        // The claim is durable in a moment, and b must know nothing of it.
        sleep(slow / 2 - ms(100)).await;
        trio.cut_off(&a(), true);
        assert_eq!(trio.insist(&b(), "/park", &key, TAKEOVER).await.by, b().as_str());
        trio.cut_off(&a(), false);
        // A process waits for its own attempts before it brings its region home. Another one knows
        // nothing of them.
        let sleeper = trio.node(&a());
        trio.begin_process(&a());
        trio.comes_home(&a(), STABLE + ms(3_000)).await;
        let leased = async || sleeper.gateway.readiness().serves;
        trio.until("the sleeper's process has its lease again", ms(5_000), leased).await;
        assert!(!begun.is_finished(), "it must wake at home");
        let answer = begun.await.unwrap();
        assert_eq!(trio.arrived(&a(), &key), 0, "sent after it woke: {answer:?}");
        assert!(answer.status == 503 || answer.replayed, "{answer:?}");
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// Half a lease is no silence: nobody takes over, however often it happens.
#[test]
fn pauses_of_half_a_lease_cost_no_view() {
    checked(Trio::start(4), async |trio| {
        let before = trio.gate(&b()).view.epoch();
        let paused = trio.node(&a()).process;
        for number in 0..10 {
            paused.pause();
            sleep(LEASE / 2).await;
            paused.resume();
            let key = key_of(&a(), &b(), &format!("short{number}"));
            assert_eq!(trio.insist(&c(), "/park", &key, LEASE).await.by, a().as_str());
        }
        for by in regions() {
            assert_eq!((trio.gate(&by).view.epoch(), trio.standing(&a(), &by)), (before, "serving"), "{by}");
        }
    });
}

/// A holder's clock as slow, and the judges' as fast, as the allowance permits: the holder stops
/// before they take over.
#[test]
fn clocks_that_drift_within_the_allowance_run_nothing_twice() {
    checked(Trio::start(3), async |trio| {
        for (name, ppm) in regions().iter().zip([-900, 900, 900]) {
            trio.node(name).clock.drift(ppm);
        }
        let keys: Vec<String> = (0..40).map(|number| key_of(&a(), &b(), &format!("drift{number}"))).collect();
        trio.cut_off(&a(), true);
        for key in &keys {
            // At the old owner as long as it runs keys, and at the new one from the first moment
            // on.
            let old = trio.begin(&a(), "/park", key);
            let new = trio.begin(&b(), "/park", key);
            sleep(ms(150)).await;
            trio.check();
            drop((old, new));
        }
        sleep(ms(10_000)).await;
        assert_eq!(trio.standing(&a(), &b()), "lost");
    });
}
