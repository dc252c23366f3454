//! Clean moves: drains and returns, changes that nobody agrees on, and moves that overtake a key
//! between its claim and its send. Nothing is lost, and no region is declared lost.

use super::trio::*;

/// New keys of every home and retries of older ones, sent during a move.
#[derive(Default)]
struct Load {
    keys: Vec<String>,
    answer: Vec<JoinHandle<ClientAnswer>>,
}

impl Load {
    async fn run(&mut self, trio: &Arc<Trio>, so_long: Duration) {
        let end = Instant::now() + so_long;
        while Instant::now() < end {
            let number = self.keys.len();
            let homes = regions();
            let home = &homes[number % 3];
            let next = homes.iter().find(|name| *name != home).unwrap();
            self.keys.push(key_of(home, next, &format!("load{number}")));
            for key in [self.keys[number].clone(), self.keys[number / 2].clone()] {
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

/// Drained for longer than a lease, and back: that takes two views, and no region is declared lost.
#[test]
fn a_region_is_drained_and_resumed_under_load() {
    on(Trio::start(1), async |trio| {
        let mut load = Load::default();
        load.run(&trio, ms(500)).await;
        trio.drain(&b(), &a(), true).await.unwrap();
        assert_eq!(trio.standing(&a(), &b()), "drained");
        load.run(&trio, LEASE * 3).await;
        trio.gateway(&c()).resume(&a(), "ann").await.unwrap();
        load.run(&trio, LEASE * 2).await;
        assert!(trio.is_home(&a()));
        assert_eq!(trio.gate(&a()).view.epoch(), 3);
        let truths = trio.world.cluster.truths();
        let mut views = truths.iter().flat_map(|store| &store.history.views);
        assert!(views.all(|view| view.lost().next().is_none()), "nobody was lost");
        load.end(&trio).await;
    });
}

/// The proposer dies when the loser has sealed. The loser ends the change, and runs its keys again.
#[test]
fn a_change_whose_proposer_died_is_ended_by_its_loser() {
    keyed(Trio::manual(3), async |trio, key| {
        let by = trio.node(&b());
        let gateway = by.gateway.clone();
        drop(tokio::spawn(async move { gateway.drain(&a(), false, "ann", "a test").await }));
        let sealed = async || trio.gate(&a()).pending.is_some_and(|pending| pending.seal.is_some());
        trio.until("a has sealed", ms(2_000), sealed).await;
        by.process.kill();
        trio.begin_process(&b());
        assert_eq!(trio.send(&a(), "/park", &key).await.said(), (503, "moving"));
        assert_eq!(trio.insist(&a(), "/park", &key, ms(12_000)).await.by, a().as_str());
        let view = trio.gate(&a()).view;
        assert!(view.epoch() > 1 && view.serves(&a()), "ended by a view that changes nothing");
        assert_eq!(view.ring().digest(), first_ring().digest());
        // The earlier report serves no later change: this one is asked for anew, and a seals anew.
        let seal = view.members()[&a()].mark;
        trio.drain(&b(), &a(), true).await.unwrap();
        let sealed = async || trio.gate(&b()).view.members()[&a()].mark > seal;
        trio.until("a sealed anew", ms(2_000), sealed).await;
        trio.replays_once(&b(), "/park", &key, ms(3_000)).await;
    });
}

/// a to b to c, while nothing of a arrives at c: b's mark alone says nothing of the keys that a ran
/// (docs/protocol.md#rule-28).
#[test]
pub fn marks_accumulate_over_two_moves() {
    keyed(Trio::start(4), async |trio, key| {
        trio.hold(&a(), &[c()], true);
        assert_eq!(trio.send(&a(), "/park", &key).await.by, a().as_str());
        trio.drain(&b(), &a(), true).await.unwrap();
        sleep(ms(500)).await;
        trio.drain(&b(), &b(), true).await.unwrap();
        for _ in 0..40 {
            // It may be among what has not arrived.
            assert_eq!(trio.send(&c(), "/park", &key).await.said(), (503, "moving"));
            let asked = trio.gateway(&c()).handle(question(&key, "sk")).await;
            assert_eq!(read_answer(asked).await.said(), (503, "moving"));
            trio.check();
            sleep(ms(100)).await;
        }
        trio.hold(&a(), &[c()], false);
        trio.replays_once(&c(), "/park", &key, ms(2_000)).await;
    });
}

/// Claims lodged with b go on with b's arcs: as records of b's own, before anything of the lost
/// region opens (docs/protocol.md#rule-39).
#[test]
pub fn lodged_claims_move_with_their_arcs() {
    keyed(Trio::start(5), async |trio, key| {
        trio.runs_unheard(&[b(), c()], "/strict-alone", &key).await;
        trio.lose_before(&a(), &b()).await;
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
    keyed(Trio::start(6), async |trio, key| {
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

/// Begins a key of `a` under escrow at `b`, and lets `c` drain `drained` meanwhile. Returns the
/// client's answer.
async fn overtaken(trio: &Arc<Trio>, key: &str, returns: bool) -> ClientAnswer {
    if returns {
        // Its keys come home: `a` and `b` lose those that they ran for `c`, and nothing else.
        trio.gateway(&b()).drain(&c(), false, "test", "test").await.unwrap();
        sleep(ms(1_000)).await;
    }
    trio.world.network.set_link(&a(), &b(), LinkMode::Up, ms(300));
    trio.world.network.set_link(&b(), &a(), LinkMode::Up, ms(300));
    // The target is asked before it adopts the move, and its reply is on the way back when all
    // others have adopted it. A loser waits a moment for moving keys, and not for this key if it
    // stays.
    let begun = trio.begun(&a(), "/strict", key, if returns { ms(250) } else { ms(20) }).await;
    assert_eq!(trio.arrived(&a(), key), 0, "it waits for its target");
    let moved = match returns {
        true => trio.gateway(&c()).resume(&c(), "test").await,
        false => trio.gateway(&c()).drain(&a(), false, "test", "test").await,
    };
    moved.unwrap();
    assert!(!begun.is_finished(), "the move must overtake it");
    begun.await.unwrap()
}

#[test]
fn the_new_owner_answers_a_key_moved_before_sending() {
    keyed(Trio::start(1), async |trio, key| {
        let answer = overtaken(&trio, &key, false).await;
        assert!(
            answer.status == 201 || [(503, "moving"), (409, "in-progress")].contains(&answer.said()),
            "{answer:?}"
        );
        assert_eq!(trio.insist(&c(), "/strict", &key, ms(40_000)).await.by, b().as_str());
        assert_eq!((trio.arrived(&a(), &key), trio.effects(&key).len()), (0, 1));
    });
}

#[test]
fn a_key_that_stays_while_others_move_runs() {
    keyed(Trio::start(2), async |trio, key| {
        let answer = overtaken(&trio, &key, true).await;
        assert_eq!((answer.status, answer.by.as_str()), (201, a().as_str()), "{answer:?}");
        assert_eq!((trio.arrived(&a(), &key), trio.effects(&key).len()), (1, 1));
    });
}

/// Other keys move, and every statement is slow. A claim meets the old gate, and so may the next
/// ones, because one move changes the gate several times.
#[test]
fn a_staying_key_runs_despite_gate_changes() {
    checked(Trio::start(3), async |trio| {
        trio.gateway(&b()).drain(&c(), false, "test", "test").await.unwrap();
        sleep(ms(2_000)).await;
        trio.world.cluster.set_latency(&a(), ms(250));
        // Each is asked for a twentieth of a second after the one before.
        let ask_later = |number: u64| {
            let (trio, key) = (trio.clone(), key_of(&a(), &b(), &format!("stays-{number}")));
            tokio::spawn(async move {
                sleep(ms(50 * number)).await;
                trio.send(&a(), "/park", &key).await
            })
        };
        let asking: Vec<_> = (0..80).map(ask_later).collect();
        trio.ask(async || trio.gateway(&b()).resume(&c(), "test").await).await.unwrap();
        for answer in asking {
            let answer = answer.await.unwrap();
            assert_eq!((answer.status, answer.by.as_str()), (201, a().as_str()), "{answer:?}");
        }
    });
}
