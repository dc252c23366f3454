//! The protected services: one per region, or one shared by all, with a ledger of all effects.
//!
//! The ledger is the truth that no gateway sees. An effect that was begun happens at its time, even
//! if the caller no longer waits. Moments are since the world began.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use onceway::ports::upstream::{EffectTokens, Probe, ProbeReply, Send, SendError};
use onceway::ports::{Body, BodyError, Upstream, body};
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{RequestId, Token};
use onceway::protocol::region::RegionName;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock::{SimClock, pause};
use crate::cluster::Cluster;
use crate::process::{Process, locked};
use crate::table::fresh;

/// The behaviour of an upstream for requests, from the next one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamMode {
    /// Waits, performs the effect if told to, and answers.
    Answer { after: Duration, status: u16, body: Bytes, effect: bool },
    /// Waits, performs the effect and answers 201 with a receipt that no other attempt gets.
    Receipt { after: Duration },
    /// Honours the key: waits, has one effect, and answers 201 with the first effect's receipt.
    Once { after: Duration },
    /// Refuses connections: surely nothing was sent.
    Refuse,
    /// Performs the effect at once, then breaks the connection without an answer.
    EffectThenDrop,
    /// Performs the effect at once, then answers this status, without a body, as if it had failed.
    EffectThenFail { status: u16 },
    /// Answers this status at once, as a proxy that gave up, and performs the effect later. That is
    /// before the attempt must be over (see [`Upstreams::promise`]). Until then the status address
    /// says that it did not happen.
    FailThenEffect {
        status: u16,
        /// True if the answer asks for a pause, which says nothing about the effect.
        says_when: bool,
        /// The time until the effect.
        after: Duration,
    },
    /// Does nothing, answers 503 and asks for a pause of so many seconds.
    Busy { retry_after: u64 },
    /// Breaks the connection without having done anything.
    DropBeforeEffect,
    /// Does nothing and never answers.
    Hang,
    /// Performs the effect and begins an answer that never ends.
    HangInBody,
}

/// The answers of an upstream's status address, from the next question on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProbeMode {
    /// The truth, by the ledger.
    #[default]
    Ledger,
    /// The truth, but of each effect only so long after it. Until then the attempt did not happen,
    /// unless it must be over (see [`Upstreams::promise`]).
    Lags {
        /// The time from an effect to the truth about it.
        by: Duration,
    },
    /// The attempt happened, with this answer.
    Happened { status: u16, body: Bytes },
    /// The attempt did not happen.
    DidNotHappen,
    /// An answer of no use.
    CannotSay,
    /// No answer, ever.
    Silent,
}

/// One effect of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    pub at: Duration,
    pub region: RegionName,
    pub token: Token,
    pub request_id: RequestId,
    pub status: u16,
    pub body: Bytes,
    /// The body of the request that asked for it.
    pub asked: Bytes,
    /// True if the status address knows nothing of it until it happens.
    pub queued: bool,
    /// The time by which the attempt must be over, for status addresses as well; `None`: never.
    pub over_by: Option<Duration>,
}

pub type Ledger = BTreeMap<KeyId, Vec<Happening>>;

impl Happening {
    /// The time of the truth about it, at a status address that lags by so much.
    fn known_from(&self, lag: Duration) -> Duration {
        let late = self.at + lag;
        self.over_by.map_or(late, |over| late.min(over.max(self.at)))
    }
}

/// A request as an upstream saw it.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Duration,
    /// The attempt, if it came with a key.
    pub attempt: Option<(KeyId, Token, RequestId)>,
    pub method: Method,
    /// The path and query.
    pub target: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An attempt's arrival or effect.
#[derive(Clone, Debug)]
pub struct Attempted {
    pub at: Duration,
    pub by: RegionName,
    pub id: KeyId,
    pub token: Token,
    pub body: Bytes,
}

