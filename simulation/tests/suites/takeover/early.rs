//! A proof by escrow: where absence shows that a lost region never sent a key, the key runs before
//! the window ends; and each thing that denies it (docs/protocol.md#rule-38).

use simulation::upstream::UpstreamMode;
use tokio::time::{Instant, sleep};

use super::settings::HOLD;
use super::trio::{TAKEOVER, Trio, a, b, c, key_of, ms, play};

/// Makes the window after a loss of a long: what runs before its end runs by proof.
async fn long_window(trio: &Trio) {
    for other in [b(), c()] {
        trio.world.cluster.set_delay(&a(), &other, ms(6_000));
    }
    sleep(ms(14_000)).await;
    for other in [b(), c()] {
        trio.world.cluster.set_delay(&a(), &other, ms(40));
    }
    sleep(ms(500)).await;
}

/// Nothing is answered but refusals, so long.
async fn is_refused(trio: &Trio, path: &str, key: &str, so_long: std::time::Duration) {
    let end = Instant::now() + so_long;
    while Instant::now() < end {
        let told = trio.send(&c(), path, key).await;
        assert!([409, 503].contains(&told.status), "{told:?}");
        trio.check();
        sleep(ms(100)).await;
    }
}

/// c was the target, left and came back: the proof begins with its return, and with a heartbeat of a from then.
#[test]
fn a_new_target_proves_absence_once_a_heartbeat_of_its_time_has_come() {
    play(async {
        let trio = Trio::start(1).await;
        let (early, ran) = (key_of(&a(), &c(), "early"), key_of(&a(), &c(), "ran"));
        long_window(&trio).await;
        trio.drain(&b(), &c(), true).await.unwrap();
        // Until all go by it.
        sleep(ms(500)).await;
        assert_eq!(trio.send(&a(), "/strict", &ran).await.status, 201);
        trio.node(&b()).gateway.resume(&c(), "ann").await.unwrap();
        trio.all_home(ms(10_000)).await;
        trio.lose(&a());
        let told = trio.insist(&c(), "/strict", &early, TAKEOVER).await;
        assert_eq!((told.by.as_str(), told.replayed), (c().as_str(), false));
        assert!(trio.risk(&early).is_empty(), "proven, so at no risk");
        let replay = trio.send(&c(), "/strict", &ran).await;
        assert_eq!((replay.status, replay.replayed), (201, true));
        trio.check();
    });
}

/// (iii) b was the target, and left; c is it now, and nothing of a has come from that time: what a
/// lodged with b before may be anything (docs/protocol.md#rule-38). b serves nothing any more, and
/// holds all there is of the claim: it is asked.
#[test]
pub fn no_heartbeat_of_the_new_targets_time_denies_the_proof() {
    play(async {
        let trio = Trio::start(2).await;
        let key = key_of(&a(), &b(), "lodged");
        trio.hold(&a(), &[b(), c()], true);
        assert_eq!(trio.send(&a(), "/strict-alone", &key).await.status, 201);
        trio.drain(&c(), &b(), true).await.unwrap();
        sleep(ms(1_000)).await;
        // b makes a record of it, which takes its time to c: longer than the window.
        trio.world.cluster.set_delay(&b(), &c(), ms(10_000));
        trio.lose(&a());
        trio.until_lost(&a(), &c()).await;
        is_refused(&trio, "/strict-alone", &key, ms(15_000)).await;
        assert_eq!(trio.send(&c(), "/strict-alone", &key).await.said(), (409, "outcome-unknown"));
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// (ii) The route is not under escrow, or this region was not the target.
#[test]
fn another_route_or_another_target_denies_the_proof() {
    play(async {
        let trio = Trio::start(3).await;
        let (unlodged, elsewhere) = (key_of(&a(), &c(), "unlodged"), key_of(&a(), &b(), "elsewhere"));
        long_window(&trio).await;
        trio.lose(&a());
        trio.until_lost(&a(), &c()).await;
        // The key was b's to prove anything about, and b hands it on at once.
        trio.drain(&b(), &b(), true).await.unwrap();
        is_refused(&trio, "/park", &unlodged, ms(2_000)).await;
        is_refused(&trio, "/strict", &elsewhere, ms(2_000)).await;
        trio.check();
    });
}

/// (v) A claim that was lodged here, whatever became of it, is no absence.
#[test]
fn a_lodged_claim_denies_the_proof() {
    play(async {
        let trio = Trio::start(4).await;
        let key = key_of(&a(), &c(), "lodged");
        long_window(&trio).await;
        trio.hold(&a(), &[b(), c()], true);
        assert_eq!(trio.send(&a(), "/strict", &key).await.status, 201);
        trio.lose(&a());
        trio.until_lost(&a(), &c()).await;
        is_refused(&trio, "/strict", &key, ms(20_000)).await;
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// The owner cannot reach the target at the moment of the claim: nothing was sent, and nothing needs to be proven later.
#[test]
fn a_claim_that_could_not_be_lodged_is_run_by_the_successor_at_once() {
    play(async {
        let trio = Trio::start(5).await;
        let key = key_of(&a(), &c(), "unsent");
        long_window(&trio).await;
        trio.world.cut(&a(), &c(), true, ms(20));
        let told = trio.send(&a(), "/strict", &key).await;
        assert_eq!(told.said(), (503, "escrow-unavailable"));
        trio.world.cut(&a(), &c(), false, ms(20));
        sleep(ms(500)).await;
        trio.lose(&a());
        let told = trio.insist(&c(), "/strict", &key, TAKEOVER).await;
        assert_eq!(told.by, c().as_str());
        assert_eq!(trio.effects(&key).len(), 1);
        assert!(trio.risk(&key).is_empty());
        trio.check();
    });
}

/// A claim of a, whose outcome nobody knew, is here; its settlement may be on its way until the
/// window ends. That nothing else was ever sent is no leave to run the key over it before, though
/// its route runs doubts again.
#[test]
fn a_proof_of_absence_is_no_leave_to_run_over_a_doubt() {
    play(async {
        let trio = Trio::start(7).await;
        let key = key_of(&a(), &c(), "doubted");
        // A window that outlasts the hold of a's claim.
        trio.world.cluster.set_delay(&a(), &c(), ms(25_000));
        sleep(ms(52_000)).await;
        trio.world.cluster.set_delay(&a(), &c(), ms(40));
        sleep(ms(500)).await;
        trio.world.upstreams.set_mode(&a(), UpstreamMode::EffectThenFail { status: 500 });
        trio.send(&a(), "/strict-rerun", &key).await;
        sleep(ms(200)).await;
        trio.lose(&a());
        trio.until_lost(&a(), &c()).await;
        let lost = Instant::now();
        let mut refused_after_its_hold = 0;
        while trio.gate(&c()).view.epoch() > 0 && !trio.gate(&c()).is_open() {
            let told = trio.send(&c(), "/strict-rerun", &key).await;
            if trio.gate(&c()).is_open() {
                break;
            }
            assert!([409, 503].contains(&told.status), "{told:?}");
            assert_eq!(trio.effects(&key).len(), 1, "run again before the window ended: {told:?}");
            refused_after_its_hold += u32::from(lost.elapsed() > HOLD);
            sleep(ms(250)).await;
        }
        assert!(refused_after_its_hold > 0, "the window ended with the hold: nothing was tried");
        trio.check();
    });
}
