//! Survivors' copies of a lost region differ: no region opens before it has the rows of all of them
//! (docs/protocol.md#rule-33).
//!
//! `copies.rs` has rows that are being copied.

use super::trio::*;

/// c has the row, b takes over (docs/protocol.md#rule-33).
#[test]
pub fn the_gainer_fetches_rows_from_another_survivor() {
    checked(Trio::start(1), async |trio| {
        let key = key_of(&a(), &b(), "fetched");
        trio.hold(&a(), &[b()], true);
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        sleep(ms(500)).await;
        trio.lose(&a());
        let answer = trio.insist(&b(), "/park", &key, TAKEOVER).await;
        assert!(answer.replayed, "{answer:?}");
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// The other survivor cannot be asked: no gained key opens until it answers, even after the window.
#[test]
fn nothing_opens_while_a_survivor_is_silent() {
    checked(Trio::start(2), async |trio| {
        let key = key_of(&a(), &b(), "silent");
        trio.hold(&a(), &[b()], true);
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        sleep(ms(500)).await;
        trio.lose(&a());
        trio.until_lost(&a(), &b()).await;
        trio.world.cut(&b(), &c(), true, ONE_WAY);
        trio.refuses(&b(), "/park", &key, &[503], 40).await;
        trio.world.cut(&b(), &c(), false, ONE_WAY);
        assert!(trio.insist(&b(), "/park", &key, ms(20_000)).await.replayed);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// Rows of the lost region arrive at c after its loss was agreed on, and c is drained. c's
/// heartbeat of them becomes the frontier, and b fetches the rows.
#[test]
pub fn a_losers_rows_raise_a_frontier() {
    checked(Trio::start(3), async |trio| {
        let key = key_of(&a(), &b(), "raised");
        trio.hold(&a(), &[b()], true);
        trio.world.cluster.set_delay(&a(), &c(), ms(4_600));
        sleep(ms(5_500)).await;
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        // Gone, but its commits are still under way to c.
        trio.node(&a()).process.kill();
        trio.store(&a(), StoreMode::Refuse);
        for other in [b(), c()] {
            trio.link(&a(), &other, LinkMode::Silent);
        }
        trio.until_lost(&a(), &b()).await;
        let frontier = trio.gate(&b()).view.members()[&a()].mark;
        sleep(ms(2_500)).await;
        trio.drain(&b(), &c(), true).await.unwrap();
        trio.until("c has gone", ms(2_000), async || !trio.gate(&b()).view.serves(&c())).await;
        let member = trio.gate(&b()).view.members()[&a()];
        assert!(matches!(member.standing, Standing::Lost { .. }));
        assert!(member.mark > frontier, "{} after {frontier}", member.mark);
        let answer = trio.insist(&b(), "/park", &key, TAKEOVER + ms(10_000)).await;
        assert!(answer.replayed, "{answer:?}");
        assert_eq!(trio.effects(&key).len(), 1);
    });
}
