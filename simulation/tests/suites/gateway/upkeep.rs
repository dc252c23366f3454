//! Work beside requests: keys are forgotten in time and in order, and a database's clock that steps
//! is not believed.
//!
//! Tests write rows through the store's port, as gateways do. A test must not look into a gateway.

use std::time::Duration;

use onceway::ports::authority::CopiedRow;
use onceway::ports::contract::{ANY_DATE, by};
use onceway::ports::store::{Attempt, ClaimAsk, ClaimReply, Written};
use onceway::ports::{Audit, Imports, KeyStore, Upkeep};
use onceway::protocol::decide::Basis;
use onceway::protocol::lifetime::{Lifetime, Retention};
use onceway::protocol::record::{Answer, AnswerBody, Nonce, RequestId, State};
use onceway::protocol::time::Date;
use simulation::upstream::UpstreamMode;
use tokio::time::sleep;

use super::bench::{Bench, HOLD, RETENTION, SETTLE_TIME, TOMBSTONE, id, key_of, ms, play, region, until};

const HOUR_MICROS: i64 = 3_600_000_000;
const GONE: (u16, &str) = (410, "key-expired");

#[test]
fn an_expired_key_is_refused_and_then_forgotten() {
    play(async {
        let (bench, eu) = (Bench::start(1).await, region("eu"));
        let key = key_of(&eu, "short-lived");
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        sleep(RETENTION - ms(1_000)).await;
        assert!(bench.send(&eu, "/park", &key).await.replayed, "promised for longer");
        sleep(ms(3_000)).await;
        for at in ["eu", "us", "ap"] {
            assert_eq!(bench.send(&region(at), "/park", &key).await.said(), GONE, "{at}");
        }
        sleep(TOMBSTONE - ms(4_000)).await;
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), GONE, "its tombstone stands");
        until("the key is forgotten", ms(10_000), async || bench.state(&eu, &key).await == "absent").await;
        assert_eq!(bench.effects(&key).len(), 1);
        let again = bench.send(&eu, "/park", &key).await;
        assert_eq!((again.status, again.replayed), (201, false), "a forgotten key is new");
    });
}

#[test]
fn never_is_replayed_for_ever() {
    play(async {
        let (bench, eu) = (Bench::start(2).await, region("eu"));
        let key = key_of(&eu, "ledger");
        let first = bench.send(&eu, "/never", &key).await;
        sleep(RETENTION + TOMBSTONE * 3).await;
        let again = bench.send(&eu, "/never", &key).await;
        assert_eq!((again.status, again.replayed, again.body), (201, true, first.body));
    });
}

