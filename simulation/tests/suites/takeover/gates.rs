//! Late acts: a claim or a lodging whose gate is closed or has moved on, and a process that wakes
//! when its region was taken over, or whose clock runs wrong within the allowance.
//! The statement itself compares the gate. A gateway that looked before and wrote later would write
//! under another gate. `takeover.rs` takes the comparison out.

use super::trio::*;

/// A claim waits in a's pool while a gives the key up and seals, and b starts the key. Then the
/// claim is executed. a, which has not heard that the change was agreed on, still holds its lease
/// (docs/protocol.md#rule-7).
#[test]
pub fn a_claim_that_comes_after_the_seal_is_refused() {
    keyed(Trio::start(1), async |trio, key| {
        trio.world.cluster.set_latency(&a(), ms(1_900));
        let begun = trio.begun(&a(), "/park", &key, ms(1)).await;
        trio.world.cluster.set_latency(&a(), ms(2));
        let by = trio.gateway(&b());
        let drained = tokio::spawn(async move { by.drain(&a(), true, "ann", "a test").await });
        let sealed = async || trio.gate(&a()).pending.is_some_and(|pending| pending.seal.is_some());
        while !sealed().await {
            sleep(ms(1)).await;
        }
        // Long enough for the report and the seal to arrive; the replies do not.
        sleep(ms(45)).await;
        trio.cut_off(&a(), true);
        drained.await.unwrap().unwrap();
        assert_eq!(trio.insist(&b(), "/park", &key, ms(500)).await.by, b().as_str());
        assert!(!begun.is_finished(), "the claim was not executed yet");
        let answer = begun.await.unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!((trio.arrived(&a(), &key), trio.effects(&key).len()), (0, 1));
    });
}

/// A lodging is on its way into b's store while b adopts the loss of its sender and proves that the
/// key was never sent. Then the lodging is executed. The sender's clock stands nearly still, so
/// only the refusal keeps it from sending (docs/protocol.md#rule-37).
#[test]
pub fn a_lodging_that_comes_after_the_loss_is_refused() {
    keyed(Trio::manual(2), async |trio, key| {
        trio.cut_off(&a(), true);
        trio.node(&a()).clock.drift(-950_000);
        sleep(ms(4_000)).await;
        // It first asks a, too, and waits a second for its answer.
        let by = trio.gateway(&c());
        let taken = tokio::spawn(async move { by.takeover(&a(), false, "ann", "a test").await });
        sleep(ms(950)).await;
        trio.world.network.set_link(&a(), &b(), LinkMode::Up, ONE_WAY);
        let begun = trio.begun(&a(), "/strict", &key, ms(15)).await;
        trio.world.cluster.set_latency(&b(), ms(940));
        sleep(ms(9)).await;
        trio.world.cluster.set_latency(&b(), ms(2));
        taken.await.unwrap().unwrap();
        let answer = trio.insist(&b(), "/strict", &key, ms(280)).await;
        assert_eq!((answer.by.as_str(), answer.replayed), (b().as_str(), false));
        assert!(trio.risk(&key).is_empty(), "absence was proven");
        let truths = trio.world.cluster.truths();
        let lodged = truths.iter().flat_map(|store| &store.history.lodged);
        assert!(lodged.into_iter().all(|lodged| lodged.origin.region != a()), "not executed yet");
        let answer = begun.await.unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!((trio.arrived(&a(), &key), trio.effects(&key).len()), (0, 1));
    });
}

/// c gains the keys of a, and checks each twentieth of a second if a's rows are here. They arrive,
/// c's Postgres crashes and forgets them, and c approves its new boot. All that happens while the
/// last statement of that check is on its way. The gate opens only as it was before the check
/// (docs/protocol.md#rule-26). The crash meets the check in at least one of these phases.
#[test]
fn a_gate_that_changed_since_its_check_stays_closed() {
    let met = (0..40).filter(|phase| {
        let mut late = 0;
        checked(Trio::start(3), async |trio| {
            trio.hold(&a(), &[c()], true);
            sleep(ms(500)).await;
            trio.drain(&b(), &a(), true).await.unwrap();
            let waits = async || !trio.gate(&c()).view.serves(&a()) && !trio.gate(&c()).is_open();
            trio.until("c waits for what a sealed", ms(3_000), waits).await;
            sleep(ms(200 + phase)).await;
            trio.hold(&a(), &[c()], false);
            sleep(ms(1)).await;
            // A statement that is sent to its store now is executed after the crash.
            trio.world.cluster.set_latency(&c(), ms(1_500));
            sleep(ms(2)).await;
            trio.hold(&a(), &[c()], true);
            trio.world.cluster.crash(&c());
            trio.world.cluster.set_latency(&c(), ms(2));
            sleep(ms(3_000)).await;
            late = trio.world.cluster.truths().iter().map(|store| store.history.opened_late).sum();
        });
        late > 0
    });
    assert!(met.count() > 0, "no gate was to be opened after the crash");
}

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
