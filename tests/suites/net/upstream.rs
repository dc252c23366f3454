//! The upstream's adapter against a raw server: the written bytes, and the caller's knowledge after
//! a failure. The server counts its requests: a resend is the one thing that must never happen.

use crate::net::support::*;
use onceway::ports::upstream::{EffectTokens, KeyForm, Send};

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi";
pub const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);
const TRICKLE: Then = Then::Trickle("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n");
/// More than one read takes, in bytes.
const BIG: usize = 4 << 20;
/// The answer of a status address that knows the attempt not to have happened.
pub const NONE: &str = "HTTP/1.1 404 Not Found\r\nOnceway-Effect: none\r\nContent-Length: 0\r\n\r\n";

fn at(address: &str) -> HttpUpstream {
    keeping(address, LONG)
}

/// An adapter that closes connections which were idle for `keep_idle`.
fn keeping(address: &str, keep_idle: Duration) -> HttpUpstream {
    let mut settings = settings(address);
    settings.own.bounds.keep_idle = keep_idle;
    HttpUpstream::new(&settings)
}

pub fn of(own: ServiceSettings) -> UpstreamSettings {
    UpstreamSettings { me: region("eu"), own, shared: false, others: BTreeMap::new(), named: BTreeMap::new() }
}

fn settings(address: &str) -> UpstreamSettings {
    of(ServiceSettings::at(base(address)).unwrap())
}

fn base(address: &str) -> Base {
    Base::parse(&format!("http://{address}")).unwrap()
}

pub fn send(headers: &[(&'static str, &str)]) -> Send {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    Send {
        upstream: None,
        id: key_id("acme", r#"a"b"#),
        key: ForwardKey::default(),
        token: Token { epoch: 7, attempt: 2 },
        request_id: RequestId(9),
        method: Method::POST,
        target: "/v1/a%2Fb/../c?x=%20&y".parse().unwrap(),
        headers: map,
        body: "body".into(),
    }
}

pub fn always() -> bool {
    true
}

async fn answered(upstream: &HttpUpstream) -> Response<Body> {
    soon(upstream.send(send(&[]), LONG, always)).await.unwrap()
}

async fn got(upstream: &HttpUpstream) -> String {
    text(answered(upstream).await.into_body()).await
}

async fn failed(upstream: &HttpUpstream) -> SendError {
    soon(upstream.send(send(&[]), LONG, always)).await.map(drop).unwrap_err()
}

async fn passed(upstream: &HttpUpstream, within: Duration) -> Result<Response<Body>, SendError> {
    soon(upstream.pass(None, Request::new(empty()), within)).await
}

#[tokio::test]
async fn the_upstream_gets_attempt_and_end_to_end_headers() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let sent = send(&[
        ("host", "public.example"),
        ("accept", "a"),
        ("accept", "b"),
        ("connection", "keep-alive, x-private"),
        ("x-private", "1"),
        ("te", "trailers"),
        ("proxy-authorization", "secret"),
        ("expect", "100-continue"),
        ("content-length", "99"),
        ("idempotency-key", "one"),
        ("idempotency-key", "two"),
        ("onceway-token", "99.99"),
        ("onceway-other", "forged"),
        ("authorization", "Bearer t"),
    ]);
    let answer = soon(at(&server.address).send(sent, LONG, always)).await.unwrap();
    assert_eq!(text(answer.into_body()).await, "hi");
    let seen = server.seen();
    let (head, body) = seen[0].split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /v1/a%2Fb/../c?x=%20&y HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", server.address);
    let expected = [
        "accept: a",
        "accept: b",
        "authorization: Bearer t",
        "content-length: 4",
        &host,
        r#"idempotency-key: "a\"b""#,
        "onceway-attempt: 2",
        "onceway-request-id: req_00000000000000000000000000000009",
        "onceway-tenant: acme",
        "onceway-token: 7.2",
    ];
    assert_eq!(lines, expected);
    assert_eq!(body, "body");
}

#[tokio::test]
async fn the_key_goes_out_in_one_header_and_form() {
    let server = RawServer::start(Then::Answer(OK)).await;
    for (form, name, expected) in [
        (KeyForm::Quoted, "idempotency-key", r#""a\"b""#),
        (KeyForm::Bare, "x-key", "a\"b"),
        (KeyForm::AsSent, "x-key", "as it came"),
    ] {
        let header = HeaderName::from_static(name);
        let sent = Send {
            key: ForwardKey { header, form },
            ..send(&[("idempotency-key", "as it came"), ("x-key", "theirs")])
        };
        soon(at(&server.address).send(sent, LONG, always)).await.unwrap();
        let seen = server.headers().pop().unwrap();
        assert_eq!(seen[name], expected);
        assert_eq!(seen.contains_key("idempotency-key"), name == "idempotency-key");
    }
}

#[tokio::test]
async fn answers_lose_hop_headers_and_redirects_are_passed() {
    let server = RawServer::start(Then::Answer(
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\
         Connection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nOnceway-Region: forged\r\n\
         Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
    ))
    .await;
    let answer = answered(&at(&server.address)).await;
    assert_eq!(answer.status(), 302);
    let mut names: Vec<&str> = answer.headers().iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "location", "set-cookie", "set-cookie"]);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn connections_are_never_more_than_requests_at_once() {
    const AT_ONCE: usize = 8;
    let server = RawServer::start(Then::Answer(OK)).await;
    let upstream = Arc::new(at(&server.address));
    let all_at_once = || async {
        let upstreams = std::iter::repeat_n(upstream.clone(), AT_ONCE);
        let running: JoinSet<_> = upstreams.map(|upstream| async move { got(&upstream).await }).collect();
        soon(running.join_all()).await;
    };
    all_at_once().await;
    // Many are idle now: each request takes one of them and leaves the others.
    for _ in 0..50 {
        got(&upstream).await;
    }
    all_at_once().await;
    assert_eq!(server.seen().len(), 2 * AT_ONCE + 50);
    assert_eq!(server.connections(), AT_ONCE);
}

/// Sends several requests, `apart` from each other. Returns the number of new connections.
async fn connects(upstream: &HttpUpstream, server: &RawServer, method: Method, apart: u64) -> usize {
    let before = server.connections();
    for _ in 0..4 {
        let sent = Send { method: method.clone(), ..send(&[]) };
        text(soon(upstream.send(sent, LONG, always)).await.unwrap().into_body()).await;
        wait::pause(Duration::from_millis(apart)).await;
    }
    server.connections() - before
}

/// Half a second is safe for an upstream that closes after one, however far it is away.
#[tokio::test]
async fn writes_avoid_connections_that_were_idle_for_long() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let upstream = at(&server.address);
    assert_eq!(connects(&upstream, &server, Method::POST, 600).await, 4);
    assert_eq!(connects(&upstream, &server, Method::GET, 600).await, 0);
}

