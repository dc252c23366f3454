//! Clean moves: drains and returns, changes that nobody agrees on. Nothing is lost, and no region
//! is declared lost.
//!
//! `losses.rs` has unplanned moves.

use super::trio::*;

/// New keys of every home and retries of older ones, sent during a move.
struct Load {
    keys: Vec<String>,
    answer: Vec<tokio::task::JoinHandle<ClientAnswer>>,
}

impl Load {
    fn new() -> Self {
        Self { keys: Vec::new(), answer: Vec::new() }
    }

    async fn run(&mut self, trio: &std::sync::Arc<Trio>, so_long: std::time::Duration) {
        let end = Instant::now() + so_long;
        while Instant::now() < end {
            let number = self.keys.len();
            let homes = regions();
            let home = &homes[number % 3];
            let next = homes.iter().find(|name| *name != home).unwrap();
            self.keys.push(key_of(home, next, &format!("load{number}")));
            let old = self.keys[number / 2].clone();
            for key in [self.keys[number].clone(), old] {
                self.answer.push(trio.begin(&homes[(number + 1) % 3], "/park", &key));
            }
            sleep(ms(40)).await;
            trio.check();
        }
    }

    /// Each was answered, or refused for a moment. In the end each key took effect once.
    async fn end(self, trio: &Trio) {
        for answer in self.answer {
            let answer = answer.await.unwrap();
            let refused = answer.said() == (503, "moving") || answer.said() == (409, "in-progress");
            assert!(answer.status == 201 || refused, "{answer:?}");
        }
        for key in &self.keys {
            trio.insist(&c(), "/park", key, ms(5_000)).await;
            assert_eq!(trio.effects(key).len(), 1, "{key}");
        }
        trio.check();
    }
}

fn nobody_was_lost(trio: &Trio) -> bool {
    let truths = trio.world.cluster.truths();
    truths.iter().flat_map(|store| &store.history.views).all(|view| view.lost().next().is_none())
}

/// Drained for longer than a lease, and back: that takes two views, and no region is declared lost.
#[test]
fn a_region_is_drained_and_resumed_under_load() {
    on(Trio::start(1), async |trio| {
        let mut load = Load::new();
        load.run(&trio, ms(500)).await;
        trio.drain(&b(), &a(), true).await.unwrap();
        assert_eq!(trio.standing(&a(), &b()), "drained");
        load.run(&trio, LEASE * 3).await;
        trio.gateway(&c()).resume(&a(), "ann").await.unwrap();
        load.run(&trio, LEASE * 2).await;
        assert!(trio.is_home(&a()));
        assert_eq!(trio.gate(&a()).view.epoch(), 3);
        assert!(nobody_was_lost(&trio));
        load.end(&trio).await;
    });
}

/// The proposer dies when the loser has sealed. The loser ends the change, and runs its keys again.
#[test]
fn a_change_whose_proposer_died_is_ended_by_its_loser() {
    checked(Trio::manual(3), async |trio| {
        let key = key_of(&a(), &b(), "reopened");
        let by = trio.node(&b());
        let gateway = by.gateway.clone();
        drop(tokio::spawn(async move { gateway.drain(&a(), false, "ann", "a test").await }));
        let sealed = async || trio.gate(&a()).pending.is_some_and(|pending| pending.seal.is_some());
        trio.until("a has sealed", ms(2_000), sealed).await;
        by.process.kill();
        trio.begin_process(&b());
        assert_eq!(trio.send(&a(), "/park", &key).await.said(), (503, "moving"));
        assert_eq!(trio.insist(&a(), "/park", &key, ms(12_000)).await.by, a().as_str());
        let view: std::sync::Arc<View> = trio.gate(&a()).view;
        assert!(view.epoch() > 1 && view.serves(&a()), "ended by a view that changes nothing");
        assert_eq!(view.ring().digest(), first_ring().digest());
        // The earlier report serves no later change: this one is asked for anew, and a seals anew.
        let seal = view.members()[&a()].mark;
        trio.drain(&b(), &a(), true).await.unwrap();
        let sealed = async || trio.gate(&b()).view.members()[&a()].mark > seal;
        trio.until("a sealed anew", ms(2_000), sealed).await;
        let replay = trio.insist(&b(), "/park", &key, ms(3_000)).await;
        assert!(replay.replayed);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// a to b to c, while nothing of a arrives at c: b's mark alone says nothing of the keys that a ran
/// (docs/protocol.md#rule-28).
#[test]
pub fn marks_accumulate_over_two_moves() {
    checked(Trio::start(4), async |trio| {
        let key = key_of(&a(), &b(), "forgotten");
        trio.hold(&a(), &[c()], true);
        assert_eq!(trio.send(&a(), "/park", &key).await.by, a().as_str());
        trio.drain(&b(), &a(), true).await.unwrap();
        sleep(ms(500)).await;
        trio.drain(&b(), &b(), true).await.unwrap();
        for _ in 0..40 {
            assert_eq!(trio.send(&c(), "/park", &key).await.said(), (503, "moving"));
            assert_eq!(
                trio.asked(&c(), &key).await.said(),
                (503, "moving"),
                "it may be among what has not arrived"
            );
            trio.check();
            sleep(ms(100)).await;
        }
        trio.hold(&a(), &[c()], false);
        assert!(trio.insist(&c(), "/park", &key, ms(2_000)).await.replayed);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// Claims lodged with b go on with b's arcs: as records of b's own, before anything of the lost
/// region opens (docs/protocol.md#rule-39).
#[test]
pub fn lodged_claims_move_with_their_arcs() {
    checked(Trio::start(5), async |trio| {
        let key = key_of(&a(), &b(), "lodged");
        trio.hold(&a(), &[b(), c()], true);
        assert_eq!(trio.send(&a(), "/strict-alone", &key).await.status, 201);
        trio.lose(&a());
        trio.until_lost(&a(), &b()).await;
        trio.drain(&c(), &b(), true).await.unwrap();
        trio.refuses(&c(), "/strict-alone", &key, &[409, 503], 80).await;
        assert_eq!(trio.send(&c(), "/strict-alone", &key).await.status, 409);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// Sealed, and gone before its mark has spread: no region can be covered, so an operator declares
/// it lost and the window decides.
#[test]
fn a_sealed_region_that_is_gone_is_declared_lost_by_hand() {
    checked(Trio::start(6), async |trio| {
        let key = key_of(&a(), &b(), "sealed");
        trio.hold(&a(), &[b(), c()], true);
        trio.drain(&b(), &a(), true).await.unwrap();
        trio.lose(&a());
        // Not covered for ever.
        trio.refuses(&b(), "/park", &key, &[503], 60).await;
        trio.gateway(&b()).takeover(&a(), true, "ann", "a test").await.unwrap();
        assert_eq!(trio.insist(&b(), "/park", &key, TAKEOVER).await.by, b().as_str());
        assert!(trio.risk(&key).contains(&a()));
        trio.bring_back(&a());
        trio.world.cut(&a(), &b(), false, ONE_WAY);
        let sealed = async || !matches!(trio.standing(&a(), &b()), "lost");
        trio.until("a has sealed again", ms(20_000), sealed).await;
        assert_eq!(trio.effects(&key).len(), 1);
    });
}
