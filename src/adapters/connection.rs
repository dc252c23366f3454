//! HTTP/1.1 connections to one upstream, kept alive between requests: one request is one attempt.
//!
//! hyper-util's pool is not used because it may resend on its own. This file must not resend: a
//! request goes to another connection only if hyper gave it back unwritten (hyper's
//! `TrySendError::take_message`: "the message was never even started").
//!
//! An upstream that closes an idle connection just as a request is written to it leaves an unknown
//! outcome. So a connection is idle for a short time only, and for less where the request may
//! change state.
//!
//! Whoever waits for an answer drives hyper's connection: no task stands between the right to send
//! and the first byte, nor between an answer and its reader.

use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::streaming::{Carrier, Patience, streaming};
use super::strict::{Awaited, Strict};
use super::upload::watched;
use crate::ports::Body;
use crate::ports::upstream::SendError;

/// Longest time for making a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Most idle connections that are kept.
const MOST_IDLE: usize = 256;
/// Time by which a connection is closed here before the upstream's `Keep-Alive: timeout=` ends.
///
/// It covers the way of the request, and clocks that tick in whole seconds.
const MARGIN: Duration = Duration::from_millis(500);
/// Longest idle time of a connection for a request that may change state. Some upstreams close
/// after a second and send no `Keep-Alive`.
const FRESH: Duration = Duration::from_millis(500);

/// Connections to one `host:port`.
#[derive(Debug)]
pub struct Pool {
    address: String,
    keep: Duration,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Debug, Default)]
struct Idle {
    /// The connection used last is on top, so that surplus ones grow old at the bottom.
    stack: Vec<Connection>,
    /// True while a task runs that closes old connections.
    closing: bool,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    driver: Driver,
    /// Notes each request, so that the head of its answer is judged.
    awaited: Awaited,
    /// A second handle of hyper's socket. It shows that the upstream closed the connection before
    /// this runtime learns of it.
    socket: OwnedFd,
    since: Instant,
    /// Longest idle time: the pool's, or less if the upstream says less.
    keep: Duration,
}

/// hyper's side of a connection, which moves only when it is polled; `None` once it is over.
#[derive(Debug)]
struct Driver(Option<Box<http1::Connection<TokioIo<Strict<TcpStream>>, Body>>>);

impl Driver {
    /// Writes and reads what it can. The request on a connection gets the error that breaks it, so
    /// the driver's own result adds nothing.
    fn advance(&mut self, context: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
            self.0 = None;
        }
    }

    /// Waits for something that happens on this connection.
    async fn until<T>(&mut self, happened: impl Future<Output = T>) -> T {
        let mut happened = pin!(happened);
        poll_fn(|context| {
            self.advance(context);
            happened.as_mut().poll(context)
        })
        .await
    }
}

/// The connection of an answer whose body is being read.
struct Answering {
    connection: Connection,
    /// True if the connection may be used again.
    clear: bool,
    idle: Arc<Mutex<Idle>>,
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
                tokio::spawn(async move { drop(driver.await) });
            }
        } else if self.clear {
            put_back(&self.idle, self.connection);
        }
    }
}

impl Connection {
    fn is_old(&self, now: Instant) -> bool {
        now - self.since >= self.keep
    }
}

/// Time limit of an upstream.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// For head and body together, counted from now on. The reader's time for the body does not
    /// count.
    Whole(Duration),
    /// For each wait by itself: until the upstream takes the next piece of the request, begins its
    /// answer, or sends the next piece of it. The client's time does not count.
    Each(Duration),
}

impl Limit {
    fn span(self) -> Duration {
        match self {
            Limit::Whole(span) | Limit::Each(span) => span,
        }
    }
}

impl Pool {
    /// Makes a pool to `address` (`host:port`) that closes connections after `keep` of idle time.
    /// Stay below the upstream's own keep-alive time.
    pub fn new(address: String, keep: Duration) -> Self {
        Self { address, keep, idle: Arc::default() }
    }

    /// Sends `request` once, and returns when the answer's head has arrived.
    ///
    /// `may_send` is asked right before the first byte is written: making a connection may take
    /// seconds. Dropping the future or the body closes the connection.
    ///
    /// # Errors
    /// `NotSent` only if no byte was written; `Late` if the limit passed after that; see the port.
    pub async fn exchange(
        &self,
        request: Request<Body>,
        limit: Limit,
        may_send: impl Fn() -> bool,
    ) -> Result<Response<Body>, SendError> {
        let mut now = Instant::now();
        let until = now + limit.span();
        let is_safe = request.method().is_safe();
        let (mut request, upload) = match limit {
            Limit::Whole(_) => (request, None),
            Limit::Each(_) => watched(request),
        };
        loop {
            let (mut connection, pooled) = match self.take(is_safe, now) {
                Some(connection) => (connection, true),
                None => {
                    let made = self.connect(until).await?;
                    now = Instant::now();
                    (made, false)
                }
            };
            if now >= until {
                return Err(SendError::NotSent("no time is left".into()));
            }
            if !may_send() {
                return Err(SendError::NotSent("the right to send ended before a byte was written".into()));
            }
            connection.awaited.head();
            let sent = {
                // Pinned once: each arm would have room for one of its own.
                let sending = pin!(connection.driver.until(connection.sender.try_send_request(request)));
                match (limit, &upload) {
                    (Limit::Whole(_), _) => timeout_at(until, sending).await.ok(),
                    (Limit::Each(span), Some(upload)) => upload.unless_silent(span, sending).await,
                    (Limit::Each(span), None) => timeout_at(now + span, sending).await.ok(),
                }
            };
            match sent {
                None => return Err(SendError::Late("no answer in time".into())),
                Some(Ok(answer)) => {
                    let patience = match limit {
                        Limit::Whole(_) => Patience::Within(until.saturating_duration_since(Instant::now())),
                        Limit::Each(span) => Patience::Each(span),
                    };
                    return self.receive(answer, connection, patience);
                }
                Some(Err(mut error)) => match error.take_message() {
                    // No byte of the request was written: a stale connection is no attempt.
                    Some(unsent) if pooled => (request, now) = (unsent, Instant::now()),
                    Some(_) => return Err(SendError::NotSent(describe(&error.into_error()))),
                    None => return Err(SendError::Unknown(describe(&error.into_error()))),
                },
            }
        }
    }

