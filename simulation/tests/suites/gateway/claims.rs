//! The preconditions of a send: a durable claim, lodged if its route is under escrow, and the right
//! to send under it. After each refusal nothing was sent, and the same key runs once.

use super::accepted::asked;
use super::bench::*;

const REFUSED: (u16, &str) = (503, "store-unavailable");

#[test]
fn nothing_is_sent_while_the_store_fails() {
    for mode in [StoreMode::Refuse, StoreMode::Stall(ms(300))] {
        keyed(Bench::start(1), async |bench, [eu, ..], key| {
            bench.store(&eu, mode);
            assert_eq!(bench.send(&eu, "/probe", &key).await.said(), REFUSED, "{mode:?}");
            assert_eq!(bench.arrived(&eu), 0, "{mode:?}");
            bench.store(&eu, StoreMode::Up);
            bench.all_serve().await;
            let mut answer = ClientAnswer::default();
            until("a first answer", ms(5_000), async || {
                answer = bench.send(&eu, "/probe", &key).await;
                answer.status == 201
            })
            .await;
            assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1), "{mode:?}");
            assert_eq!(answer.body, bench.effects(&key)[0].body, "{mode:?}");
        });
    }
}

#[test]
fn a_nonce_finds_a_claim_with_a_lost_reply() {
    keyed(Bench::start(3), async |bench, [eu, ..], key| {
        bench.store(&eu, StoreMode::LoseReplies(ms(300)));
        let sent = bench.begun(&eu, "/park", &key, ms(100)).await;
        assert_eq!(bench.arrived(&eu), 0);
        bench.store(&eu, StoreMode::Up);
        let answer = sent.await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
    });
}

#[test]
fn an_unconfirmed_claim_is_released_and_never_sent() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        // A parked route: a claim left to run out would stay in doubt, though nothing was sent.
        for (word, second) in
            [("ghost", StoreMode::LoseReplies(ms(300))), ("ghost-refused", StoreMode::Refuse)]
        {
            let key = key_of(&eu, word);
            bench.store(&eu, StoreMode::LoseReplies(ms(300)));
            let sent = bench.begun(&eu, "/park", &key, ms(100)).await;
            bench.store(&eu, second);
            assert_eq!(sent.await.unwrap().said(), REFUSED, "{word}");
            bench.store(&eu, StoreMode::Up);
            assert_eq!(bench.state(&eu, &key).await, "in-progress", "{word}: the ghost must be there");
            bench.until_state(&eu, &key, "released", ms(2_000)).await;
            assert!(bench.effects(&key).is_empty(), "{word}");
            bench.all_serve().await;
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201, "{word}");
            assert_eq!(bench.effects(&key).len(), 1, "{word}");
        }
        assert_eq!(bench.arrived(&eu), 2);
    });
}

/// The claim commits at 4 s and its reply arrives at 8 s. The hold still runs (till 14 s). But an
/// upstream that takes all its time would end within drift and margin of the hold's end, counted
/// from before the claim. Or a slow connection outlives the checks before it: the right to send is
/// checked again.
#[test]
fn a_handler_that_slept_past_its_window_does_not_send() {
    for (slept, connect) in [(8_000, 0), (4_000, 2_900)] {
        keyed(Bench::start(5), async |bench, [eu, ..], key| {
            bench.world.upstreams.set_connect(&eu, ms(connect));
            bench.world.cluster.set_latency(&eu, ms(slept));
            let sent = bench.begun(&eu, "/park", &key, ms(slept - 10)).await;
            bench.world.cluster.set_latency(&eu, ms(2));
            assert_eq!(sent.await.unwrap().said(), (503, "not-authoritative"), "{slept}");
            assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (0, "released"), "{slept}");
            bench.world.upstreams.set_connect(&eu, ms(0));
            bench.all_serve().await;
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201, "{slept}");
            assert_eq!(bench.effects(&key).len(), 1, "{slept}");
        });
    }
}

#[test]
fn another_request_under_the_key_is_never_sent() {
    keyed(Bench::start(7), async |bench, [eu, ..], key| {
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        let other = ask(&bench.gateway(&eu), "/park", &key, "{\"other\":1}").await;
        assert_eq!(other.said(), (422, "key-reused"));
        assert_eq!(bench.arrived(&eu), 1);
    });
}

fn target(key: &str) -> RegionName {
    view().target(&id(key)).unwrap().clone()
}

#[test]
fn a_claim_that_cannot_be_lodged_is_not_sent() {
    for mode in [LinkMode::Refuse, LinkMode::LoseRequest, LinkMode::LoseReply, LinkMode::Silent] {
        keyed(Bench::under_escrow(1), async |bench, [eu, ..], key| {
            bench.world.network.set_link(&eu, &target(&key), mode, ONE_WAY);
            assert_eq!(bench.send(&eu, "/park", &key).await.said(), (503, "escrow-unavailable"), "{mode:?}");
            assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (0, "released"), "{mode:?}");
            bench.world.network.set_link(&eu, &target(&key), LinkMode::Up, ONE_WAY);
            bench.all_serve().await;
            assert_eq!(bench.send(&eu, "/park", &key).await.status, 201, "{mode:?}");
            assert_eq!(bench.effects(&key).len(), 1, "{mode:?}");
        });
    }
}

#[test]
fn a_target_whose_store_fails_takes_nothing() {
    keyed(Bench::under_escrow(2), async |bench, [eu, ..], key| {
        bench.store(&target(&key), StoreMode::Refuse);
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), (503, "escrow-unavailable"));
        assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (0, "released"));
        // Other routes do not need it.
        assert_eq!(bench.send(&eu, "/rerun", &key_of(&eu, "free")).await.status, 201);
    });
}

/// Cut off from all others, a region cannot renew: it runs nothing more, and replays final answers.
#[test]
fn a_region_without_a_lease_replays_and_refuses() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        let (old, fresh) = (key_of(&eu, "old"), key_of(&eu, "fresh"));
        assert_eq!(bench.send(&eu, "/park", &old).await.status, 201);
        for other in regions().iter().filter(|other| **other != eu) {
            bench.world.cut(&eu, other, true, ONE_WAY);
        }
        sleep(ms(4_000)).await;
        assert_eq!(bench.send(&eu, "/park", &fresh).await.said(), (503, "not-authoritative"));
        // Others may run it by now: its absence here says nothing.
        assert_eq!(asked(&bench.gateway(&eu), &fresh).await.1["code"], "not-authoritative");
        assert_eq!(asked(&bench.gateway(&eu), &old).await.1["state"], "settled");
        let answer = bench.send(&eu, "/park", &old).await;
        assert_eq!((answer.status, answer.replayed, bench.arrived(&eu)), (201, true, 1));
    });
}
