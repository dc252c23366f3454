//! After the send: no answer is given before it is stored, unknown is not failed, and a lost claim
//! is never answered for.
//!
//! `claims.rs` has the time before the send.

use onceway::ports::store::{Attempt, ClaimAsk, Written};
use onceway::ports::{KeyStore, Ports, Upkeep};
use onceway::protocol::digest::digest;
use onceway::protocol::fingerprint::Fingerprint;
use onceway::protocol::record::{Answer, AnswerBody, Basis};
use simulation::cluster::StoreMode;
use simulation::upstream::UpstreamMode;
use tokio::time::{Instant, sleep};

use super::bench::{
    Bench, HOLD, SETTLE_WITHIN, UNKEYED, UPSTREAM, id, key_of, ms, read_answer, region, request_with, served,
    until,
};
use super::upkeep::{claim, won};

const UNKNOWN: (u16, &str) = (504, "outcome-unknown");

/// The upstream answers after a second. From half a second on, the store fails for three.
#[test]
fn an_answer_is_stored_before_its_client_gets_it() {
    for mode in [StoreMode::Refuse, StoreMode::Stall(ms(300)), StoreMode::LoseReplies(ms(300))] {
        served(Bench::start(1), async |bench, [eu, ..]| {
            let key = key_of(&eu, "unsettled");
            bench.upstream(&eu, UpstreamMode::Receipt { after: ms(1_000) });
            let begun = Instant::now();
            let sent = bench.begin(&eu, "/park", &key);
            sleep(ms(500)).await;
            bench.store(&eu, mode);
            assert_eq!(sent.await.unwrap().said(), UNKNOWN, "{mode:?}");
            let took = begun.elapsed();
            assert!(took >= ms(1_000) + SETTLE_WITHIN && took < ms(1_200) + SETTLE_WITHIN, "{took:?}");
            assert_eq!(bench.effects(&key).len(), 1);
            bench.store(&eu, StoreMode::Up);
            until("the settlement lands", ms(2_000), async || bench.state(&eu, &key).await == "settled")
                .await;
            bench.all_serve().await;
            let again = bench.send(&eu, "/park", &key).await;
            assert!(again.replayed && again.status == 201, "{again:?}");
            assert_eq!(again.body, bench.effects(&key)[0].body);
            assert_eq!(bench.effects(&key).len(), 1);
        });
    }
}

/// The gate closes under a running attempt: its settlement waits for the approval, and lands.
#[test]
fn a_settlement_outlives_a_restart_of_the_store() {
    served(Bench::start(3), async |bench, [eu, ..]| {
        let key = key_of(&eu, "restarted");
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(300) });
        let sent = bench.begin(&eu, "/park", &key);
        sleep(ms(290)).await;
        bench.world.cluster.restart(&eu);
        assert_eq!(sent.await.unwrap().status, 201);
        assert_eq!((bench.state(&eu, &key).await, bench.effects(&key).len()), ("settled", 1));
    });
}

/// While an attempt runs, another process releases its claim, claims anew and may settle it.
#[test]
fn an_attempt_without_its_claim_withholds_its_answer() {
    for settled in [true, false] {
        served(Bench::start(4), async |bench, [eu, ..]| {
            let key = key_of(&eu, "lost");
            bench.upstream(&eu, UpstreamMode::Receipt { after: ms(1_000) });
            let sent = bench.begin(&eu, "/park", &key);
            sleep(ms(500)).await;
            let theirs = take_over(&bench, &key).await;
            if settled {
                let answer =
                    Answer { status: 202, headers: Vec::new(), body: AnswerBody::Kept(b"theirs".into()) };
                let ports = bench.world.ports(&eu);
                assert_eq!(ports.store().settle(&theirs, &answer).await, Ok(Written::Done));
            }
            let reply = sent.await.unwrap();
            assert_eq!(bench.effects(&key).len(), 1, "the attempt did run");
            let journal = bench.world.ports(&eu).store().journal(&id(&key)).await.unwrap();
            let [late] = journal.as_slice() else { panic!("one answer came too late: {journal:?}") };
            assert_eq!((late.kind.as_str(), late.status), ("late", Some(201)), "{late:?}");
            assert_eq!(late.request_id, Some(bench.effects(&key)[0].request_id), "{late:?}");
            if settled {
                assert_eq!((reply.status, reply.replayed, &reply.body[..]), (202, true, &b"theirs"[..]));
                assert_eq!(bench.send(&eu, "/park", &key).await.body, reply.body, "what is stored stays");
            } else {
                assert_eq!(reply.said(), UNKNOWN);
                assert_eq!(bench.state(&eu, &key).await, "in-progress");
            }
        });
    }
}

