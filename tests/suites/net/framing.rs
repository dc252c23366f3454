//! HTTP/1 framing against raw bytes: an ambiguous request is refused with a problem and ends the
//! connection, a clear one passes. `server::head`, `chunks`, `guard` and `admission` have tables of
//! all flaws; here hyper is above them, and a flaw of each kind is enough.

use crate::net::harness::{read_until, rest, run, talk};
use crate::net::support::*;

const NEXT: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

fn with(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

#[tokio::test]
async fn ambiguous_framing_is_refused_and_ends_the_connection() {
    let running = run(PublicLimits::default()).await;
    let many: String = (0..101).map(|number| format!("x-{number}: 1\r\n")).collect();
    let table: Vec<(String, u16, &str)> = [
        "GET / HTTP/1.1\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        &(with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n"),
        &with("Connection: Idempotency-Key\r\n"),
        &with("Connection: upgrade\r\nUpgrade: h2c\r\n"),
    ]
    .map(|bytes| (bytes.to_owned(), 400, "bad-request"))
    .into_iter()
    .chain([
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_owned(), 501, "method-not-supported"),
        (with("Expect: everything\r\n"), 417, "expectation-failed"),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(8192)), 414, "target-too-long"),
        (with(&many), 431, "head-too-large"),
        (with(&format!("x: {}\r\n", "a".repeat(70_000))), 431, "head-too-large"),
    ])
    .collect();
    for (bytes, status, code) in table {
        let start: String = bytes.chars().take(120).collect();
        let answer = talk(&running.address, &format!("{bytes}{NEXT}")).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect(&start);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{start:?} got {answer:?}");
        assert!(head.contains("content-type: application/problem+json"), "{start:?} got {answer:?}");
        let problem: Value = serde_json::from_str(body).expect("one answer, a problem");
        assert_eq!(problem["code"], code, "{start:?}");
        assert_eq!(problem["documentation"], format!("/.well-known/onceway/problems#{code}"));
        assert_eq!((&problem["status"], &problem["safe_to_retry"]), (&status.into(), &true.into()));
    }
    assert_eq!(running.service.seen(), [""; 0]);
}

#[tokio::test]
async fn nothing_behind_broken_chunks_is_read() {
    let running = run(PublicLimits::default()).await;
    let table = ["3;a=b\r\nabc\r\n0\r\n\r\n", "2\r\nabc\r\n0\r\n\r\n", "3\r\nabc\r\n0\r\nx: 1\n\r\n"];
    for chunks in table {
        let bytes = with("Transfer-Encoding: chunked\r\n") + chunks + NEXT;
        let answer = talk(&running.address, &bytes).await;
        assert!(answer.ends_with("\r\n\r\nbroken"), "{chunks:?} got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{chunks:?} got {answer:?}");
    }
    assert_eq!(running.service.seen(), ["POST /"; 3]);
}

#[tokio::test]
async fn earlier_requests_are_answered_before_a_refusal() {
    let running = run(PublicLimits::default()).await;
    let two = "POST /wait HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: 1\r\n\r\n\
               POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb";
    let bytes = format!("{two}GET /c HTTP/1.1\nHost: a\n\n{NEXT}");
    let mut stream = running.say(bytes).await;
    running.service.gate.add_permits(1);
    let answer = rest(&mut stream).await;
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|one| &one[..3]).collect();
    assert_eq!(statuses, ["200", "200", "400"], "{answer}");
    assert_eq!(running.service.seen(), ["POST /wait", "POST /b"]);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let running = run(PublicLimits::default()).await;
    let post = |body: &str| format!("POST /{body} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{body}");
    let head = "HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n";
    let get = "GET /get HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\ng1";
    let last = "POST /z HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nz\r\n1\r\n9\r\n0\r\n\r\n";
    let answer = talk(&running.address, &[&post("a1"), head, get, &post("b2"), last].concat()).await;
    let bodies: Vec<&str> =
        answer.split("HTTP/1.1 200 OK\r\n").map(|one| one.split("\r\n\r\n").nth(1).unwrap_or("")).collect();
    assert_eq!(bodies, ["", "a1", "", "g1", "b2", "z9"], "{answer}");
    assert_eq!(running.service.seen(), ["POST /a1", "HEAD /head", "GET /get", "POST /b2", "POST /z"]);
}

#[tokio::test]
async fn only_end_to_end_headers_pass_and_no_trailers() {
    let running = run(PublicLimits::default()).await;
    let asked = "POST http://a/headers HTTP/1.1\r\nHost: a\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
                 Trailer: Idempotency-Key\r\nProxy-Authorization: x\r\nOnceway-Tenant: forged\r\nX-Forwarded-For: 10.0.0.1\r\n\
                 Forwarded: for=10.0.0.1\r\nTransfer-Encoding: chunked\r\nAccept: b\r\n\r\n1\r\na\r\n0\r\nIdempotency-Key: forged\r\n\r\n";
    let answer = talk(&running.address, asked).await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let forwarded = "x-forwarded-for: 127.0.0.1\nx-forwarded-host: a\nx-forwarded-proto: http\n";
    assert_eq!(body, format!("accept: b\nhost: a\n{forwarded}"));
}

#[tokio::test]
async fn a_refusal_skips_100_continue_and_survives_a_reset() {
    let running = run(PublicLimits::default()).await;
    let waiting = "POST /refuse HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut stream = running.say(waiting).await;
    let answer = read_until(&mut stream, "refused").await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("100 Continue"), "{answer}");
    // A client that sends its body anyway can read the refusal.
    let large = 24 << 20;
    let head = format!("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\n\r\n");
    let answer = talk(&running.address, &(head + &"x".repeat(large))).await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.ends_with("refused"), "{answer}");
    // However slowly, within reason: a client may read only after it has sent everything.
    let large = 1 << 20;
    let head = format!("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\n\r\n");
    let mut stream = running.say(head).await;
    for _ in 0..16 {
        stream.write_all(&vec![b'x'; large / 16]).await.expect("still taken");
        wait::pause(Duration::from_millis(200)).await;
    }
    let answer = read_until(&mut stream, "refused").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}
