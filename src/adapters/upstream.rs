//! The protected service over HTTP/1.1: the form of requests to it, and the meaning of its answers
//! to probes.
//!
//! `connection` carries the bytes; `headers` has the rules for headers. This file must not follow
//! redirects, resend, or read meaning into the status of an answer. Only a probe's reply is
//! interpreted, and strictly: an unclear reply means "cannot say".

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};

use super::connection::{Limit, Pool};
use super::headers::{RESERVED_PREFIX, strip_hop_by_hop, strip_prefix};
use crate::ports::body::{Collected, collect, empty, full};
use crate::ports::upstream::{self, Probe, ProbeReply, SendError, Upstream};
use crate::ports::{Body, BodyError};
use crate::protocol::key::{Key, KeyId};
use crate::protocol::record::Token;
use crate::protocol::region::RegionName;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TENANT: HeaderName = HeaderName::from_static("onceway-tenant");
const ATTEMPT: HeaderName = HeaderName::from_static("onceway-attempt");
const TOKEN: HeaderName = HeaderName::from_static("onceway-token");
const REQUEST_ID: HeaderName = HeaderName::from_static("onceway-request-id");
const EFFECT: HeaderName = HeaderName::from_static("onceway-effect");
const EFFECT_PATH: HeaderName = HeaderName::from_static("onceway-effect-path");
const EFFECT_STATUS: HeaderName = HeaderName::from_static("onceway-effect-status");

/// Address of an upstream: `http://host` or `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base(Authority);

/// Error for a text that is not an upstream's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstream address {0:?} must be written http://host:port, without user, path or query")]
pub struct BaseError(String);

impl Base {
    /// Reads an address. Only plain HTTP so far: `config/us-east.toml` has the advice about TLS.
    ///
    /// # Errors
    /// Any text that is not exactly scheme, host and optional port. A trailing `/` is allowed.
    pub fn parse(text: &str) -> Result<Self, BaseError> {
        let wrong = || BaseError(text.to_owned());
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let authority: Authority = rest.parse().map_err(|_| wrong())?;
        if authority.as_str().contains('@') {
            return Err(wrong());
        }
        let port = &authority.as_str()[authority.host().len()..];
        let port_is_wrong = !port.is_empty()
            && port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0);
        if authority.host().is_empty() || port_is_wrong {
            return Err(wrong());
        }
        Ok(Self(authority))
    }

    fn dialled(&self) -> String {
        format!("{}:{}", self.0.host(), self.0.port_u16().unwrap_or(80))
    }
}

impl fmt::Display for Base {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "http://{}", self.0)
    }
}

/// Settings of the upstreams.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// This region.
    pub me: RegionName,
    /// This region's upstream.
    pub base: Base,
    /// Other regions' upstreams, for probes only.
    pub others: BTreeMap<RegionName, Base>,
    /// True if all upstreams know of all effects, so that any may answer any probe.
    pub shared: bool,
    /// Time for which an idle connection is kept. Stay below the upstream's own keep-alive time.
    pub keep_idle: Duration,
}

/// The upstream of this region, and the upstreams of other regions for probes.
#[derive(Debug)]
pub struct HttpUpstream {
    me: RegionName,
    shared: bool,
    own: Service,
    others: BTreeMap<RegionName, Service>,
}

#[derive(Debug)]
struct Service {
    host: HeaderValue,
    pool: Pool,
}

impl Service {
    fn new(base: &Base, keep_idle: Duration) -> Self {
        let host = HeaderValue::from_str(base.0.as_str()).expect("an authority is visible ASCII");
        Self { host, pool: Pool::new(base.dialled(), keep_idle) }
    }
}

impl HttpUpstream {
    /// Makes the upstreams. Connects to nothing yet.
    pub fn new(settings: UpstreamSettings) -> Self {
        let others = settings.others.iter();
        Self {
            own: Service::new(&settings.base, settings.keep_idle),
            others: others
                .map(|(region, base)| (region.clone(), Service::new(base, settings.keep_idle)))
                .collect(),
            shared: settings.shared,
            me: settings.me,
        }
    }

    /// The upstream that knows about attempts of `region`.
    fn witness(&self, region: Option<&RegionName>) -> Result<&Service, String> {
        match region {
            _ if self.shared => Ok(&self.own),
            Some(region) if *region == self.me => Ok(&self.own),
            Some(region) => {
                let other = self.others.get(region);
                other.ok_or_else(|| format!("the upstream of region {region} is not known here"))
            }
            None => {
                Err("nobody knows which region made the attempt, and upstreams are not shared".to_owned())
            }
        }
    }
}

impl Upstream for HttpUpstream {
    async fn send(
        &self,
        send: upstream::Send,
        within: Duration,
        may_send: impl Fn() -> bool + Send + Sync,
    ) -> Result<Response<Body>, SendError> {
        let mut headers = send.headers;
        prepare(&mut headers, &self.own.host);
        name_attempt(&mut headers, &send.id, send.token);
        headers.insert(ATTEMPT, HeaderValue::from(send.token.attempts()));
        headers.insert(REQUEST_ID, header(&send.request_id.to_string()).expect("an id is visible ASCII"));
        if !send.body.is_empty() || [Method::POST, Method::PUT, Method::PATCH].contains(&send.method) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(send.body.len()));
        }
        let request = assemble(send.method, &send.target, headers, full(send.body));
        self.own.pool.exchange(request, Limit::Whole(within), may_send).await.map(cleaned)
    }

    async fn probe(&self, probe: Probe, within: Duration, limit: usize) -> ProbeReply {
        ask(self.witness(probe.region.as_ref()), &probe, within, limit)
            .await
            .unwrap_or_else(ProbeReply::CannotSay)
    }

    async fn check(&self, path: &Uri, within: Duration) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, self.own.host.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let request = assemble(Method::GET, path, headers, empty());
        let answered = self.own.pool.exchange(request, Limit::Whole(within), always).await;
        let answer = answered.map_err(|error| error.to_string())?;
        match answer.status() {
            status if status.is_success() || status.is_redirection() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }

    async fn pass(&self, request: Request<Body>, within: Duration) -> Result<Response<Body>, SendError> {
        let (head, body) = request.into_parts();
        let mut headers = head.headers;
        prepare(&mut headers, &self.own.host);
        let request = assemble(head.method, &head.uri, headers, body);
        self.own.pool.exchange(request, Limit::Each(within), always).await.map(cleaned)
    }
}