/// The key is lost to another request or principal, whose answer the attempt must not get.
#[test]
fn a_lost_claim_never_gets_another_requests_answer() {
    for (path, change) in [
        (
            "/park",
            (|ask| ask.fingerprint = Fingerprint { raw: digest("onceway/test/1", &[]), canonical: None })
                as fn(&mut ClaimAsk),
        ),
        ("/bound", |ask| ask.principal = Some(digest("onceway/test/2", &[]))),
    ] {
        served(Bench::start(4), async |bench, [eu, ..]| {
            let key = key_of(&eu, "elses");
            bench.upstream(&eu, UpstreamMode::Receipt { after: ms(1_000) });
            let mine = request_with(path, &key, "{}", ("authorization", "Bearer sk_ann"));
            let gateway = bench.gateway(&eu);
            let sent = tokio::spawn(async move { read_answer(gateway.handle(mine).await).await });
            sleep(ms(500)).await;
            let theirs = take_over_as(&bench, &key, change).await;
            let answer =
                Answer { status: 202, headers: Vec::new(), body: AnswerBody::Kept(b"secret".into()) };
            let ports = bench.world.ports(&eu);
            assert_eq!(ports.store().settle(&theirs, &answer).await, Ok(Written::Done));
            let reply = sent.await.unwrap();
            assert_eq!(reply.said(), UNKNOWN, "{path}: {reply:?}");
        });
    }
}

pub(super) async fn take_over(bench: &Bench, key: &str) -> Attempt {
    take_over_as(bench, key, |_| {}).await
}

async fn take_over_as(bench: &Bench, key: &str, change: impl FnOnce(&mut ClaimAsk)) -> Attempt {
    let ports = bench.world.ports(&region("eu"));
    let store = ports.store();
    let row = store.look_up(&[id(key)]).await.unwrap().pop().unwrap().pop().unwrap();
    let running = Attempt { id: id(key), token: row.token, nonce: row.nonce };
    assert_eq!(store.release(&running).await, Ok(Written::Done));
    let (own, attempt) = (Some((row.token, row.nonce)), row.token.attempt);
    let mut ask = ClaimAsk {
        fingerprint: row.fingerprint,
        gate: store.gate().await.unwrap().version,
        basis: Basis::Known { own, over: Vec::new(), attempt },
        ..claim(key, 1, HOLD * 100)
    };
    change(&mut ask);
    won(store, &ask).await
}

#[test]
fn unknown_is_never_taken_for_failed() {
    let status =
        |status| UpstreamMode::Answer { after: ms(5), status, body: Default::default(), effect: true };
    let unknown = [
        (UpstreamMode::Hang, 504, 0),
        (UpstreamMode::HangInBody, 504, 1),
        (UpstreamMode::EffectThenDrop, 504, 1),
        (UpstreamMode::DropBeforeEffect, 504, 0),
        (UpstreamMode::Receipt { after: UPSTREAM + ms(500) }, 504, 1),
        (status(500), 500, 1),
        (status(502), 502, 1),
        (status(408), 408, 1),
        // A proxy answers 503 also when a connection broke after the request was sent.
        (status(503), 503, 1),
    ];
    for (mode, expected, effects) in unknown {
        served(Bench::start(5), async |bench, [eu, ..]| {
            let key = key_of(&eu, "unknown");
            bench.upstream(&eu, mode.clone());
            assert_eq!(
                bench.send(&eu, "/park", &key).await.said(),
                (expected, "outcome-unknown"),
                "{mode:?}"
            );
            assert_eq!(bench.state(&eu, &key).await, "in-doubt", "{mode:?}");
            bench.upstream(&eu, UpstreamMode::Receipt { after: ms(5) });
            for pause in [ms(1_000), HOLD * 2] {
                sleep(pause).await;
                assert_eq!(bench.send(&eu, "/park", &key).await.said(), (409, "outcome-unknown"), "{mode:?}");
            }
            assert_eq!((bench.arrived(&eu), bench.effects(&key).len()), (1, effects), "{mode:?}");
        });
    }
}

