//! Work beside requests: keys are forgotten in time and in order, and a database's clock that steps
//! is not believed. A loop that dies takes its gateway along.

use onceway::ports::store::{GateVersion, Terms, Unclear};
use onceway_lab::contract::store::asked;

use super::bench::*;

const HOUR_MICROS: i64 = 3_600_000_000;
const GONE: (u16, &str) = (410, "key-expired");

#[test]
fn a_backlog_is_reaped_in_batches() {
    served(Bench::start(3), async |bench, [eu, ..]| {
        let store = bench.world.cluster.store(&eu);
        for number in 0..1_200 {
            let attempt = won(&store, claim(&format!("backlog-{number}"), number + 1, RETENTION)).await;
            assert_eq!(store.settle(&attempt, &answer()).await, Ok(Written::Done));
        }
        sleep(RETENTION + TOMBSTONE).await;
        until("the backlog to be reaped", ms(60_000), async || {
            let ids: Vec<_> = (0..1_200).map(|number| id(&format!("backlog-{number}"))).collect();
            store.look_up(&ids).await.unwrap().iter().all(Vec::is_empty)
        })
        .await;
    });
}

/// docs/protocol.md#rule-44: b ran the key over a's doubt 5.1. If b forgot its own row, only the
/// doubt would be left, and a retry would run a third time. a does not reap while it is away.
#[test]
pub fn a_row_that_masks_a_doubt_stays_until_that_is_gone() {
    served(Bench::start(4), async |bench, [eu, us, _]| {
        let key = key_of(&us, "masked");
        // eu made an attempt and was lost. Its gateway is gone, its store keeps the doubt.
        let (theirs, eu_store) = (bench.world.cluster.origin(&eu), bench.world.cluster.store(&eu));
        let lost = won(&eu_store, claim(&key, 1, RETENTION * 2)).await;
        assert_eq!(eu_store.doubt(&lost, None).await, Ok(Written::Done));
        sleep(ms(200)).await;
        // us ran it, knowing of that.
        let us_store = bench.world.cluster.store(&us);
        let basis = Basis::Known { own: None, over: vec![(theirs.clone(), lost.token)], attempt: 1 };
        let ours = won(&us_store, ClaimAsk { basis, ..claim(&key, 2, RETENTION) }).await;
        assert_eq!(us_store.settle(&ours, &answer()).await, Ok(Written::Done));
        // Cut off, so that eu does not learn of it and does not clear its own row away.
        bench.world.cluster.hold(&us, &eu, true);
        sleep(RETENTION + TOMBSTONE * 4).await;
        assert_eq!(bench.send(&us, "/park", &key).await.said(), GONE);
        let rows = us_store.look_up(&[id(&key)]).await.unwrap().remove(0);
        assert_eq!(rows.len(), 2, "the masking row must stay: {rows:?}");
        assert_eq!(bench.arrived(&us), 0, "it ran again");
        // eu is back, and turns its doubt below the final row into a tombstone. Then both may go.
        bench.world.cluster.hold(&us, &eu, false);
        until("eu to give its doubt up", Duration::from_secs(1_800), async || {
            let rows = eu_store.look_up(&[id(&key)]).await.unwrap().remove(0);
            rows.iter().find(|row| row.origin == theirs).is_none_or(|row| row.state == State::Tombstone)
        })
        .await;
        let holds = async || us_store.look_up(&[id(&key)]).await.unwrap().remove(0).is_empty();
        until("both rows to be forgotten", Duration::from_secs(3_600), holds).await;
    });
}