#[derive(Debug)]
struct Service {
    mode: UpstreamMode,
    probes: ProbeMode,
    connect: Duration,
    sick: bool,
    questions: usize,
}

#[derive(Debug, Default)]
struct Inner {
    shared: bool,
    promise: Option<Cluster>,
    services: BTreeMap<RegionName, Service>,
    /// Every request that arrived, with its upstream's region, in the order of arrival.
    arrivals: Vec<(RegionName, Arrival)>,
    ledger: Ledger,
    /// Every effect that was begun, in that order.
    begun: Vec<Attempted>,
    events: u64,
}

/// All upstreams and their ledger. Cheap to clone; all clones are the same services.
#[derive(Clone, Debug)]
pub struct Upstreams {
    clock: SimClock,
    inner: Arc<Mutex<Inner>>,
}

impl Upstreams {
    /// Services without an upstream yet. If they are `shared`, each knows the attempts at all.
    pub fn new(clock: SimClock, shared: bool) -> Self {
        let inner = Inner { shared, ..Inner::default() };
        Self { clock, inner: Arc::new(Mutex::new(inner)) }
    }

    /// Adds a region's upstream, which answers 200 at once and tells the truth.
    pub fn add(&self, region: RegionName) {
        let mode =
            UpstreamMode::Answer { after: Duration::ZERO, status: 200, body: Bytes::new(), effect: true };
        let connect = Duration::ZERO;
        let service = Service { mode, probes: ProbeMode::Ledger, connect, sick: false, questions: 0 };
        locked(&self.inner).services.insert(region, service);
    }

    /// Lets the services keep their promise from now on, whatever else they do, on which routes
    /// rely: no attempt takes effect later than the hold and settle time of its claim, and by then
    /// the status address knows of it.
    pub(crate) fn promise(&self, cluster: Cluster) {
        locked(&self.inner).promise = Some(cluster);
    }

    pub fn set_mode(&self, region: &RegionName, mode: UpstreamMode) {
        locked(&self.inner).service(region).mode = mode;
    }

    /// Lets an upstream fail its health checks, or pass them. It answers requests as before.
    pub fn set_sick(&self, region: &RegionName, sick: bool) {
        locked(&self.inner).service(region).sick = sick;
    }

    /// Sets the time of a connection to a region's upstream, from now on, for requests with a key.
    pub fn set_connect(&self, region: &RegionName, connect: Duration) {
        locked(&self.inner).service(region).connect = connect;
    }

    pub fn set_probes(&self, region: &RegionName, probes: ProbeMode) {
        locked(&self.inner).service(region).probes = probes;
    }

    /// The effects on a key that have happened by now, in the order in which they were begun.
    pub fn effects(&self, id: &KeyId) -> Vec<Happening> {
        let now = self.clock.elapsed();
        let inner = locked(&self.inner);
        inner.ledger.get(id).into_iter().flatten().filter(|effect| effect.at <= now).cloned().collect()
    }

    /// The effects on every key that have happened by now.
    pub fn ledger(&self) -> Ledger {
        let ids: Vec<KeyId> = locked(&self.inner).ledger.keys().cloned().collect();
        ids.into_iter().map(|id| (id.clone(), self.effects(&id))).collect()
    }

    /// All requests that arrived at a region's upstream.
    pub fn arrivals(&self, region: &RegionName) -> Vec<Arrival> {
        let inner = locked(&self.inner);
        let here = inner.arrivals.iter().filter(|(at, _)| at == region);
        here.map(|(_, arrival)| arrival.clone()).collect()
    }

    /// Attempts that have arrived anywhere since the cursor was last moved, in that order.
    pub(crate) fn arrived_since(&self, cursor: &mut usize) -> Vec<Attempted> {
        let inner = locked(&self.inner);
        let attempts = fresh(&inner.arrivals, cursor).iter().filter_map(|(region, arrival)| {
            let (id, token, _) = arrival.attempt.as_ref()?;
            let (at, by, body) = (arrival.at, region.clone(), arrival.body.clone());
            Some(Attempted { at, by, id: id.clone(), token: *token, body })
        });
        attempts.collect()
    }