/// Many keys are due at once: batches go on until none is left.
#[test]
fn a_backlog_is_reaped_in_batches() {
    play(async {
        let (bench, eu) = (Bench::start(3).await, region("eu"));
        let store = bench.world.cluster.store(&eu);
        let gate = store.gate().await.unwrap().version;
        for number in 0..1_200 {
            let ask = ClaimAsk { gate, ..claim(&format!("backlog-{number}"), number + 1, RETENTION) };
            let attempt = won(&store, &ask).await;
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

/// More runs at risk than one look takes: the next look goes on behind them, and after the last one
/// begins anew.
#[test]
fn a_double_is_found_behind_many_runs_at_risk() {
    play(async {
        let (bench, eu, ap) = (Bench::start(12).await, region("eu"), region("ap"));
        let store = bench.world.cluster.store(&eu);
        let gate = store.gate().await.unwrap().version;
        let key = |number: u128| format!("risky-{number:04}");
        for number in 0..1_100 {
            let ask = claim(&key(number), number + 1, RETENTION * 4);
            let attempt = won(&store, &ClaimAsk { gate, risk: vec![ap.clone()], ..ask }).await;
            assert_eq!(store.settle(&attempt, &answer()).await, Ok(Written::Done));
        }
        let origin = bench.world.cluster.origin(&ap);
        for (number, found) in [(1_099, 1), (1, 2), (1_098, 3)] {
            let mut own = store.look_up(&[id(&key(number))]).await.unwrap().remove(0).remove(0);
            (own.origin, own.nonce, own.risk) = (origin.clone(), Nonce(9_999), Vec::new());
            let (hold, lives) = (HOLD, RETENTION * 4);
            let row = CopiedRow {
                id: id(&key(number)),
                row: own,
                hold,
                lives,
                tombstone: TOMBSTONE,
                route: "park".into(),
                path: "/park".to_owned(),
            };
            store.import(&origin, &[row], ANY_DATE).await.unwrap();
            until("the double to be found", ms(5_000), async || {
                store
                    .doubles()
                    .await
                    .is_ok_and(|counted| (counted.doubles, counted.unexplained) == (found, 0))
            })
            .await;
        }
    });
}

/// docs/protocol.md#rule-44: b ran the key over a's doubt 5.1. If b forgot its own row, only the
/// doubt would be left, and a retry would run a third time. a does not reap while it is away.
#[test]
pub fn a_row_that_masks_a_doubt_stays_until_that_is_gone() {
    play(async {
        let (bench, eu, us) = (Bench::start(4).await, region("eu"), region("us"));
        let key = key_of(&us, "masked");
        // eu made an attempt and was lost. Its gateway is gone, its store keeps the doubt.
        let (theirs, eu_store) = (bench.world.cluster.origin(&eu), bench.world.cluster.store(&eu));
        let gate = eu_store.gate().await.unwrap().version;
        let lost = won(&eu_store, &ClaimAsk { gate, ..claim(&key, 1, RETENTION * 2) }).await;
        assert_eq!(eu_store.doubt(&lost, None).await, Ok(Written::Done));
        sleep(ms(200)).await;
        // us ran it, knowing of that.
        let us_store = bench.world.cluster.store(&us);
        let gate = us_store.gate().await.unwrap().version;
        let basis = Basis::Known { own: None, over: vec![(theirs.clone(), lost.token)], attempt: 1 };
        let ours = won(&us_store, &ClaimAsk { gate, basis, ..claim(&key, 2, RETENTION) }).await;
        assert_eq!(us_store.settle(&ours, &answer()).await, Ok(Written::Done));
        // Cut off, so that eu does not learn of it and does not clear its own row away.
        bench.world.cluster.hold(&us, &eu, true);
        sleep(RETENTION + TOMBSTONE * 4).await;
        assert_eq!(bench.send(&us, "/park", &key).await.said(), GONE);
        let rows = us_store.look_up(&[id(&key)]).await.unwrap().remove(0);
        assert_eq!(rows.len(), 2, "the masking row must stay: {rows:?}");
        assert_eq!(bench.arrived(&us), 0, "it ran again");
        // eu is back. It sees the final row above its doubt, turns the doubt into a tombstone, and
        // then both may go.
        bench.world.cluster.hold(&us, &eu, false);
        until("eu to give its doubt up", Duration::from_secs(1_800), async || {
            let rows = eu_store.look_up(&[id(&key)]).await.unwrap().remove(0);
            rows.iter().find(|row| row.origin == theirs).is_none_or(|row| row.state == State::Tombstone)
        })
        .await;
        until("both rows to be forgotten", Duration::from_secs(3_600), async || {
            us_store.look_up(&[id(&key)]).await.unwrap().remove(0).is_empty()
        })
        .await;
    });
}

/// The schedule of docs/protocol.md#rule-11: the upstream is slow, the database's clock steps an
/// hour ahead, a duplicate arrives. By that clock the hold is over. On a `rerun` route the attempt
/// would run beside the first one.
#[test]
fn a_clock_that_steps_ahead_ends_no_hold() {
    for wait in [0, 30, 250] {
        play(async {
            let (bench, eu) = (Bench::start(5).await, region("eu"));
            let key = key_of(&eu, "stepped");
            bench.upstream(&eu, UpstreamMode::Receipt { after: ms(2_500) });
            let first = bench.begin(&eu, "/rerun", &key);
            sleep(ms(300)).await;
            bench.world.cluster.step_clock(&eu, HOUR_MICROS);
            // At once, before the next heartbeat, or after it.
            sleep(ms(wait)).await;
            let second = bench.begin(&eu, "/rerun", &key);
            assert_eq!(first.await.unwrap().status, 201);
            let second = second.await.unwrap();
            assert!(second.replayed || second.said() == (409, "in-progress"), "{second:?}");
            assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, 1), "run beside the first");
            let status = bench.gateway(&eu).status().await;
            assert!(status.store.clock_suspect_ms.is_some_and(|left| left > 5_000), "{:?}", status.store);
            let notes = bench.world.cluster.notes(&eu);
            assert_eq!(notes.len(), 1, "one step, one entry: {notes:?}");
            assert!(
                notes[0].kind == "clock-suspect"
                    && notes[0].reason.as_ref().unwrap().contains("ahead by 3599")
            );
        });
    }
}

/// A clock is off by a year for some milliseconds, and no heartbeat sees it. A claim of that moment
/// would have lived its life at once, or hold its key for a year.
#[test]
fn a_claim_of_a_clock_that_blinks_is_not_sent() {
    for by in [-365 * 24 * HOUR_MICROS, 365 * 24 * HOUR_MICROS] {
        play(async {
            let (bench, eu) = (Bench::start(6).await, region("eu"));
            let key = key_of(&eu, "blinked");
            bench.world.cluster.step_clock(&eu, by);
            let reply = bench.begin(&eu, "/rerun", &key);
            sleep(ms(8)).await;
            bench.world.cluster.step_clock(&eu, -by);
            assert_eq!(reply.await.unwrap().said(), (503, "store-unavailable"), "{by}");
            assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (0, 0), "{by}: sent");
            assert!(bench.world.cluster.notes(&eu).is_empty(), "a heartbeat saw it");
            let status = bench.gateway(&eu).status().await;
            assert!(status.store.clock_suspect_ms.is_some_and(|left| left > 5_000), "{:?}", status.store);
            let again = bench.send(&eu, "/rerun", &key).await;
            assert_eq!((again.status, again.replayed), (201, false), "{by}: it was released");
            sleep(RETENTION / 2).await;
            assert!(bench.send(&eu, "/rerun", &key).await.replayed, "{by}");
        });
    }
}

/// An attempt broke without an answer. By the stepped clock it is surely over, so "did not happen"
/// would count.
#[test]
fn a_probe_does_not_count_by_a_suspect_clock() {
    play(async {
        let (bench, eu) = (Bench::start(6).await, region("eu"));
        let key = key_of(&eu, "probed");
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 504);
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(10) });
        bench.world.cluster.step_clock(&eu, HOUR_MICROS);
        let stepped = tokio::time::Instant::now();
        while stepped.elapsed() < HOLD + SETTLE_TIME - ms(200) {
            assert_eq!(
                bench.send(&eu, "/probe", &key).await.said(),
                (409, "outcome-unknown"),
                "at {:?} {:?}",
                stepped.elapsed(),
                bench.gateway(&eu).status().await.store
            );
            assert_eq!(bench.state(&eu, &key).await, "in-doubt", "at {:?}", stepped.elapsed());
            sleep(ms(150)).await;
        }
        sleep(ms(1_000)).await;
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201, "one longest hold later it counts");
        assert_eq!(bench.effects(&key).len(), 1);
    });
}

