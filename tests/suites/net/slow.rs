//! Clients that are slow on purpose: to begin, in heads, in bodies, in reading; and clients that
//! hold too many connections. Each bound is set low, and seen to cut.

use crate::net::frames::{END_HEADERS, HEADERS, Outcome, Raw, frame, request};
use crate::net::harness::{BIG, read_until, rest, run, still_answers, until_cut};
use crate::net::support::*;

const MOMENT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

fn patient() -> PublicLimits {
    PublicLimits {
        head_time: LONG,
        body_stall: LONG,
        write_stall: LONG,
        idle_time: LONG,
        ..PublicLimits::default()
    }
}

/// Sends a byte of `drip` about every 20 ms, for ever. Returns the server's bytes until it closed.
async fn drip(address: &str, begin: &str, drip: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(begin.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    for byte in drip.iter().cycle() {
        let mut piece = [0; 1024];
        match timeout(Duration::from_millis(20), stream.read(&mut piece)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(count)) => answer.extend_from_slice(&piece[..count]),
            Err(_) => {
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
        }
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_begin_is_cut() {
    let running = run(PublicLimits { head_time: MOMENT, ..patient() }).await;
    // Also a connection that could begin to speak HTTP/2.
    for begin in ["", "PRI * HTTP/2.0\r\n"] {
        assert_eq!(rest(&mut running.say(begin).await).await, "");
    }
    still_answers(&running.address).await;
}

#[tokio::test]
async fn a_head_that_stalls_or_drips_is_a_problem() {
    let running = run(PublicLimits { head_time: MOMENT, ..patient() }).await;
    for begin in [
        "GET / HTTP/1.1\r\nHost: a\r\nx: ",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET /later HTTP/1.1\r\nx:",
    ] {
        for more in [&b"a"[..], &[]] {
            let answer = match more {
                [] => rest(&mut running.say(begin).await).await,
                more => soon(drip(&running.address, begin, more)).await,
            };
            assert!(answer.contains("HTTP/1.1 408 ") && answer.contains("head-too-slow"), "{answer}");
        }
    }
    assert_eq!(running.service.seen(), ["POST /"; 2]);
}

#[tokio::test]
async fn a_body_that_stalls_or_drips_breaks_off() {
    let running = run(PublicLimits { body_stall: MOMENT, ..patient() }).await;
    let length = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\nhi";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = rest(&mut running.say(length).await).await;
    assert!(answer.ends_with("broken"), "{answer}");
    for (begin, more) in [(length, &b"x"[..]), (chunked, b"1\r\na\r\n")] {
        let answer = soon(drip(&running.address, begin, more)).await;
        assert!(answer.ends_with("broken"), "{answer}");
    }
    // Over HTTP/2, too.
    let mut raw = Raw::connect(&running.address, &[]).await;
    raw.send(&frame(HEADERS, END_HEADERS, 1, &request("POST", "/", &[]))).await;
    assert_eq!(soon(raw.outcome(1)).await, Outcome::Answer("broken".into()));
}

#[tokio::test]
async fn an_answer_that_is_not_read_is_cut() {
    let limits = PublicLimits { write_stall: MOMENT, connections: 1, ..patient() };
    let running = run(limits).await;
    let mut deaf = running.say(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // The limit is one connection: this one is answered once the other was cut.
    still_answers(&running.address).await;
    let got = until_cut(&mut deaf).await;
    assert!(got.len() < BIG, "{}", got.len());
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_is_not_cut() {
    let running = run(PublicLimits { write_stall: Duration::from_secs(2), ..patient() }).await;
    let mut slow = running.say(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let (mut got, mut piece) = (0, vec![0; 1 << 20]);
    loop {
        // Never as long as the bound, but longer in total.
        drop(timeout(Duration::from_millis(50), std::future::pending::<()>()).await);
        match soon(slow.read(&mut piece)).await.unwrap() {
            0 => break,
            count => got += count,
        }
    }
    assert!(got > BIG, "{got}");
}

#[tokio::test]
async fn idle_connections_are_closed_and_busy_ones_stay() {
    let mut running = run(PublicLimits { idle_time: MOMENT, head_time: MOMENT, ..patient() }).await;
    let mut busy = running.say(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    running.comes("arrived").await;
    let mut idle = running.say(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    let answer = rest(&mut idle).await;
    assert!(answer.ends_with("hi"), "{answer}");
    let mut raw = Raw::connect(&running.address, &[]).await;
    assert_eq!(soon(raw.over()).await, Some(0));
    running.service.gate.add_permits(1);
    read_until(&mut busy, "waited").await;
}

#[tokio::test]
async fn one_address_gets_its_share_of_connections() {
    let running = run(PublicLimits { connections_per_ip: 2, ..patient() }).await;
    let asked = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let mut kept = [running.say(asked).await, running.say(asked).await];
    for stream in &mut kept {
        read_until(stream, "hi").await;
    }
    let mut third = TcpStream::connect(&running.address).await.unwrap();
    // Closed unread: the write may break as well as the read.
    let _ = third.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(matches!(soon(third.read(&mut [0; 64])).await, Ok(0) | Err(_)));
    assert_eq!(running.service.seen().len(), 2);
    let [first, _second] = kept;
    drop(first);
    let again = async {
        loop {
            let mut stream = TcpStream::connect(&running.address).await.unwrap();
            let _ = stream.write_all(b"GET /again HTTP/1.1\r\nHost: a\r\n\r\n").await;
            if matches!(stream.read(&mut [0; 64]).await, Ok(count) if count > 0) {
                return;
            }
        }
    };
    soon(again).await;
}
