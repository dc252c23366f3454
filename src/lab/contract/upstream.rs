//! The promises of [`Upstream`]: one call is one attempt, bounded in time, "not sent" only if
//! surely so.
//!
//! This file must not know what a status means for a key.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};

use super::{bounded, whole};
use onceway_ports::upstream::{ForwardKey, Probe, ProbeReply, Send, SendError};
use onceway_ports::{Body, Clock, Upstream, body};
use onceway_protocol::key::{Key, KeyId, Tenant};
use onceway_protocol::record::{RequestId, Token};
use onceway_protocol::region::RegionName;

#[derive(Clone, Debug)]
pub enum UpstreamBehaviour {
    Answer {
        after: Duration,
        status: u16,
        body: Bytes,
    },
    /// Nothing listens: connections are refused, and the caller's machine knows that standing ones
    /// have ended.
    Refuse,
    /// Reads the whole request, then breaks the connection without an answer.
    BreakAfterReading,
    Hang,
    /// Answers with a head and the first bytes of a body, and never ends it.
    HangInBody,
}

/// The status address's answer from now on, in the adapter's documented form.
#[derive(Clone, Debug)]
pub enum ProbeBehaviour {
    Happened {
        status: u16,
        body: Bytes,
    },
    DidNotHappen,
    UnderWay,
    /// Something that the form does not know.
    Garbage,
    Refuse,
    Hang,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub method: Method,
    pub target: String,
    pub body: Bytes,
    pub twice: Vec<Vec<u8>>,
}

/// An upstream, the way to it, and the requests that arrived there.
pub trait UpstreamBench: Sync {
    type Upstream: Upstream;
    type Clock: Clock;

    fn upstream(&self) -> &Self::Upstream;

    fn clock(&self) -> &Self::Clock;

    fn region(&self) -> RegionName;

    fn status_address(&self) -> Uri;

    /// Changes the upstream's behaviour, and forgets the requests that arrived.
    fn behave(&self, behaviour: UpstreamBehaviour) -> impl Future<Output = ()> + std::marker::Send;

    fn behave_probed(&self, behaviour: ProbeBehaviour) -> impl Future<Output = ()> + std::marker::Send;

    /// All requests that arrived whole since the last `behave`.
    fn arrived(&self) -> impl Future<Output = Vec<Arrived>> + std::marker::Send;
}

/// A bound that no answer of these clauses needs.
const AMPLE: Duration = Duration::from_secs(30);
/// A bound that hanging upstreams exceed.
const TIGHT: Duration = Duration::from_secs(1);

pub async fn suite<B: UpstreamBench>(bench: &B) {
    a_request_arrives_whole_and_once(bench).await;
    an_answer_comes_back_whole(bench).await;
    a_slow_answer_is_waited_for(bench).await;
    a_refused_request_was_not_sent(bench).await;
    a_request_that_may_not_be_sent_is_not_sent(bench).await;
    a_broken_request_is_unknown_and_not_resent(bench).await;
    the_bound_covers_the_head(bench).await;
    the_bound_covers_the_body(bench).await;
    no_redirect_is_followed(bench).await;
    a_probe_says_what_happened(bench).await;
    a_probe_leaves_out_large_bodies(bench).await;
    a_probe_says_what_did_not_happen(bench).await;
    every_other_probe_reply_means_cannot_say(bench).await;
    a_passed_request_arrives_whole_and_once(bench).await;
    a_passed_request_tells_what_failed(bench).await;
    a_passed_request_is_bounded(bench).await;
}

pub async fn a_request_arrives_whole_and_once<B: UpstreamBench>(bench: &B) {
    bench.behave(answers(200, "")).await;
    let request = request("whole");
    let response = sent(bench, request.clone()).await;
    whole(response.into_body()).await.expect("upstream: the body broke off");
    let want = Arrived {
        method: request.method,
        target: "/v1/charges?a=1&b=%20".to_owned(),
        body: request.body,
        twice: vec![b"1".to_vec(), b"2".to_vec()],
    };
    assert_eq!(bench.arrived().await, [want], "upstream: a request must arrive whole, and once");
}