#[tokio::test]
async fn the_upstreams_keep_alive_counts_less_a_margin() {
    for (header, apart, opened) in [
        ("timeout=1", 600, 4),
        ("max=9, Timeout=1", 600, 4),
        ("timeout=2", 600, 1),
        ("timeout=0", 0, 4),
        ("timeout=x", 600, 1),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\nKeep-Alive: {header}\r\nContent-Length: 2\r\n\r\nhi");
        let server = RawServer::start(Then::Answer(answer.leak())).await;
        assert_eq!(connects(&at(&server.address), &server, Method::GET, apart).await, opened, "{header}");
    }
}

#[tokio::test]
async fn idle_connections_are_closed_without_another_request() {
    let mut server = RawServer::start(Then::Answer(OK)).await;
    let upstream = keeping(&server.address, SHORT);
    for _ in 0..2 {
        got(&upstream).await;
        // The adapter closes it itself: the server would wait for ever.
        soon(server.closed.recv()).await.unwrap();
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_request_without_time_left_is_not_sent() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let error = soon(at(&server.address).send(send(&[]), Duration::ZERO, always)).await.unwrap_err();
    assert!(matches!(error, SendError::NotSent(_)), "{error}");
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn a_break_after_the_request_is_unknown_never_resent() {
    let headers =
        |count| format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{}\r\nhi", "a: b\r\n".repeat(count));
    let server = RawServer::start(Then::AnswerAndClose(headers(99).leak())).await;
    answered(&at(&server.address)).await;
    for broken in [
        "",
        "HTTP/1.1 200",
        "garbage\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        headers(100).leak(),
        // Two readers could take this differently.
        "HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: forged=1\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        let server = RawServer::start(Then::AnswerAndClose(broken)).await;
        let error = failed(&at(&server.address)).await;
        assert!(matches!(error, SendError::Unknown(_)), "{broken:?}: {error}");
        assert_eq!(server.seen().len(), 1, "{broken:?}");
    }
    let odd = RawServer::start(Then::Answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na\n\nb")).await;
    assert_eq!(got(&at(&odd.address)).await, "a\n\nb", "a body may hold anything");
}

#[tokio::test]
async fn each_answer_on_a_kept_connection_is_judged() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for answer in [OK, OK, "HTTP/1.1 200 OK\r\nX: a\nY: b\r\nContent-Length: 2\r\n\r\nhi"] {
            read_request(&mut stream).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
    });
    let upstream = at(&address);
    for _ in 0..2 {
        got(&upstream).await;
    }
    assert!(matches!(failed(&upstream).await, SendError::Unknown(_)));
}

#[tokio::test]
async fn a_close_known_to_the_kernel_is_seen() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = at(&listener.local_addr().unwrap().to_string());
    let (tell, closed) = std::sync::mpsc::channel();
    let (close_now, close) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut read = Vec::new();
            while !read.ends_with(b"body") {
                let mut piece = [0; 256];
                let count = stream.read(&mut piece).unwrap();
                assert!(count > 0);
                read.extend_from_slice(&piece[..count]);
            }
            stream.write_all(OK.as_bytes()).unwrap();
            let _ = close.recv_timeout(LONG);
            drop(stream);
            tell.send(()).unwrap();
        }
    });
    got(&upstream).await;
    close_now.send(()).unwrap();
    // Blocks this runtime's one thread, so that it cannot learn of the close.
    closed.recv_timeout(LONG).unwrap();
    assert_eq!(got(&upstream).await, "hi");
    close_now.send(()).unwrap();
    server.join().unwrap();
}

