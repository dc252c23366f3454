//! Attacks on resources over HTTP/2: resets, mistakes, header blocks without end, bombs, floods,
//! shut windows. After each the connection is over, or the request was refused, and a new client is
//! answered.

use crate::net::frames::{
    ACK, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, Outcome, PING, RST_STREAM, Raw, SETTINGS,
    WINDOW_UPDATE, block, frame, request,
};
use crate::net::harness::{http2, run, still_answers};
use crate::net::support::*;

const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

fn odd(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// Sends heads, each with another frame behind it, until the connection ends.
async fn flood(method: &str, flags: u8, behind: (u8, &[u8])) {
    let (running, mut raw) = http2().await;
    let head = request(method, "/wait", &[]);
    for stream in odd(5000) {
        let asked = frame(HEADERS, flags, stream, &head);
        if !raw.send(&[asked, frame(behind.0, 0, stream, behind.1)].concat()).await {
            break;
        }
    }
    soon(raw.over()).await;
    still_answers(&running.address).await;
    assert!(running.service.seen().len() < 1000, "{}", running.service.seen().len());
}

#[tokio::test]
async fn rapid_reset_ends_the_connection() {
    flood("GET", END_HEADERS | END_STREAM, (RST_STREAM, &CANCEL)).await;
}

#[tokio::test]
async fn requests_reset_while_they_run_end_the_connection() {
    let (mut running, mut raw) = http2().await;
    let head = request("GET", "/wait", &[]);
    for stream in odd(101) {
        assert!(raw.ask(stream, &head).await, "{stream}");
        running.comes("arrived").await;
        raw.send(&frame(RST_STREAM, 0, stream, &CANCEL)).await;
        running.comes("over").await;
    }
    soon(raw.over()).await;
    still_answers(&running.address).await;
}

/// A window update of zero is the stream's own mistake, for which the server resets it.
#[tokio::test]
async fn making_the_server_reset_ends_the_connection() {
    flood("POST", END_HEADERS, (WINDOW_UPDATE, &[0; 4])).await;
}

#[tokio::test]
async fn a_header_block_without_end_ends_the_connection() {
    let running = run(PublicLimits::default()).await;
    for piece in [block(&[("x", "a".repeat(1000))]), Vec::new()] {
        let mut raw = Raw::connect(&running.address, &[]).await;
        raw.send(&frame(HEADERS, END_STREAM, 1, &request("GET", "/", &[]))).await;
        raw.flood(&frame(CONTINUATION, 0, 1, &piece).repeat(50)).await;
        soon(raw.over()).await;
    }
    assert_eq!(running.service.seen(), [""; 0]);
    still_answers(&running.address).await;
}

#[tokio::test]
async fn an_oversized_header_list_is_refused_despite_compression() {
    let running = run(PublicLimits::default()).await;
    // One field in the table, then named by one byte each time (RFC 7541 section 6.1).
    let large = block(&[("x", "a".repeat(3000))]);
    let mut bomb = request("GET", "/", &[]);
    bomb.push(0x40);
    bomb.extend_from_slice(&large[1..]);
    bomb.extend([0xbe; 8000]);
    let mut raw = Raw::connect(&running.address, &[]).await;
    raw.ask(1, &bomb).await;
    // The h2 crate answers 431 without a body.
    let outcome = soon(raw.outcome(1)).await;
    assert!(
        matches!(&outcome, Outcome::Reset | Outcome::Closed) || outcome == Outcome::Answer(String::new()),
        "{outcome:?}"
    );
    assert_eq!(running.service.seen(), [""; 0]);
    still_answers(&running.address).await;
}

#[tokio::test]
async fn floods_whose_answers_are_not_read_end_the_connection() {
    let limits = PublicLimits { write_stall: Duration::from_millis(500), ..PublicLimits::default() };
    let running = run(limits).await;
    for flood in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[])] {
        let mut raw = Raw::connect(&running.address, &[]).await;
        let many = flood.repeat(4000);
        let flooding = raw.flood(&many);
        tokio::time::timeout(Duration::from_secs(50), flooding).await.expect("the flood was not ended");
        still_answers(&running.address).await;
    }
}

#[tokio::test]
async fn a_flood_whose_answers_are_read_disturbs_nobody() {
    let (running, mut raw) = http2().await;
    raw.send(&frame(PING, 0, 0, &[7; 8]).repeat(2000)).await;
    let mut answered = 0;
    while answered < 2000 {
        match soon(raw.next()).await {
            Some(found) => answered += usize::from(found.kind == PING && found.flags & ACK != 0),
            None => break,
        }
        if answered == 1000 {
            still_answers(&running.address).await;
        }
    }
    still_answers(&running.address).await;
}

#[tokio::test]
async fn a_window_that_stays_shut_ends_the_connection() {
    let limits = PublicLimits { write_stall: Duration::from_millis(300), ..PublicLimits::default() };
    let running = run(limits).await;
    // From the start, and after some of the answer. The connection's own window is left as it is.
    for window in [0, 100_000] {
        let mut raw = Raw::connect(&running.address, &[(4, window)]).await;
        raw.ask(1, &request("GET", "/big", &[])).await;
        assert_eq!(soon(raw.outcome(1)).await, Outcome::Closed, "{window}");
    }
    still_answers(&running.address).await;
}

#[tokio::test]
async fn one_connection_runs_at_most_a_hundred_requests() {
    let (mut running, mut raw) = http2().await;
    let head = request("GET", "/wait", &[]);
    for stream in odd(101) {
        raw.ask(stream, &head).await;
    }
    assert_eq!(soon(raw.outcome(201)).await, Outcome::Reset);
    for _ in 0..100 {
        running.comes("arrived").await;
    }
    assert_eq!(running.service.seen().len(), 100);
}
