//! The public listener against raw bytes: what it refuses, what it passes on, what it does about slow clients and a stop.
//!
//! Neighbours: `server::public` has the table of checks; here stand those that need a socket. It must not use a client library,
//! which would tidy up the very bytes in question.

use std::time::Duration;

use onceway::config::listen::PublicLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::door::{read_until, run, run_within, talk};
use crate::support::soon;

#[tokio::test]
async fn framing_in_doubt_is_refused_and_the_connection_closed() {
    let running = run(PublicLimits::default()).await;
    let many: String = (0..101).map(|number| format!("x-{number}: 1\r\n")).collect();
    let large = format!("x-large: {}\r\n", "a".repeat(70_000));
    let table = [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned(), "400"),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nx : 1\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nx: 1\r\n folded\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: idempotency-key\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n".to_owned(), "400"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_owned(), "501"),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "501"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{large}\r\n"), "431"),
    ];
    for (bytes, status) in table {
        let start: String = bytes.chars().take(120).collect();
        let answer =
            talk(&running.address, &format!("{bytes}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{start:?} got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{start:?} got {answer:?}");
    }
    assert_eq!(running.service.seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn requests_follow_each_other_and_stream_both_ways() {
    let running = run(PublicLimits::default()).await;
    let mut stream = TcpStream::connect(&running.address).await.unwrap();
    stream.write_all(b"POST /a?b=%2F HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
    let answer = read_until(&mut stream, "hi").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && !answer.contains("keep-alive"), "{answer}");
    stream
        .write_all(b"POST /stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        .await
        .unwrap();
    read_until(&mut stream, "early;\r\n").await;
    stream.write_all(b"1\r\nb\r\n0\r\n\r\n").await.unwrap();
    read_until(&mut stream, "late;\r\n0\r\n\r\n").await;
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .await
        .unwrap();
    read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await;
    stream.write_all(b"ho").await.unwrap();
    read_until(&mut stream, "ho").await;
    let seen = running.service.seen.lock().unwrap().clone();
    assert_eq!(seen, ["POST /a?b=%2F", "POST /stream", "POST /"]);
}

#[tokio::test]
async fn slow_clients_are_cut() {
    let limits = PublicLimits {
        head_time: Duration::from_millis(200),
        body_stall: Duration::from_millis(200),
        ..PublicLimits::default()
    };
    let mut running = run(limits).await;
    let answer = talk(&running.address, "GET / HTTP/1.1\r\nHost:").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(running.service.seen.lock().unwrap().len(), 0);
    let stalled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhi";
    let answer = talk(&running.address, stalled).await;
    assert!(answer.ends_with("broken"), "{answer}");
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    assert_eq!(soon(running.events.recv()).await, Some("broken body"));
}

#[tokio::test]
async fn a_client_that_hangs_up_drops_its_request() {
    let mut running = run(PublicLimits::default()).await;
    let mut stream = TcpStream::connect(&running.address).await.unwrap();
    stream.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    drop(stream);
    assert_eq!(soon(running.events.recv()).await, Some("over"));
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let mut running = run(PublicLimits { connections: 1, ..PublicLimits::default() }).await;
    let mut first = TcpStream::connect(&running.address).await.unwrap();
    first.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    let mut second = TcpStream::connect(&running.address).await.unwrap();
    second.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), running.events.recv()).await;
    assert!(early.is_err(), "the second connection was served beside the first");
    drop(first);
    assert_eq!(soon(running.events.recv()).await, Some("over"));
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    running.service.gate.add_permits(1);
    read_until(&mut second, "waited").await;
}

#[tokio::test]
async fn stopping_lets_requests_finish_and_takes_no_more() {
    let mut running = run(PublicLimits::default()).await;
    let mut idle = TcpStream::connect(&running.address).await.unwrap();
    idle.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
    read_until(&mut idle, "hi").await;
    let mut busy = TcpStream::connect(&running.address).await.unwrap();
    busy.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while running.service.seen.lock().unwrap().len() < 2 {
        soon(running.events.recv()).await;
    }
    let stopping = tokio::spawn(running.listeners.stop());
    // The idle connection is closed, new ones are refused, the busy one is waited for.
    let mut rest = Vec::new();
    soon(idle.read_to_end(&mut rest)).await.unwrap();
    let refused = async { while TcpStream::connect(&running.address).await.is_ok() {} };
    soon(refused).await;
    assert!(!stopping.is_finished());
    running.service.gate.add_permits(1);
    let mut answer = String::new();
    soon(busy.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("waited"), "{answer}");
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn the_grace_period_is_bounded() {
    let mut running = run_within(PublicLimits::default(), Duration::from_millis(100), None).await;
    let mut stream = TcpStream::connect(&running.address).await.unwrap();
    stream.write_all(b"GET /feed HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while running.service.feeds.lock().unwrap().is_empty() {
        soon(running.events.recv()).await;
    }
    soon(running.listeners.stop()).await;
    // Cut: the answer has no end.
    let mut answer = Vec::new();
    let _ = soon(stream.read_to_end(&mut answer)).await;
    assert!(!String::from_utf8(answer).unwrap().ends_with("0\r\n\r\n"));
}
