//! The limit of requests at once: further ones are refused before they are read, and a hang-up
//! frees nothing that still runs.
//!
//! The own tests of `onceway::gateway::limits::concurrency` count places.

use std::io;

use onceway::gateway::limits::concurrency::MostAtOnce;
use serde_json::Value;

use super::accepted::asked;
use super::bench::*;

const OVERLOADED: (u16, &str) = (503, "overloaded");
/// The limit for a body on the bench's routes, in bytes.
const BODY_LIMIT: usize = 1 << 16;

async fn taking(bench: &Bench, name: &RegionName, requests: usize, bodies: usize) -> Gate {
    let most_at_once = MostAtOnce { requests, bodies };
    bench.plugged(Settings { live: Reload { most_at_once, ..reload() }, ..settings(name) }).await
}

async fn forwarded(gateway: &Gate, forward: Forward) -> Response<Body> {
    let ForwardReply::Answer(answer) = Region::forward(gateway, region("us"), forward).await else {
        panic!("the owner was asked")
    };
    answer
}

#[test]
fn a_full_gateway_refuses_further_requests_at_once() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        let gateway = taking(&bench, &eu, 2, BODY_LIMIT * 10).await;
        bench.upstream(&eu, receipt(800));
        let begin = |word: &str| {
            let (gateway, key) = (gateway.clone(), key_of(&eu, word));
            tokio::spawn(async move { ask(&gateway, "/park", &key, "{}").await })
        };
        let (hangs_up, stays) = (begin("hangs-up"), begin("stays"));
        until("both to be sent", ms(500), async || bench.arrived(&eu) == 2).await;
        hangs_up.abort();
        assert!(hangs_up.await.unwrap_err().is_cancelled());

        let begun = Instant::now();
        let third = key_of(&eu, "third");
        let refused = gateway.handle(request("/park", &third, "{}")).await;
        let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=4).contains(&after), "a second, and up to three more: {after}");
        let refused = read_answer(refused).await;
        assert_eq!(refused.said(), OVERLOADED);
        assert!(String::from_utf8_lossy(&refused.body).contains("\"safe_to_retry\":true"));
        let passed = ask(&gateway, "/nothing-is-known-of", "k", "{}").await;
        assert_eq!(passed.said(), OVERLOADED, "requests without a key have places, too");
        assert_eq!(begun.elapsed(), ms(0), "nothing was waited for");

        let first = forwarded(&gateway, forward("/park", &key_of(&eu, "from-us"))).await;
        assert_eq!(first.status(), 201, "peers have places of their own");

        assert_eq!(stays.await.unwrap().status, 201);
        assert_eq!(ask(&gateway, "/park", &third, "{}").await.status, 201, "the same key, later");
        assert_eq!(bench.effects(&third).len(), 1);
        assert_eq!(bench.effects(&key_of(&eu, "hangs-up")).len(), 1, "it ran to its end");
    });
}

#[test]
fn an_answer_keeps_its_place_until_it_was_sent() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        let gateway = taking(&bench, &eu, 1, BODY_LIMIT).await;
        let (key, next) = (key_of(&eu, "slowly-read"), key_of(&eu, "next"));
        let answer = gateway.handle(request("/park", &key, "{}")).await;
        assert_eq!(answer.status(), 201);
        assert_eq!(ask(&gateway, "/park", &next, "{}").await.said(), OVERLOADED);
        assert_eq!(read_answer(answer).await.status, 201);
        assert_eq!(ask(&gateway, "/park", &next, "{}").await.status, 201);
    });
}

