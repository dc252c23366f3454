//! The framing guard as hyper sees it: however the bytes arrive, only whole heads and their bodies
//! come out.
//!
//! `tests/suites/net/framing.rs` shows the same over sockets, with hyper above.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::Waker;

use http_body_util::BodyExt;
use hyper::service::service_fn;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::server::heads::Heads;

/// A stream that arrives in pieces and ends.
struct Script(VecDeque<Vec<u8>>);

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(to.remaining()));
            to.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The stream's own end.
    Whole,
    /// A head was refused, and the marker was given.
    Marker,
    /// A body was broken off.
    Broken,
}

/// Bytes that hyper gets before the marker, in pieces of these sizes, and how they end.
fn given(raw: &[u8], pieces: &[usize], space: usize) -> (Vec<u8>, End) {
    let (mut script, mut rest) = (VecDeque::new(), raw);
    for size in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, later) = rest.split_at((*size).clamp(1, rest.len()));
        script.push_back(piece.to_vec());
        rest = later;
    }
    let (refusal, held) = (Refusal::default(), Arc::<Heads>::default().nothing(1 << 20));
    let stream = tokio::io::join(Script(script), tokio::io::sink());
    let mut guard = Guard::new(stream, Duration::from_secs(1), held, refusal.clone());
    let mut context = Context::from_waker(Waker::noop());
    let (mut all, mut buffer) = (Vec::new(), vec![0; space]);
    loop {
        let mut part = ReadBuf::new(&mut buffer);
        match Pin::new(&mut guard).poll_read(&mut context, &mut part) {
            Poll::Ready(Ok(())) if part.filled().is_empty() => return (all, End::Whole),
            Poll::Ready(Ok(())) => all.extend_from_slice(part.filled()),
            Poll::Ready(Err(_)) => return (all, End::Broken),
            Poll::Pending => {
                assert!(refusal.get().is_some());
                let heads = all.strip_suffix(MARKER).expect("the marker comes last");
                return (heads.to_vec(), End::Marker);
            }
        }
    }
}

/// A message as a client sends it, and as hyper must get it.
fn message(body: &[u8], chunk: usize, trailers: bool) -> (Vec<u8>, Vec<u8>) {
    let head = |line: String| format!("POST /a HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n").into_bytes();
    if chunk == 0 {
        let whole = [head(format!("Content-Length: {}", body.len())), body.to_vec()].concat();
        return (whole.clone(), whole);
    }
    let mut sent = head("Transfer-Encoding: chunked".to_owned());
    for piece in body.chunks(chunk) {
        sent.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    sent.extend(b"0\r\n");
    let passed = [&sent[..], b"\r\n"].concat();
    let trailers: &[u8] = if trailers { b"Idempotency-Key: forged\r\nHost: b\r\n\r\n" } else { b"\r\n" };
    sent.extend(trailers);
    (sent, passed)
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let smuggled = b"\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    prop_oneof![vec(any::<u8>(), 0..40), Just(smuggled)]
}

fn messages() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let one = (bodies(), 0_usize..9, any::<bool>());
    vec(one.prop_map(|(body, chunk, trailers)| message(&body, chunk, trailers)), 0..5)
}

fn cuts() -> impl Strategy<Value = (Vec<usize>, usize)> {
    (vec(1_usize..60, 1..8), 1_usize..80)
}

