//! After the send: no answer is given before it is stored, unknown is not failed, and a lost claim
//! is never answered for. Duplicates of a running attempt get its answer.

use onceway::protocol::digest::digest;

use super::bench::*;
use super::upkeep::{claim, won};

const UNKNOWN: (u16, &str) = (504, "outcome-unknown");

/// The upstream answers after a second. From half a second on, the store fails for three.
#[test]
fn an_answer_is_stored_before_its_client_gets_it() {
    for mode in [StoreMode::Refuse, StoreMode::Stall(ms(300)), StoreMode::LoseReplies(ms(300))] {
        keyed(Bench::start(1), async |bench, [eu, ..], key| {
            bench.upstream(&eu, receipt(1_000));
            let begun = Instant::now();
            let sent = bench.begun(&eu, "/park", &key, ms(500)).await;
            bench.store(&eu, mode);
            assert_eq!(sent.await.unwrap().said(), UNKNOWN, "{mode:?}");
            let took = begun.elapsed();
            assert!(took >= ms(1_000) + SETTLE_WITHIN && took < ms(1_200) + SETTLE_WITHIN, "{took:?}");
            assert_eq!(bench.effects(&key).len(), 1);
            bench.store(&eu, StoreMode::Up);
            bench.until_state(&eu, &key, "settled", ms(2_000)).await;
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
    keyed(Bench::start(3), async |bench, [eu, ..], key| {
        bench.upstream(&eu, receipt(300));
        let sent = bench.begun(&eu, "/park", &key, ms(290)).await;
        bench.world.cluster.restart(&eu);
        assert_eq!(sent.await.unwrap().status, 201);
        assert_eq!((bench.state(&eu, &key).await, bench.effects(&key).len()), ("settled", 1));
    });
}

/// While an attempt runs, another process releases its claim, claims anew and may settle it.
#[test]
fn an_attempt_without_its_claim_withholds_its_answer() {
    for settled in [true, false] {
        keyed(Bench::start(4), async |bench, [eu, ..], key| {
            bench.upstream(&eu, receipt(1_000));
            let sent = bench.begun(&eu, "/park", &key, ms(500)).await;
            let theirs = take_over(&bench, &key).await;
            if settled {
                let answer =
                    Answer { status: 202, headers: Vec::new(), body: AnswerBody::Kept(b"theirs".into()) };
                assert_eq!(bench.world.ports(&eu).store().settle(&theirs, &answer).await, Ok(Written::Done));
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

#[test]
fn a_lost_claim_never_gets_another_requests_answer() {
    for (path, change) in [
        (
            "/park",
            (|ask| {
                ask.terms.fingerprint = Fingerprint { raw: digest("onceway/test/1", &[]), canonical: None }
            }) as fn(&mut ClaimAsk),
        ),
        ("/bound", |ask| ask.terms.principal = Some(digest("onceway/test/2", &[]))),
    ] {
        keyed(Bench::start(4), async |bench, [eu, ..], key| {
            bench.upstream(&eu, receipt(1_000));
            let mine = request_with(path, &key, "{}", ("authorization", "Bearer sk_ann"));
            let gateway = bench.gateway(&eu);
            let sent = tokio::spawn(async move { read_answer(gateway.handle(mine).await).await });
            sleep(ms(500)).await;
            let theirs = take_over_as(&bench, &key, change).await;
            let answer =
                Answer { status: 202, headers: Vec::new(), body: AnswerBody::Kept(b"secret".into()) };
            assert_eq!(bench.world.ports(&eu).store().settle(&theirs, &answer).await, Ok(Written::Done));
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
    let mut ask =
        ClaimAsk { basis: Basis::Known { own, over: Vec::new(), attempt }, ..claim(key, 1, HOLD * 100) };
    ask.terms.fingerprint = row.fingerprint;
    change(&mut ask);
    won(store, ask).await
}

#[test]
fn unknown_is_never_taken_for_failed() {
    let status = |status| says(5, status, true);
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
        keyed(Bench::start(5), async |bench, [eu, ..], key| {
            bench.upstream(&eu, mode.clone());
            let answer = bench.send(&eu, "/park", &key).await;
            assert_eq!(answer.said(), (expected, "outcome-unknown"), "{mode:?}");
            assert_eq!(bench.state(&eu, &key).await, "in-doubt", "{mode:?}");
            bench.upstream(&eu, receipt(5));
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
    let busy = says(5, 429, false);
    let told_when = UpstreamMode::Busy { retry_after: 1 };
    let refused = (502, "upstream-unavailable");
    for (mode, expected) in [(UpstreamMode::Refuse, refused), (busy, (429, "")), (told_when, (503, ""))] {
        keyed(Bench::start(6), async |bench, [eu, ..], key| {
            bench.upstream(&eu, mode.clone());
            assert_eq!(bench.send(&eu, "/park", &key).await.said(), expected);
            assert_eq!(bench.state(&eu, &key).await, "released");
            bench.upstream(&eu, receipt(5));
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
        bench.upstream(&eu, receipt(1_000));
        let begun = Instant::now();
        let sent = bench.begun(&eu, "/park", &key, ms(500)).await;
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

#[test]
fn fifty_duplicates_over_three_regions_have_one_effect() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        bench.upstream(&eu, receipt(500));
        let key = key_of(&eu, "fifty");
        let mut copies = Vec::new();
        for number in 0..50 {
            copies.push(bench.begin(&regions()[number % 3], "/park", &key));
            sleep(ms(number as u64 % 7)).await;
        }
        let mut answer: Vec<ClientAnswer> = Vec::new();
        for copy in copies {
            answer.push(copy.await.unwrap());
        }
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
        let receipt = &bench.effects(&key)[0].body;
        assert!(answer.iter().all(|answer| answer.status == 201 && answer.body == *receipt), "{answer:?}");
        assert_eq!(answer.iter().filter(|answer| !answer.replayed).count(), 1);
    });
}

/// The attempt runs in one gateway of eu, and only the poller wakes duplicates in another.
#[test]
fn duplicates_in_another_process_of_the_region_are_woken() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        bench.upstream(&eu, receipt(700));
        let second = bench.process(settings(&eu));
        until("the second process serves", ms(2_000), async || second.readiness().serves).await;
        let key = key_of(&eu, "two-processes");
        let begun = Instant::now();
        let first = bench.begun(&eu, "/park", &key, ms(100)).await;
        let copies: Vec<_> = (0..5)
            .map(|_| {
                let (second, key) = (second.clone(), key.clone());
                tokio::spawn(async move { ask(&second, "/park", &key, "{}").await })
            })
            .collect();
        let first = first.await.unwrap();
        assert_eq!((first.status, first.replayed), (201, false));
        for copy in copies {
            let answer = copy.await.unwrap();
            assert_eq!((answer.status, answer.replayed, &answer.body), (201, true, &first.body));
        }
        assert!(begun.elapsed() < ms(900), "{:?}", begun.elapsed());
        assert_eq!(bench.arrived(&eu), 1);
    });
}

/// The wait ends before the attempt does: the answer asks the client to come back. The hold does
/// not depend on when the client gave up.
#[test]
fn a_duplicate_waits_no_longer_than_its_route_allows() {
    served(Bench::start(3), async |bench, [eu, ..]| {
        bench.upstream(&eu, receipt(2_800));
        let key = key_of(&eu, "long");
        let first = bench.begun(&eu, "/park", &key, ms(100)).await;
        let begun = Instant::now();
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), (409, "in-progress"));
        assert!(begun.elapsed() >= ms(2_000) && begun.elapsed() < ms(2_100), "{:?}", begun.elapsed());
        assert_eq!(first.await.unwrap().status, 201);
        assert_eq!(bench.arrived(&eu), 1);
    });
}

#[test]
fn waiting_duplicates_run_a_released_attempt_once() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        bench.upstream(&eu, says(300, 429, false));
        let key = key_of(&eu, "freed");
        let first = bench.begun(&eu, "/park", &key, ms(100)).await;
        let copies: Vec<_> = (0..10).map(|_| bench.begin(&eu, "/park", &key)).collect();
        sleep(ms(100)).await;
        bench.upstream(&eu, receipt(300));
        assert_eq!(first.await.unwrap().status, 429);
        let mut firsts = 0;
        for copy in copies {
            let answer = copy.await.unwrap();
            assert_eq!(answer.status, 201, "{answer:?}");
            firsts += usize::from(!answer.replayed);
        }
        assert_eq!((firsts, bench.effects(&key).len(), bench.arrived(&eu)), (1, 1, 2));
    });
}
