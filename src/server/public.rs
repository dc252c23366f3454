//! The listeners for clients: HTTP/1.1 and HTTP/2, plain or over TLS, each within bounds of time
//! and space.
//!
//! The order of layers: [`super::write_timeout`] and [`super::guard`] below hyper,
//! [`super::admission`] and [`super::idle_watch`] above it. `super::PublicService` answers the
//! requests that pass. HTTP/2 is chosen by ALPN over TLS, and by its preface on a plain connection.
//! This file must not read bodies.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1::Parts;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::admission::{Client, admit};
use super::blocks::Blocks;
use super::connection::drive;
use super::connection_limit::{Place, Places};
use super::drain_body::lingering;
use super::guard::Guard;
use super::head::HEAD_LIMIT;
use super::heads::Heads;
use super::idle_watch::{Cut, Watch};
use super::listener_kind::Door;
use super::problem::{self, malformed, no_room_for_head};
use super::replaceable::Replaceable;
use super::write_timeout::Paced;
use super::{Listeners, PublicService, Stop};
use super::{cors, proxy_protocol};
use crate::adapters::headers::strip_hop_by_hop;
use crate::adapters::streaming::{Patience, streaming};
use crate::adapters::tls::HTTP2;
use crate::config::listen::PublicLimits;
use crate::gateway::limits::concurrency::HeadRoom;
use crate::gateway::request::problems::{Fault, Problem};
use crate::ports::{Body, observe};

/// Time without a request after which an HTTP/1 connection is parked: hyper's buffers and state go,
/// and come back with the next byte.
const QUIET: Duration = Duration::from_secs(1);
/// Most HTTP/2 requests of one connection that are answered at a time.
const MOST_STREAMS: u32 = 100;
/// Bytes of one HTTP/2 request's body that are taken before a reader takes them.
const STREAM_WINDOW: u32 = 128 * 1024;
/// The same for all bodies of one connection together.
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Bytes of one HTTP/2 answer that are held for a client that does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// Largest HTTP/2 frame that is taken, in bytes: the least that the protocol allows.
const FRAME: u32 = 16 * 1024;
/// Most HTTP/2 requests that the client may reset before the gateway looks at them.
const MOST_RESET: usize = 20;
/// Most HTTP/2 requests that may end by the client's own mistakes.
const MOST_MISTAKES: usize = 100;
/// Most bytes held of an HTTP/1 request (a head must fit), and of an answer that is not read.
const HTTP1_BUFFER: usize = 2 * HEAD_LIMIT;
/// Time after which a silent HTTP/2 client gets a ping, and longest time for its reply.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Bounds {
    limits: PublicLimits,
    heads: Arc<Heads>,
}

/// Listens for clients in the background on one listener, over TLS if there is a configuration for
/// it.
///
/// All listeners of a process share the same `heads`.
pub fn listen<S: PublicService>(
    listeners: &mut Listeners,
    listener: TcpListener,
    tls: Option<Replaceable<ServerConfig>>,
    service: Arc<S>,
    limits: impl Into<Replaceable<PublicLimits>>,
    door: Door,
    heads: &Arc<Heads>,
) {
    let heads = heads.clone();
    for reason in ["crowded", "late", "idle", "stalled", "given_up"] {
        metrics::counter!(observe::CONNECTIONS_CUT, "reason" => reason).absolute(0);
    }
    let (places, limits) = (Places::new(), limits.into());
    let most = limits.clone();
    listeners.add(listener, move || most.now().connections, move |stream, address: SocketAddr, stop| {
        // A connection keeps its first settings to its end.
        let (limits, tls) = (*limits.now(), tls.as_ref().map(|tls| TlsAcceptor::from(tls.now())));
        let (service, door, heads) = (service.clone(), door.clone(), heads.clone());
        let place = take_place(&places, address.ip(), &door, &limits);
        let places = places.clone();
        async move {
            if !door.allows(address.ip()) {
                tracing::warn!(peer = %address.ip(), "refused a connection: the trusted listener is not for this address");
                return;
            }
            let bounds = Bounds { limits, heads };
            let served = match place {
                Some(_) => introduced(stream, address.ip(), door, tls, stop, service, bounds, &places).await,
                None => crowded(),
            };
            if let Err(why) = served {
                tracing::debug!(client = %address.ip(), why, "a client's connection was ended");
            }
            drop(place);
        }
    });
}

