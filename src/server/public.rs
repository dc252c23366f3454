//! The listeners for clients: HTTP/1.1 and HTTP/2, plain or over TLS, within bounds.
//!
//! The order of layers: [`super::connection::Paced`] and [`super::guard`] below hyper,
//! [`super::admission`] and [`super::idle_watch`] above it. `super::PublicService` answers the
//! requests that pass. HTTP/2 is chosen by ALPN over TLS, and by its preface on a plain connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
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
use super::connection::{Paced, drive, lingering};
use super::connection_limit::{Place, Places};
use super::guard::Guard;
use super::head::{self, HEAD_LIMIT, malformed, no_room_for_head};
use super::heads::{Blocks, Heads};
use super::idle_watch::{Cut, Watch};
use super::listener_kind::Door;
use super::{Listeners, PublicService, Replaceable, Stop, edge};
use crate::adapters::headers::strip_hop_by_hop;
use crate::adapters::streaming::{Patience, streaming};
use crate::adapters::tls::HTTP2;
use crate::config::listen::PublicLimits;
use crate::gateway::limits::concurrency::HeadRoom;
use crate::gateway::request::problems::{Fault, Problem};
use crate::ports::{Body, observe};

/// Time without a request after which an HTTP/1 connection is parked, without hyper's buffers.
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

/// A connection's client, and the service and the settings that it keeps to its end.
struct Conn<S> {
    client: Client,
    service: Arc<S>,
    limits: PublicLimits,
    heads: Arc<Heads>,
}

/// Listens for clients in the background, over TLS if there is a configuration for it.
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
    let (places, limits) = (Arc::<Places>::default(), limits.into());
    let most = limits.clone();
    listeners.add(listener, move || most.now().connections, move |stream, address: SocketAddr, stop| {
        let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.now()));
        let client = Client::new(address.ip(), tls.is_some(), door.clone());
        let conn = Conn { client, service: service.clone(), limits: *limits.now(), heads: heads.clone() };
        let (place, places) = (conn.take_place(&places), places.clone());
        async move {
            if !conn.client.door.allows(address.ip()) {
                tracing::warn!(peer = %address.ip(), "refused a connection: the trusted listener is not for this address");
                return;
            }
            let served = match place {
                Some(_) => conn.introduced(stream, tls, stop, &places).await,
                None => crowded(),
            };
            if let Err(why) = served {
                tracing::debug!(client = %address.ip(), why, "a client's connection was ended");
            }
            drop(place);
        }
    });
}

fn crowded() -> Result<(), String> {
    count_cut("crowded");
    Err("the client holds all the connections that one address may have".to_owned())
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
    count_cut(cut.reason);
    cut
}

impl<S: PublicService> Conn<S> {
    /// The place of a connection of this client. A trusted front, as a trusted proxy, has one for
    /// each of its clients.
    fn take_place(&self, places: &Arc<Places>) -> Option<Place> {
        let Client { ip, door, .. } = &self.client;
        let is_proxy = door.edge().is_none_or(|edge| edge.trusts(*ip));
        places.take(*ip, if is_proxy { self.limits.connections } else { self.limits.connections_per_ip })
    }

