//! HTTP/1.1 connections to one upstream, kept alive between requests: one request is one attempt.
//!
//! A request goes to another connection only if hyper gave it back unwritten
//! (`TrySendError::take_message`: "the message was never even started"). An upstream that closes an
//! idle connection just as a request is written leaves an unknown outcome: hence short idle times.
//! Whoever waits for an answer drives hyper's connection: no task stands between the right to send
//! and the first byte, nor between an answer and its reader.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout_at};

use super::dial::{Awaited, Dialled, Judged, Strict, dial};
use super::endpoints::{self, Choice, Endpoint, Endpoints, Turn};
use super::idle::{Connection, Driver, put_back};
use super::settings::{Bounds, Host, ServiceSettings};
use super::upload::{Upload, watched};
use super::verdict::{Failure, describe};
use crate::adapters::streaming::{Carrier, Patience, streaming};
use crate::adapters::system::lock;
use crate::ports::Body;
use crate::ports::upstream::SendError;

/// Longest time for making a connection to the last endpoint that is left to try.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest time for the rest of a request whose answer has arrived whole.
const REST: Duration = Duration::from_secs(30);
/// Longest time for making a connection while another endpoint is left.
const EACH: Duration = Duration::from_secs(1);
/// Time by which a connection is closed here before the upstream's `Keep-Alive: timeout=` ends. It
/// covers the way of the request, and clocks that tick in whole seconds.
const MARGIN: Duration = Duration::from_millis(500);
/// Least part of its greatest age: connections made together do not all end together.
const YOUNGEST: f64 = 0.8;

#[derive(Clone)]
pub struct Service {
    settings: ServiceSettings,
    endpoints: Arc<Endpoints>,
}

/// The connection of an answer whose body is being read.
struct Answering {
    connection: Connection,
    /// True if the connection may be used again.
    clear: bool,
    turn: Turn,
}

impl Carrier for Answering {
    fn drive(&mut self, context: &mut Context<'_>) {
        self.connection.driver.advance(context);
    }

    fn end(mut self: Box<Self>) {
        // It is ready once hyper has seen the end of both messages.
        if !self.connection.sender.is_ready() {
            self.connection.driver.advance(&mut Context::from_waker(Waker::noop()));
        }
        if !self.connection.sender.is_ready() {
            // The upstream answered before it had the whole request, which it gets all the same.
            if let Some(driver) = self.connection.driver.0.take() {
                let turn = self.turn;
                tokio::spawn(async move {
                    let _turn = turn;
                    let _over = timeout_at(Instant::now() + REST, driver).await;
                });
            }
        } else if self.clear {
            put_back(&self.turn.0.idle, self.connection);
        }
    }
}

enum Sent {
    Answered(Response<Incoming>),
    /// The connection took no byte of the request: hyper gave it back.
    GaveBack(Request<Body>, hyper::Error),
    Failed(Failure),
}

