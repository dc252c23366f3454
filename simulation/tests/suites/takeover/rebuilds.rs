//! A region's store is replaced by an empty one: it gets the others' rows of the old one before it
//! serves, and an outdated store serves nothing.

use super::trio::*;

async fn disk_is_lost(trio: &Trio) {
    trio.lose_disk(&a());
    trio.until("a is lost", TAKEOVER, async || trio.standing(&a(), &b()) == "lost").await;
}

async fn replaced(trio: &Trio) {
    disk_is_lost(trio).await;
    trio.gateway(&b()).rebuild(&a(), true, "test", "").await.unwrap();
    trio.begin_anew(&a());
    trio.until("a is home", ms(40_000), async || trio.serves(&a())).await;
}

/// True if b lets the store be retired, because the others have all of its rows.
async fn retires(trio: &Trio) -> bool {
    let done = trio.gateway(&b()).rebuild(&a(), false, "test", "").await;
    done.is_ok_and(|done| done.generation == 2)
}

/// A survivor's gateway saw the last rows before its Postgres crashed and forgot them: the drained
/// store may be the only one that has them.
#[test]
fn a_store_with_the_only_rows_is_not_retired() {
    on(Trio::start(12), async |trio| {
        let b_says = trio.gateway(&b());
        b_says.drain(&a(), false, "test", "").await.unwrap();
        sleep(ms(2_000)).await;
        let origin = trio.world.cluster.origin(&a());
        let pong_tells = async || trio.gateway(&c()).pong().await.applied[&origin];
        let heard = async || trio.gateway(&c()).pong().await.heard[&origin];
        let stored = async |at: RegionName| {
            let beats = trio.world.cluster.store(&at).heartbeats().await.unwrap();
            beats.iter().find(|beat| beat.origin == origin).map_or(0, |beat| beat.seq)
        };
        // For now the new boot of c is not approved, so c commits nothing of its own. Replication
        // to it goes on.
        let silent = |mode| [a(), b()].iter().for_each(|other| trio.link(&c(), other, mode));
        silent(LinkMode::Silent);
        trio.world.cluster.restart(&c());
        sleep(ms(1_000)).await;
        trio.node(&a()).process.kill();
        let last = stored(a()).await;
        trio.until("c has seen its last", TAKEOVER, async || pong_tells().await == last).await;
        trio.hold(&a(), &[c()], true);
        trio.world.cluster.crash(&c());
        assert!(stored(c()).await < last, "nothing is forgotten");
        silent(LinkMode::Up);
        trio.until("c is well again", TAKEOVER, async || trio.serves(&c())).await;
        sleep(ms(3_000)).await;
        assert_eq!(heard().await, stored(a()).await, "its process remembers that it was written");
        assert_eq!(pong_tells().await, stored(c()).await, "it tells what is there");
        refused(b_says.rebuild(&a(), false, "test", "").await, "not-yet", "region c-east has a-west#1 up to");
        trio.hold(&a(), &[c()], false);
        trio.until("it has arrived again", TAKEOVER, async || retires(&trio).await).await;
    });
}

#[test]
fn a_replaced_store_recovers_old_rows_before_it_serves() {
    checked(Trio::start(1), async |trio| {
        let [before, during, later] = ["before", "during", "later"].map(|word| key_of(&a(), &b(), word));
        assert_eq!(trio.send(&a(), "/park", &before).await.status, 201);
        sleep(ms(1_000)).await;
        disk_is_lost(&trio).await;
        assert_eq!(trio.insist(&b(), "/park", &during, TAKEOVER).await.by, b().as_str());
        let b_says = trio.gateway(&b());
        refused(b_says.rebuild(&a(), false, "test", "").await, "refused", "");
        let done = b_says.rebuild(&a(), true, "test", "").await.unwrap();
        assert_eq!((done.generation, done.again), (2, false));
        sleep(ms(1_000)).await;
        let again = b_says.rebuild(&a(), true, "test", "").await.unwrap();
        assert_eq!((again.generation, again.again), (2, true), "asked twice, done once");
        let accepted = b_says.takeover(&a(), true, "test", "").await.unwrap();
        assert_eq!((accepted.epoch, accepted.waived.len()), (2, 2), "the loss of the old store");
        assert_eq!(trio.standing(&a(), &b()), "sealed", "and nothing is done to the new one");
        trio.begin_anew(&a());
        trio.until("a is home", ms(40_000), async || trio.serves(&a())).await;
        assert_eq!(trio.insist(&a(), "/park", &later, TAKEOVER).await.by, a().as_str());
        for (key, by) in [(&before, a()), (&during, b()), (&later, a())] {
            let answer = trio.insist(&a(), "/park", key, TAKEOVER).await;
            assert_eq!((answer.status, answer.by.as_str()), (201, by.as_str()));
            assert_eq!(trio.effects(key).len(), 1);
        }
        // And on: the next loss goes by the new store.
        trio.lose(&b());
        for key in [&before, &during] {
            assert_eq!(trio.insist(&c(), "/park", key, TAKEOVER).await.status, 201);
        }
    });
}