    /// Effects that were begun since the cursor was last moved. Each happens at its time.
    pub(crate) fn begun_since(&self, cursor: &mut usize) -> Vec<Attempted> {
        fresh(&locked(&self.inner).begun, cursor).to_vec()
    }

    pub fn questions(&self, region: &RegionName) -> usize {
        locked(&self.inner).service(region).questions
    }

    /// The number of requests, questions and checks that arrived so far.
    pub(crate) fn events(&self) -> u64 {
        locked(&self.inner).events
    }

    pub fn upstream(&self, region: &RegionName) -> SimUpstream {
        SimUpstream { upstreams: self.clone(), region: region.clone(), process: Process::default() }
    }
}

impl Inner {
    fn service(&mut self, region: &RegionName) -> &mut Service {
        self.services.get_mut(region).unwrap_or_else(|| panic!("no upstream of {region}: add it first"))
    }
}

/// A region's upstream, as its gateways reach it.
#[derive(Clone, Debug)]
pub struct SimUpstream {
    upstreams: Upstreams,
    region: RegionName,
    process: Process,
}

impl SimUpstream {
    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    /// Lets a request arrive, and returns the upstream's behaviour for it.
    fn arrive(&self, arrival: Arrival) -> UpstreamMode {
        let promise = locked(&self.upstreams.inner).promise.clone();
        let over_by = promise.zip(arrival.attempt.as_ref());
        let over_by = over_by.and_then(|(cluster, (id, token, _))| cluster.over_by(&self.region, id, *token));
        let mut inner = locked(&self.upstreams.inner);
        inner.events += 1;
        let service = inner.service(&self.region);
        let mode = service.mode.clone();
        if mode == UpstreamMode::Refuse {
            return mode;
        }
        let (attempt, asked) = (arrival.attempt.clone(), arrival.body.clone());
        inner.arrivals.push((self.region.clone(), arrival));
        let receipt = receipt(&attempt);
        let mode = match mode {
            UpstreamMode::Receipt { after } => {
                UpstreamMode::Answer { after, status: 201, body: receipt.clone(), effect: true }
            }
            UpstreamMode::Once { after } => {
                let first = attempt.as_ref().and_then(|(id, ..)| inner.ledger.get(id)?.first());
                let body = first.map_or(&receipt, |first| &first.body).clone();
                UpstreamMode::Answer { after, status: 201, body, effect: first.is_none() }
            }
            other => other,
        };
        let effect = match &mode {
            UpstreamMode::Answer { after, status, body, effect: true } => {
                Some((*after, *status, body.clone()))
            }
            UpstreamMode::EffectThenDrop | UpstreamMode::EffectThenFail { .. } | UpstreamMode::HangInBody => {
                Some((Duration::ZERO, 201, receipt))
            }
            UpstreamMode::FailThenEffect { after, .. } => Some((*after, 201, receipt)),
            _ => None,
        };
        if let (Some((id, token, request_id)), Some((after, status, body))) = (attempt, effect) {
            let queued = matches!(mode, UpstreamMode::FailThenEffect { .. });
            let now = self.upstreams.clock.elapsed();
            let latest = over_by.filter(|_| queued).map_or(now + after, |over| over.max(now));
            let at = (now + after).min(latest);
            let region = self.region.clone();
            let begun = Attempted { at, by: region.clone(), id: id.clone(), token, body: asked.clone() };
            inner.begun.push(begun);
            let happening = Happening { at, region, token, request_id, status, body, asked, queued, over_by };
            inner.ledger.entry(id).or_default().push(happening);
        }
        mode
    }

