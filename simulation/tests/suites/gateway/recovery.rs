//! Keys in doubt: the permitted effects of a probe and the number of repeated attempts, with
//! clients that come back and without.

use super::bench::*;
use super::upkeep::{UNCLEAR, abandon};

const STAYS: (u16, &str) = (409, "outcome-unknown");

/// A key whose first attempt broke without an answer, and the time of its claim.
async fn in_doubt(bench: &Bench, path: &str, mode: UpstreamMode) -> (RegionName, String, Instant) {
    let eu = region("eu");
    let key = key_of(&eu, "doubt");
    bench.upstream(&eu, mode);
    let begun = Instant::now();
    assert_eq!(bench.send(&eu, path, &key).await.said(), (504, "outcome-unknown"));
    assert_eq!(bench.state(&eu, &key).await, "in-doubt");
    bench.upstream(&eu, receipt(50));
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
    keyed(Bench::start(2), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::Hang);
        let begun = Instant::now();
        let lost = bench.begun(&eu, "/probe", &key, ms(100)).await;
        bench.store(&eu, StoreMode::Refuse);
        assert_eq!(lost.await.unwrap().status, 504);
        // The doubt is never stored: the store is away for as long as the write is retried.
        sleep(HOLD + ms(4_000) - begun.elapsed()).await;
        bench.store(&eu, StoreMode::Up);
        bench.all_serve().await;
        assert_eq!(bench.state(&eu, &key).await, "in-progress", "nobody saw that time pass");
        sleep(HOLD + SETTLE_TIME + LATE).await;
        bench.upstream(&eu, receipt(50));
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
    keyed(Bench::start(5), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::FailThenEffect { status: 504, says_when: false, after: ms(1_000) });
        assert_eq!(bench.send(&eu, "/probe", &key).await.said(), (504, "outcome-unknown"));
        bench.upstream(&eu, receipt(5));
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

/// An attempt without effect uses up no rerun.
#[test]
fn rerun_runs_up_to_its_limit_and_then_parks() {
    keyed(Bench::start(6), async |bench, [eu, ..], key| {
        for refused in 1..=4 {
            bench.upstream(&eu, UpstreamMode::Busy { retry_after: 1 });
            assert_eq!(bench.send(&eu, "/rerun", &key).await.status, 503);
            assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (refused, "released"));
        }
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        for attempt in 5..=7 {
            assert_eq!(bench.send(&eu, "/rerun", &key).await.said(), (504, "outcome-unknown"));
            assert_eq!(bench.arrived(&eu), attempt);
        }
        bench.upstream(&eu, receipt(5));
        for _ in 0..3 {
            assert_eq!(bench.send(&eu, "/rerun", &key).await.said(), STAYS);
        }
        assert_eq!(bench.arrived(&eu), 7);
    });
}

/// A claim that nobody will ever end, as a killed process leaves it, unknown to its gateway.
async fn abandoned(bench: &Bench, route: &str, word: &str) -> (RegionName, String, Attempt) {
    let eu = region("eu");
    let key = key_of(&eu, word);
    let attempt = abandon(&bench.world.cluster.store(&eu), route, &key).await;
    (eu, key, attempt)
}

#[test]
fn a_sweep_settles_an_abandoned_claim_that_happened() {
    served(Bench::start(1), async |bench, _| {
        let begun = Instant::now();
        let (eu, key, _) = abandoned(&bench, "probe", "happened").await;
        bench.world.upstreams.set_probes(&eu, ProbeMode::Happened { status: 201, body: "made".into() });
        sleep(HOLD - ms(100)).await;
        assert_eq!(bench.state(&eu, &key).await, "in-progress", "not before its hold is over");
        bench.until_state(&eu, &key, "settled", ms(20_000)).await;
        assert!(begun.elapsed() < HOLD + SWEEP + ms(200), "{:?}", begun.elapsed());
        for at in ["eu", "us"] {
            sleep(ms(100)).await;
            let reply = bench.send(&region(at), "/probe", &key).await;
            assert_eq!((reply.status, reply.replayed, &reply.body[..]), (201, true, &b"made"[..]));
        }
        assert_eq!(bench.arrived(&eu), 0, "a sweep sends nothing but questions");
    });
}