/// The place of a connection from this address. A trusted proxy has one for each of its clients.
fn take_place(places: &Arc<Places>, from: IpAddr, door: &Door, limits: &PublicLimits) -> Option<Place> {
    let is_proxy = door.edge().is_some_and(|edge| edge.trusts(from));
    places.take(from, if is_proxy { limits.connections } else { limits.connections_per_ip })
}

fn crowded() -> Result<(), String> {
    count_cut("crowded");
    Err("the client holds all the connections that one address may have".to_owned())
}

/// Serves a connection whose client is known, or is named first by the PROXY protocol.
#[expect(clippy::too_many_arguments, reason = "what a connection is made of")]
async fn introduced<S: PublicService>(
    mut stream: TcpStream,
    mut from: IpAddr,
    door: Door,
    tls: Option<TlsAcceptor>,
    mut stop: Stop,
    service: Arc<S>,
    bounds: Bounds,
    places: &Arc<Places>,
) -> Result<(), String> {
    let mut place = None;
    if let Some(edge) = door.edge().filter(|edge| edge.proxy_protocol) {
        if !edge.trusts(from.to_canonical()) {
            return Err("a connection without a trusted proxy, which the PROXY protocol requires".to_owned());
        }
        let vouched =
            Box::pin(in_time(proxy_protocol::read(&mut stream), &mut stop, bounds.limits.head_time));
        let Some(vouched) = vouched.await? else { return Ok(()) };
        if let Some(client) = vouched {
            from = client;
            place = take_place(places, from, &door, &bounds.limits);
            if place.is_none() {
                return crowded();
            }
        }
    }
    let client = Client::new(from, tls.is_some(), door);
    let served = serve(stream, client, tls, stop, service, bounds).await;
    drop(place);
    served
}

async fn serve<S: PublicService>(
    stream: TcpStream,
    client: Client,
    tls: Option<TlsAcceptor>,
    mut stop: Stop,
    service: Arc<S>,
    bounds: Bounds,
) -> Result<(), String> {
    let mut stream = Paced::new(stream, bounds.limits.write_stall);
    // Boxes: a connection's task is as large as the largest future that it may hold.
    if let Some(tls) = tls {
        return Box::pin(serve_tls(stream, client, tls, stop, service, bounds)).await;
    }
    match in_time(stream.begins_http2(), &mut stop, bounds.limits.head_time).await? {
        Some(true) => Box::pin(speak_http2(stream, client, stop, service, bounds)).await,
        Some(false) => Box::pin(speak_http1(stream, &client, stop, service, &bounds)).await,
        None => Ok(()),
    }
}

async fn serve_tls<S: PublicService>(
    stream: Paced,
    client: Client,
    tls: TlsAcceptor,
    mut stop: Stop,
    service: Arc<S>,
    bounds: Bounds,
) -> Result<(), String> {
    let accepted = in_time(tls.accept(stream), &mut stop, bounds.limits.head_time);
    let Some(stream) = Box::pin(accepted).await? else { return Ok(()) };
    match stream.get_ref().1.alpn_protocol() {
        Some(HTTP2) => Box::pin(speak_http2(stream, client, stop, service, bounds)).await,
        Some(_) | None => Box::pin(speak_http1(stream, &client, stop, service, &bounds)).await,
    }
}

/// Waits for the client's beginning within its time. `None` if the listener stops before.
async fn in_time<T>(
    begin: impl Future<Output = io::Result<T>>,
    stop: &mut Stop,
    head_time: Duration,
) -> Result<Option<T>, String> {
    tokio::select! {
        biased;
        begun = timeout(head_time, begin) => match begun {
            Ok(begun) => begun.map(Some).map_err(|error| error.to_string()),
            Err(_) => {
                count_cut("late");
                Err("the client did not begin in time".to_owned())
            }
        },
        () = stop.wait() => Ok(None),
    }
}

fn count_cut(reason: &'static str) {
    metrics::counter!(observe::CONNECTIONS_CUT, "reason" => reason).increment(1);
}

/// Completes when the connection has to be cut, and counts it.
async fn cut(watch: &Watch) -> Cut {
    let cut = watch.cut().await;
    count_cut(cut.reason());
    cut
}

