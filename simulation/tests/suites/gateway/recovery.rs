//! Keys in doubt: the permitted effects of a probe, and the number of repeated attempts.
//!
//! `sweeps.rs` has doubts without a client.

use super::bench::*;

const STAYS: (u16, &str) = (409, "outcome-unknown");

/// A key whose first attempt broke without an answer, and the time of its claim.
async fn in_doubt(bench: &Bench, path: &str, mode: UpstreamMode) -> (RegionName, String, Instant) {
    let eu = region("eu");
    let key = key_of(&eu, "doubt");
    bench.upstream(&eu, mode);
    let begun = Instant::now();
    assert_eq!(bench.send(&eu, path, &key).await.said(), (504, "outcome-unknown"));
    assert_eq!(bench.state(&eu, &key).await, "in-doubt");
    bench.upstream(&eu, UpstreamMode::Receipt { after: ms(50) });
    (eu, key, begun)
}

#[test]
fn did_not_happen_counts_only_after_the_attempt_ended() {
    served(Bench::start(1), async |bench, _| {
        let (eu, key, begun) = in_doubt(&bench, "/probe", UpstreamMode::DropBeforeEffect).await;
        while begun.elapsed() < HOLD + SETTLE_TIME - ms(50) {
            assert_eq!(bench.send(&eu, "/probe", &key).await.said(), STAYS, "at {:?}", begun.elapsed());
            assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (1, "in-doubt"));
            sleep(ms(100)).await;
        }
        sleep(ms(200)).await;
        let retries: Vec<_> = (0..20).map(|_| bench.begin(&eu, "/probe", &key)).collect();
        let mut answer: Vec<ClientAnswer> = Vec::new();
        for retry in retries {
            answer.push(retry.await.unwrap());
        }
        assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (2, 1));
        let receipt = &bench.effects(&key)[0].body;
        assert!(answer.iter().all(|answer| answer.status == 201 && answer.body == *receipt), "{answer:?}");
        assert_eq!(answer.iter().filter(|answer| !answer.replayed).count(), 1, "one first answer");
        assert_eq!(bench.effects(&key)[0].token.attempt, 2);
    });
}

/// The process dies with its request: the claim runs out, and then it is in doubt like any other.
#[test]
fn an_abandoned_claim_is_recovered_after_its_hold() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        let key = key_of(&eu, "abandoned");
        bench.upstream(&eu, UpstreamMode::Hang);
        let begun = Instant::now();
        let lost = bench.begin(&eu, "/probe", &key);
        sleep(ms(100)).await;
        bench.store(&eu, simulation::cluster::StoreMode::Refuse);
        assert_eq!(lost.await.unwrap().status, 504);
        // The doubt is never stored: the store is away for as long as the write is retried.
        sleep(HOLD + ms(4_000) - begun.elapsed()).await;
        bench.store(&eu, simulation::cluster::StoreMode::Up);
        bench.all_serve().await;
        assert_eq!(bench.state(&eu, &key).await, "in-progress", "nobody saw that time pass");
        sleep(HOLD + SETTLE_TIME + LATE).await;
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(50) });
        let answer = bench.send(&eu, "/probe", &key).await;
        assert_eq!((answer.status, bench.effects(&key).len(), bench.arrived(&eu)), (201, 1, 2), "{answer:?}");
    });
}

#[test]
fn cannot_say_changes_nothing() {
    let odd = ProbeMode::Happened { status: 500, body: Default::default() };
    for probes in [ProbeMode::CannotSay, ProbeMode::Silent, odd] {
        served(Bench::start(4), async |bench, _| {
            let (eu, key, _) = in_doubt(&bench, "/probe", UpstreamMode::EffectThenDrop).await;
            bench.world.upstreams.set_probes(&eu, probes.clone());
            for pause in [ms(0), ms(1_000), HOLD * 3] {
                sleep(pause).await;
                assert_eq!(bench.send(&eu, "/probe", &key).await.said(), STAYS, "{probes:?}");
                assert_eq!((bench.state(&eu, &key).await, bench.arrived(&eu)), ("in-doubt", 1), "{probes:?}");
            }
            bench.world.upstreams.set_probes(&eu, ProbeMode::Ledger);
            assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
            assert_eq!(bench.effects(&key).len(), 1);
        });
    }
}

/// A proxy that gave up answers 504, and the service goes on. The status address's answer does not
/// count before hold and settle time are over.
#[test]
fn an_unclear_status_does_not_end_its_attempt() {
    served(Bench::start(5), async |bench, [eu, ..]| {
        let key = key_of(&eu, "answered");
        bench.upstream(&eu, UpstreamMode::FailThenEffect { status: 504, says_when: false, after: ms(1_000) });
        assert_eq!(bench.send(&eu, "/probe", &key).await.said(), (504, "outcome-unknown"));
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(5) });
        for _ in 0..3 {
            assert_eq!(bench.send(&eu, "/probe", &key).await.said(), STAYS);
            sleep(ms(200)).await;
        }
        sleep(ms(1_000)).await;
        let answer = bench.send(&eu, "/probe", &key).await;
        assert_eq!((answer.status, answer.replayed), (201, true));
        assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, 1));
    });
}

#[test]
fn an_attempt_without_effect_uses_up_no_rerun() {
    served(Bench::start(6), async |bench, [eu, ..]| {
        let key = key_of(&eu, "refused");
        for refused in 1..=4 {
            bench.upstream(&eu, UpstreamMode::Busy { retry_after: 1 });
            assert_eq!(bench.send(&eu, "/rerun", &key).await.status, 503);
            assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (refused, "released"));
        }
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        for _ in 0..2 {
            assert_eq!(bench.send(&eu, "/rerun", &key).await.said(), (504, "outcome-unknown"));
        }
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(5) });
        assert_eq!(bench.send(&eu, "/rerun", &key).await.status, 201);
        assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (7, 1));
    });
}

#[test]
fn rerun_runs_up_to_its_limit_and_then_parks() {
    served(Bench::start(6), async |bench, _| {
        let (eu, key, _) = in_doubt(&bench, "/rerun", UpstreamMode::DropBeforeEffect).await;
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        for attempt in [2, 3] {
            assert_eq!(bench.send(&eu, "/rerun", &key).await.said(), (504, "outcome-unknown"));
            assert_eq!(bench.arrived(&eu), attempt);
        }
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(5) });
        for _ in 0..3 {
            assert_eq!(bench.send(&eu, "/rerun", &key).await.said(), STAYS);
        }
        assert_eq!(bench.arrived(&eu), 3);
    });
}
