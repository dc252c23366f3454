//! The listeners: they take connections, hand requests to a service, and stop without cutting
//! requests in work.
//!
//! The code that composes the process gives each listener its service, which the gateway
//! implements. Its own refusals are about framing and forged peers, never about keys.

pub(crate) mod admin;
mod admin_acts;
mod admin_authority;
mod admin_door;
mod admin_http;
mod admission;
mod certificates;
pub(crate) mod changed;
mod chunks;
mod connection;
mod connection_limit;
mod console;
pub mod descriptors;
mod edge;
mod guard;
mod head;
pub(crate) mod heads;
mod idle_watch;
pub mod listener_kind;
pub mod peer;
pub mod public;
pub(crate) mod reload;
pub(crate) mod run;
mod second_person;
#[cfg_attr(not(feature = "otlp"), path = "no_spans.rs")]
mod spans;
pub mod witness;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::adapters::RealPorts;
use crate::ports::Body;
use crate::ports::peers::{Forward, ForwardReply, PeerMessage, PeerReply, Pong, Question};
use crate::protocol::region::RegionName;

/// The gateway as a process runs it.
type Gateway = crate::gateway::instance::Gateway<RealPorts>;

/// Pause before accepting again when the process has no room for another socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Service behind the public listener.
pub trait PublicService: Send + Sync + 'static {
    /// Answers one request. The future is dropped when the client hangs up: work that must go on
    /// belongs in its own task.
    fn call(self: Arc<Self>, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;
}

/// Service behind the peer listener. The caller's region is verified.
pub trait PeerService: Send + Sync + 'static {
    /// Room that a forward holds while it is here.
    type Place: Send + Sync;

    /// Checks that the region may send this message. The error is the text for the sender.
    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String>;

    /// Takes room for a forward with this many bytes of body. The error is the reply to its sender.
    fn place(&self, head: &Forward, bytes: usize) -> Result<Self::Place, Box<ForwardReply>>;

    /// Answers a forward. The future is dropped when the peer gives it up: work that must go on
    /// belongs in its own task.
    fn forward(
        self: Arc<Self>,
        from: RegionName,
        forward: Forward,
        place: Self::Place,
    ) -> impl Future<Output = ForwardReply> + Send;

    /// Answers a ping.
    fn pong(self: Arc<Self>) -> impl Future<Output = Pong> + Send;

    /// Answers a question. The future is dropped as a forward's is.
    fn ask(self: Arc<Self>, from: RegionName, question: Question) -> impl Future<Output = PeerReply> + Send;
}

/// A value that is replaced while a process runs: one pointer, swapped whole. All clones share it.
///
/// A listener loads it once per connection or request and keeps that to the end. Nothing locks.
#[derive(Clone, Debug)]
pub struct Replaceable<T>(Arc<ArcSwap<T>>);

impl<T> Replaceable<T> {
    fn now(&self) -> Arc<T> {
        self.0.load_full()
    }

    fn replace(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

impl<T> From<T> for Replaceable<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }
}

/// Locks a value of which no code under the lock can panic half-way.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells every connection when the listeners stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Completes once the listeners stop.
    pub async fn wait(&mut self) {
        // An error means that the listeners are gone, which is a stop too.
        drop(self.0.wait_for(|stopping| *stopping).await);
    }
}

/// All listeners of a process. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Listeners {
    stopping: watch::Sender<bool>,
    running: JoinSet<()>,
    grace: Duration,
}

impl Listeners {
    /// Makes a set without listeners. `grace` is the time for requests after a stop.
    pub fn new(grace: Duration) -> Self {
        Self { stopping: watch::Sender::new(false), running: JoinSet::new(), grace }
    }

    /// Accepts connections in the background, at most `most` at a time, and serves each in its own
    /// task.
    ///
    /// Further connections wait in the kernel's queue. `most` may change; open connections stay.
    pub fn add<Most, Serve, Served>(&mut self, listener: TcpListener, most: Most, serve: Serve)
    where
        Most: Fn() -> usize + Send + 'static,
        Serve: Fn(TcpStream, SocketAddr, Stop) -> Served + Send + 'static,
        Served: Future<Output = ()> + Send + 'static,
    {
        let (mut stop, grace) = (Stop(self.stopping.subscribe()), self.grace);
        self.running.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stopped, crowded) = (stop.clone(), connections.len() >= most());
                tokio::select! {
                    biased;
                    () = stop.wait() => break,
                    Some(_) = connections.join_next() => {}
                    (stream, address) = next(&listener), if !crowded => {
                        connections.spawn(serve(stream, address, stopped));
                    }
                    // Until a place is free, or `most` has grown.
                    () = tokio::time::sleep(ACCEPT_PAUSE), if crowded => {}
                }
            }
            drop(listener);
            let all_done = async { while connections.join_next().await.is_some() {} };
            if timeout(grace, all_done).await.is_err() {
                tracing::warn!(left = connections.len(), "connections cut at the end of the grace period");
                connections.shutdown().await;
            }
        });
    }

    /// Stops accepting, and has every connection finish within the grace.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Clients wait for small answers. If this fails the socket is dead, as serving it
                // will show.
                drop(stream.set_nodelay(true));
                return (stream, address);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