#[test]
fn unclear_probes_are_repeated_ever_more_rarely() {
    served(Bench::start(3), async |bench, _| {
        let (eu, key, _) = abandoned(&bench, "probe", "cannot-say").await;
        bench.world.upstreams.set_probes(&eu, ProbeMode::CannotSay);
        sleep(HOLD * 6).await;
        assert_eq!(bench.state(&eu, &key).await, "in-doubt");
        let asked = bench.world.upstreams.questions(&eu);
        assert!((3..=8).contains(&asked), "asked {asked} times in {:?}", HOLD * 5);
        bench.world.upstreams.set_probes(&eu, ProbeMode::Happened { status: 200, body: Default::default() });
        bench.until_state(&eu, &key, "settled", Duration::from_secs(300)).await;
    });
}

#[test]
fn routes_that_do_not_probe_are_listed_and_nothing_runs() {
    for route in ["park", "rerun"] {
        served(Bench::start(4), async |bench, _| {
            let (eu, key, attempt) = abandoned(&bench, route, "listed").await;
            sleep(HOLD + SWEEP * 2).await;
            let listed = bench.world.cluster.store(&eu).doubts(None, 10).await.unwrap();
            assert_eq!(listed.len(), 1);
            assert_eq!((&listed[0].open.id, &*listed[0].open.route), (&id(&key), route));
            assert_eq!(listed[0].open.row.token, attempt.token);
            assert_eq!((bench.state(&eu, &key).await, bench.arrived(&eu)), ("in-doubt", 0));
            assert_eq!(bench.world.upstreams.questions(&eu), 0, "no question on such a route");
        });
    }
}

/// A request that stored its doubt itself: its client gives up after the first answer.
#[test]
fn a_doubt_that_a_request_stored_is_recovered_too() {
    keyed(Bench::start(5), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::EffectThenDrop);
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 504);
        bench.until_state(&eu, &key, "settled", SWEEP + ms(500)).await;
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
    });
}

/// The holder was only slow: it settles after its hold, before another ruling.
#[test]
fn a_late_settlement_beats_the_doubt() {
    served(Bench::start(6), async |bench, _| {
        let (eu, key, attempt) = abandoned(&bench, "park", "late").await;
        sleep(HOLD + SWEEP * 2).await;
        assert_eq!(bench.state(&eu, &key).await, "in-doubt");
        let store = bench.world.cluster.store(&eu);
        assert_eq!(store.settle(&attempt, &super::upkeep::answer()).await, Ok(Written::Done));
        sleep(SWEEP * 2).await;
        assert!(store.doubts(None, 10).await.unwrap().is_empty());
        assert_eq!(store.unlist().await, Ok(0), "the sweep takes it off the list");
    });
}

/// A clock that steps back by an hour changes nothing of the order in which claims are looked at.
#[test]
fn a_claim_after_a_step_back_is_found() {
    served(Bench::start(8), async |bench, _| {
        abandoned(&bench, "park", "before").await;
        sleep(HOLD + SWEEP * 2).await;
        let eu = region("eu");
        bench.world.cluster.step_clock(&eu, -3_600_000_000);
        sleep((HOLD + SETTLE_TIME) * 2).await;
        let (_, key, _) = abandoned(&bench, "park", "after").await;
        until("it to be listed", HOLD + SWEEP * 2, async || {
            let listed = bench.world.cluster.store(&eu).doubts(None, 10).await.unwrap();
            listed.iter().any(|listed| listed.open.id == id(&key))
        })
        .await;
    });
}

/// Between two looks of the sweep a client recovered the key. The running attempt is the client's,
/// and its own hold has only begun.
#[test]
fn an_attempt_that_took_over_is_not_put_in_doubt() {
    keyed(Bench::start(9), async |bench, [eu, ..], key| {
        // Its hold is longer than that of other routes, so the sweep knows of it before it is over.
        let longer = HOLD + SWEEP * 3;
        super::upkeep::abandon_for(&bench.world.cluster.store(&eu), "rerun", &key, longer).await;
        bench.upstream(&eu, receipt(2_800));
        sleep(longer + LATE).await;
        let second = bench.begin(&eu, "/rerun", &key);
        let begun = Instant::now();
        sleep(ms(100)).await;
        while begun.elapsed() < ms(2_700) {
            assert_eq!(bench.state(&eu, &key).await, "in-progress", "after {:?}", begun.elapsed());
            sleep(ms(50)).await;
        }
        assert_eq!(second.await.unwrap().status, 201);
        assert_eq!(bench.arrived(&eu), 1);
    });
}

