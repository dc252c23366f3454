//! The protected service over HTTP/1.1: the form of requests to it, and the meaning of its answers
//! to probes.
//!
//! `connection` carries the bytes; `headers` has the rules for headers. This file must not follow
//! redirects, resend, or read meaning into the status of an answer. Only a probe's reply is
//! interpreted, and strictly: an unclear reply means "cannot say".

mod connection;
mod dial;
mod endpoints;
mod idle;
mod settings;
mod upload;
mod verdict;

pub(crate) use dial::writes_through;
pub use dial::{Tls, TlsFiles};
pub use settings::{Base, BaseError, Bounds, Credential, Host, Renewable, ServiceSettings, UpstreamSettings};
pub(super) use verdict::describe;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};

use self::connection::{Limit, Service};
use super::headers::{RESERVED_PREFIX, strip_hop_by_hop, strip_prefix};
use crate::ports::body::{Collected, collect, empty, full};
use crate::ports::upstream::{
    self, EffectTokens, ForwardKey, KeyForm, Probe, ProbeReply, SendError, Upstream,
};
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
/// Optional: the tokens of all effects of the key, as the upstream got them.
const EFFECT_TOKENS: HeaderName = HeaderName::from_static("onceway-effect-tokens");

/// The upstreams of this region, and the default ones of other regions for probes.
pub struct HttpUpstream {
    me: RegionName,
    own: Service,
    shared: bool,
    others: BTreeMap<RegionName, Service>,
    named: BTreeMap<Arc<str>, (Service, bool)>,
}

impl HttpUpstream {
    /// Makes the upstreams. Connects to nothing yet.
    pub fn new(settings: &UpstreamSettings) -> Self {
        let UpstreamSettings { me, own, shared, others, named } = settings;
        let is_encrypted = own.addresses.iter().any(Base::is_encrypted);
        let elsewhere = |base: &Base| ServiceSettings {
            addresses: vec![base.clone()],
            // These are the own one's.
            host: Host::Upstream,
            server_name: None,
            // What goes by TLS here goes nowhere in the clear.
            credential: own.credential.clone().filter(|_| base.is_encrypted() || !is_encrypted),
            ..own.clone()
        };
        Self {
            me: me.clone(),
            own: Service::new(own.clone()),
            shared: *shared,
            others: others.iter().map(|(at, base)| (at.clone(), Service::new(elsewhere(base)))).collect(),
            named: named
                .iter()
                .map(|(name, (settings, shared))| (name.clone(), (Service::new(settings.clone()), *shared)))
                .collect(),
        }
    }

    /// The service that a route names, or the default one.
    fn service(&self, name: Option<&str>) -> Result<&Service, String> {
        let Some(name) = name else { return Ok(&self.own) };
        let found = self.named.get(name).map(|(service, _)| service);
        found.ok_or_else(|| format!("this gateway has no [upstreams.{name}]"))
    }