#[test]
fn clients_hear_that_a_full_peer_refused_them() {
    served(Bench::start(3), async |bench, [eu, us, _]| {
        let gateway = taking(&bench, &eu, 1, BODY_LIMIT).await;
        bench.upstream(&eu, receipt(800));
        let (first, second) = (key_of(&eu, "first"), key_of(&eu, "second"));
        let running = bench.begin(&us, "/park", &first);
        until("the first to be sent", ms(500), async || bench.arrived(&eu) == 1).await;
        assert_eq!(bench.send(&us, "/park", &second).await.said(), OVERLOADED);
        let (status, reply) = asked(&bench.gateway(&us), &second).await;
        // The home is there and cannot say, which does not mean that there is nothing.
        assert_eq!((status, &reply["code"]), (503, &"overloaded".into()));
        let holds = async || asked(&bench.gateway(&us), &first).await.0 == 200;
        until("what the copy knows to be told", ms(300), holds).await;
        let own = ask(&gateway, "/park", &second, "{}").await;
        assert_eq!(own.status, 201, "clients have places of their own");
        assert_eq!(running.await.unwrap().status, 201);
        assert!(bench.send(&us, "/park", &second).await.replayed);
    });
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn both_gateways_log_a_refused_forward_under_one_trace() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
    let lines = lines.finish();
    // If only one subscriber exists, tracing asks only the first thread, here another test's.
    let _second = tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
    tracing::subscriber::with_default(lines, || {
        served(Bench::start(6), async |bench, [eu, us, _]| {
            let _gateway = taking(&bench, &eu, 1, BODY_LIMIT).await;
            bench.upstream(&eu, receipt(800));
            let running = bench.begin(&us, "/park", &key_of(&eu, "first"));
            until("the first to be sent", ms(500), async || bench.arrived(&eu) == 1).await;
            assert_eq!(bench.send(&us, "/park", &key_of(&eu, "second")).await.said(), OVERLOADED);
            assert_eq!(running.await.unwrap().status, 201);
        });
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let owner = lines.iter().find(|line| line["message"] == "not admitted").expect("the owner's line");
    assert_eq!([&owner["region"], &owner["code"]], ["eu", "overloaded"]);
    assert_eq!(owner["trace"].as_str().map(str::len), Some(32), "{owner}");
    let of_it: Vec<&Value> = lines.iter().filter(|line| line["trace"] == owner["trace"]).collect();
    let [_, first] = &of_it[..] else { panic!("{of_it:#?}") };
    assert_eq!([&first["region"], &first["message"], &first["code"]], ["us", "forwarded", "overloaded"]);
}

#[test]
fn bodies_have_room_as_announced_or_as_large_as_they_may_be() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        let gateway = taking(&bench, &eu, 10, BODY_LIMIT + 100).await;
        bench.upstream(&eu, receipt(800));
        let sized = |word: &str, length: usize| {
            let text = format!("\"{}\"", "a".repeat(length - 2));
            let mut request = request("/park", &key_of(&eu, word), &text);
            request.headers_mut().insert("content-length", length.into());
            request
        };
        let first = tokio::spawn({
            let (gateway, request) = (gateway.clone(), sized("first", 150));
            async move { read_answer(gateway.handle(request).await).await }
        });
        until("the first to be sent", ms(500), async || bench.arrived(&eu) == 1).await;
        let streamed = |text| onceway::ports::body::chain(text, onceway::ports::body::empty());
        let unsized_one = request("/park", &key_of(&eu, "unsized"), "").map(|_| streamed("{}".into()));
        let bare = request("/park", &key_of(&eu, "bare"), "");
        for (name, request, status) in [
            ("of any length", unsized_one, 503),
            ("large", sized("large", BODY_LIMIT - 10), 503),
            ("small", sized("small", 200), 201),
            ("no body takes no room", bare, 201),
        ] {
            let answer = read_answer(gateway.handle(request).await).await;
            let code = if status == 503 { OVERLOADED.1 } else { "" };
            assert_eq!(answer.said(), (status, code), "{name}");
        }
        assert_eq!(first.await.unwrap().status, 201);
        assert_eq!(read_answer(gateway.handle(sized("large", BODY_LIMIT - 10)).await).await.status, 201);
    });
}

/// The same holds for requests through another region.
#[test]
fn a_tenant_that_fills_a_gateway_leaves_places_to_the_others() {
    served(Bench::start(6), async |bench, [eu, us, _]| {
        let gateway = taking(&bench, &eu, 16, BODY_LIMIT * 100).await;
        bench.upstream(&eu, receipt(800));
        let mut sent = Vec::new();
        for number in 0..20 {
            let (gateway, key) = (gateway.clone(), key_of(&eu, &format!("acme-{number}")));
            sent.push(tokio::spawn(async move { ask(&gateway, "/park", &key, "{}").await }));
            sent.push(bench.begin(&us, "/park", &key_of(&eu, &format!("over-{number}"))));
        }
        until("all that fit to be sent", ms(500), async || bench.arrived(&eu) == 28).await;
        assert_eq!(ask(&gateway, "/park", &key_of(&eu, "more"), "{}").await.said(), OVERLOADED);
        let key = key_of(&eu, "globex");
        let (here, there) = (
            ask_as("globex", &gateway, "/park", &key, "{}").await,
            ask_as("globex", &bench.gateway(&us), "/park", &key_of(&eu, "globex-over"), "{}").await,
        );
        assert_eq!((here.status, there.status), (201, 201));
        let mut refused = 0;
        for one in sent {
            let reply = one.await.unwrap();
            assert!(reply.status == 201 || reply.said() == OVERLOADED, "{reply:?}");
            refused += usize::from(reply.status != 201);
        }
        assert_eq!(refused, 12, "an eighth of sixteen is kept, of clients and of peers");
    });
}

#[test]
fn a_forwarded_body_that_there_is_no_room_for_is_refused() {
    served(Bench::start(5), async |bench, [eu, ..]| {
        let gateway = taking(&bench, &eu, 10, 100).await;
        let key = key_of(&eu, "from-us");
        let of = |bytes: usize| Forward { body: vec![b' '; bytes].into(), ..forward("/park", &key) };
        assert_eq!(read_answer(forwarded(&gateway, of(101)).await).await.said(), OVERLOADED);
        assert_eq!(bench.effects(&key).len(), 0);
        assert_eq!(read_answer(forwarded(&gateway, of(100)).await).await.status, 201);
    });
}