#[tokio::test]
async fn a_trickling_body_is_cut_by_its_total_wait() {
    let server = RawServer::start(TRICKLE).await;
    let mut body = soon(at(&server.address).send(send(&[]), SHORT, always)).await.unwrap().into_body();
    let mut last = piece(&mut body).await.unwrap();
    while last.is_ok() {
        last = piece(&mut body).await.expect("a body without end does not end well");
    }
    assert!(last.unwrap_err().to_string().contains("in time"));
}

#[tokio::test]
async fn a_slow_reader_loses_nothing() {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n{}", "a".repeat(BIG));
    let server = RawServer::start(Then::AnswerAndHang(Box::leak(answer.into_boxed_str()))).await;
    let mut body = soon(at(&server.address).send(send(&[]), SHORT, always)).await.unwrap().into_body();
    let mut read = piece(&mut body).await.unwrap().unwrap().len();
    // Longer than the upstream may take: here the reader takes the time.
    wait::pause(SHORT * 2).await;
    while let Some(next) = piece(&mut body).await {
        read += next.unwrap().len();
    }
    assert_eq!(read, BIG);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let server = RawServer::start(Then::AnswerAndClose(HALF)).await;
    let mut body = answered(&at(&server.address)).await.into_body();
    assert_eq!(piece(&mut body).await.unwrap().unwrap(), "hi");
    assert!(piece(&mut body).await.unwrap().is_err());
}

pub fn probe(of: &str) -> Probe {
    Probe {
        upstream: None,
        id: key_id("acme", "k"),
        token: Token { epoch: 7, attempt: 2 },
        region: Some(region(of)),
        address: "/status?full".parse().unwrap(),
        path: "/v1/charges".into(),
    }
}

async fn asked(answer: &'static str, limit: usize) -> String {
    let server = RawServer::start(Then::AnswerAndClose(answer)).await;
    match soon(at(&server.address).probe(probe("eu"), SHORT, limit)).await {
        ProbeReply::Happened(answer) => {
            let names: Vec<&str> = answer.headers().keys().map(|name| name.as_str()).collect();
            let tokens = answer.extensions().get().map(|EffectTokens(all)| format!(" {all:?}"));
            let tokens = tokens.unwrap_or_default();
            format!("{} {names:?} {:?}{tokens}", answer.status().as_u16(), answer.body())
        }
        ProbeReply::DidNotHappen => "did not happen".into(),
        ProbeReply::CannotSay(_) => "cannot say".into(),
    }
}

