//! HTTP/2 from clients: good requests, one after the other and side by side, and malformed ones,
//! which end as a problem, or as a reset where the protocol says so (RFC 9113 section 8.1.1).

use crate::net::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Outcome, PING, RST_STREAM, Raw, block, frame,
    request,
};
use crate::net::harness::{http2, run, still_answers};
use crate::net::support::*;
use http::Version;

async fn client(address: &str) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    sender
}

#[tokio::test]
async fn concurrent_requests_pass_by_prior_knowledge() {
    let mut running = run(PublicLimits::default()).await;
    let sender = client(&running.address).await;
    let ask = |path: &str, body: &'static str| {
        let request = Request::post(format!("http://a{path}")).body(Full::new(Bytes::from(body))).unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap() }
    };
    let waiting = tokio::spawn(ask("/wait", ""));
    running.comes("arrived").await;
    let answer = soon(ask("/echo?a=%2F", "hello")).await;
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_2));
    assert!(!answer.headers().contains_key("keep-alive"));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
    running.service.gate.add_permits(1);
    let waited = soon(waiting).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(waited, "waited");
    assert_eq!(running.service.seen(), ["POST /wait", "POST /echo?a=%2F"]);
    let long = soon(ask(&format!("/{}", "a".repeat(8192)), "")).await;
    assert_eq!(long.status(), StatusCode::URI_TOO_LONG);
}

#[tokio::test]
async fn large_answers_come_whole() {
    let running = run(PublicLimits::default()).await;
    let mut sender = client(&running.address).await;
    let request = Request::get("http://a/big").body(Full::new(Bytes::new())).unwrap();
    let answer = soon(sender.send_request(request)).await.unwrap();
    let whole = soon(answer.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(whole.len(), crate::net::harness::BIG);
}

#[tokio::test]
async fn http2_passes_end_to_end_headers_and_joins_cookies() {
    let (_running, mut raw) = http2().await;
    let others: [(&str, &[u8]); 7] = [
        ("host", b"A"),
        ("te", b"trailers"),
        ("cookie", b"a=1"),
        ("cookie", b"b=2"),
        ("onceway-tenant", b"forged"),
        ("x-forwarded-for", b"10.0.0.1"),
        ("accept", b"b"),
    ];
    raw.send(&frame(HEADERS, END_HEADERS, 1, &request("POST", "/headers", &others))).await;
    raw.send(&frame(DATA, 0, 1, b"a")).await;
    // Trailers.
    let trailers = block(&[("idempotency-key", "forged")]);
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers)).await;
    let expected = "accept: b\ncookie: a=1; b=2\nhost: A\nx-forwarded-for: 127.0.0.1\nx-forwarded-host: A\nx-forwarded-proto: http\n";
    assert_eq!(soon(raw.outcome(1)).await, Outcome::Answer(expected.into()));
}

const GOOD: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];

fn and(name: &str, value: &str) -> Vec<u8> {
    block(&[&GOOD[..], &[(name, value)]].concat())
}