    fn receive(
        &self,
        answer: Response<Incoming>,
        mut connection: Connection,
        patience: Patience,
    ) -> Result<Response<Body>, SendError> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(SendError::Unknown("the upstream switched protocols unasked".into()));
        }
        if answer.status().as_u16() > 599 {
            return Err(SendError::Unknown(format!("the upstream answered {}", answer.status().as_u16())));
        }
        let mut answer = answer;
        let clear = make_length_clear(&mut answer).map_err(|why| SendError::Unknown(why.into()))?;
        if let Some(theirs) = keep_alive(answer.headers()) {
            connection.keep = self.keep.min(theirs.saturating_sub(MARGIN));
        }
        // If other readers could see two answers in this one, its connection is not used again.
        let carrier = Box::new(Answering { connection, clear, idle: self.idle.clone() });
        let mut answer = answer.map(|body| streaming(body, patience, Some(carrier)));
        *answer.version_mut() = Version::HTTP_11;
        Ok(answer)
    }

    /// Takes an idle connection that still looks alive. It must be fresh unless the request is
    /// safe.
    fn take(&self, is_safe: bool, now: Instant) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        let most = if is_safe { self.keep } else { self.keep.min(FRESH) };
        while let Some(connection) = idle.stack.pop_if(|connection| now - connection.since < most) {
            if !connection.is_old(now) && is_quiet(&connection.socket) {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self, until: Instant) -> Result<Connection, SendError> {
        let left = until.saturating_duration_since(Instant::now());
        let failed = |why: String| SendError::NotSent(format!("connect to {}: {why}", self.address));
        let opened = async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let socket = stream.as_fd().try_clone_to_owned()?;
            std::io::Result::Ok((stream, socket))
        };
        let (stream, socket) = timeout(left.min(CONNECT), opened)
            .await
            .map_err(|_| failed("timed out".into()))?
            .map_err(|error| failed(error.to_string()))?;
        let awaited = Awaited::default();
        // No `max_headers`: set, it makes hyper allocate and fill an array of that size per head.
        let (sender, driver) = http1::Builder::new()
            .handshake(TokioIo::new(Strict::new(stream, awaited.clone())))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let driver = Driver(Some(Box::new(driver)));
        Ok(Connection { sender, driver, awaited, socket, since: Instant::now(), keep: self.keep })
    }
}

/// Leaves an answer at most one length: that of the body as hyper reads it (RFC 9112 section 6.3).
///
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

/// True if the upstream neither closed the connection nor sent anything unasked: one look at the
/// kernel's buffer.
fn is_quiet(socket: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let looked = recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(looked, Err(Errno::AGAIN))
}

/// The idle time that the upstream allows, from `Keep-Alive: timeout=5, max=100` (RFC 2068 section
/// 19.7.1; seconds).
///
/// `None` if the header is absent or cannot be read.
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

fn put_back(idle: &Arc<Mutex<Idle>>, mut connection: Connection) {
    if connection.keep.is_zero() {
        return;
    }
    connection.since = Instant::now();
    let mut held = lock(idle);
    if held.stack.len() < MOST_IDLE {
        held.stack.push(connection);
    }
    if !held.closing {
        held.closing = true;
        tokio::spawn(close_old(idle.clone()));
    }
}

/// Closes connections that were idle for their time. Ends when none is left.
async fn close_old(idle: Arc<Mutex<Idle>>) {
    loop {
        let next = {
            let mut idle = lock(&idle);
            let now = Instant::now();
            idle.stack.retain(|connection| !connection.is_old(now) && is_quiet(&connection.socket));
            let ends = idle.stack.iter().map(|connection| connection.since + connection.keep);
            let next = ends.min();
            idle.closing = next.is_some();
            next
        };
        match next {
            Some(next) => sleep_until(next).await,
            None => return,
        }
    }
}

/// No holder of this lock can panic halfway through a change, so poisoned connections are still
/// whole.
fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes an error with its causes in one line.
pub(super) fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
