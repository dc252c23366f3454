//! After a restart of the store nothing is sent until its boot was approved, and a store that went
//! back is refused.
//!
//! Peers decide by the heartbeats that they have applied or heard of.

use simulation::cluster::Copied;

use super::bench::*;

const REFUSED: (u16, &str) = (503, "store-unavailable");

fn reasons(bench: &Bench, at: &RegionName) -> String {
    bench.gateway(at).readiness().reasons.join("; ")
}

/// Checks over `span` that the region never serves, sends nothing, and gives this reason.
async fn stays_closed(bench: &Bench, at: &RegionName, span: Duration, why: &str) {
    sleep(ms(500)).await;
    let key = key_of(at, "closed");
    for _ in 0..(span.as_millis() / 100) {
        assert!(!bench.serves(at), "it must not serve");
        assert!(reasons(bench, at).contains(why), "{}", reasons(bench, at));
        assert_eq!(bench.send(at, "/probe", &key).await.said(), REFUSED);
        sleep(ms(100)).await;
    }
    assert_eq!(bench.arrived(at), 0);
}

#[test]
pub fn nothing_is_sent_after_a_restart_until_the_boot_is_approved() {
    keyed(Bench::start(1), async |bench, [eu, ..], key| {
        bench.world.cluster.restart(&eu);
        assert!(bench.serves(&eu), "the gateway cannot know yet");
        assert_eq!(bench.send(&eu, "/probe", &key).await.said(), REFUSED);
        assert!(!bench.serves(&eu), "it knows now");
        until("approval", ms(3_000), async || bench.serves(&eu)).await;
        assert_eq!(bench.arrived(&eu), 0);
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
    });
}

/// The restart is between an approval and the next heartbeat: earlier reports do not count.
#[test]
fn the_approval_waits_for_a_peer_and_comes_once_one_has_answered() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        bench.links(&eu, LinkMode::Refuse);
        bench.world.cluster.restart(&eu);
        // A request is the first to see the restart: it must not approve the boot.
        assert_eq!(bench.send(&eu, "/probe", &key_of(&eu, "first")).await.said(), REFUSED);
        stays_closed(&bench, &eu, ms(8_000), "waiting for a peer").await;
        bench.world.network.set_link(&eu, &region("us"), LinkMode::Up, ms(20));
        until("approval with one peer of two", ms(1_000), async || bench.serves(&eu)).await;
        assert_eq!(bench.send(&eu, "/probe", &key_of(&eu, "approved")).await.status, 201);
    });
}

/// A process that just started cannot know yet if a peer's newer view gives its keys away.
#[test]
fn no_key_runs_before_every_peer_was_asked_once() {
    served(Bench::start(13), async |bench, [eu, ..]| {
        bench.links(&eu, LinkMode::Silent);
        bench.replace(&eu);
        stays_closed(&bench, &eu, ms(1_000), "not every peer has been asked yet").await;
        // A lease needs one of them.
        bench.world.network.set_link(&eu, &region("us"), LinkMode::Up, ms(20));
        until("the pings to be given up", ms(10_000), async || bench.serves(&eu)).await;
        assert_eq!(bench.send(&eu, "/probe", &key_of(&eu, "asked")).await.status, 201);
    });
}

/// The peers of eu have seen its later writes, and the memory of its old process is gone. Or none
/// of its writes since the copy has arrived anywhere: the process itself remembers, or pings
/// reported that it wrote.
#[test]
fn a_rolled_back_store_is_recognized() {
    for (seed, held, new_process) in [(3, false, true), (4, true, false), (6, true, true)] {
        served(Bench::start(seed), async |bench, [eu, ..]| {
            if held {
                bench.hold_rows(&eu);
            }
            let copy = bench.world.cluster.copy(&eu);
            sleep(ms(2_000)).await;
            if new_process {
                bench.replace(&eu);
            }
            bench.world.cluster.restore(&eu, copy);
            stays_closed(&bench, &eu, ms(8_000), "went back").await;
        });
    }
}

/// Plays a key at eu whose row us has and ap has not. A standby of just before is promoted.
async fn lacks_a_key(bench: &Bench, path: &str, key: &str) {
    let (eu, ap) = (region("eu"), region("ap"));
    bench.world.cluster.hold(&eu, &ap, true);
    let standby = after_a_beat(bench, &eu).await;
    assert_eq!(bench.send(&eu, path, key).await.status, 201);
    assert_eq!(bench.world.cluster.copy(&eu).heartbeat(), standby.heartbeat(), "a later one was seen");
    bench.world.cluster.kill(&eu);
    sleep(ms(200)).await;
    bench.world.cluster.promote_to(&eu, standby);
    bench.store(&eu, StoreMode::Up);
}

/// A copy of a store as it is right after a heartbeat.
async fn after_a_beat(bench: &Bench, at: &RegionName) -> Copied {
    let before = bench.world.cluster.copy(at).heartbeat();
    until("a heartbeat", ms(5_000), async || bench.world.cluster.copy(at).heartbeat() != before).await;
    bench.world.cluster.copy(at)
}

async fn is_replayed_once_approved(bench: &Bench, key: &str) {
    let eu = region("eu");
    until("the approval", ms(10_000), async || bench.serves(&eu)).await;
    let again = bench.send(&eu, "/probe", key).await;
    assert_eq!((again.status, again.replayed, bench.arrived(&eu)), (201, true, 1));
}

/// us alone has the row of a key that the new primary of eu lacks.
#[test]
pub fn a_promoted_standby_fetches_its_rows_before_it_serves() {
    keyed(Bench::start(9), async |bench, _, key| {
        lacks_a_key(&bench, "/probe", &key).await;
        is_replayed_once_approved(&bench, &key).await;
    });
}

