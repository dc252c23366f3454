//! HTTP/1.1 connections to one upstream, kept alive between requests: one request is one attempt.
//!
//! Neighbours: `upstream` builds requests and reads answers. hyper-util's pool is not used because it may resend on its own. It must
//! not resend: a request goes to another connection only if hyper gave it back unwritten (hyper's `TrySendError::take_message`:
//! "the message was never even started").

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::streaming::{Patience, streaming};
use crate::ports::Body;
use crate::ports::upstream::SendError;

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// The most idle connections that are kept.
const MOST_IDLE: usize = 256;

/// Connections to one `host:port`.
#[derive(Debug)]
pub struct Pool {
    address: String,
    keep: Duration,
    idle: Stack,
}

/// Idle connections, the one used last on top, so that surplus ones grow old at the bottom.
type Stack = Arc<Mutex<Vec<Connection>>>;

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    /// A second handle of hyper's socket, to see whether the upstream closed it before this runtime was told so.
    socket: OwnedFd,
    since: Instant,
}

impl Pool {
    /// Connections to `address` (`host:port`), closed after being idle for `keep`: stay below the upstream's own keep-alive
    /// time, so that it does not close a connection just as a request is written to it.
    pub fn new(address: String, keep: Duration) -> Self {
        Self { address, keep, idle: Stack::default() }
    }

    /// Sends `request` once; returns when the answer's head has arrived. With a deadline the head must have arrived
    /// by then, and waiting for the body may take what is left of it, else the call or the body fails. Dropping the future or the body closes the connection.
    ///
    /// # Errors
    /// `NotSent` only if no byte was written; see the port.
    pub async fn exchange(
        &self,
        mut request: Request<Body>,
        deadline: Option<Instant>,
    ) -> Result<Response<Body>, SendError> {
        loop {
            let (mut connection, pooled) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.connect(deadline).await?, false),
            };
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(SendError::NotSent("no time is left".into()));
            }
            let sending = connection.sender.try_send_request(request);
            let sent = match deadline {
                Some(deadline) => timeout_at(deadline, sending)
                    .await
                    .map_err(|_| SendError::Unknown("no answer in time".into()))?,
                None => sending.await,
            };
            match sent {
                Ok(answer) => return self.receive(answer, connection, deadline),
                Err(mut error) => match error.take_message() {
                    // Nothing of it was written: a stale connection is no attempt.
                    Some(unsent) if pooled => request = unsent,
                    Some(_) => return Err(SendError::NotSent(describe(&error.into_error()))),
                    None => return Err(SendError::Unknown(describe(&error.into_error()))),
                },
            }
        }
    }

    fn receive(
        &self,
        answer: Response<Incoming>,
        connection: Connection,
        deadline: Option<Instant>,
    ) -> Result<Response<Body>, SendError> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(SendError::Unknown("the upstream switched protocols unasked".into()));
        }
        let mut answer = answer;
        let clear = make_length_clear(&mut answer).map_err(|why| SendError::Unknown(why.into()))?;
        let idle = self.idle.clone();
        // What may be two answers to another reader leaves a connection that is not used again.
        let at_end = Box::new(move || if clear { put_back(&idle, connection) } else { drop(connection) });
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let patience = deadline.map_or(Patience::Endless, |deadline| Patience::Within(left(deadline)));
        let mut answer = answer.map(|body| streaming(body, patience, Some(at_end)));
        *answer.version_mut() = Version::HTTP_11;
        Ok(answer)
    }

    /// An idle connection that still looks alive.
    fn take(&self) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        let now = Instant::now();
        let old = idle.iter().take_while(|connection| now - connection.since >= self.keep).count();
        idle.drain(..old);
        // One that is not ready still has a piece of its last exchange to finish; it keeps its place.
        let mut unready = Vec::new();
        let mut found = None;
        while found.is_none()
            && let Some(connection) = idle.pop()
        {
            if connection.sender.is_closed() {
                continue;
            }
            if !connection.sender.is_ready() {
                unready.push(connection);
            } else if is_quiet(&connection.socket) {
                found = Some(connection);
            }
        }
        idle.extend(unready.into_iter().rev());
        found
    }

    async fn connect(&self, deadline: Option<Instant>) -> Result<Connection, SendError> {
        let left = deadline.map_or(CONNECT, |deadline| deadline.saturating_duration_since(Instant::now()));
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
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.to_string()))?;
        // What breaks a connection is told to the request on it; the driver's own result adds nothing.
        tokio::spawn(async move { drop(driver.await) });
        Ok(Connection { sender, socket, since: Instant::now() })
    }
}

/// Leaves an answer at most one length, that of the body as hyper reads it (RFC 9112 section 6.3); says whether it was clear from the
/// start. The header would else be believed by whoever gets the answer next: it would be cut off there, or broken.
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

/// Whether the other side neither closed the connection nor sent anything unasked: one look at the kernel's buffer.
fn is_quiet(socket: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let looked = recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(looked, Err(Errno::AGAIN))
}

fn put_back(idle: &Stack, mut connection: Connection) {
    if connection.sender.is_closed() {
        return;
    }
    connection.since = Instant::now();
    let mut idle = lock(idle);
    if idle.len() < MOST_IDLE {
        idle.push(connection);
    }
}

/// No holder of this lock can panic halfway through a change, so a poisoned stack is still whole.
fn lock(idle: &Stack) -> MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error with its causes, in one line.
pub(super) fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