/// Permission to send a request without a key: only the caller's own wish is needed.
fn always() -> bool {
    true
}

/// Leaves the client's end-to-end headers and names the host.
///
/// The length is removed; it is stated anew from the body itself.
fn prepare(headers: &mut HeaderMap, host: &HeaderValue) {
    strip_hop_by_hop(headers);
    strip_prefix(headers, RESERVED_PREFIX);
    headers.remove(CONTENT_LENGTH);
    // The listener has answered it already.
    headers.remove(EXPECT);
    headers.insert(HOST, host.clone());
}

fn name_attempt(headers: &mut HeaderMap, id: &KeyId, token: Token) {
    headers.insert(IDEMPOTENCY_KEY, quoted(id.key()));
    // Both alphabets are within visible ASCII.
    headers.insert(TENANT, header(id.tenant().as_str()).expect("a tenant is visible ASCII"));
    headers.insert(TOKEN, header(&token.to_string()).expect("a token is visible ASCII"));
}

/// The key as an RFC 8941 string (section 4.1.6).
fn quoted(key: &Key) -> HeaderValue {
    let mut text = String::with_capacity(key.as_str().len() + 2);
    text.push('"');
    for character in key.as_str().chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
    header(&text).expect("a key is visible ASCII")
}

fn header(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "a header value may not hold control characters".into())
}

/// Makes a request whose target is exactly the path and query of `target`: nothing decoded, nothing
/// joined.
fn assemble(method: Method, target: &Uri, headers: HeaderMap, body: Body) -> Request<Body> {
    let path = target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(path);
    *request.headers_mut() = headers;
    *request.version_mut() = Version::HTTP_11;
    request
}

/// Removes the headers that ended at this hop, and names that only onceway may write.
fn cleaned(mut answer: Response<Body>) -> Response<Body> {
    strip_hop_by_hop(answer.headers_mut());
    strip_prefix(answer.headers_mut(), RESERVED_PREFIX);
    answer
}

/// Sends a probe and reads the reply. An error is the reason why the upstream cannot say.
async fn ask(
    witness: Result<&Service, String>,
    probe: &Probe,
    within: Duration,
    limit: usize,
) -> Result<ProbeReply, String> {
    let witness = witness?;
    if probe.address.authority().is_some() {
        return Err("the status address must be a path on the upstream".into());
    }
    let mut headers = HeaderMap::new();
    headers.insert(HOST, witness.host.clone());
    name_attempt(&mut headers, &probe.id, probe.token);
    headers.insert(EFFECT_PATH, header(&probe.path)?);
    // The key is not in the URL: a cache on the way must not give one key's answer to another.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let request = assemble(Method::GET, &probe.address, headers, empty());
    let asked = witness.pool.exchange(request, Limit::Whole(within), always).await;
    let reply = asked.map_err(|error| error.to_string())?;
    let status = reply.status();
    let effect = only(reply.headers(), &EFFECT)?.to_owned();
    match (effect.as_str(), status) {
        ("none", StatusCode::NOT_FOUND) => Ok(ProbeReply::DidNotHappen),
        ("happened", StatusCode::OK) => happened(reply, limit).await,
        (other, status) => Err(format!("the status address said {other:?} with {status}")),
    }
}

async fn happened(reply: Response<Body>, limit: usize) -> Result<ProbeReply, String> {
    let status = only(reply.headers(), &EFFECT_STATUS)?;
    let status = StatusCode::from_bytes(status.as_bytes())
        .ok()
        .filter(|status| (200..600).contains(&status.as_u16()))
        .ok_or_else(|| format!("{EFFECT_STATUS} {status:?} is no final status"))?;
    let (mut head, body) = cleaned(reply).into_parts();
    // The whole body is stored beside the headers. If it was left out, its length is meaningless.
    head.headers.remove(CONTENT_LENGTH);
    head.status = status;
    let body = match collect(body, limit).await {
        Ok(Collected::Whole(bytes)) => Some(bytes),
        Ok(Collected::Over(_, _)) => None,
        Err(BodyError(why)) => return Err(why),
    };
    Ok(ProbeReply::Happened(Response::from_parts(head, body)))
}

/// The value of a header that must occur exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| format!("{name} is not ASCII")),
        (None, _) => Err(format!("the status address sent no {name}")),
        (Some(_), Some(_)) => Err(format!("the status address sent {name} twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, dialled) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://upstream/", "upstream:80"),
            ("http://[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(Base::parse(text).unwrap().dialled(), dialled);
        }
        for bad in [
            "",
            "upstream:80",
            "https://a",
            "http://",
            "http:///",
            "http://u@a:1",
            "http://a:1/b",
            "http://a:1?x",
            "http://a:0",
            "http://a:99999",
            "http://a:",
        ] {
            assert!(Base::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_are_written_as_strings() {
        let key = |text: &str| quoted(&Key::parse(text).unwrap());
        assert_eq!(key("abc"), "\"abc\"");
        assert_eq!(key(r#"a"\b"#), r#""a\"\\b""#);
    }
}
