//! The public listener against raw bytes: passed requests, hang-ups, limits on connections, and a
//! stop.

use crate::net::harness::{read_until, rest, run, run_within};
use crate::net::support::*;

#[tokio::test]
async fn requests_follow_each_other_and_stream_both_ways() {
    let running = run(PublicLimits::default()).await;
    let mut stream = running.say(b"POST /a?b=%2F HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
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
async fn connections_beyond_the_limit_wait() {
    let mut running = run(PublicLimits { connections: 1, ..PublicLimits::default() }).await;
    let first = running.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(soon(running.events.recv()).await, Some("arrived"));
    let mut second = running.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
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
    let mut idle = running.say(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    read_until(&mut idle, "hi").await;
    let mut busy = running.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    while running.service.seen.lock().unwrap().len() < 2 {
        soon(running.events.recv()).await;
    }
    let stopping = tokio::spawn(running.listeners.stop());
    // The idle connection is closed, new ones are refused, and the stop waits for the busy one.
    rest(&mut idle).await;
    let refused = async { while TcpStream::connect(&running.address).await.is_ok() {} };
    soon(refused).await;
    assert!(!stopping.is_finished());
    running.service.gate.add_permits(1);
    let answer = rest(&mut busy).await;
    assert!(answer.ends_with("waited"), "{answer}");
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn the_grace_period_is_bounded() {
    let mut running = run_within(PublicLimits::default(), Duration::from_millis(100), None).await;
    let mut stream = running.say(b"GET /feed HTTP/1.1\r\nHost: a\r\n\r\n").await;
    while running.service.feeds.lock().unwrap().is_empty() {
        soon(running.events.recv()).await;
    }
    soon(running.listeners.stop()).await;
    // Cut: the answer has no end.
    let mut answer = Vec::new();
    let _ = soon(stream.read_to_end(&mut answer)).await;
    assert!(!String::from_utf8(answer).unwrap().ends_with("0\r\n\r\n"));
}