/// The schedule of docs/protocol.md#rule-11: the upstream is slow, the database's clock steps an
/// hour ahead, a duplicate arrives. By that clock the hold is over. On a `rerun` route the attempt
/// would run beside the first one. A process that starts then knows of no step.
#[test]
fn a_clock_that_steps_ahead_ends_no_hold() {
    // At once, before the next heartbeat, or after it; at last at a new process.
    for (wait, restarted) in [(0, false), (30, false), (250, false), (250, true)] {
        keyed(Bench::start(5), async |bench, [eu, ..], key| {
            bench.upstream(&eu, receipt(2_800));
            let first = bench.begun(&eu, "/rerun", &key, ms(100)).await;
            bench.world.cluster.step_clock(&eu, HOUR_MICROS);
            sleep(ms(wait)).await;
            let asked = if restarted { bench.process(settings(&eu)) } else { bench.gateway(&eu) };
            until("the asked process serves", ms(2_000), async || asked.readiness().serves).await;
            let second = ask(&asked, "/rerun", &key, "{}").await;
            assert!(second.replayed || second.said() == (409, "in-progress"), "{second:?}");
            assert_eq!(first.await.unwrap().status, 201);
            assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, 1), "run beside the first");
        });
    }
}

/// An attempt broke. By the stepped clock it is surely over, so "did not happen" would count.
#[test]
fn a_probe_does_not_count_by_a_clock_that_stepped() {
    keyed(Bench::start(6), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 504);
        bench.upstream(&eu, receipt(10));
        bench.world.cluster.step_clock(&eu, HOUR_MICROS);
        let stepped = Instant::now();
        while stepped.elapsed() < HOLD + SETTLE_TIME - ms(200) {
            let answer = bench.send(&eu, "/probe", &key).await;
            assert_eq!(answer.said(), (409, "outcome-unknown"), "at {:?}", stepped.elapsed());
            assert_eq!(bench.state(&eu, &key).await, "in-doubt", "at {:?}", stepped.elapsed());
            sleep(ms(150)).await;
        }
        sleep(ms(1_000)).await;
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201, "in its own time it counts");
        assert_eq!(bench.effects(&key).len(), 1);
    });
}

/// By the clock that is an hour ahead the key is past its retention, and so gone for ever.
#[test]
fn a_clock_that_steps_ahead_expires_no_answer() {
    for wait in [0, 30, 250] {
        keyed(Bench::start(10), async |bench, [eu, ..], key| {
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
            sleep(ms(200)).await;
            bench.world.cluster.step_clock(&eu, HOUR_MICROS);
            sleep(ms(wait)).await;
            let again = bench.send(&eu, "/park", &key).await;
            assert!(again.replayed, "{again:?}");
        });
    }
}

/// Years behind, and set right: by that clock every life is over, by the time that passed none.
#[test]
fn setting_a_slow_clock_right_deletes_no_keys() {
    const YEARS_MICROS: i64 = 6 * 365 * 86_400_000_000;
    // While a process watches, and while none does.
    for restarted in [false, true] {
        served(Bench::start(13), async |bench, [eu, ..]| {
            bench.world.cluster.step_clock(&eu, -YEARS_MICROS);
            sleep((HOLD + SETTLE_TIME) * 2).await;
            let key = key_of(&eu, "behind");
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
            if restarted {
                bench.replace(&eu);
            }
            bench.world.cluster.step_clock(&eu, YEARS_MICROS);
            sleep((HOLD + SETTLE_TIME) * 2).await;
            let again = bench.send(&eu, "/park", &key).await;
            assert!(again.replayed, "{restarted}: {again:?}");
            let row = bench.world.cluster.store(&eu).look_up(&[id(&key)]).await.unwrap().remove(0).remove(0);
            assert_ne!(row.state, State::Tombstone, "{restarted}: reaped");
            // In its own time it ends all the same.
            bench.until_state(&eu, &key, "absent", (RETENTION + TOMBSTONE) * 3).await;
            assert_eq!(bench.effects(&key).len(), 1);
        });
    }
}

pub const UNCLEAR: Option<Unclear> = Some(Unclear { status: 500, ends_attempt: false, excerpt: None });

/// A claim of an absent key, under no gate yet.
pub fn claim(key: &str, nonce: u128, retention: Duration) -> ClaimAsk {
    let ask = asked(&id(key), nonce, GateVersion(0));
    let terms = Terms {
        fingerprint: Fingerprint { raw: raw("POST", "/park", b"{}"), canonical: None },
        hold: HOLD,
        settle_time: SETTLE_TIME,
        recovery: Recovery::Park,
        lifetime: Lifetime { retention: Retention::For(retention), skew: ms(0), tombstone: TOMBSTONE },
        route: "park".into(),
        path: "/park".to_owned(),
        ..ask.terms
    };
    ClaimAsk { terms, ..ask }
}