/// By that clock every answer would be past its retention at once, and be forgotten.
#[test]
fn a_clock_that_steps_ahead_takes_no_key_along() {
    play(async {
        let (bench, eu) = (Bench::start(7).await, region("eu"));
        let key = key_of(&eu, "kept");
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        bench.world.cluster.step_clock(&eu, HOUR_MICROS);
        sleep(HOLD - ms(500)).await;
        // Set right again, as after a mistake: nothing was lost meanwhile.
        bench.world.cluster.step_clock(&eu, -HOUR_MICROS);
        sleep(HOLD * 2).await;
        let again = bench.send(&eu, "/park", &key).await;
        assert!(again.replayed, "{again:?}");
        assert_eq!(bench.effects(&key).len(), 1);
        assert_eq!(bench.world.cluster.notes(&eu).len(), 2, "there and back");
    });
}

/// By the clock that is an hour ahead the key is past its retention, and its client would learn
/// that it is gone for ever.
#[test]
fn a_clock_that_steps_ahead_expires_no_answer() {
    for wait in [0, 30, 250] {
        play(async {
            let (bench, eu) = (Bench::start(10).await, region("eu"));
            let key = key_of(&eu, "replayed");
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
            sleep(ms(200)).await;
            bench.world.cluster.step_clock(&eu, HOUR_MICROS);
            sleep(ms(wait)).await;
            let again = bench.send(&eu, "/park", &key).await;
            assert!(again.replayed, "{again:?}");
        });
    }
}

