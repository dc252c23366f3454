//! The listeners for clients: HTTP/1.1, refused where framing or target are not beyond doubt.
//!
//! Neighbours: `super::PublicService` answers what passes, `super::door` says whom a listener is for. hyper is permissive (reliability reference, C.2), so its cases are refused
//! here before anything is made of a request; what reaches the service holds end-to-end headers only, none of onceway's own,
//! and `X-Forwarded-*` as this listener saw it. It must not read bodies.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
    UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::door::Door;
use super::problem::Problem;
use super::{Listeners, PublicService, Stop};
use crate::adapters::headers::{
    FORWARDED_PREFIX, RESERVED_PREFIX, named_by_connection, strip_hop_by_hop, strip_prefix,
};
use crate::adapters::streaming::{Patience, streaming};
use crate::ports::Body;

/// The most headers of a request.
const MOST_HEADERS: usize = 100;
/// The largest head of a request, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;
/// The longest target, in bytes.
const TARGET_LIMIT: usize = 8 * 1024;

/// Bounds of the public listener.
#[derive(Clone, Copy, Debug)]
pub struct PublicLimits {
    /// The most connections at a time.
    pub connections: usize,
    /// How long a request's head may take; also how long a connection may be idle.
    pub head_time: Duration,
    /// How long the next piece of a body may take.
    pub body_stall: Duration,
}

impl Default for PublicLimits {
    fn default() -> Self {
        Self { connections: 10_000, head_time: Duration::from_secs(30), body_stall: Duration::from_secs(30) }
    }
}

/// Listens for clients in the background, at one door.
pub fn listen<S: PublicService>(
    listeners: &mut Listeners,
    listener: TcpListener,
    service: Arc<S>,
    limits: PublicLimits,
    door: Door,
) {
    listeners.add(listener, limits.connections, move |stream, address, stop| {
        let (service, door) = (service.clone(), door.clone());
        async move {
            if door.allows(address.ip()) {
                serve(stream, address, stop, service, limits, door).await;
            } else {
                tracing::warn!(peer = %address.ip(), "refused a connection: the trusted listener is not for this address");
            }
        }
    });
}

async fn serve<S: PublicService>(
    stream: TcpStream,
    address: SocketAddr,
    mut stop: Stop,
    service: Arc<S>,
    limits: PublicLimits,
    door: Door,
) {
    let handler = service_fn(move |request| answer(service.clone(), request, address, limits, door.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(MOST_HEADERS)
        .max_header_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), handler);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = stop.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(client = %address.ip(), %error, "a client's connection broke");
    }
}

async fn answer<S: PublicService>(
    service: Arc<S>,
    request: Request<Incoming>,
    address: SocketAddr,
    limits: PublicLimits,
    door: Door,
) -> Result<Response<Body>, Infallible> {
    match admit(request, address, &door) {
        Ok(request) => {
            let patience = Patience::Between(limits.body_stall);
            let mut response = service.call(request.map(|body| streaming(body, patience, None))).await;
            strip_hop_by_hop(response.headers_mut());
            Ok(response)
        }
        Err(problem) => {
            // Whatever follows on this connection may be a part of what was refused.
            let mut response = problem.response();
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            Ok(response)
        }
    }
}

/// Checks what hyper lets pass, and leaves the client's end-to-end request.
fn admit<B>(request: Request<B>, address: SocketAddr, door: &Door) -> Result<Request<B>, Problem> {
    let (mut head, body) = request.into_parts();
    check_method(&head.method)?;
    let host = check_host(&head.headers)?;
    head.uri = origin_form(&head.uri, &host)?;
    check_framing(&head.headers)?;
    check_connection(&head.headers)?;
    strip_hop_by_hop(&mut head.headers);
    strip_prefix(&mut head.headers, RESERVED_PREFIX);
    strip_prefix(&mut head.headers, FORWARDED_PREFIX);
    door.pass(&mut head);
    let ip = HeaderValue::from_str(&address.ip().to_string()).expect("an address is visible ASCII");
    let host = HeaderValue::from_str(host.as_str()).expect("an authority is visible ASCII");
    head.headers.insert(HeaderName::from_static("x-forwarded-for"), ip);
    head.headers.insert(HeaderName::from_static("x-forwarded-host"), host);
    head.headers.insert(HeaderName::from_static("x-forwarded-proto"), HeaderValue::from_static("http"));
    Ok(Request::from_parts(head, body))
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem {
        status: StatusCode::BAD_REQUEST,
        code: "bad-request",
        title: "The request is malformed",
        detail: detail.into(),
    }
}

fn check_method(method: &Method) -> Result<(), Problem> {
    if [Method::CONNECT, Method::TRACE].contains(method) {
        return Err(Problem {
            status: StatusCode::NOT_IMPLEMENTED,
            code: "method-not-supported",
            title: "The method is not supported",
            detail: format!("{method} is not passed on by this gateway"),
        });
    }
    Ok(())
}

