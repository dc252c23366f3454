//! A key that ran by the window alone: the journal knows it, and the lost region's own run is found
//! when its rows arrive.
//!
//! `doubts.rs` has keys that did not run again. A test must not look into a gateway.

use bytes::Bytes;
use simulation::upstream::UpstreamMode;
use tokio::time::sleep;

use super::settings::HOLD;
use super::trio::{TAKEOVER, Trio, a, b, c, id, key_of, ms, play};

/// The lost region ran it, and no survivor could know: both answers are in the journal once both
/// rows are in one place (7).
#[test]
fn a_run_at_risk_becomes_a_double_when_the_lost_regions_row_arrives() {
    play(async {
        let trio = Trio::start(1).await;
        let key = key_of(&a(), &b(), "twice");
        trio.hold(&a(), &[b(), c()], true);
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        trio.lose(&a());
        let second = trio.insist(&b(), "/park", &key, TAKEOVER).await;
        assert_eq!((second.by.as_str(), second.replayed), (b().as_str(), false));
        assert!(trio.risk(&key).contains(&a()), "it says so in its claim");
        assert!(trio.journalled("double").is_empty(), "nobody can know yet");
        trio.bring_back(&a());
        trio.all_home(ms(20_000)).await;
        let noted = async || trio.journalled("double").contains(&id(&key));
        trio.until("the double is noted", ms(5_000), noted).await;
        let bodies: Vec<Bytes> = trio.effects(&key).into_iter().map(|effect| effect.body).collect();
        assert_eq!(bodies.len(), 2);
        // An answer that was replayed already stays.
        for at in [a(), b(), c()] {
            let told = trio.send(&at, "/park", &key).await;
            assert_eq!((told.status, told.replayed, &told.body), (201, true, &second.body), "{at}");
        }
        trio.check();
    });
}

/// b ran it at risk, and nothing happened; a's attempt is in doubt. b's row has the greater token,
/// which hides nothing (docs/protocol.md#rule-4).
#[test]
pub fn a_release_at_risk_does_not_hide_the_lost_regions_doubt() {
    play(async {
        let trio = Trio::start(2).await;
        let key = key_of(&a(), &b(), "hidden");
        trio.hold(&a(), &[b(), c()], true);
        trio.world.upstreams.set_mode(&a(), UpstreamMode::Receipt { after: ms(2_500) });
        let begun = trio.begin(&a(), "/park", &key);
        sleep(ms(300)).await;
        trio.lose(&a());
        assert_eq!(begun.await.unwrap().status, 0, "its client was told nothing");
        let busy = UpstreamMode::Answer { after: ms(30), status: 429, body: Bytes::new(), effect: false };
        trio.world.upstreams.set_mode(&b(), busy);
        let released = async || {
            trio.send(&b(), "/park", &key).await;
            trio.arrived(&b(), &key) > 0
        };
        trio.until("b ran it, and nothing happened", TAKEOVER, released).await;
        trio.world.upstreams.set_mode(&a(), UpstreamMode::Receipt { after: ms(50) });
        trio.bring_back(&a());
        trio.all_home(ms(20_000)).await;
        sleep(HOLD).await;
        for at in [a(), b(), c()] {
            assert_eq!(trio.send(&at, "/park", &key).await.said(), (409, "outcome-unknown"), "{at}");
        }
        assert_eq!(trio.effects(&key).len(), 1);
        trio.check();
    });
}

/// The arcs go on from one region to the next while the risk lasts: so does its note.
#[test]
fn the_next_gainer_knows_of_the_risk_too() {
    play(async {
        let trio = Trio::start(3).await;
        let key = key_of(&a(), &b(), "onward");
        trio.hold(&a(), &[b(), c()], true);
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        trio.lose(&a());
        trio.until_lost(&a(), &b()).await;
        trio.drain(&c(), &b(), true).await.unwrap();
        let told = trio.insist(&c(), "/park", &key, TAKEOVER).await;
        assert_eq!((told.by.as_str(), told.replayed), (c().as_str(), false));
        assert!(trio.risk(&key).contains(&a()));
        trio.check();
    });
}