/// Schedule of docs/protocol.md#rule-11 with a rolling restart in it: an attempt runs, the clock
/// steps, and a process that starts then knows of no step.
#[test]
fn a_clock_that_is_suspect_stays_so_over_a_restart() {
    play(async {
        let (bench, eu) = (Bench::start(11).await, region("eu"));
        let key = key_of(&eu, "restarted");
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(2_800) });
        let first = bench.begin(&eu, "/rerun", &key);
        sleep(ms(100)).await;
        bench.world.cluster.step_clock(&eu, HOUR_MICROS);
        sleep(ms(250)).await;
        let next = bench.process(&eu);
        until("the next process serves", ms(2_000), async || next.readiness().serves).await;
        let told = super::bench::ask(&next, "/rerun", &key, "{}").await;
        assert!(told.replayed || told.said() == (409, "in-progress"), "{told:?}");
        assert_eq!(first.await.unwrap().status, 201);
        assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, 1), "run beside the first");
    });
}

/// Back by an hour: earlier claims seem to have an hour to go. Nothing runs twice, and the step is
/// noticed.
#[test]
fn a_clock_that_steps_back_is_noticed_and_runs_nothing_twice() {
    play(async {
        let (bench, eu) = (Bench::start(8).await, region("eu"));
        let key = key_of(&eu, "back");
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(2_500) });
        let first = bench.begin(&eu, "/rerun", &key);
        sleep(ms(300)).await;
        bench.world.cluster.step_clock(&eu, -HOUR_MICROS);
        let second = bench.begin(&eu, "/rerun", &key);
        assert_eq!(first.await.unwrap().status, 201);
        assert_ne!(second.await.unwrap().status, 500);
        assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, 1));
        until("the step to be journalled", ms(1_000), async || {
            let notes = bench.world.cluster.notes(&eu);
            notes
                .iter()
                .any(|note| note.reason.as_ref().is_some_and(|reason| reason.contains("stepped back")))
        })
        .await;
    });
}

/// The reaper comes between the step and the heartbeat that shows it.
#[test]
fn the_reaper_believes_no_date_that_the_boot_clock_denies() {
    for wait in (0..1_000).step_by(70) {
        play(async {
            let (bench, eu) = (Bench::start(12).await, region("eu"));
            let key = key_of(&eu, "denied");
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
            sleep(ms(wait)).await;
            bench.world.cluster.step_clock(&eu, HOUR_MICROS);
            sleep(ms(1_200)).await;
            let row = bench.world.cluster.store(&eu).look_up(&[id(&key)]).await.unwrap().remove(0).remove(0);
            assert_ne!(row.state, State::Tombstone, "reaped {wait} ms on");
        });
    }
}

/// Years behind, and set right. By that clock every life that was promised before is over. By the
/// time that passed, none is.
#[test]
fn a_clock_that_was_years_behind_and_is_set_right_takes_no_key_along() {
    const YEARS_MICROS: i64 = 6 * 365 * 86_400_000_000;
    // While a process watches, and while none does.
    for restarted in [false, true] {
        play(async {
            let (bench, eu) = (Bench::start(13).await, region("eu"));
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
            let store = bench.world.cluster.store(&eu);
            let row = store.look_up(&[id(&key)]).await.unwrap().remove(0).remove(0);
            assert_ne!(row.state, State::Tombstone, "{restarted}: reaped");
            let ahead = bench.gateway(&eu).status().await.store.clock_ahead_ms;
            assert!(ahead.is_some_and(|ahead| ahead as i64 > YEARS_MICROS / 1_000 - 60_000), "{ahead:?}");
            // In its own time it ends all the same.
            until("the key is forgotten", (RETENTION + TOMBSTONE) * 3, async || {
                bench.state(&eu, &key).await == "absent"
            })
            .await;
            assert_eq!(bench.effects(&key).len(), 1);
        });
    }
}

