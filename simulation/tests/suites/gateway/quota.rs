//! Quotas: a tenant that starts keys too fast is refused before anything is read, stored or sent;
//! retries and other tenants are not.
//!
//! Time is the bench's: a refused request must not pass before the clock says so.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use onceway::gateway::limits::quota::{Pace, Quota};
use onceway::ports::BodyError;
use tokio::time::sleep_until;

use super::bench::*;

const EXCEEDED: (u16, &str) = (429, "quota-exceeded");
const NONE: Quota = Quota { new_keys: None, look_ups: None, misses: None, live_keys: None };

async fn limited_to(bench: &Bench, name: &RegionName, quota: Quota) -> Gate {
    bench.plugged(Settings { live: Reload { quota: Some(quota), ..reload() }, ..settings(name) }).await
}

/// The same, where each tenant may start one key per second, two at once.
async fn limited(bench: &Bench, name: &RegionName) -> Gate {
    limited_to(bench, name, Quota { new_keys: Some(pace(2)), ..NONE }).await
}

fn pace(burst: u32) -> Pace {
    Pace { per_second: NonZeroU32::new(1).unwrap(), burst: NonZeroU32::new(burst).unwrap() }
}

fn retry_after(refused: &Response<Body>) -> u64 {
    refused.headers()["retry-after"].to_str().unwrap().parse().unwrap()
}

#[test]
fn a_quota_refuses_its_tenant_before_the_store() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        let gateway = limited(&bench, &eu).await;
        for (gateway, says) in [(&gateway, true), (&bench.gateway(&region("us")), false)] {
            let asked = Request::get("/.well-known/idempotency").body(onceway::ports::body::empty()).unwrap();
            let contract = read_answer(gateway.handle(asked).await).await.body;
            assert_eq!(String::from_utf8_lossy(&contract).contains("quota-exceeded"), says);
        }
        let key = |word: &str| key_of(&eu, word);
        let first = Instant::now();
        for word in ["one", "two"] {
            assert_eq!(ask(&gateway, "/park", &key(word), "{}").await.status, 201);
        }
        bench.store(&eu, StoreMode::Stall(ms(300)));
        let begun = Instant::now();
        let refused = gateway.handle(request("/park", &key("three"), "").map(|_| Never.boxed_unsync())).await;
        let after = retry_after(&refused);
        assert!((1..=4).contains(&after), "what is left of a second, and up to three more: {after}");
        assert_eq!(refused.headers()["idempotency-key"], key("three").as_str());
        let answer = read_answer(refused).await;
        assert_eq!(answer.said(), EXCEEDED);
        assert!(String::from_utf8_lossy(&answer.body).contains("\"safe_to_retry\":true"));
        assert_eq!(begun.elapsed(), ms(0), "neither body nor store were waited for");
        let mut answer = BTreeSet::new();
        for _ in 0..64 {
            answer.insert(ask(&gateway, "/park", &key("three"), "{}").await.retry_after.unwrap());
        }
        assert_eq!(answer.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4], "not all at once");
        bench.store(&eu, StoreMode::Up);
        assert_eq!(ask_as("globex", &gateway, "/park", "other", "{}").await.status, 201);

        sleep_until(first + ms(999)).await;
        assert_eq!(ask(&gateway, "/park", &key("three"), "{}").await.said(), EXCEEDED);
        sleep_until(first + ms(1_000)).await;
        assert_eq!(ask(&gateway, "/park", &key("three"), "{}").await.status, 201, "the same key, when told");
        assert_eq!(ask(&gateway, "/park", &key("four"), "{}").await.said(), EXCEEDED);
        assert_eq!(bench.effects(&key("four")).len(), 0);
    });
}

struct Never;

impl http_body::Body for Never {
    type Data = bytes::Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, BodyError>>> {
        Poll::Pending
    }
}

#[test]
fn retries_cost_nothing_and_trying_keys_out_does() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        let gateway = limited(&bench, &eu).await;
        let (key, next) = (key_of(&eu, "again"), key_of(&eu, "next"));
        assert_eq!(ask(&gateway, "/park", &key, "{}").await.status, 201);
        for _ in 0..10 {
            assert!(ask(&gateway, "/park", &key, "{}").await.replayed);
        }
        assert_eq!(ask(&gateway, "/park", &key, "[]").await.said(), (422, "key-reused"));
        // A refusal of another request counts, and nothing is left, even for a retry.
        for key in [next, key] {
            assert_eq!(ask(&gateway, "/park", &key, "{}").await.said(), EXCEEDED, "{key}");
        }
    });
}

