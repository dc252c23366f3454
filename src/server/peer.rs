//! The peer listener: HTTP/2 over mutual TLS, for other regions of the deployment and nobody else.
//!
//! Each message names its region, and the connection's certificate must name the same one.
//! `super::PeerService` says first of all whether that region may send it. `adapters::wire` defines
//! the messages. One that cannot be read whole has no effect.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection::drive;
use super::connection_limit::{Stranger, Strangers};
use super::head::response;
use super::{Listeners, PeerService, Replaceable, Stop};
use crate::adapters::identity::{ALPN, PeerIdentity, region_of};
use crate::adapters::peers::{CONNECTION_WINDOW, HEADER_LIST, STREAM_WINDOW};
use crate::adapters::streaming::{Patience, streaming};
use crate::adapters::wire::{self, ask};
use crate::gateway::request::problems::{Kind, Problem};
use crate::ports::body::{Collected, collect, empty, full};
use crate::ports::peers::PeerMessage;
use crate::ports::{Body, BodyError};
use crate::protocol::versions::Versions;

/// Most messages of one connection that are answered at a time.
///
/// Each gateway of a peer region has one connection, or two while it renews it.
const MOST_STREAMS: u32 = 4096;
/// Time between two pings on an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Largest question that lodges no answer, in bytes: two views with thousands of pins.
pub const QUESTION_LIMIT: usize = 4 << 20;

/// Bounds of the peer listener.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimits {
    /// Most connections at a time.
    pub connections: usize,
    /// Longest time for the TLS handshake.
    pub handshake_time: Duration,
    /// Largest body of a forward, in bytes: the largest of any route.
    pub body_limit: usize,
    /// Largest question, in bytes: the one with the largest answer that a route lodges.
    pub question_limit: usize,
    /// Longest time for the whole body of a forward or a question.
    pub body_time: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            connections: 1_000,
            handshake_time: Duration::from_secs(5),
            body_limit: 1 << 20,
            question_limit: QUESTION_LIMIT,
            body_time: Duration::from_secs(10),
        }
    }
}

/// Listens for peers in the background.
pub fn listen<S: PeerService>(
    listeners: &mut Listeners,
    listener: TcpListener,
    identity: &PeerIdentity,
    service: Arc<S>,
    limits: impl Into<Replaceable<PeerLimits>>,
) {
    let (identity, limits, strangers) = (identity.clone(), limits.into(), Arc::<Strangers>::default());
    let most = limits.clone();
    listeners.add(listener, move || most.now().connections, move |stream, address: SocketAddr, stop| {
        let tls = identity.server_config();
        let stranger = strangers.admit(address.ip(), limits.now().connections);
        let (identity, seen) = (identity.clone(), AtomicU64::new(identity.reading()));
        let door = Door { address, identity, seen, service: service.clone(), limits: limits.clone() };
        let strangers = strangers.clone();
        async move {
            match stranger {
                Some(stranger) => door.serve(stream, tls, stop, (stranger, strangers)).await,
                None => {
                    tracing::debug!(%address, "too many connections have not shown a certificate: closed");
                }
            }
        }
    });
}