pub async fn an_answer_comes_back_whole<B: UpstreamBench>(bench: &B) {
    for (status, text) in [(201, "made".to_owned()), (500, String::new()), (402, "x".repeat(200_000))] {
        bench.behave(answers(status, &text)).await;
        let response = sent(bench, request("answer")).await;
        assert_eq!(response.status().as_u16(), status, "upstream: the status changed on the way");
        let read = whole(response.into_body()).await.expect("upstream: the body broke off");
        assert!(read == text.as_bytes(), "upstream: {} bytes of {} came back", read.len(), text.len());
    }
}

pub async fn a_slow_answer_is_waited_for<B: UpstreamBench>(bench: &B) {
    let after = Duration::from_millis(300);
    bench.behave(UpstreamBehaviour::Answer { after, status: 200, body: Bytes::new() }).await;
    let begun = bench.clock().now();
    sent(bench, request("slow")).await;
    let took = bench.clock().now().since(begun);
    assert!(took * 10 > after * 9, "upstream: an answer that takes {after:?} came after {took:?}");
    assert_eq!(bench.arrived().await.len(), 1, "upstream: one request must arrive once");
}

pub async fn a_refused_request_was_not_sent<B: UpstreamBench>(bench: &B) {
    bench.behave(UpstreamBehaviour::Refuse).await;
    let error = failed(bench, request("refused"), AMPLE).await;
    assert!(matches!(error, SendError::NotSent(_)), "upstream: a refused connection sends nothing: {error}");
    assert!(bench.arrived().await.is_empty(), "upstream: a request that was not sent arrived");
}

/// A request whose right to be sent ended is not sent, neither over a new connection nor over a
/// kept one.
pub async fn a_request_that_may_not_be_sent_is_not_sent<B: UpstreamBench>(bench: &B) {
    for round in ["new", "kept"] {
        bench.behave(answers(200, "")).await;
        let call = bench.upstream().send(request(round), AMPLE, || false);
        let error = bounded(bench.clock(), AMPLE, "upstream: send", call).await;
        let error = error.expect_err("upstream: a request that may not be sent any more was sent");
        assert!(matches!(error, SendError::NotSent(_)), "upstream: nothing was to be sent: {error}");
        let none = bench.arrived().await.is_empty();
        assert!(none, "upstream: a request that may not be sent any more arrived");
        // This leaves a connection open for the second round.
        let response = sent(bench, request("between")).await;
        whole(response.into_body()).await.expect("upstream: the body broke off");
    }
}

/// A connection that breaks after the request was read is unknown. Nothing is sent again, not even
/// over a kept connection.
pub async fn a_broken_request_is_unknown_and_not_resent<B: UpstreamBench>(bench: &B) {
    bench.behave(answers(200, "")).await;
    whole(sent(bench, request("before")).await.into_body()).await.expect("upstream: the body broke off");
    bench.behave(UpstreamBehaviour::BreakAfterReading).await;
    for round in 1..=2 {
        let error = failed(bench, request("broken"), AMPLE).await;
        let SendError::Unknown(_) = error else {
            panic!("upstream: it was read, it may have worked: {error}")
        };
        let arrived = bench.arrived().await.len();
        assert_eq!(arrived, round, "upstream: one request must arrive once, broken or not");
    }
}

/// A silent upstream gets its whole time and no more; its effect is unknown.
pub async fn the_bound_covers_the_head<B: UpstreamBench>(bench: &B) {
    bench.behave(UpstreamBehaviour::Hang).await;
    let begun = bench.clock().now();
    let error = failed(bench, request("hang"), TIGHT).await;
    assert!(matches!(error, SendError::Late(_)), "upstream: silence after sending is unknown: {error}");
    let took = bench.clock().now().since(begun);
    assert!(took * 10 > TIGHT * 9, "upstream: gave up after {took:?} of {TIGHT:?}");
    assert_eq!(bench.arrived().await.len(), 1, "upstream: one request must arrive once");
}