async fn speak_http1<S: PublicService>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    client: &Client,
    mut stop: Stop,
    service: Arc<S>,
    bounds: &Bounds,
) -> Result<(), String> {
    let limits = &bounds.limits;
    let watch = Watch::new(limits.idle_time, limits.write_stall);
    let held = bounds.heads.nothing(limits.heads);
    // A box: it moves into hyper and back, and a future has room for each of these places.
    let mut stream = Box::new(Guard::new(stream, limits.head_time, held, client.refusal.clone()));
    let rests = stream.rests();
    loop {
        let handler = service_fn(|request| answer(service.clone(), request, client, &watch, bounds));
        // No timer here: the guard, the watch and the body's patience have them all. No
        // `max_headers`: hyper's default is `MOST_HEADERS`, and set, it allocates an array of that
        // size per head.
        let mut connection = Box::new(
            http1::Builder::new()
                .header_read_timeout(None)
                .max_buf_size(HTTP1_BUFFER)
                .serve_connection(TokioIo::new(stream), handler),
        );
        let parked = async {
            watch.quiet(QUIET).await;
            while !rests.load(Ordering::Relaxed) {
                sleep(QUIET).await;
                watch.quiet(QUIET).await;
            }
        };
        tokio::select! {
            biased;
            ended = drive(&mut *connection, &mut stop, cut(&watch)) => return ended,
            () = parked => {}
        }
        let Parts { io, read_buf, .. } = connection.into_parts();
        stream = io.into_inner();
        let begun = tokio::select! {
            biased;
            begun = stream.next(read_buf) => begun.map_err(|error| error.to_string())?,
            () = stop.wait() => false,
            _ = cut(&watch) => false,
        };
        if !begun {
            return stream.shutdown().await.map_err(|error| error.to_string());
        }
    }
}