    /// Lets a request arrive, and waits for the answer until `end`, which is `within` after it was
    /// sent. A body that never ends breaks off at `until`.
    async fn deliver(
        &self,
        arrival: Arrival,
        end: Instant,
        until: Option<Instant>,
        within: Duration,
    ) -> Result<Response<Body>, SendError> {
        let mode = self.arrive(arrival);
        let answered = timeout_at(end, self.answer(mode, until)).await;
        self.process.runs().await;
        answered.unwrap_or_else(|_| Err(SendError::Late(format!("no answer within {within:?}"))))
    }

    /// The answer, by the mode; a body that never ends breaks off at `until`.
    async fn answer(&self, mode: UpstreamMode, until: Option<Instant>) -> Result<Response<Body>, SendError> {
        match mode {
            UpstreamMode::Answer { after, status, body, effect: _ } => {
                pause(after).await;
                Ok(response(status, body::full(body)))
            }
            UpstreamMode::Receipt { .. } | UpstreamMode::Once { .. } => {
                unreachable!("a receipt is an answer since its request arrived")
            }
            UpstreamMode::Refuse => Err(SendError::NotSent("connection refused".to_owned())),
            UpstreamMode::EffectThenFail { status }
            | UpstreamMode::FailThenEffect { status, says_when: false, after: _ } => {
                Ok(response(status, body::empty()))
            }
            UpstreamMode::FailThenEffect { status, says_when: true, after: _ } => Ok(come_again(status, 1)),
            UpstreamMode::Busy { retry_after } => Ok(come_again(503, retry_after)),
            UpstreamMode::EffectThenDrop | UpstreamMode::DropBeforeEffect => {
                Err(SendError::Unknown("connection reset".to_owned()))
            }
            UpstreamMode::Hang => pending().await,
            UpstreamMode::HangInBody => {
                let end = async move {
                    match until {
                        Some(until) => sleep_until(until).await,
                        None => pending().await,
                    }
                    Some(Err(BodyError("the upstream took too long".to_owned())))
                };
                let endless = body::full(Bytes::from_static(b"first bytes")).with_trailers(end);
                Ok(response(200, endless.boxed_unsync()))
            }
        }
    }

    /// Notes the arrival of a question or a check.
    fn asked<T>(&self, look: impl FnOnce(&mut Service) -> T) -> T {
        let mut inner = locked(&self.upstreams.inner);
        inner.events += 1;
        look(inner.service(&self.region))
    }

    /// The tokens of all effects of the key so far, where the status address tells the truth.
    fn tokens(&self, probe: &Probe) -> EffectTokens {
        let inner = locked(&self.upstreams.inner);
        let now = self.upstreams.clock.elapsed();
        let known = |effect: &&Happening| {
            effect.at <= now && (inner.shared || Some(&effect.region) == probe.region.as_ref())
        };
        let all = inner.ledger.get(&probe.id).into_iter().flatten();
        EffectTokens(all.filter(known).map(|effect| effect.token).collect())
    }

    fn probe_mode(&self, probe: &Probe) -> ProbeMode {
        let mut inner = locked(&self.upstreams.inner);
        let shared = inner.shared;
        let asked = if shared { Some(&self.region) } else { probe.region.as_ref() };
        let Some(service) = asked.and_then(|asked| inner.services.get(asked)) else {
            return ProbeMode::CannotSay;
        };
        if service.mode == UpstreamMode::Refuse {
            return ProbeMode::CannotSay;
        }
        let lag = match &service.probes {
            ProbeMode::Ledger => Duration::ZERO,
            ProbeMode::Lags { by } => *by,
            other => return other.clone(),
        };
        let now = self.upstreams.clock.elapsed();
        let happenings = inner.ledger.entry(probe.id.clone()).or_default();
        // One service for all knows attempts by key and token, whichever region asks.
        let of_attempt = |effect: &&Happening| {
            effect.token == probe.token && (shared || Some(&effect.region) == probe.region.as_ref())
        };
        match happenings.iter().find(of_attempt) {
            None => ProbeMode::DidNotHappen,
            Some(effect) if effect.at > now && effect.queued => ProbeMode::DidNotHappen,
            Some(effect) if effect.at > now => ProbeMode::CannotSay,
            Some(effect) if effect.known_from(lag) > now => ProbeMode::DidNotHappen,
            Some(effect) => ProbeMode::Happened { status: effect.status, body: effect.body.clone() },
        }
    }
}