type Chain = [CertificateDer<'static>];

/// One connection: its other end, and this side's identity, service and limits.
struct Door<S> {
    address: SocketAddr,
    identity: PeerIdentity,
    /// Reading of the identity's files under which the connection's certificates were judged last.
    seen: AtomicU64,
    service: Arc<S>,
    limits: Replaceable<PeerLimits>,
}

impl<S: PeerService> Door<S> {
    async fn serve(
        self,
        stream: TcpStream,
        tls: Arc<ServerConfig>,
        mut stop: Stop,
        (stranger, strangers): (Stranger, Arc<Strangers>),
    ) {
        let address = self.address;
        let within = self.limits.now().handshake_time;
        let stream = match timeout(within, TlsAcceptor::from(tls).accept(stream)).await {
            Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(ALPN) => stream,
            refused => {
                let why = match refused {
                    Ok(Ok(_)) => "the other side does not speak HTTP/2".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "the TLS handshake took too long".to_owned(),
                };
                tracing::warn!(%address, why, "a connection to the peer listener was refused");
                return;
            }
        };
        strangers.shook(address.ip());
        drop(stranger);
        let chain: Arc<Chain> = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec().into();
        let door = Arc::new(self);
        let handler = service_fn(move |request| {
            let (door, chain) = (door.clone(), chain.clone());
            async move { Ok::<_, Infallible>(door.answer(request, &chain).await) }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .max_concurrent_streams(MOST_STREAMS)
            // A forward may be refused while its body still arrives: others use the connection.
            .max_local_error_reset_streams(None)
            .max_header_list_size(HEADER_LIST)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), handler);
        // Peers are trusted not to hold connections up on purpose. Pings find the dead ones.
        let finish = http2::Connection::graceful_shutdown;
        if let Err(why) = drive(pin!(connection), finish, &mut stop, std::future::pending()).await {
            tracing::debug!(%address, why, "a peer's connection broke");
        }
    }

    async fn answer(&self, request: Request<Incoming>, chain: &Chain) -> Response<Body> {
        let (head, body) = request.into_parts();
        match self.take_up(head, body, chain).await {
            Ok(response) => response,
            Err(problem) => {
                // The service logs a forbidden sender itself, and not each time.
                if problem.kind != Kind::PeerForbidden {
                    let address = self.address;
                    tracing::warn!(%address, code = problem.code(), detail = &*problem.detail, "a peer's message was refused");
                }
                let mut refusal = wire::encode_refusal(response(&problem));
                wire::say_versions(refusal.headers_mut(), self.identity.speaks);
                refusal
            }
        }
    }

    async fn take_up(&self, head: Parts, body: Incoming, chain: &Chain) -> Result<Response<Body>, Problem> {
        let (service, speaks, limits) = (&self.service, self.identity.speaks, *self.limits.now());
        if !self.identity.still_lets_in(chain, &self.seen) {
            return Err(Kind::PeerRevoked
                .said("the list of revoked certificates was read since this connection was made"));
        }
        let from = wire::decode_from(&head.headers).map_err(unreadable)?;
        if !region_of(chain, &from) {
            let why = format!("the message says it is from {from}, the certificate does not");
            return Err(Kind::PeerForged.said(why));
        }
        let hears =
            |said: &PeerMessage<'_>| service.hears(&from, said).map_err(|why| Kind::PeerForbidden.said(why));
        // A region that may not send a hello may send nothing: not even a body is read from it.
        hears(&PeerMessage::HELLO)?;
        match (&head.method, head.uri.path()) {
            (&Method::POST, wire::FORWARD_PATH) => {
                hears(&PeerMessage::FORWARD)?;
                let mut forward = wire::decode_forward(&head, Bytes::new()).map_err(unreadable)?;
                let limit = limits.body_limit;
                let bytes = body.size_hint().upper().map_or(Ok(limit), usize::try_from).unwrap_or(usize::MAX);
                if bytes > limit {
                    return Err(too_large(limit));
                }
                let place = match service.place(&forward, bytes) {
                    Ok(place) => place,
                    Err(refusal) => return Ok(wire::encode_reply(*refusal)),
                };
                forward.body = whole(body, limit, limits.body_time).await?;
                Ok(wire::encode_reply(service.clone().forward(from, forward, place).await))
            }
            (&Method::POST, ask::ASK_PATH) => {
                heard_of(&head, speaks)?;
                let body = whole(body, limits.question_limit, limits.body_time).await?;
                let question = ask::read_question(&body).map_err(unreadable)?;
                hears(&question.said())?;
                Ok(ask::encode_reply(&service.clone().ask(from, question).await))
            }
            (&Method::GET, wire::PING_PATH) => {
                hears(&PeerMessage::PING)?;
                heard_of(&head, speaks)?;
                let mut response = Response::new(full(wire::encode_pong(&service.clone().pong().await)));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Ok(response)
            }
            (&Method::GET, wire::HELLO_PATH) => {
                heard_of(&head, speaks)?;
                let mut response = Response::new(empty());
                wire::say_versions(response.headers_mut(), speaks);
                *response.status_mut() = StatusCode::NO_CONTENT;
                Ok(response)
            }
            (_, _) => Err(Kind::NotAPeerMessage.said("no version of onceway that is known here has it")),
        }
    }
}

/// Refuses a sender that shares no version: its messages might mean something else.
fn heard_of(head: &Parts, speaks: Versions) -> Result<(), Problem> {
    let theirs = wire::decode_versions(&head.headers).map_err(unreadable)?;
    if speaks.common(theirs).is_none() {
        return Err(Kind::PeerVersion.said(format!(
            "it speaks {theirs}, this process {speaks}: run neighbouring versions of onceway"
        )));
    }
    Ok(())
}

fn unreadable(error: wire::WireError) -> Problem {
    Kind::BadPeerMessage.said(error.to_string())
}

async fn whole(body: Incoming, limit: usize, within: Duration) -> Result<Bytes, Problem> {
    match collect(streaming(body, Patience::Within(within), None), limit).await {
        Ok(Collected::Whole(bytes)) => Ok(bytes),
        Ok(Collected::Over(_, _)) => Err(too_large(limit)),
        Err(BodyError(why)) => Err(Kind::PeerBodyBroken.said(why)),
    }
}

fn too_large(limit: usize) -> Problem {
    Kind::PeerBodyTooLarge
        .said(format!("at most {limit} bytes are taken here: run one configuration in all regions"))
}
