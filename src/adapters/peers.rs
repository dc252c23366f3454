//! Other regions over HTTP/2 and mutual TLS: one connection each, made when needed, watched while it lives, and made anew now and then: a region's
//! gateways share one address, and a connection stays with one of them.
//!
//! Neighbours: `wire` says what is sent, `identity` who may; `server::peer` is the other end. A connection counts as made only once
//! the peer answered a hello on it, so everything that can be refused is refused before a forward is written. It must not
//! resend: what broke after that is unknown, unless hyper gives the request back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

use super::connection::describe;
use super::identity::{ALPN, PeerIdentity, server_name};
use super::streaming::{Patience, streaming};
use super::system::SystemDice;
use super::wire;
use super::wire::ask::{self, Replied};
use crate::ports::body::{Collected, collect};
use crate::ports::peers::{Forward, ForwardReply, PeerError, Pong, Question, Told};
use crate::ports::{Dice, Peers};
use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;

/// How long making a connection may take, from the name's look-up to the peer's reply to the hello.
const CONNECT: Duration = Duration::from_secs(1);
/// How often a connection is tried, even while idle.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// How long the other side may take to answer that.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(2);
/// How long a connection is used while its gateway serves: up to twice as long.
const RENEW: Duration = Duration::from_secs(120);
/// And how long while it does not: another gateway of its region may.
const RENEW_IDLE: Duration = Duration::from_secs(5);
/// The largest reply to a ping, in bytes.
const PONG_LIMIT: usize = 64 * 1024;
/// The most that may be told in answer to one question, in bytes: one row with the largest answer that a route may keep (256 MiB), as
/// base64, and some room. How many rows are asked for at a time is the asker's business.
const MOST_TOLD: usize = 384 << 20;
/// The largest list of headers, in bytes as HTTP/2 counts them: the public listener's 64 KB and 100 headers, prefixed.
pub const HEADER_LIST: u32 = 128 * 1024;
/// How many bytes of one answer may be under way unread.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// How many bytes of all answers may be under way unread.
pub const CONNECTION_WINDOW: u32 = 16 << 20;

type Sender = SendRequest<Full<Bytes>>;
/// What became of making a connection; `None` while it is being made.
type Making = watch::Receiver<Option<Result<Sender, PeerError>>>;

/// The other regions, by name.
pub struct HttpPeers {
    me: RegionName,
    speaks: Versions,
    peers: BTreeMap<RegionName, Arc<Peer>>,
}

struct Peer {
    me: RegionName,
    name: RegionName,
    address: String,
    identity: PeerIdentity,
    link: Mutex<Link>,
}

enum Link {
    /// Nothing yet, or what there was is gone.
    Down,
    /// Somebody is making a connection; whoever else needs one waits for that.
    Making(Making),
    /// A connection, as far as is known, when another one is made in its place, and of which reading of the certificates it is.
    Up(Sender, Instant, u64),
}

/// When a connection made now is renewed; not all of them at the same time.
fn next_renewal() -> Instant {
    Instant::now() + RENEW + SystemDice.jitter(RENEW)
}

impl HttpPeers {
    /// Peers at these addresses (`host:port`; a name is looked up anew for each connection). Connects to nothing yet.
    pub fn new(identity: &PeerIdentity, addresses: BTreeMap<RegionName, String>) -> Self {
        let peer = |(name, address): (RegionName, String)| {
            let link = Mutex::new(Link::Down);
            let (me, identity) = (identity.me.clone(), identity.clone());
            let peer = Peer { me, name: name.clone(), address, identity, link };
            (name, Arc::new(peer))
        };
        let speaks = identity.speaks;
        Self { me: identity.me.clone(), speaks, peers: addresses.into_iter().map(peer).collect() }
    }

    async fn exchange(
        &self,
        to: &RegionName,
        request: Request<Bytes>,
    ) -> Result<Response<Incoming>, PeerError> {
        let peer = self
            .peers
            .get(to)
            .ok_or_else(|| PeerError::NotSent(format!("region {to} is not in the list of peers")))?;
        let mut sender = peer.sender().await?;
        sender.ready().await.map_err(|error| PeerError::NotSent(describe(&error)))?;
        match sender.try_send_request(request.map(Full::new)).await {
            Ok(response) => Ok(response),
            Err(mut error) => Err(match error.take_message() {
                Some(_) => PeerError::NotSent(describe(&error.into_error())),
                None => PeerError::Unknown(describe(&error.into_error())),
            }),
        }
    }

