//! The listeners: sockets in, requests out to a service, and a stop that lets what runs finish.
//!
//! Neighbours: `adapters` for identity, wire and header rules; whoever composes the process gives each listener its service, which
//! the gateway implements. It must not decide anything about keys: what it refuses itself are framing and forged peers.

pub mod admin;
mod admin_acts;
mod admin_authority;
mod admin_door;
mod admin_jobs;
mod admission;
mod blocks;
mod certificates;
mod changed;
mod chunks;
mod console;
pub mod descriptors;
pub mod door;
mod drive;
mod guard;
mod head;
pub mod heads;
mod lingering;
mod paced;
pub mod peer;
mod places;
pub mod problem;
pub mod public;
pub mod reload;
pub mod replaceable;
pub mod run;
#[cfg(feature = "otlp")]
mod spans;
mod strangers;
mod watching;
pub mod witness;
pub mod witness_reload;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ports::Body;
use crate::ports::peers::{Forward, ForwardReply, Pong, Question, Said, Told};
use crate::protocol::region::RegionName;

/// How long to wait before accepting again when the process has no room for another socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers the public listener's requests.
pub trait PublicService: Send + Sync + 'static {
    /// Answers one request. Dropped when the client hangs up: what must go on belongs in a task of its own.
    fn call(self: Arc<Self>, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send;
}

/// What answers peers. The caller's region is verified.
pub trait PeerService: Send + Sync + 'static {
    /// What a forward keeps for as long as it is here.
    type Place: Send + Sync;

    /// Whether that region may say this, asked before anything is done about it; or what it is told.
    fn hears(&self, from: &RegionName, said: &Said<'_>) -> Result<(), String>;

    /// A place for a forward, of which the head was read, with room for this many bytes of its body; or what its sender is told.
    fn place(&self, head: &Forward, bytes: usize) -> Result<Self::Place, Box<ForwardReply>>;

    /// Answers a forward. Dropped when the peer gives it up: what must go on belongs in a task of its own.
    fn forward(
        self: Arc<Self>,
        from: RegionName,
        forward: Forward,
        place: Self::Place,
    ) -> impl Future<Output = ForwardReply> + Send;

    /// Answers a ping.
    fn pong(self: Arc<Self>) -> impl Future<Output = Pong> + Send;

    /// Answers a question. Dropped like a forward.
    fn ask(self: Arc<Self>, from: RegionName, question: Question) -> impl Future<Output = Told> + Send;
}

/// Told to every connection when the listeners stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Completes once the listeners stop.
    pub async fn wait(&mut self) {
        // An error means that the listeners are gone, which is a stop too.
        drop(self.0.wait_for(|stopping| *stopping).await);
    }
}

/// All listeners of a process. Dropping it cuts every connection; [`Listeners::stop`] lets them finish.
#[derive(Debug)]
pub struct Listeners {
    stopping: watch::Sender<bool>,
    running: JoinSet<()>,
    grace: Duration,
}

impl Listeners {
    /// No listener yet. Once stopped, connections get `grace` to finish what runs on them.
    pub fn new(grace: Duration) -> Self {
        Self { stopping: watch::Sender::new(false), running: JoinSet::new(), grace }
    }

    /// Accepts connections in the background, at most `most` at a time, and serves each in a task of its own. Further
    /// ones wait in the kernel's queue. `most` may change; those that are there stay.
    pub fn add<Most, Serve, Served>(&mut self, listener: TcpListener, most: Most, serve: Serve)
    where
        Most: Fn() -> usize + Send + 'static,
        Serve: Fn(TcpStream, SocketAddr, Stop) -> Served + Send + 'static,
        Served: Future<Output = ()> + Send + 'static,
    {
        let stop = Stop(self.stopping.subscribe());
        self.running.spawn(accept(listener, most, stop, self.grace, serve));
    }

    /// Stops accepting, tells every connection to finish, and returns when all have, or when the grace is over and the
    /// rest were cut.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

async fn accept<Most, Serve, Served>(
    listener: TcpListener,
    most: Most,
    mut stop: Stop,
    grace: Duration,
    serve: Serve,
) where
    Most: Fn() -> usize,
    Serve: Fn(TcpStream, SocketAddr, Stop) -> Served,
    Served: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let (told, crowded) = (stop.clone(), connections.len() >= most());
        tokio::select! {
            biased;
            () = stop.wait() => break,
            Some(_) = connections.join_next() => {}
            (stream, address) = next(&listener), if !crowded => {
                connections.spawn(serve(stream, address, told));
            }
            // Until there is room, or `most` is more.
            () = tokio::time::sleep(ACCEPT_PAUSE), if crowded => {}
        }
    }
    drop(listener);
    let all_done = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, all_done).await.is_err() {
        tracing::warn!(left = connections.len(), "connections cut at the end of the grace period");
        connections.shutdown().await;
    }
}

async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Answers are small and waited for. If this fails the socket is dead, which serving it will show.
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