proptest! {
    #[test]
    fn messages_are_given_as_they_are_without_trailers(all in messages(), (pieces, space) in cuts()) {
        let (sent, passed): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        prop_assert_eq!(given(&sent.concat(), &pieces, space), (passed.concat(), End::Whole));
    }

    #[test]
    fn nothing_after_a_flaw_is_given(
        before in messages(),
        flaw in 0..FLAWS.len(),
        after in messages(),
        (pieces, space) in cuts(),
    ) {
        let (sent, passed): (Vec<_>, Vec<_>) = before.into_iter().unzip();
        let (flaw, partly, end) = &FLAWS[flaw];
        let rest: Vec<u8> = after.into_iter().flat_map(|(sent, _)| sent).collect();
        let raw = [&sent.concat()[..], flaw.as_bytes(), &rest[..]].concat();
        let expected = [&passed.concat()[..], partly.as_bytes()].concat();
        let (got, got_end) = given(&raw, &pieces, space);
        prop_assert_eq!(&got_end, end);
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn cuts_make_no_difference(
        bytes in vec(prop_oneof![any::<u8>().prop_map(|byte| vec![byte]), token()], 0..40),
        (pieces, space) in cuts(),
    ) {
        let raw = [b"POST /a HTTP/1.1\r\nHost: a\r\n".to_vec(), bytes.concat()].concat();
        prop_assert_eq!(given(&raw, &pieces, space), given(&raw, &[1], 1000));
    }
}

/// Bytes sent, the part of them that hyper gets, and the end.
const FLAWS: &[(&str, &str, End)] = &[
    ("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", End::Marker),
    ("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "", End::Marker),
    ("GET / HTTP/1.1\nHost: a\n\n", "", End::Marker),
    ("GET / HTTP/1.1\r\nx: 1\r\n 2\r\n\r\n", "", End::Marker),
    ("\0", "", End::Marker),
    (
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;\n",
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        End::Broken,
    ),
    (
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na",
        End::Broken,
    ),
];

fn token() -> impl Strategy<Value = Vec<u8>> {
    let tokens = [
        "\r\n",
        "\r\n\r\n",
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        ";",
        "\n",
        "GET / HTTP/1.1\r\n",
    ];
    proptest::sample::select(tokens.map(|token| token.as_bytes().to_vec()).to_vec())
}

#[test]
fn empty_lines_before_a_request_are_ignored() {
    for space in [1, 100] {
        let (got, end) = given(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n\r\nGET /b HTTP/1.1\r\n\r\n", &[space], 100);
        assert_eq!(end, End::Whole);
        assert_eq!(got, b"GET / HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
    }
}

/// Bytes that readers of HTTP take in different ways, and plain ones.
fn odd() -> impl Strategy<Value = Vec<u8>> {
    let short: [&[u8]; 24] = [
        b"\r\n", b"\r", b"\n", b" ", b"\t", b"\0", b"\x7f", b"\xff", b":", b",", b";", b"%", b"#", b"?",
        b"/", b"//", b"*", b"@", b"[::1]", b"[", b"\"", b"GET ", b"HEAD ", b"/a?b ",
    ];
    let long: [&[u8]; 22] = [
        b"\r\n\r\n",
        b"\xc3\xa9",
        b"<{|}>\\^`",
        b"CONNECT ",
        b"OPTIONS ",
        b"G!#$%&'*+-.^_`|~T ",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"http://a",
        b"http://a:b@c:99999/",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"HTTP/1.1",
        b"Host: a\r\n",
        b"Content-Length: 3\r\n",
        b"Content-Length:03\t\r\n",
        b"Content-Length",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Upgrade: h2c\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
    ];
    let tokens: Vec<_> = short.iter().chain(&long).map(|token| token.to_vec()).collect();
    prop_oneof![2 => proptest::sample::select(tokens), 1 => vec(any::<u8>(), 1..3)]
}

/// A request with one or two changed places.
fn bent() -> impl Strategy<Value = Vec<u8>> {
    let plain = prop_oneof![
        Just(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_vec()),
        Just(b"POST http://a/b?c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nx: \r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec()),
        Just(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\ny:z\r\n\r\n".to_vec()),
    ];
    (plain, vec((any::<proptest::sample::Index>(), odd(), 0_usize..3), 0..3)).prop_map(|(mut raw, bends)| {
        for (at, with, over) in bends {
            let at = at.index(raw.len() + 1);
            let end = (at + over).min(raw.len());
            drop(raw.splice(at..end, with));
        }
        raw
    })
}

/// hyper's result for `raw` behind a guard: the target and body of each request as the service sees
/// them, and all answers.
async fn served(raw: Vec<u8>) -> (Vec<(String, Option<Vec<u8>>)>, String) {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let seen = Mutex::new(Vec::new());
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let seen = &seen;
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            seen.lock().unwrap().push((format!("{} {}", head.method, head.uri), body));
            // As admission does with the marker.
            let then = if head.uri == "*" { "close" } else { "keep-alive" };
            let answer = http::Response::builder()
                .header("x-ours", "1")
                .header("connection", then)
                .body(String::new());
            Ok::<_, std::convert::Infallible>(answer.unwrap())
        }
    });
    let held = Arc::<Heads>::default().nothing(1 << 20);
    let guard = Guard::new(server, Duration::from_secs(9), held, Refusal::default());
    let connection = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(hyper_util::rt::TokioIo::new(guard), service);
    client.write_all(&raw).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answers = Vec::new();
    let both = async { tokio::join!(connection, client.read_to_end(&mut answers)) };
    let ended = tokio::time::timeout(Duration::from_secs(60), both).await;
    let (_, read) = ended.expect("the connection ends");
    read.unwrap();
    drop(client);
    (seen.into_inner().unwrap(), String::from_utf8_lossy(&answers).into_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// hyper takes everything that the guard passes, and reads it the same way.
    ///
    /// Every answer is the service's. A body breaks off only if the guard broke it off, or the
    /// client did at the very end.
    #[test]
    fn hyper_agrees_with_the_guard(raw in vec(bent(), 1..4)) {
        let raw = raw.concat();
        let shown = raw.escape_ascii().to_string();
        let (_, end) = given(&raw, &[raw.len()], 4096);

        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (seen, answers) = runtime.block_on(served(raw));
        let theirs = answers.matches("HTTP/1.").count() - answers.matches("x-ours: 1").count() - answers.matches(" 100 Continue").count();
        prop_assert_eq!(theirs, 0, "{} {:?} {}", shown, seen, answers);
        let broken = seen.iter().position(|(_, body)| body.is_none());
        prop_assert!(broken.is_none_or(|at| at + 1 == seen.len() && end != End::Marker), "{:?} {:?}", seen, end);
    }
}

/// hyper's buffer, as whoever holds it sees it.
struct Buffer {
    _held: Arc<()>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

#[test]
fn a_parked_connection_keeps_no_buffer() {
    let (held, (_client, ours)) = (Arc::new(()), tokio::io::duplex(64));
    let unread = Bytes::from_owner(Buffer { _held: held.clone() });
    let nothing = Arc::<Heads>::default().nothing(4096);
    let mut guard = Guard::new(ours, Duration::from_secs(1), nothing, Arc::default());
    let next = std::pin::pin!(guard.next(unread));
    assert!(next.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(Arc::strong_count(&held), 1);
}
