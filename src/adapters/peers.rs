//! Other regions over HTTP/2 and mutual TLS: one watched connection each, made on demand.
//!
//! A region's gateways share one address, and a connection stays with one: hence its renewal. It
//! counts as made only after the reply to a hello, so every possible refusal comes before a forward
//! is written. Nothing is resent: after a break the outcome is unknown, unless hyper gives it back.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::identity::{ALPN, PeerIdentity, server_name};
use super::streaming::{Patience, streaming};
use super::system::{SystemDice, lock};
use super::upstream::describe;
use super::wire::{self, WireError, ask};
use crate::ports::body::{Collected, collect};
use crate::ports::peers::{Forward, ForwardReply, PeerError, PeerReply, Pong, Question};
use crate::ports::{Dice, Peers};
use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;

/// Longest time from the look-up of the name to the peer's reply to the hello.
const CONNECT: Duration = Duration::from_secs(1);
/// Time between two pings on a connection, even an idle one.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Longest time for the peer to answer such a ping.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(2);
/// Shortest time for which a connection is used while its gateway serves. Twice that at most.
const RENEW: Duration = Duration::from_secs(120);
/// Time for which it is used while its gateway does not serve: another gateway of the region may.
const RENEW_IDLE: Duration = Duration::from_secs(5);
const PONG_LIMIT: usize = 64 * 1024;
/// Largest answer to one question, in bytes. One row with the largest answer that a route may keep
/// (256 MiB) fits, as base64, with some room. The question says how many rows it asks for.
const MOST_TOLD: usize = 384 << 20;
/// Largest list of headers as HTTP/2 counts them: the listener's 64 KB and 100 headers, prefixed.
pub const HEADER_LIST: u32 = 128 * 1024;
/// Most unread bytes of one answer under way.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// Most unread bytes of all answers under way.
pub const CONNECTION_WINDOW: u32 = 16 << 20;

type Sender = SendRequest<Full<Bytes>>;
/// Result of making a connection; `None` while it is being made.
type Making = watch::Receiver<Option<Result<Sender, PeerError>>>;

/// The other regions, by name.
pub struct HttpPeers {
    me: RegionName,
    speaks: Versions,
    peers: BTreeMap<RegionName, Arc<Peer>>,
}

struct Peer {
    name: RegionName,
    address: String,
    identity: PeerIdentity,
    link: Mutex<Link>,
}

enum Link {
    Down,
    /// A task is making a connection, and every other caller waits for it.
    Making(Making),
    /// A connection that looks alive, the moment of its renewal, and the reading of the
    /// certificates under which it was made.
    Up(Sender, Instant, u64),
}

/// Moment at which a connection made now is renewed: it varies, so not all are renewed at once.
fn next_renewal() -> Instant {
    Instant::now() + RENEW + SystemDice.jitter(RENEW)
}

impl HttpPeers {
    /// Makes peers at these addresses (`host:port`). A name is looked up anew for each connection.
    /// Connects to nothing yet.
    pub fn new(identity: &PeerIdentity, addresses: BTreeMap<RegionName, String>) -> Self {
        let peer = |(name, address): (RegionName, String)| {
            let link = Mutex::new(Link::Down);
            (name.clone(), Arc::new(Peer { name, address, identity: identity.clone(), link }))
        };
        let peers = addresses.into_iter().map(peer).collect();
        Self { me: identity.me.clone(), speaks: identity.speaks, peers }
    }

    /// No peers: the deployment has one region.
    pub fn none(me: RegionName, speaks: Versions) -> Self {
        Self { me, speaks, peers: BTreeMap::new() }
    }

    async fn exchange(
        &self,
        to: &RegionName,
        request: Request<Bytes>,
    ) -> Result<Response<Incoming>, PeerError> {
        let peer = self.peers.get(to);
        let peer = peer.ok_or_else(|| not_sent(format!("region {to} is not in the list of peers")))?;
        let mut sender = peer.sender().await?;
        sender.ready().await.map_err(|error| not_sent(describe(&error)))?;
        let sent = sender.try_send_request(request.map(Full::new)).await;
        sent.map_err(|mut error| match error.take_message() {
            Some(_) => not_sent(describe(&error.into_error())),
            None => unknown(describe(&error.into_error())),
        })
    }
}