/// The bound counts from the send and covers the body too. A body that never ends breaks off as an
/// error, not as a short body.
pub async fn the_bound_covers_the_body<B: UpstreamBench>(bench: &B) {
    bench.behave(UpstreamBehaviour::HangInBody).await;
    let call = bench.upstream().send(request("hang-in-body"), TIGHT, || true);
    let response = bounded(bench.clock(), TIGHT, "upstream: send", call).await;
    let response = response.expect("upstream: a head that came must be given");
    let read = bounded(bench.clock(), TIGHT, "upstream: a body", whole(response.into_body())).await;
    assert!(read.is_err(), "upstream: a body that never ended was given as whole: {read:?}");
}

pub async fn no_redirect_is_followed<B: UpstreamBench>(bench: &B) {
    for status in [301, 303, 307, 308] {
        bench.behave(answers(status, "")).await;
        let response = sent(bench, request("redirect")).await;
        assert_eq!(response.status().as_u16(), status, "upstream: a redirect must come back as it is");
        assert_eq!(bench.arrived().await.len(), 1, "upstream: a redirect was followed");
    }
}

pub async fn a_probe_says_what_happened<B: UpstreamBench>(bench: &B) {
    let body = Bytes::from_static(b"made");
    bench.behave_probed(ProbeBehaviour::Happened { status: 201, body: body.clone() }).await;
    match probed(bench, AMPLE, 4).await {
        ProbeReply::Happened(response) => {
            assert_eq!(response.status().as_u16(), 201, "upstream: a probe changed the status");
            assert_eq!(response.into_body(), Some(body), "upstream: a body within the limit must be there");
        }
        other => panic!("upstream: it happened, but the probe says {other:?}"),
    }
}

/// A body over the limit is left out; the reply still says that it happened.
pub async fn a_probe_leaves_out_large_bodies<B: UpstreamBench>(bench: &B) {
    let body = Bytes::from(vec![b'x'; 100_000]);
    bench.behave_probed(ProbeBehaviour::Happened { status: 200, body: body.clone() }).await;
    match probed(bench, AMPLE, body.len() - 1).await {
        ProbeReply::Happened(response) => {
            assert_eq!(response.into_body(), None, "upstream: a body over the limit must be left out");
        }
        other => panic!("upstream: it happened, but the probe says {other:?}"),
    }
}

pub async fn a_probe_says_what_did_not_happen<B: UpstreamBench>(bench: &B) {
    bench.behave_probed(ProbeBehaviour::DidNotHappen).await;
    let reply = probed(bench, AMPLE, 10).await;
    assert!(matches!(reply, ProbeReply::DidNotHappen), "upstream: it did not happen, but {reply:?}");
}

/// A probe cannot say, within its bound, if the attempt is under way, or the reply is garbage,
/// refused or missing.
pub async fn every_other_probe_reply_means_cannot_say<B: UpstreamBench>(bench: &B) {
    let others =
        [ProbeBehaviour::UnderWay, ProbeBehaviour::Garbage, ProbeBehaviour::Refuse, ProbeBehaviour::Hang];
    for behaviour in others {
        bench.behave_probed(behaviour.clone()).await;
        let reply = probed(bench, TIGHT, 10).await;
        assert!(matches!(reply, ProbeReply::CannotSay(_)), "upstream: {behaviour:?} was taken for {reply:?}");
    }
}

pub async fn a_passed_request_arrives_whole_and_once<B: UpstreamBench>(bench: &B) {
    bench.behave(answers(203, "passed")).await;
    let response = passes(bench, AMPLE).await.expect("upstream: pass failed");
    assert_eq!(response.status().as_u16(), 203, "upstream: the status changed on the way");
    let read = whole(response.into_body()).await.expect("upstream: the body broke off");
    assert_eq!(read, b"passed", "upstream: the body changed on the way");
    let want = Arrived {
        method: Method::PUT,
        target: "/files/1?x=%2F".to_owned(),
        body: Bytes::from_static(b"content"),
        twice: vec![b"1".to_vec(), b"2".to_vec()],
    };
    assert_eq!(bench.arrived().await, [want], "upstream: a passed request must arrive whole, and once");
}