#[tokio::test]
async fn only_a_clear_reply_to_a_probe_counts() {
    let (none, done) = ("Onceway-Effect: none\r\n", "Onceway-Effect: happened\r\n");
    let of = |status: &str| format!("{done}Onceway-Effect-Status: {status}\r\n");
    let typed = of("201") + "Content-Type: a\r\n";
    let tokens = |list: &str| of("201") + "Onceway-Effect-Tokens: " + list + "\r\n";
    let two = format!("201 [] Some(b\"\") {:?}", [1, 2].map(|attempt| Token { epoch: 7, attempt }));
    let table: [(&str, &str, usize, &str, &str); 20] = [
        ("404 Not Found", none, 0, "", "did not happen"),
        ("200 OK", &typed, 4, "body", "201 [\"content-type\"] Some(b\"body\")"),
        ("200 OK", &of("201"), 5, "body5", "201 [] None"),
        ("404 Not Found", "", 0, "", "cannot say"),
        ("200 OK", none, 0, "", "cannot say"),
        ("410 Gone", none, 0, "", "cannot say"),
        ("404 Not Found", "Onceway-Effect: NONE\r\n", 0, "", "cannot say"),
        ("404 Not Found", &none.repeat(2), 0, "", "cannot say"),
        ("200 OK", "", 0, "", "cannot say"),
        ("200 OK", done, 0, "", "cannot say"),
        ("200 OK", &tokens("7.1, 7.2"), 0, "", &two),
        ("200 OK", &tokens("7.1,"), 0, "", "cannot say"),
        ("200 OK", &tokens("seven"), 0, "", "cannot say"),
        ("200 OK", &tokens("7.1").repeat(2), 0, "", "cannot say"),
        ("200 OK", &of("100"), 0, "", "cannot say"),
        ("200 OK", &of("done"), 0, "", "cannot say"),
        ("500 No", &of("201"), 0, "", "cannot say"),
        ("200 OK", &of("201"), 4, "bo", "cannot say"),
        ("200 OK", "Onceway-Effect: pending\r\n", 0, "", "cannot say"),
        ("302 Found", "Location: /else\r\n", 0, "", "cannot say"),
    ];
    for (status, lines, length, body, expected) in table {
        let answer = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {length}\r\n\r\n{body}");
        assert_eq!(asked(answer.leak(), 4).await, expected, "{status} {lines}");
    }
    assert_eq!(asked("", 4).await, "cannot say");
}

#[tokio::test]
async fn a_probe_names_its_attempt_and_asks_its_region() {
    let (own, other) =
        (RawServer::start(Then::Answer(NONE)).await, RawServer::start(Then::Answer(NONE)).await);
    let mut settings = settings(&own.address);
    settings.others = BTreeMap::from([(region("us"), base(&other.address))]);
    let upstream = HttpUpstream::new(&settings);
    assert!(matches!(soon(upstream.probe(probe("us"), LONG, 9)).await, ProbeReply::DidNotHappen));
    let unknown = soon(upstream.probe(probe("ap"), LONG, 9)).await;
    assert!(matches!(&unknown, ProbeReply::CannotSay(why) if why.contains("ap")), "{unknown:?}");
    let nobody = || Probe { region: None, ..probe("us") };
    assert!(matches!(soon(upstream.probe(nobody(), LONG, 9)).await, ProbeReply::CannotSay(_)));
    assert_eq!((own.seen().len(), other.seen().len()), (0, 1));
    settings.shared = true;
    let shared = HttpUpstream::new(&settings);
    for asked in [probe("ap"), nobody()] {
        assert!(matches!(soon(shared.probe(asked, LONG, 9)).await, ProbeReply::DidNotHappen));
    }
    assert_eq!((own.seen().len(), other.seen().len()), (2, 1));
    let seen = other.seen().remove(0);
    let mut lines: Vec<&str> = seen.trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), "GET /status?full HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", other.address);
    let expected = [
        "cache-control: no-store",
        &host,
        "idempotency-key: \"k\"",
        "onceway-effect-path: /v1/charges",
        "onceway-tenant: acme",
        "onceway-token: 7.2",
    ];
    assert_eq!(lines, expected);
    let mut elsewhere = probe("eu");
    elsewhere.address = "http://127.0.0.1:1/status".parse().unwrap();
    assert!(matches!(soon(shared.probe(elsewhere, LONG, 9)).await, ProbeReply::CannotSay(_)));
}

#[tokio::test]
async fn a_passed_request_streams_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = at(&listener.local_addr().unwrap().to_string());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_request(&mut stream).await.unwrap();
        // The answer comes while the request is still being sent.
        let early = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n";
        stream.write_all(early).await.unwrap();
        let mut rest = head.clone();
        while !rest.ends_with("0\r\n\r\n") {
            let mut more = [0; 256];
            let count = stream.read(&mut more).await.unwrap();
            assert!(count > 0, "the request's body broke off: {rest:?}");
            rest.push_str(str::from_utf8(&more[..count]).unwrap());
        }
        stream.write_all(b"4\r\nlate\r\n0\r\n\r\n").await.unwrap();
        rest
    });
    let (feed, body) = fed();
    let request = Request::builder()
        .method("POST")
        .uri("/upload?a=%2F")
        .header("te", "trailers")
        .header("onceway-token", "1.1")
        .header("idempotency-key", "kept as it is")
        .body(body)
        .unwrap();
    feed.send("first").unwrap();
    let mut answer = soon(upstream.pass(None, request, LONG)).await.unwrap().into_body();
    assert_eq!(piece(&mut answer).await.unwrap().unwrap(), "early");
    feed.send("last").unwrap();
    drop(feed);
    assert_eq!(piece(&mut answer).await.unwrap().unwrap(), "late");
    assert!(piece(&mut answer).await.is_none());
    let seen = soon(server).await.unwrap();
    assert!(seen.starts_with("POST /upload?a=%2F HTTP/1.1\r\n"), "{seen}");
    for line in ["idempotency-key: kept as it is\r\n", "transfer-encoding: chunked\r\n"] {
        assert!(seen.contains(line), "{line} in {seen}");
    }
    assert!(!seen.contains("onceway-token") && !seen.contains("te: trailers"), "{seen}");
    assert!(seen.ends_with("5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n"), "{seen}");
}

