//! The promises of [`Upstream`]: one call is one attempt, bounded in time, "not sent" only if
//! surely so.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};

use super::{bounded, is_waited_for, read, whole};
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

pub trait UpstreamBench: Sync {
    type Upstream: Upstream;
    type Clock: Clock;

    fn upstream(&self) -> &Self::Upstream;

    fn clock(&self) -> &Self::Clock;

    /// Changes the upstream's behaviour, and forgets the requests that arrived.
    fn behave(&self, behaviour: UpstreamBehaviour) -> impl Future<Output = ()> + std::marker::Send;

    fn behave_probed(&self, behaviour: ProbeBehaviour) -> impl Future<Output = ()> + std::marker::Send;

    /// All requests that arrived whole since the last `behave`.
    fn arrived(&self) -> impl Future<Output = Vec<Arrived>> + std::marker::Send;
}

pub const STATUS: &str = "/status";
/// A bound that no answer of these clauses needs.
const AMPLE: Duration = Duration::from_secs(30);
/// A bound that hanging upstreams exceed.
const TIGHT: Duration = Duration::from_secs(1);

/// The ways of a request: with a key, and passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Keyed,
    Passed,
}

const WAYS: [Way; 2] = [Way::Keyed, Way::Passed];

pub async fn suite(bench: &impl UpstreamBench) {
    a_request_arrives_whole_and_once(bench).await;
    an_answer_comes_back_whole(bench).await;
    a_slow_answer_is_waited_for(bench).await;
    a_refused_request_was_not_sent(bench).await;
    a_request_that_may_not_be_sent_is_not_sent(bench).await;
    a_broken_request_is_unknown_and_not_resent(bench).await;
    the_bound_covers_the_head(bench).await;
    the_bound_covers_the_body(bench).await;
    a_probe_says_what_happened(bench).await;
    a_probe_says_what_else_it_can(bench).await;
}

async fn a_request_arrives_whole_and_once(bench: &impl UpstreamBench) {
    for way in WAYS {
        bench.behave(answers(200, "")).await;
        read(answered(bench, way).await).await;
        let (method, target, body) = match way {
            Way::Keyed => (Method::POST, "/v1/charges?a=1&b=%20", request().body),
            Way::Passed => (Method::PUT, "/files/1?x=%2F", Bytes::from_static(b"content")),
        };
        let want =
            Arrived { method, target: target.to_owned(), body, twice: vec![b"1".to_vec(), b"2".to_vec()] };
        assert_eq!(bench.arrived().await, [want], "upstream: a request must arrive whole, and once");
    }
}

/// A redirect too, which is not followed.
async fn an_answer_comes_back_whole(bench: &impl UpstreamBench) {
    for (way, status, text) in [
        (Way::Keyed, 201, "made".to_owned()),
        (Way::Keyed, 500, String::new()),
        (Way::Keyed, 402, "x".repeat(200_000)),
        (Way::Passed, 203, "passed".to_owned()),
        (Way::Keyed, 301, String::new()),
        (Way::Keyed, 303, String::new()),
        (Way::Keyed, 307, String::new()),
        (Way::Keyed, 308, String::new()),
    ] {
        bench.behave(answers(status, &text)).await;
        let response = answered(bench, way).await;
        assert_eq!(response.status().as_u16(), status, "upstream: the status changed on the way");
        let read = read(response).await;
        assert!(read == text.as_bytes(), "upstream: {} bytes of {} came back", read.len(), text.len());
        assert_eq!(bench.arrived().await.len(), 1, "upstream: a redirect was followed, or it came again");
    }
}

async fn a_slow_answer_is_waited_for(bench: &impl UpstreamBench) {
    let after = Duration::from_millis(300);
    bench.behave(UpstreamBehaviour::Answer { after, status: 200, body: Bytes::new() }).await;
    is_waited_for(bench.clock(), after, "upstream: an answer", answered(bench, Way::Keyed)).await;
    assert_eq!(bench.arrived().await.len(), 1, "upstream: one request must arrive once");
}

async fn a_refused_request_was_not_sent(bench: &impl UpstreamBench) {
    for way in WAYS {
        bench.behave(UpstreamBehaviour::Refuse).await;
        let error = failed(bench, way, AMPLE).await;
        let not_sent = matches!(error, SendError::NotSent(_));
        assert!(not_sent, "upstream: a refused connection sends nothing: {error}");
        assert!(bench.arrived().await.is_empty(), "upstream: a request that was not sent arrived");
    }
}

async fn a_request_that_may_not_be_sent_is_not_sent(bench: &impl UpstreamBench) {
    for _ in ["new", "kept"] {
        bench.behave(answers(200, "")).await;
        let call = bench.upstream().send(request(), AMPLE, || false);
        let error = bounded(bench.clock(), AMPLE, "upstream: send", call).await;
        let error = error.expect_err("upstream: a request that may not be sent any more was sent");
        assert!(matches!(error, SendError::NotSent(_)), "upstream: nothing was to be sent: {error}");
        let none = bench.arrived().await.is_empty();
        assert!(none, "upstream: a request that may not be sent any more arrived");
        // This leaves a connection open for the second round.
        read(answered(bench, Way::Keyed).await).await;
    }
}