/// The one host that the request names (RFC 9112 section 3.2).
fn check_host(headers: &HeaderMap) -> Result<Authority, Problem> {
    let mut values = headers.get_all(HOST).iter();
    let (Some(host), None) = (values.next(), values.next()) else {
        return Err(malformed("send exactly one Host header"));
    };
    Authority::try_from(host.as_bytes())
        .ok()
        .filter(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
        .ok_or_else(|| malformed("the Host header must be a host and an optional port"))
}

/// The target as path and query; in absolute form it must name the same host as the Host header.
fn origin_form(target: &Uri, host: &Authority) -> Result<Uri, Problem> {
    if let Some(authority) = target.authority()
        && authority != host
    {
        return Err(malformed("the target names another host than the Host header"));
    }
    let path = target.path_and_query().filter(|path| path.as_str().starts_with('/'));
    let path = path.ok_or_else(|| malformed("the target must be a path"))?;
    if path.as_str().len() > TARGET_LIMIT {
        return Err(Problem {
            status: StatusCode::URI_TOO_LONG,
            code: "target-too-long",
            title: "The target is too long",
            detail: format!("a target may have at most {TARGET_LIMIT} bytes"),
        });
    }
    Ok(Uri::from(PathAndQuery::clone(path)))
}

/// What would leave it open where the body ends, or turn the connection into something else.
fn check_framing(headers: &HeaderMap) -> Result<(), Problem> {
    let codings: Vec<&HeaderValue> = headers.get_all(TRANSFER_ENCODING).iter().collect();
    match codings.as_slice() {
        [] => {}
        [coding] if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {}
        [_, ..] => return Err(malformed("Transfer-Encoding must be exactly: chunked")),
    }
    // hyper folds equal lengths and drops one that stands beside chunked (after which it closes the connection), so this
    // catches only what a later hyper may let through.
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    if lengths > 1 || (lengths == 1 && !codings.is_empty()) {
        return Err(malformed("the body's length is given more than once"));
    }
    if headers.contains_key(UPGRADE) {
        return Err(malformed("Upgrade is not supported"));
    }
    let expects_other =
        headers.get_all(EXPECT).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if expects_other {
        return Err(Problem {
            status: StatusCode::EXPECTATION_FAILED,
            code: "expectation-failed",
            title: "The expectation cannot be met",
            detail: "only Expect: 100-continue is supported".into(),
        });
    }
    Ok(())
}

/// `Connection` may not take away what decides who asks for what.
fn check_connection(headers: &HeaderMap) -> Result<(), Problem> {
    const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
    let vital = [HOST, AUTHORIZATION, CONTENT_LENGTH, IDEMPOTENCY_KEY];
    let taken = named_by_connection(headers);
    match taken.iter().find(|name| vital.contains(name) || name.as_str().starts_with(RESERVED_PREFIX)) {
        Some(name) => Err(malformed(format!("Connection must not name {name}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, target: &str, lines: &[(&str, &str)]) -> Result<Request<()>, Problem> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        admit(request.body(()).unwrap(), "192.0.2.7:99".parse().unwrap(), &Door::Public(None))
    }

    const HOST: (&str, &str) = ("Host", "api.example");

    /// Method, target, headers, and the status that refuses them.
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);

    #[test]
    fn what_is_in_doubt_is_refused() {
        let long = format!("/{}", "a".repeat(TARGET_LIMIT));
        let table: &[Case] = &[
            ("GET", "/", &[], 400),
            ("GET", "/", &[HOST, HOST], 400),
            ("GET", "/", &[("Host", "")], 400),
            ("GET", "/", &[("Host", "user@api.example")], 400),
            ("GET", "/", &[("Host", "a, b")], 400),
            ("GET", "http://other.example/", &[HOST], 400),
            ("GET", "http://api.example:81/", &[HOST], 400),
            ("OPTIONS", "*", &[HOST], 400),
            ("CONNECT", "api.example:80", &[HOST], 501),
            ("TRACE", "/", &[HOST], 501),
            ("GET", &long, &[HOST], 414),
            ("POST", "/", &[HOST, ("Transfer-Encoding", "gzip, chunked")], 400),
            ("POST", "/", &[HOST, ("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")], 400),
            ("POST", "/", &[HOST, ("Content-Length", "1"), ("Content-Length", "1")], 400),
            ("POST", "/", &[HOST, ("Content-Length", "1"), ("Transfer-Encoding", "chunked")], 400),
            ("GET", "/", &[HOST, ("Upgrade", "websocket"), ("Connection", "upgrade")], 400),
            ("POST", "/", &[HOST, ("Expect", "everything")], 417),
            ("POST", "/", &[HOST, ("Connection", "close, Idempotency-Key")], 400),
            ("POST", "/", &[HOST, ("Connection", "authorization")], 400),
            ("POST", "/", &[HOST, ("Connection", "Content-Length")], 400),
            ("POST", "/", &[HOST, ("Connection", "onceway-token")], 400),
            ("POST", "/", &[HOST, ("Connection", "host")], 400),
        ];
        for (method, target, lines, status) in table {
            let problem = ask(method, target, lines).expect_err(&format!("{method} {target} {lines:?}"));
            assert_eq!(problem.status.as_u16(), *status, "{method} {target} {lines:?}");
        }
    }

    #[test]
    fn the_service_sees_end_to_end_headers_and_an_origin_form() {
        let lines = [
            ("Host", "API.example"),
            ("Connection", "keep-alive, X-Private"),
            ("X-Private", "1"),
            ("Onceway-Tenant", "forged"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("X-Forwarded-Port", "1"),
            ("Transfer-Encoding", "Chunked"),
            ("Expect", "100-continue"),
            ("Accept", "a"),
        ];
        let request = ask("POST", "http://api.example/v1/%2e?x=/", &lines).unwrap();
        assert_eq!(request.uri().to_string(), "/v1/%2e?x=/");
        let mut seen: Vec<(&str, &str)> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [
                ("accept", "a"),
                ("expect", "100-continue"),
                ("host", "API.example"),
                ("x-forwarded-for", "192.0.2.7"),
                ("x-forwarded-host", "API.example"),
                ("x-forwarded-proto", "http"),
            ]
        );
    }
}