#[test]
fn a_forward_is_charged_once_and_its_replay_is_given_back() {
    served(Bench::start(3), async |bench, [eu, us, _]| {
        let (home, near) = (limited(&bench, &eu).await, limited(&bench, &us).await);
        let keys = ["a", "b", "c", "d"].map(|word| key_of(&eu, word));
        // The home replays a copy that has not arrived yet.
        bench.world.cluster.set_delay(&eu, &us, ms(60_000));
        assert_eq!(ask(&near, "/park", &keys[0], "{}").await.status, 201);
        for _ in 0..3 {
            assert!(ask(&near, "/park", &keys[0], "{}").await.replayed);
        }
        assert_eq!(ask(&near, "/park", &keys[1], "{}").await.status, 201);
        assert_eq!(ask(&near, "/park", &keys[2], "{}").await.said(), EXCEEDED);
        for key in &keys[2..] {
            assert_eq!(ask(&home, "/park", key, "{}").await.status, 201, "the home's own quota is untouched");
        }
    });
}

#[test]
fn shadow_mode_counts_what_quotas_would_refuse() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        let quota = Some(Quota { new_keys: Some(pace(2)), ..NONE });
        let live = Reload { quota, ..reload() };
        let gateway = bench.plugged(Settings { live, shadow: true, ..settings(&eu) }).await;
        for key in ["a", "a", "a", "b", "c"] {
            assert_eq!(ask(&gateway, "/park", key, "{}").await.status, 201);
        }
        let counts = gateway.shadow_report().unwrap().routes.remove("park").unwrap();
        assert_eq!((counts.run, counts.replayed), (2, 2));
        assert_eq!(counts.refused.into_iter().collect::<Vec<_>>(), [("quota-exceeded", 1)]);
    });
}

/// Asks the status address. Returns its status and code.
async fn state(gateway: &Gate, key: &str) -> (u16, String) {
    let response = gateway.handle(question(key, "sk")).await;
    if response.status() == 429 {
        let after = retry_after(&response);
        assert!((1..=4).contains(&after), "what is left of a second, and up to three more: {after}");
    }
    let answer = read_answer(response).await;
    (answer.status, answer.said().1.to_owned())
}

#[test]
fn the_look_up_quota_does_not_limit_new_keys() {
    served(Bench::start(5), async |bench, [eu, ..]| {
        let quota = Quota { look_ups: Some(pace(3)), ..NONE };
        let gateway = limited_to(&bench, &eu, quota).await;
        let key = |word: &str| key_of(&eu, word);
        for word in ["one", "two", "three", "four", "five"] {
            assert_eq!(ask(&gateway, "/park", &key(word), "{}").await.status, 201, "given back: {word}");
        }
        assert!(ask(&gateway, "/park", &key("one"), "{}").await.replayed);
        assert_eq!(state(&gateway, &key("one")).await.0, 200);
        assert_eq!(state(&gateway, &key("none")).await, (404, "key-unknown".to_owned()));
        bench.store(&eu, StoreMode::Stall(ms(300)));
        let begun = Instant::now();
        assert_eq!(state(&gateway, &key("one")).await, (429, "quota-exceeded".to_owned()));
        assert_eq!(ask(&gateway, "/park", &key("one"), "{}").await.said(), EXCEEDED);
        assert_eq!(begun.elapsed(), ms(0), "the store was not waited for");
        bench.store(&eu, StoreMode::Up);
        assert_eq!(ask_as("globex", &gateway, "/park", "other", "{}").await.status, 201);
        sleep_until(Instant::now() + ms(1_000)).await;
        assert!(ask(&gateway, "/park", &key("one"), "{}").await.replayed);
    });
}

#[test]
fn look_ups_of_absent_keys_have_their_own_quota() {
    served(Bench::start(6), async |bench, [eu, us, _]| {
        let quota = Quota { misses: Some(pace(2)), ..NONE };
        let near = limited_to(&bench, &us, quota).await;
        let (here, there) = (key_of(&us, "here"), key_of(&eu, "there"));
        assert_eq!(ask(&near, "/park", &here, "{}").await.status, 201);
        for _ in 0..10 {
            assert_eq!(state(&near, &here).await.0, 200, "what is there is no miss");
        }
        assert_eq!(state(&near, &key_of(&us, "none")).await.0, 404);
        assert_eq!(state(&near, &there).await.0, 404, "nor is there one at its home");
        assert_eq!(state(&near, &key_of(&us, "more")).await, (429, "quota-exceeded".to_owned()));
        assert_eq!(state(&near, &here).await.0, 429, "nobody knows before the store is asked");
        assert_eq!(ask(&near, "/park", &there, "{}").await.status, 201, "a new key is no miss");
        sleep_until(Instant::now() + ms(1_000)).await;
        assert_eq!(state(&near, &here).await.0, 200);
    });
}

/// Starts a key, and gives the background time to count.
async fn start_one(gateway: &Gate, key: &str) -> (u16, String) {
    let answer = ask(gateway, "/park", key, "{}").await;
    sleep_until(Instant::now() + ms(1_500)).await;
    (answer.status, answer.said().1.to_owned())
}

/// Starts keys, which are answered so, until one is refused. Returns the number of started keys.
async fn start_all(gateway: &Gate, at: &RegionName, answered: u16) -> usize {
    for number in 0..10 {
        match start_one(gateway, &key_of(at, &format!("all-{number}"))).await.0 {
            429 => return number,
            status => assert_eq!(status, answered),
        }
    }
    panic!("nothing was refused");
}

