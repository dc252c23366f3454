//! The preconditions of a send: a durable claim, and the right to send under it.
//!
//! `outcomes.rs` goes on after the send. `gateway::request` must not send on anything less: then
//! these tests fail.

use super::bench::*;

const REFUSED: (u16, &str) = (503, "store-unavailable");

async fn runs_once_after_healing(bench: &Bench, eu: &RegionName, key: &str) {
    bench.store(eu, StoreMode::Up);
    bench.all_serve().await;
    let mut answer = bench.send(eu, "/probe", key).await;
    until("a first answer", ms(5_000), async || {
        answer = bench.send(eu, "/probe", key).await;
        answer.status == 201
    })
    .await;
    assert_eq!((bench.effects(key).len(), bench.arrived(eu)), (1, 1));
    assert_eq!(answer.body, bench.effects(key)[0].body);
}

/// Nothing is sent while eu's store is like this, and the key runs once after healing.
fn nothing_is_sent_while(mode: StoreMode) {
    served(Bench::start(1), async |bench, [eu, ..]| {
        let key = key_of(&eu, "refused");
        bench.store(&eu, mode);
        assert_eq!(bench.send(&eu, "/probe", &key).await.said(), REFUSED);
        assert_eq!(bench.arrived(&eu), 0);
        runs_once_after_healing(&bench, &eu, &key).await;
    });
}

#[test]
fn nothing_is_sent_while_the_store_refuses() {
    nothing_is_sent_while(StoreMode::Refuse);
}

#[test]
fn nothing_is_sent_while_the_store_stalls() {
    nothing_is_sent_while(StoreMode::Stall(ms(300)));
}

#[test]
fn a_nonce_finds_a_claim_with_a_lost_reply() {
    served(Bench::start(3), async |bench, [eu, ..]| {
        let key = key_of(&eu, "lost-reply");
        bench.store(&eu, StoreMode::LoseReplies(ms(300)));
        let sent = bench.begin(&eu, "/park", &key);
        sleep(ms(100)).await;
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
            let sent = bench.begin(&eu, "/park", &key);
            sleep(ms(100)).await;
            bench.store(&eu, second);
            assert_eq!(sent.await.unwrap().said(), REFUSED, "{word}");
            bench.store(&eu, StoreMode::Up);
            assert_eq!(bench.state(&eu, &key).await, "in-progress", "{word}: the ghost must be there");
            until("the ghost is released", ms(2_000), async || bench.state(&eu, &key).await == "released")
                .await;
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
/// from before the claim.
#[test]
fn a_handler_that_slept_past_its_window_does_not_send() {
    served(Bench::start(5), async |bench, [eu, ..]| {
        let key = key_of(&eu, "slept");
        bench.world.cluster.set_latency(&eu, ms(8_000));
        let sent = bench.begin(&eu, "/park", &key);
        sleep(ms(7_990)).await;
        bench.world.cluster.set_latency(&eu, ms(2));
        assert_eq!(sent.await.unwrap().said(), (503, "not-authoritative"));
        assert_eq!((bench.arrived(&eu), bench.state(&eu, &key).await), (0, "released"));
        bench.all_serve().await;
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        assert_eq!(bench.effects(&key).len(), 1);
    });
}

/// A slow connection outlives the checks before it: the right to send is checked again.
#[test]
fn a_connection_that_outlives_the_lease_carries_nothing() {
    served(Bench::start(5), async |bench, [eu, ..]| {
        let key = key_of(&eu, "connecting");
        bench.world.upstreams.set_connect(&eu, ms(2_900));
        bench.world.cluster.set_latency(&eu, ms(4_000));
        let sent = bench.begin(&eu, "/park", &key);
        sleep(ms(3_990)).await;
        bench.world.cluster.set_latency(&eu, ms(2));
        let answer = sent.await.unwrap();
        assert_eq!((answer.said(), bench.arrived(&eu)), ((503, "not-authoritative"), 0));
        assert_eq!(bench.state(&eu, &key).await, "released");
        bench.world.upstreams.set_connect(&eu, ms(0));
        bench.all_serve().await;
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        assert_eq!(bench.effects(&key).len(), 1);
    });
}

#[test]
fn another_request_under_the_key_is_never_sent() {
    served(Bench::start(7), async |bench, [eu, ..]| {
        let key = key_of(&eu, "reused");
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        let other = ask(&bench.gateway(&eu), "/park", &key, "{\"other\":1}").await;
        assert_eq!(other.said(), (422, "key-reused"));
        assert_eq!(bench.arrived(&eu), 1);
    });
}