fn but(name: &str, value: Option<&'static str>) -> Vec<u8> {
    let of = |(other, usual): (&'static str, &'static str)| match other == name {
        true => value.map(|value| (other, value)),
        false => Some((other, usual)),
    };
    block(&GOOD.into_iter().filter_map(of).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_malformed_request_ends_its_stream() {
    let running = run(PublicLimits::default()).await;
    let malformed = [
        and("transfer-encoding", "chunked"),
        and("connection", "close"),
        and("connection", "idempotency-key"),
        and("keep-alive", "5"),
        and("proxy-connection", "keep-alive"),
        and("upgrade", "h2c"),
        and("te", "gzip"),
        and("X-Upper", "1"),
        and("x:colon", "1"),
        and("x space", "1"),
        and("x\r\ninjected", "1"),
        and("x", "a\r\nidempotency-key: forged"),
        and("x", "a\nb"),
        and("x", "a\0b"),
        and("", "1"),
        and(":path", "/again"),
        and(":unknown", "1"),
        and(":status", "200"),
        and("content-length", "x"),
        block(&[&[("x", "1")], &GOOD[..]].concat()),
        but(":method", None),
        but(":scheme", None),
        but(":path", None),
        but(":path", Some("")),
        but(":path", Some("/a b")),
        but(":method", Some("G T")),
        block(&[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/"),
        ]),
    ];
    for (number, malformed) in malformed.iter().enumerate() {
        let mut raw = Raw::connect(&running.address, &[]).await;
        raw.ask(1, malformed).await;
        assert!(soon(raw.outcome(1)).await.is_refusal("urn:onceway:problem"), "{number}");
    }
    assert_eq!(running.service.seen(), [""; 0]);
    still_answers(&running.address).await;
}

#[tokio::test]
async fn an_ambiguous_request_is_refused_on_a_live_connection() {
    let running = run(PublicLimits::default()).await;
    let many: Vec<(&str, &str)> = GOOD.into_iter().chain(vec![("x", "1"); 101]).collect();
    let refused = [
        (and("host", "b"), "bad-request"),
        (block(&[&GOOD[..], &[("host", "a"), ("host", "a")]].concat()), "bad-request"),
        (but(":authority", None), "bad-request"),
        (but(":authority", Some("user@a")), "bad-request"),
        (but(":path", Some("*")), "bad-request"),
        (but(":scheme", Some("ftp")), "bad-request"),
        (and("expect", "everything"), "expectation-failed"),
        (block(&[(":method", "CONNECT"), (":authority", "a:80")]), "method-not-supported"),
        (but(":method", Some("TRACE")), "method-not-supported"),
        (block(&many), "head-too-large"),
    ];
    for (asked, code) in &refused {
        let mut raw = Raw::connect(&running.address, &[]).await;
        raw.ask(1, asked).await;
        let Outcome::Answer(body) = soon(raw.outcome(1)).await else { panic!("no answer: {code}") };
        let document: Value = serde_json::from_str(&body).expect(code);
        assert_eq!(document["code"], *code);
        raw.ask(3, &request("GET", "/headers", &[])).await;
        assert!(matches!(soon(raw.outcome(3)).await, Outcome::Answer(body) if body.contains("host: a")));
    }
    assert_eq!(running.service.seen(), ["GET /headers"; 10]);
}

#[tokio::test]
async fn a_wrong_length_breaks_the_body() {
    let running = run(PublicLimits::default()).await;
    // Two lengths are refused, even equal ones.
    for (lengths, body, says) in [
        (&["3"][..], "ab", "broken"),
        (&["1"], "ab", "broken"),
        (&["0"], "a", "broken"),
        (&["1", "1"], "a", "bad-request"),
    ] {
        let mut raw = Raw::connect(&running.address, &[]).await;
        let lengths: Vec<_> = lengths.iter().map(|length| ("content-length", length.as_bytes())).collect();
        raw.post(1, &request("POST", "/", &lengths), body.as_bytes()).await;
        let outcome = soon(raw.outcome(1)).await;
        assert!(outcome.is_refusal(says), "{lengths:?} {body}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_refused_sender_is_reset_only_if_it_stops() {
    let (_running, mut raw) = http2().await;
    for (stream, finishes) in [(1, true), (3, false)] {
        raw.send(&frame(HEADERS, END_HEADERS, stream, &request("POST", "/refuse", &[]))).await;
        raw.send(&frame(DATA, 0, stream, b"a")).await;
        assert_eq!(soon(raw.outcome(stream)).await, Outcome::Answer("refused".into()));
        if finishes {
            raw.send(&frame(DATA, END_STREAM, stream, b"b")).await;
        }
        raw.send(&frame(PING, 0, 0, &[0; 8])).await;
        let mut next = async || soon(raw.next()).await.unwrap();
        loop {
            let found = next().await;
            assert_ne!(found.kind, RST_STREAM, "{found:?}");
            if found.kind == PING {
                break;
            }
        }
        while !finishes && next().await.kind != RST_STREAM {}
    }
}

/// 58 KB in a block of 4 KB: a field, and its index fourteen times (RFC 7541 section 6).
fn large(path: &str) -> Vec<u8> {
    let value = [b'v'; 3_900];
    let indexed = [&[0x40, 1, b'x', 127, 189, 29], &value[..], &[0xbe; 14]].concat();
    [request("POST", path, &[]), indexed].concat()
}

#[tokio::test]
async fn large_header_lists_share_one_budget() {
    let limits = PublicLimits { heads: 100_000, ..PublicLimits::default() };
    let mut running = run(limits).await;
    let mut raw = Raw::connect(&running.address, &[]).await;
    raw.ask(1, &large("/wait")).await;
    running.comes("arrived").await;
    // Over another connection, because all connections share the budget.
    let mut other = Raw::connect(&running.address, &[]).await;
    other.ask(1, &large("/echo")).await;
    let refused = soon(other.outcome(1)).await;
    assert!(matches!(&refused, Outcome::Answer(body) if body.contains("overloaded")), "{refused:?}");
    still_answers(&running.address).await;
    running.service.gate.add_permits(1);
    assert_eq!(soon(raw.outcome(1)).await, Outcome::Answer("waited".into()));
    other.ask(3, &[request("POST", "/echo", &[]), [0xbe; 15].to_vec()].concat()).await;
    assert_eq!(soon(other.outcome(3)).await, Outcome::Answer(String::new()), "there is room again");
}

#[tokio::test]
async fn unfinished_header_blocks_share_the_budget() {
    let running = run(PublicLimits { heads: 100_000, ..PublicLimits::default() }).await;
    let mut first = Raw::connect(&running.address, &[]).await;
    first.send(&frame(HEADERS, END_STREAM, 1, &request("POST", "/echo", &[]))).await;
    // The server has looked at it once a second connection is answered.
    still_answers(&running.address).await;
    let mut second = Raw::connect(&running.address, &[]).await;
    second.send(&frame(HEADERS, END_STREAM, 1, &request("POST", "/echo", &[]))).await;
    soon(second.silently_over()).await;
    still_answers(&running.address).await;
    first.send(&frame(CONTINUATION, END_HEADERS, 1, &[])).await;
    assert_eq!(soon(first.outcome(1)).await, Outcome::Answer(String::new()), "the first one goes on");
}

#[tokio::test]
async fn data_against_a_zero_length_is_refused_unseen() {
    let (running, mut raw) = http2().await;
    let head = |path: &str| request("POST", path, &[("content-length", b"0")]);
    raw.post(1, &head("/denied"), b"a body").await;
    let refused = soon(raw.outcome(1)).await;
    assert!(refused != Outcome::Closed && refused.is_refusal("bad-request"), "{refused:?}");
    raw.post(3, &head("/none"), &[]).await;
    assert_eq!(soon(raw.outcome(3)).await, Outcome::Answer(String::new()));
    raw.ask(5, &head("/neither")).await;
    assert_eq!(soon(raw.outcome(5)).await, Outcome::Answer(String::new()));
    assert_eq!(running.service.seen(), ["POST /none", "POST /neither"]);
}
