//! Idle connections to one endpoint: kept for the next request, and closed when they are old.
//!
//! A connection is taken only if it still looks alive: an upstream may have closed it meanwhile.
//! `connection` makes them and sends on them.

use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::time::{Instant, sleep_until};

use super::dial::{Awaited, Judged, Strict, Wire};
use crate::adapters::system::lock;
use crate::ports::Body;

const MOST_IDLE: usize = 256;

/// The connections to one endpoint that no request is on.
#[derive(Default)]
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

pub struct Connection {
    pub sender: SendRequest<Body>,
    pub driver: Driver,
    /// Notes each request, so that the head of its answer is judged.
    pub awaited: Awaited,
    /// A second handle of hyper's socket, which shows at once that the upstream closed it.
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

    /// True if the upstream neither closed it nor sent anything unasked but tickets and a farewell.
    fn is_quiet(&mut self) -> bool {
        if self.is_encrypted {
            self.driver.advance(&mut Context::from_waker(Waker::noop()));
            if self.driver.0.is_none() || !self.sender.is_ready() {
                return false;
            }
        }
        // One look at the kernel's buffer.
        let mut byte = [0_u8; 1];
        let looked = recv(&self.socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(looked, Err(Errno::AGAIN))
    }
}

type Http1 = http1::Connection<TokioIo<Strict<Box<dyn Wire>>>, Body>;

/// hyper's side of a connection, which moves only when it is polled; `None` once it is over.
pub struct Driver(pub Option<Box<Http1>>);

impl Driver {
    /// Writes and reads what it can. Its error reaches the request, so its result adds nothing.
    pub fn advance(&mut self, context: &mut Context<'_>) {
        if self.0.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
            self.0 = None;
        }
    }

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