fn not_sent(why: impl Display) -> PeerError {
    PeerError::NotSent(why.to_string())
}

fn unknown(why: impl Display) -> PeerError {
    PeerError::Unknown(why.to_string())
}

/// The whole body of a reply. The words say that it is longer than `limit`.
async fn whole(body: Incoming, limit: usize, over: &str) -> Result<Bytes, PeerError> {
    match collect(streaming(body, Patience::Endless, None), limit).await {
        Ok(Collected::Whole(json)) => Ok(json),
        Ok(Collected::Over(_, _)) => Err(unknown(over)),
        Err(error) => Err(unknown(error)),
    }
}

async fn read_pong(response: Response<Incoming>) -> Result<Pong, PeerError> {
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(unknown(format!("the ping was answered with {}", head.status)));
    }
    let json = whole(body, PONG_LIMIT, "the ping's reply is too long").await?;
    wire::decode_pong(&json).map_err(unknown)
}

impl Peers for HttpPeers {
    async fn ask(
        &self,
        to: &RegionName,
        question: Question,
        within: Duration,
    ) -> Result<PeerReply, PeerError> {
        let asked = async {
            let request = ask::encode_ask(&self.me, self.speaks, to, &question);
            let (head, body) = self.exchange(to, request).await?.into_parts();
            if ask::is_told(&head.headers).map_err(unknown)? {
                let over = format!("more than {MOST_TOLD} bytes were told: ask for less");
                return ask::read_reply(&whole(body, MOST_TOLD, &over).await?).map_err(unknown);
            }
            // The refusal itself has arrived; its reason is only for people.
            let why = whole(body, PONG_LIMIT, "").await.ok().and_then(|json| ask::read_refusal(&json));
            Err(not_sent(format!("{}: {}", WireError::Refused(head.status), why.unwrap_or_default())))
        };
        let reply = timeout(within, asked).await;
        reply.unwrap_or_else(|_| Err(unknown("the question got no answer in time")))
    }

    async fn forward(&self, to: &RegionName, forward: Forward) -> Result<ForwardReply, PeerError> {
        let request = wire::encode_forward(&self.me, to, forward).map_err(not_sent)?;
        let response = self.exchange(to, request).await?;
        let response = response.map(|body| streaming(body, Patience::Endless, None));
        wire::decode_reply(response).map_err(|error| match error {
            WireError::Refused(_) => not_sent(error),
            // Only a refusal says that nothing was done.
            _ => unknown(error),
        })
    }

    async fn ping(&self, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
        let asked = async {
            let ping = wire::encode_get(&self.me, self.speaks, to, wire::PING_PATH);
            let pong = read_pong(self.exchange(to, ping).await?).await?;
            if let Some(peer) = self.peers.get(to).filter(|_| !pong.serving)
                && let Link::Up(_, renew, _) = &mut *lock(&peer.link)
            {
                *renew = (*renew).min(Instant::now() + RENEW_IDLE);
            }
            Ok(pong)
        };
        let reply = timeout(within, asked).await;
        reply.unwrap_or_else(|_| Err(unknown("the ping got no answer in time")))
    }
}

impl Peer {
    /// The live connection, or the one that a task is making, or a new one.
    async fn sender(self: &Arc<Self>) -> Result<Sender, PeerError> {
        let mut making = match self.link_or_make() {
            Ok(sender) => return Ok(sender),
            Err(making) => making,
        };
        let made = making.wait_for(Option::is_some).await.ok().and_then(|made| made.clone());
        made.unwrap_or_else(|| Err(not_sent("the connection was not made")))
    }