    async fn ask_how(&self, to: &RegionName) -> Result<Pong, PeerError> {
        let response =
            self.exchange(to, wire::encode_get(&self.me, self.speaks, to, wire::PING_PATH)).await?;
        let pong = read_pong(response).await?;
        if let Some(peer) = self.peers.get(to).filter(|_| !pong.serving) {
            peer.renew_within(RENEW_IDLE);
        }
        Ok(pong)
    }

    async fn put(&self, to: &RegionName, question: Question) -> Result<Told, PeerError> {
        let unknown = |error: wire::WireError| PeerError::Unknown(error.to_string());
        let response = self.exchange(to, ask::encode_ask(&self.me, self.speaks, to, &question)).await?;
        let (head, body) = response.into_parts();
        let replied = ask::decode_replied(&head.headers).map_err(unknown)?;
        let limit = match replied {
            Replied::Told => MOST_TOLD,
            Replied::Refused => PONG_LIMIT,
        };
        let read = collect(streaming(body, Patience::Endless, None), limit).await;
        match (replied, read) {
            (Replied::Told, Ok(Collected::Whole(json))) => ask::read_told(&json).map_err(unknown),
            (Replied::Told, Ok(Collected::Over(_, _))) => {
                Err(PeerError::Unknown(format!("more than {MOST_TOLD} bytes were told: ask for less")))
            }
            (Replied::Told, Err(error)) => Err(PeerError::Unknown(error.to_string())),
            // The refusal itself has arrived; its reason is only for people.
            (Replied::Refused, read) => {
                let refused = wire::WireError::Refused(head.status);
                let why = match read {
                    Ok(Collected::Whole(json)) => ask::read_refusal(&json),
                    Ok(Collected::Over(_, _)) | Err(_) => None,
                };
                Err(PeerError::NotSent(format!("{refused}: {}", why.unwrap_or_default())))
            }
        }
    }
}

async fn read_pong(response: Response<Incoming>) -> Result<Pong, PeerError> {
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(PeerError::Unknown(format!("the ping was answered with {}", head.status)));
    }
    match collect(streaming(body, Patience::Endless, None), PONG_LIMIT).await {
        Ok(Collected::Whole(json)) => {
            wire::decode_pong(&json).map_err(|error| PeerError::Unknown(error.to_string()))
        }
        Ok(Collected::Over(_, _)) => Err(PeerError::Unknown("the ping's reply is too long".into())),
        Err(error) => Err(PeerError::Unknown(error.to_string())),
    }
}

impl Peers for HttpPeers {
    async fn ask(&self, to: &RegionName, question: Question, within: Duration) -> Result<Told, PeerError> {
        timeout(within, self.put(to, question))
            .await
            .unwrap_or_else(|_| Err(PeerError::Unknown("the question got no answer in time".into())))
    }

    async fn forward(&self, to: &RegionName, forward: Forward) -> Result<ForwardReply, PeerError> {
        let request = wire::encode_forward(&self.me, to, forward)
            .map_err(|error| PeerError::NotSent(error.to_string()))?;
        let response = self.exchange(to, request).await?;
        let response = response.map(|body| streaming(body, Patience::Endless, None));
        wire::decode_reply(response).map_err(|error| match error {
            wire::WireError::Refused(_) => PeerError::NotSent(error.to_string()),
            wire::WireError::NotOnce(_)
            | wire::WireError::Malformed(_)
            | wire::WireError::Unknown(_)
            | wire::WireError::Hop
            | wire::WireError::Question(_)
            | wire::WireError::Told(_)
            | wire::WireError::Pong(_) => PeerError::Unknown(error.to_string()),
        })
    }

    async fn ping(&self, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
        timeout(within, self.ask_how(to))
            .await
            .unwrap_or_else(|_| Err(PeerError::Unknown("the ping got no answer in time".into())))
    }
}