    /// Serves a connection whose client is known, or is named first by the PROXY protocol.
    async fn introduced(
        mut self,
        mut stream: TcpStream,
        tls: Option<TlsAcceptor>,
        mut stop: Stop,
        places: &Arc<Places>,
    ) -> Result<(), String> {
        let mut place = None;
        if let Some(edge) = self.client.door.edge().filter(|edge| edge.proxy_protocol) {
            if !edge.trusts(self.client.ip) {
                return Err(
                    "a connection without a trusted proxy, which the PROXY protocol requires".to_owned()
                );
            }
            let vouched =
                Box::pin(in_time(edge::introduction(&mut stream), &mut stop, self.limits.head_time));
            let Some(vouched) = vouched.await? else { return Ok(()) };
            if let Some(client) = vouched {
                self.client = Client::new(client, tls.is_some(), self.client.door);
                place = self.take_place(places);
                if place.is_none() {
                    return crowded();
                }
            }
        }
        let served = self.serve(stream, tls, stop).await;
        drop(place);
        served
    }

    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>, mut stop: Stop) -> Result<(), String> {
        let mut stream = Paced::new(stream, self.limits.write_stall);
        // Boxes: a connection's task is as large as the largest future that it may hold.
        if let Some(tls) = tls {
            return Box::pin(self.serve_tls(stream, tls, stop)).await;
        }
        match in_time(stream.begins_http2(), &mut stop, self.limits.head_time).await? {
            Some(true) => Box::pin(self.speak_http2(stream, stop)).await,
            Some(false) => Box::pin(self.speak_http1(stream, stop)).await,
            None => Ok(()),
        }
    }

    async fn serve_tls(self, stream: Paced, tls: TlsAcceptor, mut stop: Stop) -> Result<(), String> {
        let accepted = in_time(tls.accept(stream), &mut stop, self.limits.head_time);
        let Some(stream) = Box::pin(accepted).await? else { return Ok(()) };
        match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Box::pin(self.speak_http2(stream, stop)).await,
            Some(_) | None => Box::pin(self.speak_http1(stream, stop)).await,
        }
    }

    async fn speak_http1(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        mut stop: Stop,
    ) -> Result<(), String> {
        let limits = &self.limits;
        let watch = Watch::new(limits.idle_time, limits.write_stall);
        let held = self.heads.nothing(limits.heads);
        // A box: it moves into hyper and back, and a future has room for each of these places.
        let mut stream = Box::new(Guard::new(stream, limits.head_time, held, self.client.refusal.clone()));
        let rests = stream.rests();
        loop {
            let handler = service_fn(|request| self.answer(request, &watch));
            // No timer here: the guard, the watch and the body's patience have them all. No
            // `max_headers`: hyper's default is `MOST_HEADERS`, and set, it allocates an array of
            // that size per head.
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
            let driven = Pin::new(&mut *connection);
            tokio::select! {
                biased;
                ended = drive(driven, http1::Connection::graceful_shutdown, &mut stop, cut(&watch)) => return ended,
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

    async fn speak_http2(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        mut stop: Stop,
    ) -> Result<(), String> {
        let watch = Watch::new(self.limits.idle_time, self.limits.write_stall);
        let stream = Blocks::new(stream, self.heads.nothing(self.limits.heads));
        let conn = Arc::new(self);
        let handler = {
            let watch = watch.clone();
            service_fn(move |request| {
                let (conn, watch) = (conn.clone(), watch.clone());
                async move { conn.answer(request, &watch).await }
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
        drive(pin!(connection), http2::Connection::graceful_shutdown, &mut stop, cut(&watch)).await
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        watch: &Arc<Watch>,
    ) -> Result<Response<Body>, Infallible> {
        let (open, arrived) = (watch.open(), Instant::now());
        let (version, client, stall) = (request.version(), &self.client, self.limits.body_stall);
        let origin = client.door.edge().and_then(|edge| edge::origin(request.headers(), edge));
        let admitted = match admit(request, client).and_then(|request| self.hold(request)) {
            Ok(request) => without_a_body_it_denies(request, stall).await,
            Err(problem) => Err(problem),
        };
        let mut response = match admitted {
            Ok(request) if let Some(answer) = origin.as_ref().and_then(|_| edge::preflight(&request)) => {
                answer
            }
            Ok(request) => {
                let body = |body| match streaming(body, Patience::Between(stall), None) {
                    body if version < Version::HTTP_2 => body,
                    body => lingering(body),
                };
                let mut response = self.service.clone().call(request.map(body)).await;
                strip_hop_by_hop(response.headers_mut());
                response
            }
            Err(problem) => {
                // It never reached the gateway, which counts the others.
                metrics::counter!(observe::REFUSALS, "code" => problem.code()).increment(1);
                let verdict = if problem.kind.row().fault == Fault::Gateway { "failed" } else { "refused" };
                let labels = [("route", "-"), ("verdict", verdict), ("where", "here")];
                metrics::histogram!(observe::REQUEST_SECONDS, &labels).record(arrived.elapsed());
                tracing::debug!(client = %client.ip, code = problem.code(), detail = &*problem.detail, "refused");
                let mut response = head::response(&problem);
                if version < Version::HTTP_2 {
                    // Further bytes on this connection may be a part of the refused request.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        if let Some(origin) = origin {
            edge::allow(response.headers_mut(), origin);
        }
        Ok(open.answered(response))
    }

    /// Counts the head while any part of the request is here: a few bytes of HTTP/2 may be a large
    /// one.
    fn hold<B>(&self, mut request: Request<B>) -> Result<Request<B>, Problem> {
        // Overhead of a field beside its bytes (RFC 9113 section 6.5.2).
        const OF_FIELD: usize = 32;
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let fields =
            request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + OF_FIELD);
        let mut held = self.heads.nothing(self.limits.heads);
        if !held.hold(target + fields.sum::<usize>()) {
            return Err(no_room_for_head());
        }
        if held.counts() {
            request.extensions_mut().insert(HeadRoom(Arc::new(held)));
        }
        Ok(request)
    }
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
        let (service, limits) = (Arc::new(Echo), PublicLimits::default());
        let conn = Conn { client: from, service, limits, heads: heads.clone() };
        let served = tokio::spawn(conn.speak_http1(ours, Stop(stopping.subscribe())));
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