/// The claim is lodged at one peer, and its row is nowhere else.
#[test]
fn a_promoted_standby_recovers_its_lodged_claims() {
    keyed(Bench::under_escrow(9), async |bench, [eu, ..], key| {
        bench.hold_rows(&eu);
        // So that it is done before the next heartbeat.
        for other in ["us", "ap"] {
            bench.world.network.set_link(&eu, &region(other), LinkMode::Up, ms(1));
        }
        lacks_a_key(&bench, "/park", &key).await;
        until("the approval", ms(10_000), async || bench.serves(&eu)).await;
        let again = bench.send(&eu, "/park", &key).await;
        assert_eq!((again.said(), bench.arrived(&eu)), ((409, "in-progress"), 1), "it may run");
    });
}

/// The peer that has the row is not heard. Once it is, the key is replayed.
#[test]
fn a_promoted_standby_waits_for_a_peer_that_cannot_be_asked() {
    keyed(Bench::start(10), async |bench, [eu, us, _], key| {
        bench.world.network.set_letters(&eu, &us, Letter::Rows, Some(Post::Lost));
        lacks_a_key(&bench, "/probe", &key).await;
        sleep(ms(6_000)).await;
        for _ in 0..100 {
            assert_eq!(bench.send(&eu, "/probe", &key).await.said(), REFUSED);
            let why = reasons(&bench, &eu);
            assert!(why.contains("us must say what this store may lack"), "{why}");
            sleep(ms(100)).await;
        }
        bench.world.network.set_letters(&eu, &us, Letter::Rows, None);
        is_replayed_once_approved(&bench, &key).await;
    });
}

/// No peer has seen or heard of the claim that the copy lacks, so no peer can notice its loss.
/// docs/not-promised.md says this of so young a copy.
#[test]
fn a_copy_that_no_peer_recognizes_runs_keys_again() {
    keyed(Bench::start(8), async |bench, [eu, ..], key| {
        bench.hold_rows(&eu);
        bench.links(&eu, LinkMode::Refuse);
        let copy = bench.world.cluster.copy(&eu);
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
        bench.replace(&eu);
        bench.world.cluster.restore(&eu, copy);
        bench.links(&eu, LinkMode::Up);
        until("the approval", ms(10_000), async || bench.serves(&eu)).await;
        let again = bench.send(&eu, "/probe", &key).await;
        assert_eq!((again.status, again.replayed, bench.arrived(&eu)), (201, false, 2));
    });
}

/// Nor can a peer tell by heartbeats where the claim was lodged. But the key's next claim is
/// refused there: its target knows another attempt under that token.
#[test]
fn a_copy_whose_claim_is_refused_as_another_one_is_refused() {
    keyed(Bench::under_escrow(8), async |bench, [eu, ..], key| {
        bench.hold_rows(&eu);
        // The copy lacks no heartbeat.
        let copy = after_a_beat(&bench, &eu).await;
        bench.upstream(&eu, UpstreamMode::EffectThenDrop);
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), (504, "outcome-unknown"));
        bench.links(&eu, LinkMode::Refuse);
        bench.replace(&eu);
        bench.world.cluster.restore(&eu, copy);
        bench.links(&eu, LinkMode::Up);
        until("the approval", ms(10_000), async || bench.serves(&eu)).await;
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), (503, "escrow-unavailable"));
        for _ in 0..30 {
            sleep(ms(100)).await;
            assert!(reasons(&bench, &eu).contains("the store went back"), "{}", reasons(&bench, &eu));
            assert_eq!(bench.send(&eu, "/park", &key).await.said(), REFUSED);
        }
        assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, 1));
    });
}

/// us saw some of eu's writes since the copy; ap saw all, and answers later, for the same reason.
#[test]
fn a_refusal_stays_the_same_as_more_peers_answer() {
    served(Bench::start(7), async |bench, [eu, ..]| {
        let copy = bench.world.cluster.copy(&eu);
        sleep(ms(1_000)).await;
        bench.world.cluster.hold(&eu, &region("us"), true);
        bench.world.network.set_link(&region("us"), &eu, LinkMode::Silent, ms(20));
        sleep(ms(1_000)).await;
        bench.world.network.set_link(&eu, &region("ap"), LinkMode::Up, ms(300));
        bench.replace(&eu);
        bench.world.cluster.restore(&eu, copy);
        until("the refusal", ms(500), async || reasons(&bench, &eu).contains("went back")).await;
        let mut answer = bench.gateway(&eu).readiness().reasons;
        answer.retain(|why| why.contains("went back"));
        stays_closed(&bench, &eu, ms(4_000), &answer[0]).await;
    });
}

/// us answers first: its copy of eu is old, and its pings did not reach eu. ap has seen more, and
/// takes more than half a second.
#[test]
fn the_approval_waits_a_while_for_the_peers_that_have_not_answered() {
    served(Bench::start(5), async |bench, [eu, ..]| {
        bench.world.cluster.hold(&eu, &region("us"), true);
        bench.world.network.set_link(&region("us"), &eu, LinkMode::Silent, ms(20));
        let copy = bench.world.cluster.copy(&eu);
        sleep(ms(2_000)).await;
        bench.world.network.set_link(&eu, &region("ap"), LinkMode::Up, ms(300));
        bench.replace(&eu);
        bench.world.cluster.restore(&eu, copy);
        until("the refusal", ms(3_000), async || {
            assert!(!bench.serves(&eu), "approved before ap answered");
            reasons(&bench, &eu).contains("went back")
        })
        .await;
        stays_closed(&bench, &eu, ms(4_000), "went back").await;
    });
}