impl Connection {
    async fn send(
        &mut self,
        request: Request<Body>,
        limit: Limit,
        until: Instant,
        upload: Option<&Upload>,
    ) -> Sent {
        self.awaited.head();
        // Pinned once: each arm would have room for one of its own.
        // Not by turns with other work of this task: the first byte follows the right to send at
        // once.
        let sending = pin!(unconstrained(self.driver.until(self.sender.try_send_request(request))));
        let sent = match (limit, upload) {
            (Limit::Whole(_), _) => timeout_at(until, sending).await.ok(),
            (Limit::Each(span), Some(upload)) => upload.unless_silent(span, sending).await,
            (Limit::Each(span), None) => timeout_at(Instant::now() + span, sending).await.ok(),
        };
        match sent {
            None => Sent::Failed(Failure::Silent),
            Some(Ok(answer)) => Sent::Answered(answer),
            Some(Err(mut error)) => match error.take_message() {
                Some(unsent) => Sent::GaveBack(unsent, error.into_error()),
                None => {
                    let unfinished = self.judged_late.as_ref().is_some_and(Judged::is_unfinished);
                    Sent::Failed(Failure::Broken { error: error.into_error(), unfinished })
                }
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// For head and body together, counted from now on. The reader's time does not count.
    Whole(Duration),
    /// For each wait by itself: until the upstream takes the next piece of the request, begins its
    /// answer, or sends the next piece of it. The client's time does not count.
    Each(Duration),
}

impl Service {
    pub fn new(settings: ServiceSettings) -> Self {
        let server_name = settings.server_name.as_ref();
        let targets = settings.addresses.iter().map(|base| base.target(server_name)).collect();
        let endpoints = Arc::new(Endpoints::new(targets, settings.resolve_every, endpoints::system));
        Self { settings, endpoints }
    }

    /// Sends `request` once, and returns when the answer's head has arrived. `may_send` is asked
    /// right before the first byte is written: making a connection may take seconds. Dropping the
    /// future or the body closes the connection. Fails with `NotSent` only if no byte can have had
    /// an effect, and with `Late` if the limit passed after that; see the port.
    pub async fn exchange(
        &self,
        mut request: Request<Body>,
        limit: Limit,
        may_send: impl Fn() -> bool,
    ) -> Result<Response<Body>, SendError> {
        let credential = self.settings.credential.as_ref();
        if let Some(credential) = credential {
            credential.put(request.headers_mut());
        }
        let mut answer = self.send(request, limit, may_send).await?;
        if let Some(credential) = credential {
            credential.judge(&mut answer);
        }
        Ok(answer)
    }

    async fn send(
        &self,
        request: Request<Body>,
        limit: Limit,
        may_send: impl Fn() -> bool,
    ) -> Result<Response<Body>, Failure> {
        let (Limit::Whole(span) | Limit::Each(span)) = limit;
        let mut now = Instant::now();
        let until = now + span;
        let idle_for = self.settings.bounds.idle_for(request.method());
        let mut choice = match self.endpoints.known(now) {
            Some(choice) => choice,
            None => Box::pin(self.choice(now, until)).await?,
        };
        for endpoint in choice.trials(now) {
            tokio::spawn(try_again(self.clone(), endpoint.clone()));
        }
        let (mut request, upload) = match limit {
            Limit::Whole(_) => (request, None),
            Limit::Each(_) => watched(request),
        };
        let mut last = None;
        while let Some(turn) = choice.next(self.settings.bounds.connections, now) {
            self.name_host(&mut request, &turn);
            loop {
                let idle = lock(&turn.0.idle).take(idle_for, now);
                let (mut connection, pooled) = match idle {
                    Some(connection) => (connection, true),
                    // Boxed: rare, and a handshake is large. Every request would carry its room.
                    None => match Box::pin(self.connect(&turn, &choice, until)).await {
                        Ok(connection) => (connection, false),
                        Err(why) => {
                            last = Some(why);
                            break;
                        }
                    },
                };
                if !pooled {
                    now = Instant::now();
                }
                if now >= until {
                    return Err(Failure::NoTime);
                }
                if !may_send() {
                    return Err(Failure::NoRight);
                }
                match connection.send(request, limit, until, upload.as_ref()).await {
                    Sent::Answered(answer) => {
                        if answer.status().is_server_error() {
                            choice.blame(&turn);
                        }
                        return self.receive(answer, connection, turn, limit, until);
                    }
                    // No byte of the request was written: a stale connection is no attempt.
                    Sent::GaveBack(unsent, error) => {
                        (request, now) = (unsent, Instant::now());
                        if !pooled {
                            last = Some(describe(&error));
                            break;
                        }
                    }
                    Sent::Failed(failure) => {
                        choice.blame(&turn);
                        return Err(failure);
                    }
                }
            }
            now = Instant::now();
            if now >= until {
                break;
            }
        }
        Err(match last {
            Some(why) => Failure::NoConnection(why),
            None => Failure::NoSlot { most: self.settings.bounds.connections },
        })
    }

    async fn choice(&self, now: Instant, until: Instant) -> Result<Choice, Failure> {
        let looked_up = timeout_at(until, self.endpoints.choice(now)).await;
        looked_up.unwrap_or_else(|_| Err(Failure::NoAddress("the resolver does not answer".into())))
    }

    fn name_host(&self, request: &mut Request<Body>, turn: &Turn) {
        let headers = request.headers_mut();
        match &self.settings.host {
            Host::Keep if headers.contains_key(HOST) => {}
            Host::Upstream | Host::Keep => drop(headers.insert(HOST, turn.0.target.authority.clone())),
            Host::Named(name) => drop(headers.insert(HOST, name.clone())),
        }
    }

    fn receive(
        &self,
        mut answer: Response<Incoming>,
        mut connection: Connection,
        turn: Turn,
        limit: Limit,
        until: Instant,
    ) -> Result<Response<Body>, Failure> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::Unusable("the upstream switched protocols unasked".into()));
        }
        if answer.status().as_u16() > 599 {
            return Err(Failure::Unusable(format!("the upstream answered {}", answer.status().as_u16())));
        }
        let clear = make_length_clear(&mut answer).map_err(|why| Failure::Unusable(why.into()))?;
        if let Some(theirs) = keep_alive(answer.headers()) {
            connection.keep = self.settings.bounds.keep_idle.min(theirs.saturating_sub(MARGIN));
        }
        let patience = match limit {
            Limit::Whole(_) => Patience::Within(until.saturating_duration_since(Instant::now())),
            Limit::Each(span) => Patience::Each(span),
        };
        // If other readers could see two answers in this one, its connection is not used again.
        let carrier = Box::new(Answering { connection, clear, turn });
        let mut answer = answer.map(|body| streaming(body, patience, Some(carrier)));
        *answer.version_mut() = Version::HTTP_11;
        Ok(answer)
    }