    /// The service that knows about attempts of `region`.
    fn witness(&self, name: Option<&str>, region: Option<&RegionName>) -> Result<&Service, String> {
        let own = self.service(name)?;
        let shared = name.map_or(self.shared, |name| self.named.get(name).is_some_and(|(_, shared)| *shared));
        match region {
            _ if shared => Ok(own),
            Some(region) if *region == self.me => Ok(own),
            Some(region) => {
                let other = self.others.get(region).filter(|_| name.is_none());
                other.ok_or_else(|| format!("the upstream of region {region} is not known here"))
            }
            None => Err("nobody knows which region made the attempt, and upstreams are not shared".into()),
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
        let service = self.service(send.upstream.as_deref()).map_err(SendError::NotSent)?;
        let mut headers = send.headers;
        prepare(&mut headers);
        put_key(&mut headers, send.id.key(), send.key);
        name_attempt(&mut headers, &send.id, send.token);
        headers.insert(ATTEMPT, HeaderValue::from(send.token.attempts()));
        headers.insert(REQUEST_ID, header(&send.request_id.to_string()).expect("an id is visible ASCII"));
        if !send.body.is_empty() || [Method::POST, Method::PUT, Method::PATCH].contains(&send.method) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(send.body.len()));
        }
        let request = assemble(send.method, &send.target, headers, full(send.body));
        service.exchange(request, Limit::Whole(within), may_send).await.map(cleaned)
    }

    async fn probe(&self, probe: Probe, within: Duration, limit: usize) -> ProbeReply {
        ask(self.witness(probe.upstream.as_deref(), probe.region.as_ref()), &probe, within, limit)
            .await
            .unwrap_or_else(ProbeReply::CannotSay)
    }

    async fn check(&self, path: &Uri, within: Duration) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let request = assemble(Method::GET, path, headers, empty());
        let answered = self.own.exchange(request, Limit::Whole(within), always).await;
        let answer = answered.map_err(|error| error.to_string())?;
        match answer.status() {
            status if status.is_success() || status.is_redirection() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }

    async fn pass(
        &self,
        upstream: Option<&str>,
        request: Request<Body>,
        within: Duration,
    ) -> Result<Response<Body>, SendError> {
        let service = self.service(upstream).map_err(SendError::NotSent)?;
        let (head, body) = request.into_parts();
        let mut headers = head.headers;
        prepare(&mut headers);
        let request = assemble(head.method, &head.uri, headers, body);
        service.exchange(request, Limit::Each(within), always).await.map(cleaned)
    }
}

/// Permission to send a request without a key: only the caller's own wish is needed.
fn always() -> bool {
    true
}

/// Leaves the client's end-to-end headers. The length is stated anew from the body itself.
fn prepare(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    strip_prefix(headers, RESERVED_PREFIX);
    headers.remove(CONTENT_LENGTH);
    // The listener has answered it already.
    headers.remove(EXPECT);
}

/// Writes the key into its header, and nowhere else.
fn put_key(headers: &mut HeaderMap, key: &Key, ForwardKey { header, form }: ForwardKey) {
    let written = headers.remove(IDEMPOTENCY_KEY);
    let value = match (form, written) {
        (KeyForm::AsSent, Some(written)) => written,
        (KeyForm::Bare, _) => self::header(key.as_str()).expect("a key is visible ASCII"),
        (KeyForm::Quoted | KeyForm::AsSent, _) => quoted(key),
    };
    headers.insert(header, value);
}

fn name_attempt(headers: &mut HeaderMap, id: &KeyId, token: Token) {
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

/// Makes a request to exactly the path and query of `target`: nothing decoded or joined.
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
    headers.insert(IDEMPOTENCY_KEY, quoted(probe.id.key()));
    name_attempt(&mut headers, &probe.id, probe.token);
    headers.insert(EFFECT_PATH, header(&probe.path)?);
    // The key is not in the URL: a cache on the way must not give one key's answer to another.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let request = assemble(Method::GET, &probe.address, headers, empty());
    let asked = witness.exchange(request, Limit::Whole(within), always).await;
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
    let tokens = reply.headers().contains_key(&EFFECT_TOKENS).then(|| effect_tokens(reply.headers()));
    let tokens = tokens.transpose()?;
    let (mut head, body) = cleaned(reply).into_parts();
    if let Some(tokens) = tokens {
        head.extensions.insert(tokens);
    }
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

fn effect_tokens(headers: &HeaderMap) -> Result<EffectTokens, String> {
    let text = only(headers, &EFFECT_TOKENS)?;
    let one = |token: &str| {
        let (epoch, attempt) = token.trim().split_once('.')?;
        Some(Token { epoch: epoch.parse().ok()?, attempt: attempt.parse().ok()? })
    };
    let all = text.split(',').map(one).collect::<Option<Vec<Token>>>();
    all.map(EffectTokens).ok_or_else(|| format!("{EFFECT_TOKENS} {text:?} is no list of tokens"))
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
    fn keys_are_written_as_strings() {
        let key = |text: &str| quoted(&Key::parse(text).unwrap());
        assert_eq!(key("abc"), "\"abc\"");
        assert_eq!(key(r#"a"\b"#), r#""a\"\\b""#);
    }
}