fn live(most: u32) -> Quota {
    Quota { live_keys: NonZeroU32::new(most), ..NONE }
}

#[test]
fn a_full_tenant_uses_only_its_existing_keys() {
    served(Bench::start(7), async |bench, [eu, ..]| {
        let gateway = limited_to(&bench, &eu, live(3)).await;
        let key = |word: &str| key_of(&eu, word);
        // The count beside a request may or may not see its key.
        let started = start_all(&gateway, &eu, 201).await;
        assert!((3..=4).contains(&started), "{started}");
        let refused = gateway.handle(request("/park", &key("four"), "{}")).await;
        let after = retry_after(&refused);
        assert!((30..=60).contains(&after), "keys are not forgotten within seconds: {after}");
        assert_eq!(read_answer(refused).await.said(), EXCEEDED);
        assert!(ask(&gateway, "/park", &key("all-1"), "{}").await.replayed, "what it has is served");
        assert_eq!(ask(&gateway, "/park", &key("all-1"), "[]").await.said(), (422, "key-reused"));
        assert_eq!(state(&gateway, &key("four")).await, (404, "key-unknown".to_owned()));
        assert_eq!(bench.effects(&key("four")).len(), 0);
        let other = ask_as("globex", &gateway, "/park", "other", "{}").await;
        assert_eq!(other.status, 201, "another tenant has its own");
        bench.store(&eu, StoreMode::Refuse);
        let unknown = ask(&gateway, "/park", &key("all-1"), "{}").await;
        assert_eq!(unknown.status, 503, "what stands there is not known");
    });
}

#[test]
fn a_full_tenant_still_finishes_its_begun_keys() {
    served(Bench::start(9), async |bench, [eu, ..]| {
        let gateway = limited_to(&bench, &eu, live(4)).await;
        let (released, accepted) = (key_of(&eu, "released"), key_of(&eu, "accepted"));
        bench.upstream(&eu, UpstreamMode::Refuse);
        assert_eq!(ask(&gateway, "/park", &released, "{}").await.said(), (502, "upstream-unavailable"));
        for word in ["one", "two"] {
            assert_eq!(start_one(&gateway, &key_of(&eu, word)).await.0, 502);
        }
        // Its runs are refused, too, until it is given up: seconds from now.
        assert_eq!(ask(&gateway, "/later", &accepted, "{}").await.status, 202);
        start_all(&gateway, &eu, 502).await;
        bench.upstream(&eu, receipt(10));
        assert_eq!(ask(&gateway, "/park", &released, "{}").await.status, 201, "it is no new key");
        until("the accepted request to be run", ms(60_000), async || bench.effects(&accepted).len() == 1)
            .await;
        assert_eq!(bench.effects(&released).len(), 1);
        assert_eq!(start_one(&gateway, &key_of(&eu, "more")).await.0, 429);
    });
}

#[test]
fn keys_that_another_gateway_started_count_and_forgotten_ones_do_not() {
    served(Bench::start(8), async |bench, [eu, ..]| {
        let other = bench.gateway(&eu);
        // More than one look counts.
        let most = 520;
        for number in 0..most {
            let key = key_of(&eu, &format!("k{number}"));
            assert_eq!(ask(&other, "/park", &key, "{}").await.status, 201, "{key}");
        }
        let gateway = limited_to(&bench, &eu, live(most)).await;
        let key = |word: &str| key_of(&eu, word);
        assert_eq!(start_one(&gateway, &key("four")).await.0, 201, "nothing was counted yet");
        assert_eq!(start_one(&gateway, &key("five")).await, (429, "quota-exceeded".to_owned()));
        assert_eq!(ask(&other, "/park", &key("five"), "{}").await.status, 201, "that one has no quota");
        assert!(ask(&gateway, "/park", &key("five"), "{}").await.replayed);
        // An idle tenant is not counted. The first request after the pause is refused by the old
        // count, and asked to come again at once.
        sleep_until(Instant::now() + RETENTION + TOMBSTONE * 2).await;
        let refused = gateway.handle(request("/park", &key("six"), "{}")).await;
        let after = retry_after(&refused);
        assert!(refused.status() == 429 && (1..=4).contains(&after), "{after}");
        sleep_until(Instant::now() + ms(2_000)).await;
        assert_eq!(start_one(&gateway, &key("six")).await.0, 201, "the others were forgotten");
    });
}

#[test]
fn a_reload_that_leaves_the_number_leaves_the_count() {
    served(Bench::start(10), async |bench, [eu, ..]| {
        let gateway = limited_to(&bench, &eu, live(1)).await;
        start_all(&gateway, &eu, 201).await;
        let more = key_of(&eu, "more");
        let with = |quota: Quota| Reload { quota: Some(quota), ..reload() };
        gateway.reload(with(Quota { misses: Some(pace(2)), ..live(1) }));
        assert_eq!(ask(&gateway, "/park", &more, "{}").await.said(), EXCEEDED);
        gateway.reload(with(live(9)));
        assert_eq!(ask(&gateway, "/park", &more, "{}").await.status, 201);
    });
}