/// A key that another region owns is that region's to recover, no matter which region made the
/// attempt. That region does not see it here.
#[test]
fn a_key_of_another_owner_is_not_recovered_here() {
    served(Bench::start(10), async |bench, [eu, us, _]| {
        bench.world.cluster.hold(&eu, &us, true);
        let key = key_of(&us, "not-ours");
        abandon(&bench.world.cluster.store(&eu), "probe", &key).await;
        bench.world.upstreams.set_probes(&eu, ProbeMode::DidNotHappen);
        sleep((HOLD + SETTLE_TIME) * 2).await;
        assert_eq!(bench.state(&eu, &key).await, "in-doubt");
        assert_eq!(bench.world.upstreams.questions(&eu), 0);
    });
}

/// Two regions made an attempt each: the answer about the newer says nothing of the other.
#[test]
fn an_answer_about_another_regions_attempt_ends_no_own_one() {
    served(Bench::start(11), async |bench, [eu, us, _]| {
        for (from, to) in [(&eu, &us), (&us, &eu)] {
            bench.world.cluster.hold(from, to, true);
        }
        let key = key_of(&eu, "both-tried");
        let own = abandon(&bench.world.cluster.store(&eu), "probe", &key).await;
        let theirs = bench.world.cluster.store(&us);
        let first = abandon(&theirs, "probe", &key).await;
        assert_eq!(theirs.release(&first).await, Ok(Written::Done));
        let second = super::upkeep::again(&theirs, "probe", &first).await;
        assert_eq!(theirs.doubt(&second, UNCLEAR).await, Ok(Written::Done));
        for at in [&eu, &us] {
            bench.world.upstreams.set_probes(at, ProbeMode::CannotSay);
        }
        bench.world.upstreams.set_probes(&us, ProbeMode::DidNotHappen);
        bench.world.cluster.hold(&us, &eu, false);
        sleep((HOLD + SETTLE_TIME) * 2).await;
        let rows = bench.world.cluster.store(&eu).look_up(&[id(&key)]).await.unwrap().remove(0);
        let row = rows.iter().find(|row| row.token == own.token).unwrap();
        assert!(matches!(row.state, State::InDoubt { .. }), "{row:?}");
    });
}

/// While a peer goes by another view a key may have two owners: nothing is judged or asked.
#[test]
fn nothing_is_swept_by_a_region_that_holds_no_lease() {
    served(Bench::start(12), async |bench, _| {
        let (eu, key, _) = abandoned(&bench, "probe", "leaseless").await;
        bench.world.upstreams.set_probes(&eu, ProbeMode::DidNotHappen);
        bench.links(&eu, LinkMode::Silent);
        sleep((HOLD + SETTLE_TIME) * 2).await;
        assert_eq!((bench.state(&eu, &key).await, bench.world.upstreams.questions(&eu)), ("in-doubt", 0));
        bench.links(&eu, LinkMode::Up);
        bench.until_state(&eu, &key, "released", ms(60_000)).await;
    });
}

/// By a clock that stepped an hour ahead all is abandoned: nothing is doubted before its time.
#[test]
fn a_clock_that_steps_ahead_abandons_no_claim() {
    // The sweep comes before or after the heartbeat that shows the step.
    for wait in (0..1_000).step_by(70) {
        served(Bench::start(7), async |bench, _| {
            sleep(ms(wait)).await;
            let (eu, key, _) = abandoned(&bench, "park", "stepped").await;
            let store = bench.world.cluster.store(&eu);
            bench.world.cluster.step_clock(&eu, 3_600_000_000);
            let stepped = Instant::now();
            while stepped.elapsed() < HOLD {
                let row = store.look_up(&[id(&key)]).await.unwrap()[0][0].state.clone();
                assert!(matches!(row, State::Claimed { .. }), "{wait}: {row:?}");
                sleep(ms(100)).await;
            }
            let is_listed = async || !store.doubts(None, 10).await.unwrap().is_empty();
            until("it to be listed in the end", ms(20_000), is_listed).await;
            bench.until_state(&eu, &key, "in-doubt", SWEEP).await;
        });
    }
}
