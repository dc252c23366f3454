//! The public listener against raw bytes: passed requests, hang-ups, limits on connections, a stop,
//! and TLS. `adapters::tls` has the table of unusable files.

use crate::net::harness::{Running, read_until, rest, run, run_through, until_cut};
use crate::net::support::*;
use onceway::adapters::tls::load;
use rustls::ProtocolVersion;

#[tokio::test]
async fn requests_follow_each_other_and_stream_both_ways() {
    let running = run(PublicLimits::default()).await;
    let mut stream = running.say(b"POST /a?b=%2F HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    let answer = read_until(&mut stream, "hi").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && !answer.contains("keep-alive"), "{answer}");
    let begun = b"POST /stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
    stream.write_all(begun).await.unwrap();
    read_until(&mut stream, "early;\r\n").await;
    stream.write_all(b"1\r\nb\r\n0\r\n\r\n").await.unwrap();
    read_until(&mut stream, "late;\r\n0\r\n\r\n").await;
    let waits = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    stream.write_all(waits).await.unwrap();
    read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await;
    stream.write_all(b"ho").await.unwrap();
    read_until(&mut stream, "ho").await;
    assert_eq!(running.service.seen(), ["POST /a?b=%2F", "POST /stream", "POST /"]);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let mut running = run(PublicLimits { connections: 1, ..PublicLimits::default() }).await;
    let first = running.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    running.comes("arrived").await;
    let mut second = running.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let early = tokio::time::timeout(Duration::from_millis(200), running.events.recv()).await;
    assert!(early.is_err(), "the second connection was served beside the first");
    drop(first);
    running.comes("over").await;
    running.comes("arrived").await;
    running.service.gate.add_permits(1);
    read_until(&mut second, "waited").await;
}

#[tokio::test]
async fn stopping_lets_requests_finish_and_takes_no_more() {
    let mut running = run(PublicLimits::default()).await;
    let mut idle = running.say(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    read_until(&mut idle, "hi").await;
    let mut busy = running.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    while running.service.seen().len() < 2 {
        soon(running.events.recv()).await;
    }
    let stopping = tokio::spawn(running.listeners.stop());
    // The idle connection is closed, new ones are refused, and the stop waits for the busy one.
    rest(&mut idle).await;
    soon(async { while TcpStream::connect(&running.address).await.is_ok() {} }).await;
    assert!(!stopping.is_finished());
    running.service.gate.add_permits(1);
    let answer = rest(&mut busy).await;
    assert!(answer.ends_with("waited"), "{answer}");
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn the_grace_period_is_bounded() {
    let mut running =
        run_through(PublicLimits::default(), Duration::from_millis(100), None, Edge::default()).await;
    let mut stream = running.say(b"GET /feed HTTP/1.1\r\nHost: a\r\n\r\n").await;
    while running.service.feeds.lock().unwrap().is_empty() {
        soon(running.events.recv()).await;
    }
    soon(running.listeners.stop()).await;
    // Cut: the answer has no end.
    assert!(!until_cut(&mut stream).await.ends_with(b"0\r\n\r\n"));
}

async fn secure(pki: &Pki, limits: PublicLimits) -> Running {
    let files = files_in(pki.path(), &region("us"));
    let tls = load(&files.certificate, &files.key).unwrap();
    run_through(limits, PATIENCE, Some(tls), Edge::default()).await
}

async fn connect(
    pki: &Pki,
    address: &str,
    version: &'static SupportedProtocolVersion,
    alpn: &[&[u8]],
) -> TlsStream<TcpStream> {
    let mut config = trusting(&pki.authority(), &[version]).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(address).await.unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(server_name(&region("us")), stream);
    soon(connected).await.unwrap()
}

#[tokio::test]
async fn http1_works_over_both_versions_with_or_without_alpn() {
    let pki = Pki::new(&["us"]);
    let running = secure(&pki, PublicLimits::default()).await;
    for (version, alpn, name) in [
        (&rustls::version::TLS13, &[b"http/1.1" as &[u8]][..], ProtocolVersion::TLSv1_3),
        (&rustls::version::TLS12, &[b"http/1.1"], ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, &[], ProtocolVersion::TLSv1_3),
    ] {
        let mut stream = connect(&pki, &running.address, version, alpn).await;
        assert_eq!(stream.get_ref().1.protocol_version(), Some(name));
        let asked = b"GET /headers HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\nHost: a\n\n";
        stream.write_all(asked).await.unwrap();
        let answer = rest(&mut stream).await;
        // The framing guard stands above TLS.
        let (first, second) = answer.split_once("x-forwarded-proto: https\n").expect(&answer);
        assert!(first.starts_with("HTTP/1.1 200 ") && second.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn http2_is_chosen_by_alpn() {
    let pki = Pki::new(&["us"]);
    let running = secure(&pki, PublicLimits::default()).await;
    let stream = connect(&pki, &running.address, &rustls::version::TLS13, &[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let request = Request::get("https://a/headers").body(Full::new(Bytes::new())).unwrap();
    let answer = soon(sender.send_request(request)).await.unwrap();
    let expected = "host: a\nx-forwarded-for: 127.0.0.1\nx-forwarded-host: a\nx-forwarded-proto: https\n";
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(expected), "{body:?}");
}

#[tokio::test]
async fn a_client_without_a_handshake_is_cut() {
    let pki = Pki::new(&["us"]);
    let limits = PublicLimits { head_time: Duration::from_millis(300), ..PublicLimits::default() };
    let running = secure(&pki, limits).await;
    let half = [0x16, 3, 1, 2, 0, 1];
    for begin in [&b""[..], &half, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let answer = until_cut(&mut running.say(begin).await).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    assert_eq!(running.service.seen(), [""; 0]);
}
