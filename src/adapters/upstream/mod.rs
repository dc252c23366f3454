//! The protected service over HTTP/1.1: the form of requests to it, and the meaning of its answers
//! to probes.
//!
//! `connection` carries the bytes; `headers` has the rules for headers. This file must not follow
//! redirects, resend, or read meaning into the status of an answer. Only a probe's reply is
//! interpreted, and strictly: an unclear reply means "cannot say".

mod connection;
mod credential;
mod dial;
mod endpoints;
mod idle;
mod strict;
mod upload;
mod verdict;

pub use connection::{Bounds, Host};
pub use credential::Credential;
pub use dial::{Tls, TlsFiles};
pub(crate) use strict::writes_through;
pub(super) use verdict::describe;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use rustls::pki_types::ServerName;

use self::connection::{Limit, Pool};
use self::endpoints::{Endpoints, Target};
use super::headers::{RESERVED_PREFIX, strip_hop_by_hop, strip_prefix};
use super::identity::IdentityError;
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

/// Address of an upstream: `http://host:port` or `https://host:port`; the port may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    authority: Authority,
    is_encrypted: bool,
}

/// Error for a text that is not an upstream's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} must be written http://host:port or https://host:port, without user, path or query")]
pub struct BaseError(String);

impl Base {
    /// Reads an address. Fails for any text that is not exactly scheme, host and optional port. A
    /// trailing `/` is allowed.
    pub fn parse(text: &str) -> Result<Self, BaseError> {
        let wrong = || BaseError(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_encrypted = scheme == "https";
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let authority: Authority = rest.parse().map_err(|_| wrong())?;
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_right = (is_encrypted || scheme == "http")
            && !authority.as_str().contains('@')
            && !authority.host().is_empty()
            && match &authority.as_str()[authority.host().len()..] {
                "" => true,
                port => port.strip_prefix(':').is_some_and(is_port),
            }
            && (!is_encrypted || ServerName::try_from(bare(&authority)).is_ok());
        if is_right { Ok(Self { authority, is_encrypted }) } else { Err(wrong()) }
    }

    /// True if it is reached by TLS.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// True if a certificate can name its host: no bare address is asked for by SNI (RFC 6066).
    pub fn has_name(&self) -> bool {
        matches!(ServerName::try_from(self.authority.host()), Ok(ServerName::DnsName(_)))
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_encrypted { 443 } else { 80 })
    }

    fn target(&self, server: Option<&ServerName<'static>>) -> Target {
        // What `parse` takes for a host is a name or an address.
        let own = || ServerName::try_from(bare(&self.authority).to_owned()).expect("a host has a name");
        Target {
            host: self.authority.host().to_owned(),
            port: self.port(),
            authority: header(self.authority.as_str()).expect("an authority is visible ASCII"),
            tls: self.is_encrypted.then(|| server.cloned().unwrap_or_else(own)),
        }
    }
}

/// The host without the brackets of an address.
fn bare(authority: &Authority) -> &str {
    authority.host().trim_start_matches('[').trim_end_matches(']')
}

impl fmt::Display for Base {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(out, "{scheme}://{}", self.authority)
    }
}

/// Settings of one service.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Its addresses. Every address of a name is an endpoint.
    pub addresses: Vec<Base>,
    /// The `Host` header that it gets.
    pub host: Host,
    /// Bounds of its connections.
    pub bounds: Bounds,
    /// Period after which names are asked for their addresses anew.
    pub resolve_every: Duration,
    /// The name that its certificates must have, if not the host's.
    pub server_name: Option<ServerName<'static>>,
    /// Used for the addresses that are `https://`.
    pub tls: Arc<Tls>,
    /// Credential that takes the place of the client's `Authorization`.
    pub credential: Option<Arc<Credential>>,
}

impl ServiceSettings {
    /// A service at one address, with the defaults of the configuration. No file is read, so it
    /// never fails.
    pub fn at(address: Base) -> Result<Self, IdentityError> {
        let tls = Arc::new(Tls::load(&TlsFiles::default())?);
        Ok(Self {
            addresses: vec![address],
            host: Host::Upstream,
            bounds: Bounds::default(),
            resolve_every: Duration::from_secs(5),
            server_name: None,
            tls,
            credential: None,
        })
    }
}