#[test]
fn a_request_without_effect_is_released_and_reruns() {
    let busy = UpstreamMode::Answer { after: ms(5), status: 429, body: Default::default(), effect: false };
    let told_when = UpstreamMode::Busy { retry_after: 1 };
    let refused = (502, "upstream-unavailable");
    for (mode, expected) in [(UpstreamMode::Refuse, refused), (busy, (429, "")), (told_when, (503, ""))] {
        served(Bench::start(6), async |bench, [eu, ..]| {
            let key = key_of(&eu, "released");
            bench.upstream(&eu, mode.clone());
            assert_eq!(bench.send(&eu, "/park", &key).await.said(), expected);
            assert_eq!(bench.state(&eu, &key).await, "released");
            bench.upstream(&eu, UpstreamMode::Receipt { after: ms(5) });
            let first = bench.send(&eu, "/park", &key).await;
            assert_eq!((first.status, first.replayed), (201, false));
            assert_eq!(bench.effects(&key).len(), 1);
        });
    }
}

/// The client hangs up at every millisecond of a request's life, at the owner and elsewhere.
#[test]
fn a_client_that_hangs_up_cancels_nothing() {
    served(Bench::start(7), async |bench, [eu, ..]| {
        for at in [region("eu"), region("us")] {
            for moment in 0..120 {
                let key = key_of(&eu, &format!("gone-{at}-{moment}"));
                let client = bench.begin(&at, "/park", &key);
                sleep(ms(moment)).await;
                client.abort();
                // If the request had not reached the owner, no row exists. Else it ends as usual.
                sleep(ms(300)).await;
                let (state, effects) = (bench.state(&eu, &key).await, bench.effects(&key).len());
                assert!(
                    matches!((state, effects), ("settled", 1)) || (moment == 0 && state == "absent"),
                    "{at} {moment}: {state} {effects}"
                );
            }
        }
    });
}

#[test]
fn a_stop_finishes_begun_requests_and_refuses_new_ones() {
    served(Bench::start(8), async |bench, [eu, ..]| {
        let (key, other) = (key_of(&eu, "begun"), key_of(&eu, "late"));
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(1_000) });
        let begun = Instant::now();
        let sent = bench.begin(&eu, "/park", &key);
        sleep(ms(500)).await;
        bench.store(&eu, StoreMode::Refuse);
        let gateway = bench.gateway(&eu);
        let stop = tokio::spawn(async move { gateway.stop(ms(20_000)).await });
        sleep(ms(10)).await;
        assert_eq!(bench.send(&eu, "/park", &other).await.said(), (503, "stopping"));
        assert_eq!(bench.send(&region("us"), "/park", &other).await.said(), (503, "stopping"));
        assert_eq!(sent.await.unwrap().said(), UNKNOWN);
        sleep(ms(1_000)).await;
        assert!(!stop.is_finished(), "the settlement is still to come");
        bench.store(&eu, StoreMode::Up);
        assert_eq!(stop.await.unwrap(), 0);
        assert!(begun.elapsed() >= ms(4_000) && begun.elapsed() < ms(7_000), "{:?}", begun.elapsed());
        assert_eq!((bench.state(&eu, &key).await, bench.arrived(&eu)), ("settled", 1));
    });
}

#[test]
fn a_stop_ends_in_time_and_names_leftovers() {
    served(Bench::start(9), async |bench, [eu, ..]| {
        bench.upstream(&eu, UpstreamMode::Hang);
        let sent = bench.begin(&eu, "/park", &key_of(&eu, "hangs"));
        sleep(ms(100)).await;
        let begun = Instant::now();
        assert_eq!(bench.gateway(&eu).stop(ms(1_000)).await, 1);
        assert_eq!(begun.elapsed(), ms(1_000));
        assert_eq!(sent.await.unwrap().said(), UNKNOWN, "what was begun still ends");
    });
}

#[test]
fn a_request_without_a_key_waits_as_long_as_its_route_allows() {
    served(Bench::start(11), async |bench, [eu, ..]| {
        bench.upstream(&eu, UpstreamMode::Hang);
        let begun = Instant::now();
        assert_eq!(bench.send(&eu, "/unkeyed", "unused").await.said(), (504, "upstream-timeout"));
        let took = begun.elapsed();
        assert!(took >= UNKEYED && took <= UNKEYED + ms(10), "{took:?}");
    });
}