/// a ran a key without escrow, and its disk is lost. Its second store runs keys of that route under
/// escrow, and is lost, too. Absence proves that this store never sent the key, and nothing of the
/// first.
#[test]
fn a_second_store_proves_nothing_about_the_first() {
    on(Trio::start(9), async |trio| {
        let (ran, fresh) = (key_of(&a(), &c(), "ran"), key_of(&b(), &c(), "fresh"));
        trio.hold(&a(), &[b(), c()], true);
        assert_eq!(trio.send(&a(), "/park", &ran).await.status, 201);
        disk_is_lost(&trio).await;
        trio.gateway(&b()).rebuild(&a(), true, "test", "").await.unwrap();
        trio.begin_anew(&a());
        trio.hold(&a(), &[b(), c()], false);
        trio.until("a is home", ms(40_000), async || trio.serves(&a())).await;
        let gateway = trio.gateway(&b());
        let agreed = async || {
            let view = trio.gate(&b()).view;
            gateway.apply(view.ring().clone(), ["park".into()].into(), view.epoch(), "test").await
        };
        trio.ask(agreed).await.unwrap();
        sleep(ms(2_000)).await;
        trio.lose(&a());
        let answer = trio.insist(&c(), "/park", &ran, TAKEOVER).await;
        assert_eq!((answer.by.as_str(), answer.replayed), (c().as_str(), false));
        assert!(trio.effects(&ran).len() == 2 && trio.risk(&ran).contains(&a()), "its row says so");
        // What no store of a ever owned is at no risk.
        assert_eq!(trio.insist(&c(), "/park", &fresh, TAKEOVER).await.status, 201);
        assert!(trio.risk(&fresh).is_empty());
    });
}

/// The rows lost with the old store may be of any key of its arcs: each key that runs says so,
/// until no key of that time is remembered.
#[test]
fn a_replaced_store_is_a_risk_until_keys_expire() {
    let life = ms(60_000);
    checked(Trio::start_remembering(6, life), async |trio| {
        let [new, newer, as_new] = ["new", "newer", "as-new"].map(|word| key_of(&a(), &b(), word));
        replaced(&trio).await;
        assert_eq!(trio.insist(&a(), "/park", &new, TAKEOVER).await.by, a().as_str());
        assert!(trio.risk(&new).contains(&a()));
        sleep(life + life).await;
        assert_eq!(trio.insist(&a(), "/park", &newer, TAKEOVER).await.by, a().as_str());
        assert!(trio.risk(&newer).contains(&a()), "a request may take its time before it is recorded");
        // Kept views are looked at once a minute.
        sleep(HOLD + ms(70_000)).await;
        assert_eq!(trio.insist(&a(), "/park", &as_new, TAKEOVER).await.by, a().as_str());
        assert!(trio.risk(&as_new).is_empty());
    });
}

/// A new store that was allowed to serve has run keys. The next one is another store, even if no
/// row of it ever arrived anywhere.
#[test]
fn a_replacement_that_served_unheard_is_not_made_twice() {
    keyed(Trio::start(9), async |trio, key| {
        disk_is_lost(&trio).await;
        let b_says = trio.gateway(&b());
        assert_eq!(b_says.rebuild(&a(), true, "test", "").await.unwrap().generation, 2);
        assert!(b_says.rebuild(&a(), true, "test", "").await.unwrap().again, "it is not there yet");
        trio.begin_anew(&a());
        trio.hold(&a(), &[b(), c()], true);
        trio.until("a is home", ms(40_000), async || trio.serves(&a())).await;
        assert_eq!(trio.insist(&a(), "/park", &key, TAKEOVER).await.by, a().as_str());
        disk_is_lost(&trio).await;
        let rebuilt = b_says.rebuild(&a(), true, "test", "").await.unwrap();
        assert_eq!((rebuilt.generation, rebuilt.again), (3, false));
    });
}

#[derive(Clone, Copy, Debug)]
enum By {
    /// The heartbeat arrived with the rows.
    Rows,
    /// The answer to a ping reported it, and the rows are late.
    Pings,
}

/// The same holds if any region has heard of it, in either way. Its heartbeats would begin again
/// below those that were seen. A region that saw them would take the next one for an old copy
/// (swarm, seed 46).
#[test]
fn a_replacement_heard_of_anywhere_is_not_made_twice() {
    for (seed, who, by) in
        [(10, b(), By::Rows), (11, c(), By::Rows), (12, b(), By::Pings), (13, c(), By::Pings)]
    {
        checked(Trio::start(seed), async |trio| is_not_made_twice(&trio, who, by).await);
    }
}

