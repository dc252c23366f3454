//! A key that ran by the window alone: the journal knows it, and the lost region's own run is found
//! when its rows arrive.
//!
//! `doubts.rs` has keys that did not run again.

use super::trio::*;

/// The lost region ran it, and no survivor could know: both answers are in the journal once both
/// rows are in one place.
#[test]
fn the_lost_regions_row_reveals_a_double() {
    checked(Trio::start(1), async |trio| {
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
            let answer = trio.send(&at, "/park", &key).await;
            assert_eq!((answer.status, answer.replayed, &answer.body), (201, true, &second.body), "{at}");
        }
    });
}

/// b ran it at risk, and nothing happened; a's attempt is in doubt. b's row has the greater token,
/// which hides nothing (docs/protocol.md#rule-4).
#[test]
pub fn a_release_at_risk_does_not_hide_the_lost_regions_doubt() {
    checked(Trio::start(2), async |trio| {
        let key = key_of(&a(), &b(), "hidden");
        trio.hold(&a(), &[b(), c()], true);
        trio.upstream(&a(), UpstreamMode::Receipt { after: ms(2_500) });
        let begun = trio.begin(&a(), "/park", &key);
        sleep(ms(300)).await;
        trio.lose(&a());
        assert_eq!(begun.await.unwrap().status, 0, "its client was told nothing");
        let busy = UpstreamMode::Answer { after: ms(30), status: 429, body: Bytes::new(), effect: false };
        trio.upstream(&b(), busy);
        let released = async || {
            trio.send(&b(), "/park", &key).await;
            trio.arrived(&b(), &key) > 0
        };
        trio.until("b ran it, and nothing happened", TAKEOVER, released).await;
        trio.upstream(&a(), UpstreamMode::Receipt { after: ms(50) });
        trio.bring_back(&a());
        trio.all_home(ms(20_000)).await;
        sleep(HOLD).await;
        for at in [a(), b(), c()] {
            assert_eq!(trio.send(&at, "/park", &key).await.said(), (409, "outcome-unknown"), "{at}");
        }
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// a ran a key and handed it to c by a clean move. Both are lost, and their rows are nowhere. An
/// operator accepts that: the run that follows names a too, which does not own the key any more.
#[test]
fn an_accepted_risk_names_the_keys_earlier_owner() {
    play(async {
        let fleet = Trio::witnessed(40, vec![witness(), region("w-far")]).await;
        let key = key_of(&a(), &c(), "moved");
        fleet.hold(&a(), &[b()], true);
        assert_eq!(fleet.insist(&a(), "/park", &key, ms(5_000)).await.by, a().as_str());
        fleet.drain(&a(), &a(), false).await.unwrap();
        let owns = async || fleet.gate(&c()).view.owner(&id(&key)) == Some(&c());
        fleet.until("c owns the key", ms(20_000), owns).await;
        assert_eq!(fleet.insist(&c(), "/park", &key, ms(10_000)).await.by, a().as_str(), "c has the row");
        let gateway = fleet.gateway(&b());
        for region in [a(), c()] {
            fleet.lose(&region);
            let accept = async || gateway.takeover(&region, true, "ann", "both are gone").await;
            fleet.ask(async || accept().await.map(|report| report.epoch)).await.unwrap();
        }
        assert_eq!(fleet.insist(&b(), "/park", &key, TAKEOVER * 2).await.by, b().as_str());
        let risk: BTreeSet<RegionName> = fleet.risk(&key).into_iter().collect();
        assert_eq!((fleet.effects(&key).len(), risk), (2, [a(), c()].into()));
    });
}