    async fn connect(&self, turn: &Turn, choice: &Choice, until: Instant) -> Result<Connection, String> {
        lock(&turn.0.idle).leave(turn.spare(self.settings.bounds.connections));
        let own = Instant::now() + if choice.has_more() { EACH } else { CONNECT };
        let made = timeout_at(until.min(own), self.dial(&turn.0)).await;
        // It is not the endpoint's fault that the request has little time.
        let is_at_fault = made.is_ok() || own <= until;
        made.unwrap_or_else(|_| Err("timed out".to_owned())).map_err(|why| {
            if is_at_fault {
                choice.failed(turn, &why);
            }
            format!("connect to {}: {why}", turn.0)
        })
    }

    async fn dial(&self, endpoint: &Endpoint) -> Result<Connection, String> {
        let tls = endpoint.target.tls.as_ref().map(|name| (&*self.settings.tls, name));
        let Dialled { wire, socket, judged_late } =
            dial(endpoint.address, tls).await.map_err(|error| error.to_string())?;
        let awaited = Awaited::default();
        // No `max_headers`: set, it makes hyper allocate and fill an array of that size per head.
        let (sender, driver) = http1::Builder::new()
            .handshake(TokioIo::new(Strict::new(wire, awaited.clone())))
            .await
            .map_err(|error| error.to_string())?;
        endpoint.connected();
        let (driver, since) = (Driver(Some(Box::new(driver))), Instant::now());
        let Bounds { keep_idle: keep, max_age, .. } = self.settings.bounds;
        let ends = since + max_age.mul_f64(rand::random_range(YOUNGEST..=1.0));
        let is_encrypted = tls.is_some();
        Ok(Connection { sender, driver, awaited, socket, is_encrypted, judged_late, since, keep, ends })
    }
}

/// Dials an endpoint that is out, in the background.
async fn try_again(service: Service, endpoint: Arc<Endpoint>) {
    let made = timeout_at(Instant::now() + CONNECT, service.dial(&endpoint)).await;
    match made.unwrap_or_else(|_| Err("timed out".to_owned())) {
        Ok(connection) => put_back(&endpoint.idle, connection),
        Err(why) => endpoint.failed(Instant::now(), &why),
    }
}

/// Leaves an answer at most one length: that of the body as hyper reads it (RFC 9112 section 6.3).
/// Returns whether the length was clear from the start. The next reader would believe a wrong
/// header, and cut the answer off or break it.
fn make_length_clear(answer: &mut Response<Incoming>) -> Result<bool, &'static str> {
    let (body_is_over, length) = (answer.body().is_end_stream(), answer.body().size_hint().exact());
    let headers = answer.headers_mut();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {
            return Ok(headers.remove(CONTENT_LENGTH).is_none());
        }
        (Some(_), _) => return Err("the upstream's answer has a transfer coding that nobody asked for"),
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let clear = match (lengths.next(), lengths.next()) {
        (None, _) => true,
        (Some(length), None) => !length.is_empty() && length.iter().all(u8::is_ascii_digit),
        (Some(_), Some(_)) => false,
    };
    if !clear {
        match length.filter(|_| !body_is_over) {
            Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
            None => drop(headers.remove(CONTENT_LENGTH)),
        }
    }
    Ok(clear)
}

/// The idle time that the upstream allows, from `Keep-Alive: timeout=5, max=100` (RFC 2068 section
/// 19.7.1; seconds). `None` if the header is absent or cannot be read.
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all("keep-alive").iter().filter_map(|line| line.to_str().ok());
    let parameters = lines.flat_map(|line| line.split([',', ';']));
    let seconds = parameters.filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.parse::<u32>().ok())?
    });
    seconds.min().map(|seconds| Duration::from_secs(seconds.into()))
}