/// The bound of a passing request is on each wait for the upstream, and on no other wait.
#[tokio::test]
async fn a_slow_client_does_not_time_the_upstream_out() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let upstream = at(&server.address);
    let (feed, body) = fed();
    let request = Request::builder().method("PUT").uri("/upload").body(body).unwrap();
    let passing = tokio::spawn(async move { upstream.pass(None, request, SHORT).await });
    for piece in ["a", "b", "c"] {
        wait::pause(SHORT * 2).await;
        feed.send(piece).unwrap();
    }
    drop(feed);
    assert_eq!(text(soon(passing).await.unwrap().unwrap().into_body()).await, "hi");
}

#[tokio::test]
async fn a_silent_upstream_is_given_up_at_its_bound() {
    // In the middle of its answer. The contract has a silence before it.
    let server = RawServer::start(Then::AnswerAndHang(HALF)).await;
    let mut body = passed(&at(&server.address), SHORT).await.unwrap().into_body();
    assert_eq!(piece(&mut body).await.unwrap().unwrap(), "hi");
    assert!(piece(&mut body).await.unwrap().unwrap_err().to_string().contains("in time"));
    // Pieces that each come in time may take longer together.
    let server = RawServer::start(TRICKLE).await;
    let mut body = passed(&at(&server.address), SHORT).await.unwrap().into_body();
    let begun = Instant::now();
    while begun.elapsed() < SHORT * 3 {
        assert_eq!(piece(&mut body).await.unwrap().unwrap(), "a");
    }
}

#[tokio::test]
async fn giving_an_answer_up_closes_its_connection() {
    let mut server = RawServer::start(Then::AnswerAndHang(HALF)).await;
    let upstream = at(&server.address);
    drop(passed(&upstream, LONG).await.unwrap());
    soon(server.closed.recv()).await.unwrap();
    // The same holds when the wait for its head is given up.
    let mut silent = RawServer::start(Then::AnswerAndHang("")).await;
    let upstream = at(&silent.address);
    let waiting = tokio::time::timeout(SHORT, upstream.pass(None, Request::new(empty()), LONG)).await;
    assert!(waiting.is_err());
    soon(silent.closed.recv()).await.unwrap();
}

#[tokio::test]
async fn an_answers_length_is_that_of_its_body() {
    // Bytes after the status line, the length that is left, and true if it is used again.
    for (rest, length, reused) in [
        ("Content-Length: 2\r\n\r\nhi", Some("2"), true),
        ("Transfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None, true),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None, false),
        ("Transfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nhi\r\n0\r\n\r\n", None, false),
        ("Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", Some("2"), false),
        ("Content-Length: 2, 2\r\n\r\nhi", Some("2"), false),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{rest}");
        let server = RawServer::start(Then::Answer(answer.leak())).await;
        let upstream = at(&server.address);
        for _ in 0..2 {
            let answer = passed(&upstream, LONG).await.unwrap();
            let lengths = answer.headers().get_all("content-length").iter();
            let lengths: Vec<&str> = lengths.map(|value| value.to_str().unwrap()).collect();
            assert_eq!(lengths, Vec::from_iter(length), "{rest:?}");
            assert_eq!(text(answer.into_body()).await, "hi", "{rest:?}");
        }
        assert_eq!(server.connections(), if reused { 1 } else { 2 }, "{rest:?}");
    }
    for rest in [
        "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\nhi",
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
        "Content-Length: +2\r\n\r\nhi",
        "Content-Length: 0x2\r\n\r\nhi",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{rest}");
        let server = RawServer::start(Then::AnswerAndClose(answer.leak())).await;
        let broken = passed(&at(&server.address), LONG).await.map(drop);
        assert!(matches!(broken, Err(SendError::Unknown(_))), "{rest:?}: {broken:?}");
    }
}