    fn link_or_make(self: &Arc<Self>) -> Result<Sender, Making> {
        let mut link = lock(&self.link);
        match &mut *link {
            // Made before the last reading, it may lead to a server whose certificate is revoked.
            Link::Up(sender, renew, reading)
                if !sender.is_closed() && *reading == self.identity.reading() =>
            {
                let sender = sender.clone();
                if *renew <= Instant::now() {
                    // Not twice at a time, and not again at once if it fails.
                    *renew = Instant::now() + RENEW_IDLE;
                    self.renew();
                }
                return Ok(sender);
            }
            Link::Making(making) if making.has_changed().is_ok() => return Err(making.clone()),
            Link::Up(..) | Link::Making(_) | Link::Down => {}
        }
        let (tell, making) = watch::channel(None);
        *link = Link::Making(making.clone());
        // A task of its own: a caller that gives up must not end it for others.
        let peer = self.clone();
        tokio::spawn(async move {
            let reading = peer.identity.reading();
            let made = peer.connect().await;
            *lock(&peer.link) = match &made {
                Ok(sender) => Link::Up(sender.clone(), next_renewal(), reading),
                Err(why) => {
                    tracing::debug!(peer = %peer.name, %why, "no connection to peer");
                    Link::Down
                }
            };
            tell.send_replace(Some(made));
        });
        Err(making)
    }

    /// Makes another connection, and replaces the present one with it. Requests under way on the
    /// old connection end there. If no connection to a serving gateway can be made, the old one
    /// stays.
    fn renew(self: &Arc<Self>) {
        let peer = self.clone();
        tokio::spawn(async move {
            let reading = peer.identity.reading();
            match peer.connect().await {
                Ok(sender) if peer.serves(sender.clone()).await => {
                    *lock(&peer.link) = Link::Up(sender, next_renewal(), reading);
                }
                Ok(_) => tracing::debug!(peer = %peer.name, "not renewed: the other gateway does not serve"),
                Err(why) => tracing::debug!(peer = %peer.name, %why, "the connection is not renewed"),
            }
        });
    }

    async fn serves(&self, mut sender: Sender) -> bool {
        let ping = wire::encode_get(&self.identity.me, self.identity.speaks, &self.name, wire::PING_PATH);
        let pong = async { read_pong(sender.send_request(ping.map(Full::new)).await.ok()?).await.ok() };
        timeout(CONNECT, pong).await.ok().flatten().is_some_and(|pong| pong.serving)
    }

    async fn connect(&self) -> Result<Sender, PeerError> {
        let dialled = timeout(CONNECT, self.dial()).await.unwrap_or_else(|_| Err("timed out".into()));
        let failed = |why| not_sent(format!("connect to region {} at {}: {why}", self.name, self.address));
        let (sender, theirs) = dialled.map_err(failed)?;
        // Nothing is written before this: another version might read a forward in another way.
        match self.identity.speaks.common(theirs) {
            Some(_) => Ok(sender),
            None => Err(PeerError::Versions { theirs, ours: self.identity.speaks }),
        }
    }

    /// Makes a connection on which a hello was answered, and returns the peer's versions.
    async fn dial(&self) -> Result<(Sender, Versions), String> {
        let text = |error: io::Error| error.to_string();
        let stream = TcpStream::connect(&self.address).await.map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        let tls = TlsConnector::from(self.identity.client_config());
        let stream = tls.connect(server_name(&self.name), stream).await.map_err(text)?;
        if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err("the other side does not speak HTTP/2".into());
        }
        let (mut sender, driver) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_ANSWER)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST)
            // An answer may arrive after its forward was given up: no reason to end the connection.
            .max_local_error_reset_streams(None)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| describe(&error))?;
        // A request gets the error that breaks its connection, so the driver's result adds nothing.
        // hyper 1.12 may leave one without it that was sent just then. So each caller has a bound.
        tokio::spawn(async move { drop(driver.await) });
        let speaks = self.identity.speaks;
        let hello = wire::encode_get(&self.identity.me, speaks, &self.name, wire::HELLO_PATH).map(Full::new);
        let welcome = sender.send_request(hello).await.map_err(|error| describe(&error))?;
        let theirs = wire::decode_versions(welcome.headers()).map_err(|error| error.to_string())?;
        let foreign = speaks.common(theirs).is_none();
        if welcome.status() != StatusCode::NO_CONTENT && !foreign {
            return Err(format!("the hello was answered with {}", welcome.status()));
        }
        Ok((sender, theirs))
    }
}
