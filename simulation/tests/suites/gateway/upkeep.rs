//! Work beside requests: keys are forgotten in time and in order, and a database's clock that steps
//! is not believed.
//!
//! Tests write rows through the store's port, as gateways do.

use std::time::Duration;

use onceway::ports::KeyStore;
use onceway::ports::store::{Attempt, ClaimAsk, ClaimReply, GateVersion, Unclear, Written};
use onceway::protocol::fingerprint::{Fingerprint, raw};
use onceway::protocol::lifetime::{Lifetime, Retention};
use onceway::protocol::record::{Answer, AnswerBody, Basis, Recovery, State};
use onceway_lab::contract::store::asked;
use simulation::store::SimStore;
use simulation::upstream::UpstreamMode;
use tokio::time::sleep;

use super::bench::{Bench, HOLD, RETENTION, SETTLE_TIME, TOMBSTONE, id, key_of, ms, served, until};

const HOUR_MICROS: i64 = 3_600_000_000;
const GONE: (u16, &str) = (410, "key-expired");

/// Many keys are due at once: batches go on until none is left.
#[test]
fn a_backlog_is_reaped_in_batches() {
    served(Bench::start(3), async |bench, [eu, ..]| {
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

/// docs/protocol.md#rule-44: b ran the key over a's doubt 5.1. If b forgot its own row, only the
/// doubt would be left, and a retry would run a third time. a does not reap while it is away.
#[test]
pub fn a_row_that_masks_a_doubt_stays_until_that_is_gone() {
    served(Bench::start(4), async |bench, [eu, us, _]| {
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
/// would run beside the first one.
#[test]
fn a_clock_that_steps_ahead_ends_no_hold() {
    for wait in [0, 30, 250] {
        served(Bench::start(5), async |bench, [eu, ..]| {
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
        });
    }
}

/// An attempt broke. By the stepped clock it is surely over, so "did not happen" would count.
#[test]
fn a_probe_does_not_count_by_a_clock_that_stepped() {
    served(Bench::start(6), async |bench, [eu, ..]| {
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
                "at {:?}",
                stepped.elapsed()
            );
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
        served(Bench::start(10), async |bench, [eu, ..]| {
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
fn a_clock_that_stepped_ends_no_hold_after_a_restart() {
    served(Bench::start(11), async |bench, [eu, ..]| {
        let key = key_of(&eu, "restarted");
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(2_800) });
        let first = bench.begin(&eu, "/rerun", &key);
        sleep(ms(100)).await;
        bench.world.cluster.step_clock(&eu, HOUR_MICROS);
        sleep(ms(250)).await;
        let next = bench.process(&eu);
        until("the next process serves", ms(2_000), async || next.readiness().serves).await;
        let reply = super::bench::ask(&next, "/rerun", &key, "{}").await;
        assert!(reply.replayed || reply.said() == (409, "in-progress"), "{reply:?}");
        assert_eq!(first.await.unwrap().status, 201);
        assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, 1), "run beside the first");
    });
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
            let store = bench.world.cluster.store(&eu);
            let row = store.look_up(&[id(&key)]).await.unwrap().remove(0).remove(0);
            assert_ne!(row.state, State::Tombstone, "{restarted}: reaped");
            // In its own time it ends all the same.
            let holds = async || bench.state(&eu, &key).await == "absent";
            until("the key is forgotten", (RETENTION + TOMBSTONE) * 3, holds).await;
            assert_eq!(bench.effects(&key).len(), 1);
        });
    }
}

/// An answer that ends nothing.
pub const UNCLEAR: Option<Unclear> = Some(Unclear { status: 500, ends_attempt: false, excerpt: None });

/// A claim of an absent key, under no gate yet.
pub fn claim(key: &str, nonce: u128, retention: Duration) -> ClaimAsk {
    ClaimAsk {
        fingerprint: Fingerprint { raw: raw("POST", "/park", b"{}"), canonical: None },
        hold: HOLD,
        settle_time: SETTLE_TIME,
        recovery: Recovery::Park,
        lifetime: Lifetime { retention: Retention::For(retention), skew: ms(0), tombstone: TOMBSTONE },
        route: "park".into(),
        path: "/park".to_owned(),
        ..asked(&id(key), nonce, GateVersion(0))
    }
}

/// A claim on a route that nobody will end.
pub async fn abandon(store: &SimStore, route: &str, key: &str) -> Attempt {
    abandon_for(store, route, key, HOLD).await
}

/// Like [`abandon`], with a hold of its own.
pub async fn abandon_for(store: &SimStore, route: &str, key: &str, hold: Duration) -> Attempt {
    let gate = store.gate().await.unwrap().version;
    let path = format!("/{route}");
    let fingerprint = Fingerprint { raw: raw("POST", &path, b"{}"), canonical: None };
    let recovery = rule_of(route);
    let ask = claim(key, 77, RETENTION);
    won(store, &ClaimAsk { gate, fingerprint, route: route.into(), path, hold, recovery, ..ask }).await
}

/// The rule of the bench's route of this name.
fn rule_of(route: &str) -> Recovery {
    match route {
        "probe" => Recovery::Probe,
        "rerun" => Recovery::Rerun { max_attempts: 3 },
        _ => Recovery::Park,
    }
}

/// The next attempt on a released key.
pub async fn again(store: &SimStore, route: &str, last: &Attempt) -> Attempt {
    let gate = store.gate().await.unwrap().version;
    let basis =
        Basis::Known { own: Some((last.token, last.nonce)), over: Vec::new(), attempt: last.token.attempt };
    let ask = claim(last.id.key().as_str(), last.nonce.0 + 1, RETENTION);
    let (recovery, path) = (rule_of(route), format!("/{route}"));
    won(store, &ClaimAsk { gate, basis, route: route.into(), path, recovery, ..ask }).await
}

pub async fn won(store: &SimStore, ask: &ClaimAsk) -> Attempt {
    match store.claim(ask).await.unwrap() {
        ClaimReply::Won { token, .. } => Attempt { id: ask.id.clone(), token, nonce: ask.nonce },
        other => panic!("not won: {other:?}"),
    }
}

pub fn answer() -> Answer {
    Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(b"made".to_vec()) }
}
