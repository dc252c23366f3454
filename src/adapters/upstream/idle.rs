//! Idle connections to one endpoint: kept for the next request, and closed when they are old.
//!
//! A connection is taken only if it still looks alive: an upstream may have closed it meanwhile.
//! `connection` makes them and sends on them. This file must not send anything.

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::time::{Instant, sleep_until};

use super::dial::{Judged, Wire};
use super::strict::{Awaited, Strict};
use crate::ports::Body;

/// Most idle connections that are kept.
const MOST_IDLE: usize = 256;

/// The connections to one endpoint that no request is on.
#[derive(Debug, Default)]
pub struct Idle {
    /// The connection used last is on top, so that surplus ones grow old at the bottom.
    stack: Vec<Connection>,
    /// True while a task runs that closes old connections.
    closing: bool,
    /// True once the endpoint is no address of its upstream any more.
    retired: bool,
}

impl Idle {
    /// Closes the oldest, so that at most so many stay.
    pub fn leave(&mut self, most: usize) {
        let surplus = self.stack.len().saturating_sub(most);
        self.stack.drain(..surplus);
    }

    /// Takes a connection that still looks alive and was idle for less than `most`.
    pub fn take(&mut self, most: Duration, now: Instant) -> Option<Connection> {
        while let Some(mut connection) = self.stack.pop_if(|connection| now - connection.since < most) {
            if !connection.is_old(now) && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Closes all, and those that come back later.
    pub fn retire(&mut self) {
        self.retired = true;
        self.stack.clear();
    }
}

/// One connection to an endpoint.
#[derive(Debug)]
pub struct Connection {
    pub sender: SendRequest<Body>,
    pub driver: Driver,
    /// Notes each request, so that the head of its answer is judged.
    pub awaited: Awaited,
    /// A second handle of hyper's socket. It shows that the upstream closed the connection before
    /// this runtime learns of it.
    pub socket: OwnedFd,
    pub is_encrypted: bool,
    pub judged_late: Option<Judged>,
    pub since: Instant,
    /// Longest idle time: the pool's, or less if the upstream says less.
    pub keep: Duration,
    /// Moment from which it takes no further request.
    pub ends: Instant,
}

impl Connection {
    fn is_old(&self, now: Instant) -> bool {
        now - self.since >= self.keep || now >= self.ends
    }

    /// True if the upstream neither closed it nor sent anything unasked. Tickets for later
    /// handshakes are read first, and so is a farewell.
    fn is_quiet(&mut self) -> bool {
        if self.is_encrypted {
            self.driver.advance(&mut Context::from_waker(Waker::noop()));
            if self.driver.0.is_none() || !self.sender.is_ready() {
                return false;
            }
        }
        nothing_waits(&self.socket)
    }
}

/// hyper's side of a connection, which moves only when it is polled; `None` once it is over.
#[derive(Debug)]
pub struct Driver(pub Option<Box<http1::Connection<TokioIo<Strict<Wire>>, Body>>>);

impl Driver {
    /// Writes and reads what it can. The request on a connection gets the error that breaks it, so
    /// the driver's own result adds nothing.
    pub fn advance(&mut self, context: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
            self.0 = None;
        }
    }

    /// Waits for something that happens on this connection.
    pub async fn until<T>(&mut self, happened: impl Future<Output = T>) -> T {
        let mut happened = pin!(happened);
        poll_fn(|context| {
            self.advance(context);
            happened.as_mut().poll(context)
        })
        .await
    }
}

/// Keeps a connection for later requests, unless it is old or too many are kept.
pub fn put_back(idle: &Arc<Mutex<Idle>>, mut connection: Connection) {
    let now = Instant::now();
    if connection.keep.is_zero() || now >= connection.ends {
        return;
    }
    (connection.since, connection.judged_late) = (now, None);
    let mut held = lock(idle);
    if held.stack.len() < MOST_IDLE && !held.retired {
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
            idle.stack.retain_mut(|connection| !connection.is_old(now) && connection.is_quiet());
            let ends =
                idle.stack.iter().map(|connection| connection.ends.min(connection.since + connection.keep));
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
pub fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if the upstream neither closed the connection nor sent anything that was not read: one look
/// at the kernel's buffer.
fn nothing_waits(socket: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let looked = recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(looked, Err(Errno::AGAIN))
}