fn receipt(attempt: &Option<(KeyId, Token, RequestId)>) -> Bytes {
    match attempt {
        Some((_, token, request_id)) => Bytes::from(format!("receipt of {token} for {request_id}")),
        None => Bytes::new(),
    }
}

/// A refusal that asks for a pause of so many seconds.
fn come_again(status: u16, seconds: u64) -> Response<Body> {
    let mut response = response(status, body::empty());
    response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    response
}

fn response<B>(status: u16, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status)
        .unwrap_or_else(|_| panic!("a scenario lets an upstream answer {status}, which is no status"));
    response
}

impl Upstream for SimUpstream {
    async fn send(
        &self,
        send: Send,
        within: Duration,
        may_send: impl Fn() -> bool + std::marker::Send + Sync,
    ) -> Result<Response<Body>, SendError> {
        self.process.runs().await;
        let until = Instant::now() + within;
        let connect = self.asked(|service| service.connect);
        if !connect.is_zero() {
            pause(connect.min(within)).await;
            self.process.runs().await;
        }
        if connect >= within {
            return Err(SendError::NotSent(format!("no connection within {within:?}")));
        }
        if !may_send() {
            return Err(SendError::NotSent("the right to send ended".to_owned()));
        }
        let arrival = Arrival {
            at: self.upstreams.clock.elapsed(),
            attempt: Some((send.id, send.token, send.request_id)),
            method: send.method,
            target: send.target,
            headers: send.headers,
            body: send.body,
        };
        self.deliver(arrival, until, Some(until), within).await
    }

    async fn probe(&self, probe: Probe, within: Duration, limit: usize) -> ProbeReply {
        self.process.runs().await;
        self.asked(|service| service.questions += 1);
        let reply = self.probe_mode(&probe);
        if reply == ProbeMode::Silent {
            pause(within).await;
        }
        self.process.runs().await;
        match reply {
            ProbeMode::Happened { status, body } => {
                let mut response = response(status, Some(body).filter(|body| body.len() <= limit));
                response.extensions_mut().insert(self.tokens(&probe));
                ProbeReply::Happened(response)
            }
            ProbeMode::DidNotHappen => ProbeReply::DidNotHappen,
            ProbeMode::CannotSay | ProbeMode::Ledger | ProbeMode::Lags { .. } => {
                ProbeReply::CannotSay("no usable answer".to_owned())
            }
            ProbeMode::Silent => ProbeReply::CannotSay(format!("no answer within {within:?}")),
        }
    }

    async fn check(&self, _path: &Uri, _within: Duration) -> Result<(), String> {
        self.process.runs().await;
        let sick = self.asked(|service| service.sick);
        if sick { Err("503 Service Unavailable".to_owned()) } else { Ok(()) }
    }

    async fn pass(
        &self,
        _one_for_all: Option<&str>,
        request: Request<Body>,
        within: Duration,
    ) -> Result<Response<Body>, SendError> {
        self.process.runs().await;
        let (head, streamed) = request.into_parts();
        let read = body::collect(streamed, usize::MAX).await;
        let (body::Collected::Whole(bytes) | body::Collected::Over(bytes, _)) =
            read.map_err(|error| SendError::Unknown(error.to_string()))?;
        let arrival = Arrival {
            at: self.upstreams.clock.elapsed(),
            attempt: None,
            method: head.method,
            target: head.uri,
            headers: head.headers,
            body: bytes,
        };
        // The wait does not limit a body once begun: no caller passes a body that hangs here.
        self.deliver(arrival, Instant::now() + within, None, within).await
    }
}