impl Peer {
    /// The live connection, or the one that somebody is making, or a new one.
    async fn sender(self: &Arc<Self>) -> Result<Sender, PeerError> {
        let not_made = || PeerError::NotSent("the connection was not made".into());
        let mut making = match self.link_or_make() {
            Ok(sender) => return Ok(sender),
            Err(making) => making,
        };
        match making.wait_for(Option::is_some).await {
            Ok(made) => match &*made {
                Some(result) => result.clone(),
                None => Err(not_made()),
            },
            Err(_) => Err(not_made()),
        }
    }

    fn link_or_make(self: &Arc<Self>) -> Result<Sender, Making> {
        let mut link = self.lock();
        match &mut *link {
            // One of before the files were read again may be to a server that is revoked.
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
        // A task of its own, so that a caller who gives up does not take it from those who wait.
        let peer = self.clone();
        tokio::spawn(async move {
            let reading = peer.identity.reading();
            let made = peer.connect().await;
            *peer.lock() = match &made {
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

    /// Makes another connection, and puts it in the place of the one that is used: what is under way on that ends there. Where none can be made to a gateway
    /// that serves, it stays.
    fn renew(self: &Arc<Self>) {
        let peer = self.clone();
        tokio::spawn(async move {
            let reading = peer.identity.reading();
            match peer.connect().await {
                Ok(sender) if peer.serves(sender.clone()).await => {
                    *peer.lock() = Link::Up(sender, next_renewal(), reading);
                }
                Ok(_) => tracing::debug!(peer = %peer.name, "not renewed: the other gateway does not serve"),
                Err(why) => tracing::debug!(peer = %peer.name, %why, "the connection is not renewed"),
            }
        });
    }

    async fn serves(&self, mut sender: Sender) -> bool {
        let ping = wire::encode_get(&self.me, self.identity.speaks, &self.name, wire::PING_PATH);
        let pong = async { read_pong(sender.send_request(ping.map(Full::new)).await.ok()?).await.ok() };
        timeout(CONNECT, pong).await.ok().flatten().is_some_and(|pong| pong.serving)
    }

    /// Has the connection renewed within this time.
    fn renew_within(&self, span: Duration) {
        if let Link::Up(_, renew, _) = &mut *self.lock() {
            *renew = (*renew).min(Instant::now() + span);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        // The link is replaced whole, so a poisoned one is still whole.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Sender, PeerError> {
        let failed = |why: &str| {
            PeerError::NotSent(format!("connect to region {} at {}: {why}", self.name, self.address))
        };
        let (sender, theirs) = match timeout(CONNECT, self.dial()).await {
            Ok(Ok(welcomed)) => welcomed,
            Ok(Err(why)) => return Err(failed(&why)),
            Err(_) => return Err(failed("timed out")),
        };
        // Before anything else is written: what a peer of another time makes of a forward nobody can say.
        match self.identity.speaks.common(theirs) {
            Some(_) => Ok(sender),
            None => Err(PeerError::Versions { theirs, ours: self.identity.speaks }),
        }
    }

    /// A connection on which a hello was answered, and which versions the other end speaks.
    async fn dial(&self) -> Result<(Sender, Versions), String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(self.identity.client_config())
            .connect(server_name(&self.name), stream)
            .await
            .map_err(|error| error.to_string())?;
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
            // Answers that arrive after their forward was given up: no reason to end a connection that others use.
            .max_local_error_reset_streams(None)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| describe(&error))?;
        // What breaks the connection is told to every request on it; the driver's own result adds nothing.
        tokio::spawn(async move { drop(driver.await) });
        let speaks = self.identity.speaks;
        let hello = wire::encode_get(&self.me, speaks, &self.name, wire::HELLO_PATH).map(Full::new);
        let welcome = sender.send_request(hello).await.map_err(|error| describe(&error))?;
        let theirs = wire::decode_versions(welcome.headers()).map_err(|error| error.to_string())?;
        let foreign = speaks.common(theirs).is_none();
        if welcome.status() != StatusCode::NO_CONTENT && !foreign {
            return Err(format!("the hello was answered with {}", welcome.status()));
        }
        Ok((sender, theirs))
    }
}
