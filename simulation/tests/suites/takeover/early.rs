//! Escrow: a destroyed store loses nothing, and absence may prove (docs/protocol.md#rule-38) that a
//! lost region never sent a key, which then runs before the window ends.
//!
//! `protocol::escrow` has each reason that denies the proof.

use super::trio::*;

/// Makes the window after a loss of a long: a key that runs before its end runs by proof.
pub async fn long_window(trio: &Trio) {
    for (delay, lasts) in [(6_000, 14_000), (40, 500)] {
        [b(), c()].iter().for_each(|other| trio.world.cluster.set_delay(&a(), other, ms(delay)));
        sleep(ms(lasts)).await;
    }
}

/// (iii) b was the target, and left. c is it now, and no heartbeat of a has arrived from that time.
/// An earlier lodging with b may be anything (docs/protocol.md#rule-38). b serves nothing any more,
/// and holds all that exists of the claim: c asks it.
#[test]
pub fn no_heartbeat_of_the_new_targets_time_denies_the_proof() {
    on(Trio::start(2), async |trio| {
        let key = key_of(&a(), &b(), "lodged");
        trio.runs_unheard(&[b(), c()], "/strict-alone", &key).await;
        trio.drain(&c(), &b(), true).await.unwrap();
        sleep(ms(1_000)).await;
        // b makes a record of it, which takes its time to c: longer than the window.
        trio.world.cluster.set_delay(&b(), &c(), ms(10_000));
        trio.lose_before(&a(), &c()).await;
        trio.never_reruns(&c(), "/strict-alone", &key, 150).await;
    });
}

/// The owner cannot reach the target at the moment of the claim: nothing was sent, and nothing
/// needs a proof later.
#[test]
fn the_successor_runs_an_unlodged_claim_at_once() {
    checked(Trio::start(5), async |trio| {
        let key = key_of(&a(), &c(), "unsent");
        long_window(&trio).await;
        trio.world.cut(&a(), &c(), true, ms(20));
        assert_eq!(trio.send(&a(), "/strict", &key).await.said(), (503, "escrow-unavailable"));
        trio.world.cut(&a(), &c(), false, ms(20));
        sleep(ms(500)).await;
        trio.lose(&a());
        assert_eq!(trio.insist(&c(), "/strict", &key, TAKEOVER).await.by, c().as_str());
        assert_eq!(trio.effects(&key).len(), 1);
        assert!(trio.risk(&key).is_empty());
    });
}

