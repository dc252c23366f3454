//! The public listener against raw bytes: passed requests, hang-ups, limits on connections, and a
//! stop.

use crate::net::harness::{read_until, rest, run, run_through, until_cut};
use crate::net::support::*;

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