async fn a_broken_request_is_unknown_and_not_resent(bench: &impl UpstreamBench) {
    for way in WAYS {
        bench.behave(answers(200, "")).await;
        read(answered(bench, Way::Keyed).await).await;
        bench.behave(UpstreamBehaviour::BreakAfterReading).await;
        for round in 1..=2 {
            let error = failed(bench, way, AMPLE).await;
            let unknown = matches!(error, SendError::Unknown(_));
            assert!(unknown, "upstream: it was read, it may have worked: {error}");
            let arrived = bench.arrived().await.len();
            assert_eq!(arrived, round, "upstream: one request must arrive once, broken or not");
        }
    }
}

async fn the_bound_covers_the_head(bench: &impl UpstreamBench) {
    for way in WAYS {
        bench.behave(UpstreamBehaviour::Hang).await;
        let silence = failed(bench, way, TIGHT);
        let error = is_waited_for(bench.clock(), TIGHT, "upstream: a bound", silence).await;
        assert!(matches!(error, SendError::Late(_)), "upstream: silence after sending is unknown: {error}");
        assert_eq!(bench.arrived().await.len(), 1, "upstream: one request must arrive once");
    }
}

/// The bound counts from the send and covers the body too. A body that never ends breaks off as an
/// error, not as a short body.
async fn the_bound_covers_the_body(bench: &impl UpstreamBench) {
    bench.behave(UpstreamBehaviour::HangInBody).await;
    let response = call(bench, Way::Keyed, TIGHT).await.expect("upstream: a head that came must be given");
    let read = bounded(bench.clock(), TIGHT, "upstream: a body", whole(response.into_body())).await;
    assert!(read.is_err(), "upstream: a body that never ended was given as whole: {read:?}");
}

async fn a_probe_says_what_happened(bench: &impl UpstreamBench) {
    let large = Bytes::from(vec![b'x'; 100_000]);
    for (status, body, limit) in [(201, Bytes::from_static(b"made"), 4), (200, large, 99_999)] {
        bench.behave_probed(ProbeBehaviour::Happened { status, body: body.clone() }).await;
        match probed(bench, AMPLE, limit).await {
            ProbeReply::Happened(response) => {
                assert_eq!(response.status().as_u16(), status, "upstream: a probe changed the status");
                let kept = (body.len() <= limit).then_some(body);
                assert_eq!(response.into_body(), kept, "upstream: a body is there within its limit only");
            }
            other => panic!("upstream: it happened, but the probe says {other:?}"),
        }
    }
}

async fn a_probe_says_what_else_it_can(bench: &impl UpstreamBench) {
    use ProbeBehaviour::{DidNotHappen, Garbage, Hang, Refuse, UnderWay};
    for behaviour in [DidNotHappen, UnderWay, Garbage, Refuse, Hang] {
        bench.behave_probed(behaviour.clone()).await;
        let fits = match (&behaviour, probed(bench, TIGHT, 10).await) {
            (DidNotHappen, ProbeReply::DidNotHappen) => Ok(()),
            (UnderWay | Garbage | Refuse | Hang, ProbeReply::CannotSay(_)) => Ok(()),
            (_, other) => Err(other),
        };
        assert!(fits.is_ok(), "upstream: {behaviour:?} was taken for {fits:?}");
    }
}

fn answers(status: u16, text: &str) -> UpstreamBehaviour {
    UpstreamBehaviour::Answer { after: Duration::ZERO, status, body: Bytes::copy_from_slice(text.as_bytes()) }
}

fn id() -> KeyId {
    KeyId::new(Tenant::parse("acme").expect("a tenant"), Key::parse("contract").expect("a key"))
}

fn request() -> Send {
    Send {
        upstream: None,
        id: id(),
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

fn twice() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.append("x-twice", HeaderValue::from_static("1"));
    headers.append("x-twice", HeaderValue::from_static("2"));
    headers
}

async fn call(bench: &impl UpstreamBench, way: Way, within: Duration) -> Result<Response<Body>, SendError> {
    let (clock, upstream) = (bench.clock(), bench.upstream());
    match way {
        Way::Keyed => {
            bounded(clock, within, "upstream: send", upstream.send(request(), within, || true)).await
        }
        Way::Passed => bounded(clock, within, "upstream: pass", upstream.pass(None, passed(), within)).await,
    }
}

async fn answered(bench: &impl UpstreamBench, way: Way) -> Response<Body> {
    call(bench, way, AMPLE).await.unwrap_or_else(|error| panic!("upstream: {way:?} failed: {error}"))
}

async fn failed(bench: &impl UpstreamBench, way: Way, within: Duration) -> SendError {
    match call(bench, way, within).await {
        Err(error) => error,
        Ok(response) => panic!("upstream: {} came though nothing could answer", response.status()),
    }
}

async fn probed(bench: &impl UpstreamBench, within: Duration, limit: usize) -> ProbeReply {
    let probe = Probe {
        upstream: None,
        id: id(),
        token: Token { epoch: 2, attempt: 3 },
        region: RegionName::parse("eu").ok(),
        address: Uri::from_static(STATUS),
        path: "/v1/charges".to_owned(),
    };
    bounded(bench.clock(), within, "upstream: probe", bench.upstream().probe(probe, within, limit)).await
}
