//! A clean move is agreed on while a key is between its claim and its send: the request is not lost
//! to that.
//!
//! `pauses.rs` has the same gap under takeovers, where a refusal is the only way. Here a claim is
//! on its way to a distant target.

use super::trio::*;

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
    let begun = trio.begin(&a(), "/strict", key);
    // The target is asked before it adopts the move, and its reply is on the way back when all
    // others have adopted it. A loser waits a moment for moving keys, and not for this key if it
    // stays.
    sleep(if returns { ms(250) } else { ms(20) }).await;
    assert_eq!(trio.arrived(&a(), key), 0, "it waits for its target");
    let moved = match returns {
        true => trio.gateway(&c()).resume(&c(), "test").await,
        false => trio.gateway(&c()).drain(&a(), false, "test", "test").await,
    };
    moved.unwrap();
    assert!(!begun.is_finished(), "the move must overtake it");
    begun.await.unwrap()
}

/// The key itself moves: its new owner answers, or the answer says that it moves.
#[test]
fn the_new_owner_answers_a_key_moved_before_sending() {
    checked(Trio::start(1), async |trio| {
        let key = key_of(&a(), &b(), "moves");
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
    checked(Trio::start(2), async |trio| {
        let key = key_of(&a(), &b(), "stays");
        let answer = overtaken(&trio, &key, true).await;
        assert_eq!((answer.status, answer.by.as_str()), (201, a().as_str()), "{answer:?}");
        assert_eq!((trio.arrived(&a(), &key), trio.effects(&key).len()), (1, 1));
    });
}

/// Asks `a` for a key, each a twentieth of a second after the one before.
fn begin_later(trio: &Arc<Trio>, key: String) -> tokio::task::JoinHandle<ClientAnswer> {
    let number: u64 = key.split('-').nth(1).unwrap().parse().unwrap();
    let trio = trio.clone();
    tokio::spawn(async move {
        sleep(ms(50 * number)).await;
        trio.send(&a(), "/park", &key).await
    })
}

/// Other keys move, and every statement is slow. A claim meets the old gate, and so may the next
/// ones, because one move changes the gate several times.
#[test]
fn a_staying_key_runs_despite_gate_changes() {
    checked(Trio::start(3), async |trio| {
        trio.gateway(&b()).drain(&c(), false, "test", "test").await.unwrap();
        sleep(ms(2_000)).await;
        trio.world.cluster.set_latency(&a(), ms(250));
        let keys = (0..80).map(|number| key_of(&a(), &b(), &format!("stays-{number}")));
        let asking: Vec<_> = keys.map(|key| begin_later(&trio, key)).collect();
        let gateway = trio.gateway(&b());
        trio.ask(async || gateway.resume(&c(), "test").await).await.unwrap();
        for answer in asking {
            let answer = answer.await.unwrap();
            assert_eq!((answer.status, answer.by.as_str()), (201, a().as_str()), "{answer:?}");
        }
    });
}
