//! CORS for the origins of `[listen.cors]` (Fetch Standard, "HTTP-redirects and CORS protocol").
//!
//! Every answer to such an origin carries the headers, refusals and replays too: they are written
//! at the listener, and nothing stores them. Nothing is refused here: an origin that is not listed
//! gets no headers, and its browser refuses by itself.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use crate::config::listen::Edge;
use crate::ports::{Body, body};

/// Headers that a page may read beside those that every page may.
const EXPOSED: &str = "Idempotency-Key, Idempotent-Replayed, Idempotency-Expires, Original-Request-Id, \
    Onceway-Request-Id, Onceway-Region, Retry-After, Location, Link";
/// Seconds for which a browser remembers a preflight.
const MAX_AGE: &str = "600";

/// The listed origin of a request, if it has one.
pub fn origin(headers: &HeaderMap, edge: &Edge) -> Option<HeaderValue> {
    if edge.cors.is_empty() {
        return None;
    }
    let mut all = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (all.next(), all.next()) else { return None };
    edge.cors.contains(origin).then(|| origin.clone())
}

/// The answer to a preflight of a listed origin; `None` if the request is none.
pub fn preflight<B>(request: &Request<B>) -> Option<Response<Body>> {
    let headers = request.headers();
    let method =
        headers.get(ACCESS_CONTROL_REQUEST_METHOD).filter(|_| request.method() == Method::OPTIONS)?;
    let mut answer = Response::new(body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(asked) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    answer.headers_mut().insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    Some(answer)
}

/// Writes the headers for this origin, in place of the upstream's.
pub fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(VARY, HeaderValue::from_static("Origin"));
}