/// A claim on a route that nobody will end.
pub async fn abandon(store: &SimStore, route: &str, key: &str) -> Attempt {
    abandon_for(store, route, key, HOLD).await
}

pub async fn abandon_for(store: &SimStore, route: &str, key: &str, hold: Duration) -> Attempt {
    let path = format!("/{route}");
    let fingerprint = Fingerprint { raw: raw("POST", &path, b"{}"), canonical: None };
    let (ask, recovery) = (claim(key, 77, RETENTION), rule_of(route));
    let terms = Terms { fingerprint, route: route.into(), path, hold, recovery, ..ask.terms };
    won(store, ClaimAsk { terms, ..ask }).await
}

fn rule_of(route: &str) -> Recovery {
    match route {
        "probe" => Recovery::Probe,
        "rerun" => Recovery::Rerun { max_attempts: 3 },
        _ => Recovery::Park,
    }
}

/// The next attempt on a released key.
pub async fn again(store: &SimStore, route: &str, last: &Attempt) -> Attempt {
    let basis =
        Basis::Known { own: Some((last.token, last.nonce)), over: Vec::new(), attempt: last.token.attempt };
    let ask = claim(last.id.key().as_str(), last.nonce.0 + 1, RETENTION);
    let (recovery, path) = (rule_of(route), format!("/{route}"));
    let terms = Terms { route: route.into(), path, recovery, ..ask.terms };
    won(store, ClaimAsk { basis, terms, ..ask }).await
}

/// The attempt of a claim that is won, under the store's own gate.
pub async fn won(store: &SimStore, ask: ClaimAsk) -> Attempt {
    let gate = store.gate().await.unwrap().version;
    match store.claim(&ClaimAsk { gate, ..ask.clone() }).await.unwrap() {
        ClaimReply::Won { token, .. } => Attempt { id: ask.id, token, nonce: ask.terms.nonce },
        other => panic!("not won: {other:?}"),
    }
}

pub fn answer() -> Answer {
    Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(b"made".to_vec()) }
}

#[test]
fn a_loop_that_dies_takes_its_gateway_along() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        for (point, name) in [(Point::Reap, "reaper"), (Point::Remember, "poll"), (Point::Take, "jobs")] {
            let Node { gateway, process, .. } = bench.launch(settings(&eu), view().ring());
            until("it serves", ms(20_000), async || gateway.readiness().serves).await;
            assert_eq!(gateway.dead_loop(), None);

            process.panics_at(&[point]);
            until("its death", ms(60_000), async || gateway.dead_loop() == Some(name)).await;
            assert_eq!(gateway.loop_died().await, name);
            assert!(!gateway.readiness().serves);
            assert!(!gateway.authority_status().lease.held, "its lease is given up");
            let refused = ask(&gateway, "/probe", &key_of(&eu, name), "{}").await;
            assert_eq!((refused.status, bench.arrived(&eu)), (503, 0), "{refused:?}");
            process.kill();
        }
    });
}

#[test]
fn a_loop_that_ends_as_its_gateway_stops_did_not_die() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        let gateway = bench.gateway(&eu);
        assert_eq!(gateway.stop(ms(100)).await, 0);
        sleep(SWEEP * 5).await;
        assert_eq!((gateway.dead_loop(), Arc::strong_count(&gateway) > 0), (None, true));
    });
}

/// A dropped gateway ends: no background task keeps it alive. A world of many processes relies on
/// this, as a replaced process must not beat on.
#[test]
fn a_dropped_gateway_ends_its_loops() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        for links in [LinkMode::Up, LinkMode::Refuse] {
            bench.links(&eu, links);
            let second = bench.process(settings(&eu));
            sleep(ms(3_000)).await;
            let weak = Arc::downgrade(&second);
            drop(second);
            until("the loops end", ms(1_000), async || weak.strong_count() == 0).await;
        }
    });
}