async fn is_not_made_twice(trio: &Trio, who: RegionName, by: By) {
    disk_is_lost(trio).await;
    let b_says = trio.gateway(&b());
    assert_eq!(b_says.rebuild(&a(), true, "test", "").await.unwrap().generation, 2);
    trio.world.cluster.rebuild(&a(), 2);
    trio.cut_off(&a(), false);
    for region in [b(), c()] {
        let knows = region == who;
        trio.hold(&a(), std::slice::from_ref(&region), !(knows && matches!(by, By::Rows)));
        if !(knows && matches!(by, By::Pings)) {
            trio.world.network.set_link(&region, &a(), LinkMode::Silent, ms(0));
        }
    }
    trio.begin_process(&a());
    let heard = async || {
        let pong = trio.gateway(&who).pong().await;
        let known = match by {
            By::Rows => pong.applied,
            By::Pings => pong.heard,
        };
        known.iter().any(|(origin, seq)| origin.region == a() && origin.generation == 2 && *seq > 1)
    };
    trio.until("somebody hears of it", TAKEOVER, heard).await;
    sleep(ms(500)).await;
    assert!(!trio.serves(&a()), "it was never let serve");
    trio.lose_disk(&a());
    let answer = b_says.rebuild(&a(), true, "test", "").await;
    assert!(!answer.as_ref().is_ok_and(|done| done.again), "{who} by {by:?}: {answer:?}");
}

/// The age of a loss is by observed time: no clock that steps ends a risk
/// (docs/protocol.md#rule-11).
#[test]
fn a_clock_that_steps_ahead_ends_no_risk() {
    keyed(Trio::start_remembering(7, ms(60_000)), async |trio, key| {
        replaced(&trio).await;
        trio.world.cluster.step_clock(&a(), 3_600_000_000);
        sleep(ms(1_000)).await;
        // It reads the views anew.
        trio.node(&a()).process.kill();
        trio.begin_process(&a());
        trio.until("a serves again", TAKEOVER, async || trio.serves(&a())).await;
        assert_eq!(trio.insist(&a(), "/park", &key, TAKEOVER).await.by, a().as_str());
        assert!(trio.risk(&key).contains(&a()));
    });
}

/// Its own new store has no mark to wait for: arcs that came before the rows of all regions flow
/// would be open nowhere.
#[test]
fn a_replaced_store_takes_no_arcs_before_the_rows_of_all_flow() {
    keyed(Trio::start(4), async |trio, key| {
        disk_is_lost(&trio).await;
        trio.gateway(&b()).rebuild(&a(), true, "test", "").await.unwrap();
        trio.begin_anew(&a());
        trio.world.cluster.hold(&c(), &a(), true);
        trio.until("a knows its view", TAKEOVER, async || trio.standing(&a(), &a()) == "sealed").await;
        for _ in 0..100 {
            sleep(ms(100)).await;
            assert_eq!(trio.standing(&a(), &b()), "sealed", "rows of c do not arrive");
        }
        assert_eq!(trio.insist(&a(), "/park", &key, TAKEOVER).await.by, b().as_str());
        trio.world.cluster.hold(&c(), &a(), false);
        trio.until("a is home", ms(40_000), async || trio.serves(&a())).await;
    });
}

/// The arcs are asked for before the new store has ever followed a view: the first one that it
/// adopts already gives it keys.
#[test]
fn a_replaced_store_that_was_let_serve_beforehand_catches_up_first() {
    keyed(Trio::start(5), async |trio, key| {
        let b_says = trio.gateway(&b());
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        b_says.drain(&a(), false, "test", "").await.unwrap();
        refused(b_says.rebuild(&a(), false, "test", "").await, "not-yet", "");
        trio.node(&a()).process.kill();
        trio.until("the others have its rows", TAKEOVER, async || retires(&trio).await).await;
        trio.lose_disk(&a());
        trio.until("it is resumed", TAKEOVER, async || b_says.resume(&a(), "test").await.is_ok()).await;
        trio.begin_anew(&a());
        // Earlier rows would come only after everything else.
        trio.world.cluster.hold(&b(), &a(), true);
        for _ in 0..30 {
            let answer = trio.send(&a(), "/park", &key).await;
            assert!([201, 503].contains(&answer.status), "{answer:?}");
            assert_eq!(trio.effects(&key).len(), 1);
            trio.check();
            sleep(ms(100)).await;
        }
        trio.world.cluster.hold(&b(), &a(), false);
        trio.until("a is home", ms(60_000), async || trio.serves(&a())).await;
        let answer = trio.insist(&a(), "/park", &key, TAKEOVER).await;
        assert_eq!((answer.status, trio.effects(&key).len()), (201, 1));
    });
}

/// The old store is alive when it is replaced, with a gateway that never stopped.
#[test]
fn an_old_store_that_was_replaced_runs_nothing() {
    keyed(Trio::start(3), async |trio, key| {
        trio.cut_off(&a(), true);
        trio.until("a is lost", TAKEOVER, async || trio.standing(&a(), &b()) == "lost").await;
        trio.gateway(&b()).rebuild(&a(), true, "test", "").await.unwrap();
        trio.cut_off(&a(), false);
        trio.until("a knows", TAKEOVER, async || trio.standing(&a(), &a()) == "sealed").await;
        sleep(ms(10_000)).await;
        assert_eq!(trio.standing(&a(), &b()), "sealed", "the old store asks for no arcs");
        assert_eq!(trio.insist(&a(), "/park", &key, TAKEOVER).await.by, b().as_str());
    });
}