async fn speak_http2<S: PublicService>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    client: Client,
    mut stop: Stop,
    service: Arc<S>,
    bounds: Bounds,
) -> Result<(), String> {
    let limits = bounds.limits;
    let watch = Watch::new(limits.idle_time, limits.write_stall);
    let stream = Blocks::new(stream, bounds.heads.nothing(limits.heads));
    let common = Arc::new((client, bounds));
    let handler = {
        let watch = watch.clone();
        service_fn(move |request| {
            let (service, common, watch) = (service.clone(), common.clone(), watch.clone());
            async move { answer(service, request, &common.0, &watch, &common.1).await }
        })
    };
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(HEAD_LIMIT as u32)
        .max_pending_accept_reset_streams(MOST_RESET)
        .max_local_error_reset_streams(MOST_MISTAKES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .serve_connection(TokioIo::new(stream), handler);
    drive(connection, &mut stop, cut(&watch)).await
}

async fn answer<S: PublicService>(
    service: Arc<S>,
    request: Request<Incoming>,
    client: &Client,
    watch: &Arc<Watch>,
    bounds: &Bounds,
) -> Result<Response<Body>, Infallible> {
    let (open, arrived) = (watch.open(), Instant::now());
    let version = request.version();
    let limits = bounds.limits;
    let origin = client.door.edge().and_then(|edge| cors::origin(request.headers(), edge));
    let admitted = match admit(request, client).and_then(|request| hold(request, bounds)) {
        Ok(request) => without_a_body_it_denies(request, limits.body_stall).await,
        Err(problem) => Err(problem),
    };
    let mut response = match admitted {
        Ok(request) if let Some(answer) = origin.as_ref().and_then(|_| cors::preflight(&request)) => answer,
        Ok(request) => {
            let patience = Patience::Between(limits.body_stall);
            let body = |body| match version < Version::HTTP_2 {
                true => streaming(body, patience, None),
                false => lingering(streaming(body, patience, None)),
            };
            let mut response = service.call(request.map(body)).await;
            strip_hop_by_hop(response.headers_mut());
            response
        }
        Err(problem) => {
            count_refused(&problem, arrived.elapsed());
            tracing::debug!(client = %client.ip, code = problem.code(), detail = &*problem.detail, "refused");
            let mut response = problem::response(&problem);
            if version < Version::HTTP_2 {
                // Further bytes on this connection may be a part of the refused request.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    if let Some(origin) = origin {
        cors::allow(response.headers_mut(), origin);
    }
    Ok(open.answered(response))
}

/// Counts a request that never reached the gateway.
fn count_refused(problem: &Problem, took: Duration) {
    metrics::counter!(observe::REFUSALS, "code" => problem.code()).increment(1);
    let verdict = if problem.kind.row().fault == Fault::Gateway { "failed" } else { "refused" };
    let labels = [("route", "-"), ("verdict", verdict), ("where", "here")];
    metrics::histogram!(observe::REQUEST_SECONDS, &labels).record(took.as_secs_f64());
}

/// Counts the head for as long as any part of the request is here. A few bytes of HTTP/2 may stand
/// for a large head.
fn hold<B>(mut request: Request<B>, bounds: &Bounds) -> Result<Request<B>, Problem> {
    // Overhead of a field beside its bytes (RFC 9113 section 6.5.2).
    const OF_FIELD: usize = 32;
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + OF_FIELD);
    let mut held = bounds.heads.nothing(bounds.limits.heads);
    if !held.hold(target + fields.sum::<usize>()) {
        return Err(no_room_for_head());
    }
    if held.counts() {
        request.extensions_mut().insert(HeadRoom(Arc::new(held)));
    }
    Ok(request)
}

/// Waits for the end of a body whose announced length is 0, before the request is used.
///
/// Over HTTP/2, data that arrives later may contradict a length of 0.
async fn without_a_body_it_denies(
    request: Request<Incoming>,
    within: Duration,
) -> Result<Request<Incoming>, Problem> {
    let says_none = request.headers().get(CONTENT_LENGTH).is_some_and(|length| length == "0");
    if request.version() < Version::HTTP_2 || !says_none || request.body().is_end_stream() {
        return Ok(request);
    }
    let (head, mut body) = request.into_parts();
    let has_none = async {
        while let Some(frame) = body.frame().await {
            if frame.ok().and_then(|frame| frame.into_data().ok()).is_none_or(|data| !data.is_empty()) {
                return false;
            }
        }
        true
    };
    match timeout(within, has_none).await {
        Ok(true) => Ok(Request::from_parts(head, body)),
        Ok(false) | Err(_) => Err(malformed("a body came, or did not end, though its length is 0")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::sync::watch;

    use super::*;
    use crate::ports::body::full;
    use crate::server::heads::FREE;

    /// Larger than the pipe, so that an answer waits for its reader.
    const ANSWER: usize = 100_000;
    const ROOM: usize = 4_096;

    struct Echo;

    impl PublicService for Echo {
        async fn call(self: Arc<Self>, _: Request<Body>) -> Response<Body> {
            Response::new(full(vec![b'.'; ANSWER]))
        }
    }

    async fn read(client: &mut DuplexStream, answers: usize) {
        // Each has one more in `HTTP/1.1`.
        let (mut seen, mut piece) = (Vec::new(), vec![0; 2_000]);
        while seen.iter().filter(|byte| **byte == b'.').count() < answers * (ANSWER + 1) {
            let count = client.read(&mut piece).await.unwrap();
            assert!(count > 0, "the connection ended");
            seen.extend_from_slice(&piece[..count]);
        }
    }

    /// The clock is paused: it goes on once everything waits.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_connection_is_parked_and_answers_its_next_request() {
        let (mut client, ours) = duplex(1_024);
        let stopping = watch::Sender::new(false);
        let heads = Arc::<Heads>::default();
        let from = Client::new("::1".parse().unwrap(), false, Door::Public(None, Arc::default()));
        let bounds = Bounds { limits: PublicLimits::default(), heads: heads.clone() };
        let stop = Stop(stopping.subscribe());
        let served =
            tokio::spawn(async move { speak_http1(ours, &from, stop, Arc::new(Echo), &bounds).await });
        let head = format!("GET / HTTP/1.1\r\nhost: here\r\nx: {}\r\n\r\n", "a".repeat(FREE + ROOM / 2));
        let is_parked = || heads.nothing(ROOM).hold(FREE + ROOM);

        client.write_all(head.as_bytes()).await.unwrap();
        sleep(3 * QUIET).await;
        assert!(!is_parked(), "its answer is not read yet");
        read(&mut client, 1).await;
        assert!(!is_parked(), "its next request may come at once");
        sleep(2 * QUIET).await;
        assert!(is_parked(), "it holds a head's buffer");

        let (begin, rest) = head.split_at(20);
        client.write_all(begin.as_bytes()).await.unwrap();
        sleep(3 * QUIET).await;
        client.write_all(rest.as_bytes()).await.unwrap();
        read(&mut client, 1).await;
        client.write_all(head.repeat(2).as_bytes()).await.unwrap();
        read(&mut client, 2).await;
        sleep(2 * QUIET).await;
        assert!(is_parked());

        stopping.send(true).unwrap();
        assert_eq!(served.await.unwrap(), Ok(()));
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
}