/// Settings of the upstreams.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// This region.
    pub me: RegionName,
    /// This region's default upstream.
    pub own: ServiceSettings,
    /// True if any region's default upstream can answer any probe.
    pub shared: bool,
    /// Other regions' default upstreams, for probes only.
    pub others: BTreeMap<RegionName, Base>,
    /// Services that routes name; true if any region's can answer any probe.
    pub named: BTreeMap<Arc<str>, (ServiceSettings, bool)>,
}

/// Parts of the upstreams that are read again while a process runs, by name.
pub struct Renewable(BTreeMap<Option<Arc<str>>, Secrets>);

struct Secrets {
    /// Place and header that they are sent to: others must not be sent there.
    place: String,
    tls: Arc<Tls>,
    credential: Option<Arc<Credential>>,
}

impl UpstreamSettings {
    /// Certificates and credentials. All copies of the settings share them.
    pub fn renewable(&self) -> Renewable {
        let of = |settings: &ServiceSettings| {
            let ServiceSettings { addresses, server_name, tls, credential, .. } = settings;
            let header = credential.as_ref().map(|credential| &credential.header);
            let place = format!("{addresses:?} {server_name:?} {header:?}");
            Secrets { place, tls: tls.clone(), credential: credential.clone() }
        };
        let named = self.named.iter().map(|(name, (settings, _))| (Some(name.clone()), of(settings)));
        Renewable([(None, of(&self.own))].into_iter().chain(named).collect())
    }
}

impl Renewable {
    /// Takes those of `newer` for all later connections and requests. A service that is elsewhere
    /// in `newer` keeps its own: its new place waits for a restart, and so do they.
    pub fn renew(&self, newer: &Self) {
        for (name, now) in &self.0 {
            let Some(newer) = newer.0.get(name).filter(|newer| newer.place == now.place) else { continue };
            now.tls.renew(&newer.tls);
            if let (Some(now), Some(newer)) = (&now.credential, &newer.credential) {
                now.renew(newer);
            }
        }
    }
}

/// The upstreams of this region, and the default ones of other regions for probes.
pub struct HttpUpstream {
    me: RegionName,
    own: Service,
    shared: bool,
    others: BTreeMap<RegionName, Service>,
    named: BTreeMap<Arc<str>, (Service, bool)>,
}

struct Service {
    pool: Pool,
    credential: Option<Arc<Credential>>,
}

impl Service {
    fn new(settings: &ServiceSettings) -> Self {
        let ServiceSettings { addresses, host, bounds, resolve_every, server_name, tls, credential } =
            settings;
        let targets = addresses.iter().map(|base| base.target(server_name.as_ref())).collect();
        let endpoints = Endpoints::new(targets, *resolve_every, endpoints::system);
        let pool = Pool::new(endpoints, bounds.clone(), host.clone(), tls.clone());
        Self { pool, credential: credential.clone() }
    }

    /// Sends once.
    async fn exchange(
        &self,
        mut request: Request<Body>,
        limit: Limit,
        may_send: impl Fn() -> bool,
    ) -> Result<Response<Body>, SendError> {
        if let Some(credential) = &self.credential {
            credential.put(request.headers_mut());
        }
        let mut answer = self.pool.exchange(request, limit, may_send).await?;
        if let Some(credential) = &self.credential {
            credential.judge(&mut answer);
        }
        Ok(answer)
    }
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
            own: Service::new(own),
            shared: *shared,
            others: others.iter().map(|(at, base)| (at.clone(), Service::new(&elsewhere(base)))).collect(),
            named: named
                .iter()
                .map(|(name, (settings, shared))| (name.clone(), (Service::new(settings), *shared)))
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
    fn addresses() {
        for (text, port, is_encrypted, has_name) in [
            ("http://127.0.0.1:8080", 8080, false, false),
            ("http://upstream/", 80, false, true),
            ("http://[::1]:9", 9, false, false),
            ("https://api.example", 443, true, true),
            ("https://10.0.0.1:8443/", 8443, true, false),
        ] {
            let base = Base::parse(text).unwrap();
            assert_eq!((base.port(), base.is_encrypted(), base.has_name()), (port, is_encrypted, has_name));
            assert_eq!(base.to_string(), text.strip_suffix('/').unwrap_or(text));
        }
        for bad in [
            "",
            "upstream:80",
            "ftp://a",
            "https://",
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