/// A passed request that fails is "not sent" only if that is sure, and is not sent again.
pub async fn a_passed_request_tells_what_failed<B: UpstreamBench>(bench: &B) {
    bench.behave(UpstreamBehaviour::Refuse).await;
    let error = passes(bench, AMPLE).await.expect_err("upstream: a refused request was answered");
    assert!(matches!(error, SendError::NotSent(_)), "upstream: a refused connection sends nothing: {error}");
    bench.behave(UpstreamBehaviour::BreakAfterReading).await;
    let error = passes(bench, AMPLE).await.expect_err("upstream: a broken request was answered");
    assert!(matches!(error, SendError::Unknown(_)), "upstream: it was read, so it may have worked: {error}");
    assert_eq!(bench.arrived().await.len(), 1, "upstream: one request must arrive once, broken or not");
}

pub async fn a_passed_request_is_bounded<B: UpstreamBench>(bench: &B) {
    bench.behave(UpstreamBehaviour::Hang).await;
    let begun = bench.clock().now();
    let error = passes(bench, TIGHT).await.expect_err("upstream: a silent upstream answered");
    assert!(matches!(error, SendError::Late(_)), "upstream: silence after sending is unknown: {error}");
    let took = bench.clock().now().since(begun);
    assert!(took * 10 > TIGHT * 9, "upstream: gave up after {took:?} of {TIGHT:?}");
    assert_eq!(bench.arrived().await.len(), 1, "upstream: one request must arrive once");
}

fn answers(status: u16, text: &str) -> UpstreamBehaviour {
    UpstreamBehaviour::Answer { after: Duration::ZERO, status, body: Bytes::copy_from_slice(text.as_bytes()) }
}

fn id(key: &str) -> KeyId {
    KeyId::new(Tenant::parse("acme").expect("a tenant"), Key::parse(key).expect("a key"))
}

fn request(key: &str) -> Send {
    Send {
        upstream: None,
        id: id(key),
        key: ForwardKey::default(),
        token: Token { epoch: 2, attempt: 3 },
        request_id: RequestId(7),
        method: Method::POST,
        target: Uri::from_static("/v1/charges?a=1&b=%20"),
        headers: twice(),
        body: Bytes::from((0..=255).collect::<Vec<u8>>()),
    }
}

fn passed() -> Request<Body> {
    let mut request = Request::new(body::full("content"));
    *request.method_mut() = Method::PUT;
    *request.uri_mut() = Uri::from_static("/files/1?x=%2F");
    *request.headers_mut() = twice();
    request
}

async fn passes<B: UpstreamBench>(bench: &B, within: Duration) -> Result<Response<Body>, SendError> {
    let call = bench.upstream().pass(None, passed(), within);
    bounded(bench.clock(), within, "upstream: pass", call).await
}

fn twice() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.append("x-twice", HeaderValue::from_static("1"));
    headers.append("x-twice", HeaderValue::from_static("2"));
    headers
}

async fn sent<B: UpstreamBench>(bench: &B, request: Send) -> Response<Body> {
    let call = bench.upstream().send(request, AMPLE, || true);
    bounded(bench.clock(), AMPLE, "upstream: send", call).await.expect("upstream: send failed")
}

async fn failed<B: UpstreamBench>(bench: &B, request: Send, within: Duration) -> SendError {
    let call = bench.upstream().send(request, within, || true);
    match bounded(bench.clock(), within, "upstream: send", call).await {
        Err(error) => error,
        Ok(response) => panic!("upstream: {} came though nothing could answer", response.status()),
    }
}

async fn probed<B: UpstreamBench>(bench: &B, within: Duration, limit: usize) -> ProbeReply {
    let probe = Probe {
        upstream: None,
        id: id("probed"),
        token: Token { epoch: 2, attempt: 3 },
        region: Some(bench.region()),
        address: bench.status_address(),
        path: "/v1/charges".to_owned(),
    };
    bounded(bench.clock(), within, "upstream: probe", bench.upstream().probe(probe, within, limit)).await
}