/// The reap statement itself gets the latest date that it may believe: a step right before it takes
/// nothing along.
#[test]
fn a_step_between_heartbeat_and_reaper_takes_nothing_along() {
    play(async {
        let (bench, eu) = (Bench::start(9).await, region("eu"));
        let store = bench.world.cluster.store(&eu);
        let gate = store.gate().await.unwrap().version;
        let attempt = won(&store, &ClaimAsk { gate, ..claim("stepped-over", 1, RETENTION) }).await;
        assert_eq!(store.settle(&attempt, &answer()).await, Ok(Written::Done));
        let before = store.look_up(&[id("stepped-over")]).await.unwrap()[0][0].seen;
        bench.world.cluster.step_clock(&eu, HOUR_MICROS);
        let until = Date(before.as_millis() + 1_000);
        assert_eq!(store.reap(by(until), 10).await.unwrap().seen(), 0);
    });
}

/// A claim of an absent key, under no gate yet.
pub fn claim(key: &str, nonce: u128, retention: Duration) -> ClaimAsk {
    ClaimAsk {
        risk: Vec::new(),
        id: id(key),
        fingerprint: onceway::protocol::fingerprint::Fingerprint {
            raw: onceway::protocol::fingerprint::raw("POST", "/park", b"{}"),
            canonical: None,
        },
        nonce: Nonce(nonce),
        request_id: RequestId(nonce),
        gate: onceway::ports::store::GateVersion(0),
        basis: Basis::Absent,
        hold: HOLD,
        lifetime: Lifetime {
            retention: Retention::For(retention),
            skew: Duration::ZERO,
            tombstone: TOMBSTONE,
        },
        route: "park".into(),
        path: "/park".to_owned(),
        principal: None,
    }
}

/// A claim on a route that nobody will end.
pub async fn abandon(store: &simulation::store::SimStore, route: &str, key: &str) -> Attempt {
    abandon_for(store, route, key, HOLD).await
}

/// Like [`abandon`], with a hold of its own.
pub async fn abandon_for(
    store: &simulation::store::SimStore,
    route: &str,
    key: &str,
    hold: Duration,
) -> Attempt {
    let gate = store.gate().await.unwrap().version;
    let path = format!("/{route}");
    let fingerprint = onceway::protocol::fingerprint::Fingerprint {
        raw: onceway::protocol::fingerprint::raw("POST", &path, b"{}"),
        canonical: None,
    };
    won(store, &ClaimAsk { gate, fingerprint, route: route.into(), path, hold, ..claim(key, 77, RETENTION) })
        .await
}

/// The next attempt on a released key.
pub async fn again(store: &simulation::store::SimStore, route: &str, last: &Attempt) -> Attempt {
    let gate = store.gate().await.unwrap().version;
    let basis =
        Basis::Known { own: Some((last.token, last.nonce)), over: Vec::new(), attempt: last.token.attempt };
    let ask = claim(last.id.key().as_str(), last.nonce.0 + 1, RETENTION);
    won(store, &ClaimAsk { gate, basis, route: route.into(), path: format!("/{route}"), ..ask }).await
}

/// The attempt that this claim wins.
pub async fn won(store: &simulation::store::SimStore, ask: &ClaimAsk) -> Attempt {
    match store.claim(ask).await.unwrap() {
        ClaimReply::Won { token, .. } => Attempt { id: ask.id.clone(), token, nonce: ask.nonce },
        other => panic!("not won: {other:?}"),
    }
}

pub fn answer() -> Answer {
    Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(b"made".to_vec()) }
}
