//! Settings of the upstreams: addresses, bounds, certificates, and credentials, which the gateway
//! sends in place of the client's own.
//!
//! Nothing but this room knows a credential. A 401 or 403 to it is marked: the gateway says whether
//! it is an answer to the client's request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, COOKIE};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use rustls::pki_types::ServerName;

use super::dial::{Tls, TlsFiles};
use super::endpoints::Target;
use crate::adapters::headers::strip_look_alikes;
use crate::adapters::identity::IdentityError;
use crate::ports::upstream::CredentialRefused;
use crate::protocol::region::RegionName;

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

    pub(super) fn target(&self, server: Option<&ServerName<'static>>) -> Target {
        // What `parse` takes for a host is a name or an address.
        let own = || ServerName::try_from(bare(&self.authority).to_owned()).expect("a host has a name");
        Target {
            host: self.authority.host().to_owned(),
            port: self.port(),
            authority: HeaderValue::from_str(self.authority.as_str()).expect("an authority is visible ASCII"),
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

/// Bounds of an upstream's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest time without a request.
    pub keep_idle: Duration,
    /// The same, for a request that may change state.
    pub write_idle: Duration,
    /// Greatest age of a connection that takes another request.
    pub max_age: Duration,
    /// Most connections to one endpoint.
    pub connections: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            keep_idle: Duration::from_secs(2),
            // Some upstreams close after a second and send no `Keep-Alive`.
            write_idle: Duration::from_millis(500),
            max_age: Duration::from_secs(300),
            connections: 10_000,
        }
    }
}

impl Bounds {
    /// Longest time without a request of a connection that takes this one: it must be fresh unless
    /// the request is safe.
    pub(super) fn idle_for(&self, method: &Method) -> Duration {
        if method.is_safe() { self.keep_idle } else { self.keep_idle.min(self.write_idle) }
    }
}

/// The `Host` header that an upstream gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// As its address is written.
    Upstream,
    /// The client's own.
    Keep,
    /// This one.
    Named(HeaderValue),
}

/// Services whose certificates and credentials are read again while a process runs, by name.
pub struct Renewable(BTreeMap<Option<Arc<str>>, ServiceSettings>);

impl UpstreamSettings {
    /// Certificates and credentials. All copies of the settings share them.
    pub fn renewable(&self) -> Renewable {
        let named = self.named.iter().map(|(name, (settings, _))| (Some(name.clone()), settings.clone()));
        Renewable([(None, self.own.clone())].into_iter().chain(named).collect())
    }
}

impl Renewable {
    /// Takes those of `newer` for all later connections and requests. A service that is elsewhere
    /// in `newer` keeps its own: its new place waits for a restart, and so do they.
    pub fn renew(&self, newer: &Self) {
        // The place and the header that they are sent to: others must not be sent there.
        let place = |ServiceSettings { addresses, server_name, credential, .. }: &ServiceSettings| {
            let header = credential.as_ref().map(|credential| &credential.header);
            format!("{addresses:?} {server_name:?} {header:?}")
        };
        for (name, now) in &self.0 {
            let newer = newer.0.get(name).filter(|newer| place(newer) == place(now));
            let Some(newer) = newer else { continue };
            now.tls.renew(&newer.tls);
            if let (Some(now), Some(newer)) = (&now.credential, &newer.credential) {
                now.renew(newer);
            }
        }
    }
}

/// A credential of an upstream: a header, and the value that it has now. It takes the place of the
/// client's own at the moment of sending. No store, job, forward or log holds it.
#[derive(Debug)]
pub struct Credential {
    pub(super) header: HeaderName,
    value: ArcSwap<HeaderValue>,
    refused: AtomicBool,
}

impl Credential {
    /// Makes a credential. Its value is never shown, not by `Debug` either.
    pub fn new(header: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self { header, value: ArcSwap::from_pointee(value), refused: AtomicBool::new(false) }
    }

    /// Takes the value of `newer` for all later requests.
    pub fn renew(&self, newer: &Self) {
        self.value.store(newer.value.load_full());
    }

    /// Replaces the client's credentials.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        headers.remove(COOKIE);
        strip_look_alikes(headers, &self.header);
        headers.insert(self.header.clone(), HeaderValue::clone(&self.value.load()));
    }

    /// Marks an answer that may be to our credential. Logged once, until it is taken again.
    pub(super) fn judge<B>(&self, answer: &mut Response<B>) {
        let status = answer.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            answer.extensions_mut().insert(CredentialRefused);
            if !self.refused.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    status = status.as_u16(),
                    header = %self.header,
                    "the upstream refuses our credential: look at its value_file"
                );
            }
        } else if status.is_success() && self.refused.load(Ordering::Relaxed) {
            self.refused.store(false, Ordering::Relaxed);
            tracing::info!("the upstream takes our credential again");
        }
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
}