/// b tells c late that a is lost, while c still waits for b's views. c's gate follows, and the
/// hindrances of a's keys are not judged yet. A judgement under the view before does not show that
/// claims lodged here are records (docs/protocol.md#rule-38).
#[test]
fn a_judgement_under_an_older_view_proves_nothing() {
    checked(Trio::manual(6), async |trio| {
        let key = key_of(&a(), &c(), "judged");
        trio.runs_unheard(&[b(), c()], "/strict", &key).await;
        trio.lose(&a());
        sleep(ms(4_000)).await;
        trio.world.network.set_letters(&c(), &b(), Letter::Views, Some(Post::Lost));
        trio.world.network.set_letters(&b(), &c(), Letter::Adopt, Some(Post::Late(ms(300))));
        // A region that gets this question first looks at the claims that it holds.
        trio.world.network.set_letters(&b(), &c(), Letter::Frontier, Some(Post::Lost));
        let by = trio.gateway(&b());
        let taken = tokio::spawn(async move { by.takeover(&a(), false, "ann", "a test").await });
        trio.until_lost(&a(), &c()).await;
        let gateway = trio.gateway(&c());
        let mut asked = 0;
        while gateway.authority_status().opening.is_empty() {
            assert!(!trio.gate(&c()).is_open(), "c has looked, and nothing was missing");
            let answer = trio.send(&c(), "/strict", &key).await;
            assert!([409, 503].contains(&answer.status), "{answer:?}");
            asked += 1;
            sleep(ms(5)).await;
        }
        assert!(asked > 20, "c looked at once: the key was asked for {asked} times");
        taken.await.unwrap().unwrap();
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// b is drained and holds all that exists of a's claim. It learns late that a is lost, while it
/// still waits for c's views. So c asks how far b has come before b has looked at its lodged
/// claims. Even if the way from b breaks after its answer, the claim has come with that
/// (docs/protocol.md#rule-39).
#[test]
pub fn a_region_hands_on_lodged_claims_before_its_frontier() {
    keyed(Trio::start(8), async |trio, key| {
        trio.runs_unheard(&[b(), c()], "/strict-alone", &key).await;
        trio.drain(&c(), &b(), true).await.unwrap();
        sleep(ms(1_000)).await;
        trio.world.network.set_letters(&b(), &c(), Letter::Views, Some(Post::Lost));
        trio.world.network.set_letters(&c(), &b(), Letter::Adopt, Some(Post::Late(ms(300))));
        trio.lose_before(&a(), &b()).await;
        // c has asked, and b's writes before its answer have arrived. b itself looks later.
        sleep(ms(200)).await;
        trio.hold(&b(), &[c()], true);
        trio.never_reruns(&c(), "/strict-alone", &key, 150).await;
    });
}

/// A claim of a with an unknown outcome is here; its settlement may be on its way until the window
/// ends. The proof that nothing else was ever sent does not permit to run the key over it before,
/// even if its route runs doubts again.
#[test]
fn proven_absence_does_not_override_a_doubt() {
    checked(Trio::start(7), async |trio| {
        let key = key_of(&a(), &c(), "doubted");
        // A window that outlasts the hold of a's claim.
        trio.world.cluster.set_delay(&a(), &c(), ms(25_000));
        sleep(ms(52_000)).await;
        trio.world.cluster.set_delay(&a(), &c(), ms(40));
        sleep(ms(500)).await;
        trio.upstream(&a(), UpstreamMode::EffectThenFail { status: 500 });
        trio.send(&a(), "/strict-rerun", &key).await;
        sleep(ms(200)).await;
        trio.lose_before(&a(), &c()).await;
        let lost = Instant::now();
        let mut refused_after_its_hold = 0;
        while trio.gate(&c()).view.epoch() > 0 && !trio.gate(&c()).is_open() {
            let answer = trio.send(&c(), "/strict-rerun", &key).await;
            if trio.gate(&c()).is_open() {
                break;
            }
            assert!([409, 503].contains(&answer.status), "{answer:?}");
            assert_eq!(trio.effects(&key).len(), 1, "run again before the window ended: {answer:?}");
            refused_after_its_hold += u32::from(lost.elapsed() > HOLD);
            sleep(ms(250)).await;
        }
        assert!(refused_after_its_hold > 0, "the window ended with the hold: nothing was tried");
    });
}

#[test]
fn an_escrowed_claim_of_a_destroyed_store_never_reruns() {
    keyed(Trio::start(1), async |trio, key| {
        trio.runs_unheard(&[b(), c()], "/strict", &key).await;
        trio.lose_disk(&a());
        trio.until("a is lost", TAKEOVER, async || trio.standing(&a(), &b()) == "lost").await;
        trio.refuses(&b(), "/strict", &key, &[409, 503], 100).await;
        assert_eq!(trio.send(&c(), "/strict", &key).await.status, 409);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

#[test]
fn a_key_whose_absence_is_proven_runs_before_the_window_ends() {
    checked(Trio::start(2), async |trio| {
        // A lag that makes the window long.
        [b(), c()].iter().for_each(|other| trio.world.cluster.set_delay(&a(), other, ms(4_000)));
        sleep(ms(10_000)).await;
        let (proven, unknown) = (key_of(&a(), &b(), "proven"), key_of(&a(), &b(), "unknown"));
        trio.lose(&a());
        let lost = Instant::now();
        assert_eq!(trio.insist(&b(), "/strict", &proven, TAKEOVER).await.by, b().as_str());
        assert_eq!(trio.send(&b(), "/park", &unknown).await.said(), (503, "home-unavailable"));
        assert!(lost.elapsed() < ms(8_000));
        assert_eq!(trio.insist(&b(), "/park", &unknown, ms(20_000)).await.by, b().as_str());
    });
}
