//! `[listen]` of a region file: addresses, TLS for clients, and the bounds of one client.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderValue, Uri};
use toml::de::DeValue;

use super::reader::{self, Section};
use super::trusted::{self, Network, Trusted};
use super::values::{check_files, socket};
use crate::adapters;
use crate::gateway::limits::concurrency::MostAtOnce;

/// Addresses and bounds of a gateway's listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// For clients; plain HTTP unless there is `tls`.
    pub public: SocketAddr,
    /// For operators and health checks; plain HTTP unless `[admin]` has `tls`.
    pub admin: SocketAddr,
    /// For peers, mTLS; `None` in a deployment of one region.
    pub peer: Option<SocketAddr>,
    /// For a front that has verified the caller, plain HTTP; `None` if there is none.
    pub trusted: Option<Trusted>,
    /// TLS for clients of `public`.
    pub tls: Option<TlsFiles>,
    /// Proxies before `public`, and origins that ask through it.
    pub edge: Edge,
    /// Bounds of the public listener.
    pub limits: PublicLimits,
    /// Most requests at once.
    pub at_once: MostAtOnce,
}

/// Proxies before the public listener, and origins that ask through it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// Addresses of proxies that are believed about the client.
    pub trusted_proxies: Vec<Network>,
    /// True if each connection must begin with a header of the PROXY protocol, version 2.
    pub proxy_protocol: bool,
    /// Origins whose pages may ask, as browsers write them.
    pub cors: Vec<HeaderValue>,
}

impl Edge {
    /// True if a proxy with this address is believed about the client.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(address))
    }
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and the intermediate ones, PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, PEM.
    pub key: PathBuf,
}

/// Bounds of the public listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicLimits {
    /// Most connections at a time.
    pub connections: usize,
    /// Most connections of one client address at a time.
    pub connections_per_ip: usize,
    /// Most bytes of all request heads together, beyond the first 4 KiB of each.
    pub heads: usize,
    /// Longest time for a TLS handshake, a connection's first byte, and a head from its first byte.
    pub head_time: Duration,
    /// Longest time for the next piece of a request's body.
    pub body_stall: Duration,
    /// Longest time in which the client reads nothing of an answer.
    pub write_stall: Duration,
    /// Longest time for which a connection without requests is kept.
    pub idle_time: Duration,
}

impl Default for PublicLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_ip: 1_000,
            heads: 64 << 20,
            head_time: Duration::from_secs(30),
            body_stall: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            idle_time: Duration::from_secs(75),
        }
    }
}

/// Reads `[listen]`. Also returns the address of the admin listener, even if the rest has errors.
pub(super) fn read(top: &Section<'_>) -> (Option<Listen>, Option<SocketAddr>) {
    let advice = "say where to listen: public, admin and peer";
    let Some(section) = top.needed("listen", advice) else { return (None, None) };
    let at = |key, advice| section.required(key, advice, socket);
    let public = at("public", "say where clients connect, such as public = \"0.0.0.0:7401\"");
    let admin = at("admin", "say where operators connect, such as admin = \"127.0.0.1:7402\"");
    // `across` says whether it is needed.
    let has_peer = section.has("peer");
    let peer = section.optional("peer", socket);
    let tls = section.if_there("tls", self::tls);
    let trusted = section.if_there("trusted", trusted::read);
    let edge = edge(&section);
    let usual = || (PublicLimits::default(), MostAtOnce::default());
    let (limits, at_once) = section.table("limits").map_or_else(usual, limits);
    let front = trusted.as_ref().and_then(Option::as_ref).map(|trusted| trusted.address);
    apart(top, &[("public", public), ("admin", admin), ("peer", peer), ("trusted", front)]);
    let whole = || -> Option<Listen> {
        let (public, admin) = (public?, admin?);
        let peer = if has_peer { Some(peer?) } else { None };
        Some(Listen { public, admin, peer, trusted: trusted?, tls: tls?, edge: edge?, limits, at_once })
    };
    (whole(), admin)
}

/// Reports listeners with the same port: the second one could not be opened.
pub(super) fn apart(top: &Section<'_>, all: &[(&str, Option<SocketAddr>)]) {
    let known: Vec<_> = all.iter().filter_map(|(name, at)| Some((name, (*at)?))).collect();
    for (number, (name, at)) in known.iter().enumerate() {
        for (other, taken) in &known[..number] {
            let is_any = at.ip().is_unspecified() || taken.ip().is_unspecified();
            if at.port() == taken.port() && (is_any || at.ip() == taken.ip()) {
                let text = format!("[listen]: {other} and {name} cannot both listen on port {}", at.port());
                top.fail_at("listen", text + ": give each a port of its own");
            }
        }
    }
}

fn edge(section: &Section<'_>) -> Option<Edge> {
    let proxies = section.optional("trusted_proxies", trusted::networks);
    let protocols = [("none", false), ("v2", true)];
    let proxy_protocol = section.optional("proxy_protocol", |value| reader::word(value, &protocols));
    let has_proxies = section.has("trusted_proxies");
    if proxy_protocol == Some(true) && !has_proxies {
        section.fail_at(
            "proxy_protocol",
            "proxy_protocol = \"v2\" needs trusted_proxies, as whoever connects could write any address: write trusted_proxies = [\"10.0.0.0/8\"] with the load balancer's addresses",
        );
    }
    let cors = section.table("cors").map_or_else(|| Some(Vec::new()), cors);
    if has_proxies && proxies.is_none() {
        return None;
    }
    let trusted_proxies = proxies.unwrap_or_default();
    Some(Edge { trusted_proxies, proxy_protocol: proxy_protocol.unwrap_or(false), cors: cors? })
}

fn cors(section: Section<'_>) -> Option<Vec<HeaderValue>> {
    let advice = "name the origins of the pages that may ask, such as origins = [\"https://shop.example\"]";
    section.required("origins", advice, |value| reader::list(value, origin))
}

/// Reads an origin: scheme, host and port as a browser writes them, or `null` never.
fn origin(value: &DeValue<'_>) -> Result<HeaderValue, String> {
    let text = reader::text(value)?;
    let wrong =
        || format!("{text:?} must be an origin as browsers write it, such as \"https://shop.example\"");
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let host = uri.authority().filter(|host| !host.as_str().contains('@')).map(Authority::as_str);
    let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
    let usual = if scheme == Some("https") { ":443" } else { ":80" };
    match scheme.zip(host) {
        Some((scheme, host))
            if format!("{scheme}://{host}") == text
                && text == text.to_ascii_lowercase()
                && !host.ends_with(usual) =>
        {
            HeaderValue::from_str(&text).map_err(|_| wrong())
        }
        Some(_) | None => Err(wrong()),
    }
}

/// Reads `[listen.tls]` or `[admin.tls]`.
pub(super) fn tls(section: Section<'_>) -> Option<TlsFiles> {
    let advice = "name the file with the certificate for clients and its intermediates, PEM";
    let certificate = section.required_later("certificate", advice);
    let key = section.required_later("key", "name the file with the private key of the certificate, PEM");
    if let (Some(certificate), Some(key)) = (&certificate, &key) {
        let keys = [("certificate", &**certificate), ("key", &**key)];
        check_files(&section, || adapters::tls::wrong(certificate, key), &keys);
    }
    Some(TlsFiles { certificate: certificate?, key: key? })
}

fn limits(section: Section<'_>) -> (PublicLimits, MostAtOnce) {
    let (usual, most) = (PublicLimits::default(), MostAtOnce::default());
    let count =
        |key, usual| section.optional(key, |value| reader::number(value, 1, 1_000_000)).unwrap_or(usual);
    let size =
        |key, usual| section.optional(key, |value| reader::size(value, 1 << 20, 1 << 40)).unwrap_or(usual);
    let time = |key, usual| section.span(key, 100, 600, usual);
    let limits = PublicLimits {
        connections: count("connections", usual.connections),
        connections_per_ip: count("connections_per_ip", usual.connections_per_ip),
        heads: size("heads", usual.heads),
        head_time: time("head_time", usual.head_time),
        body_stall: time("body_stall", usual.body_stall),
        write_stall: time("write_stall", usual.write_stall),
        idle_time: time("idle_time", usual.idle_time),
    };
    let at_once =
        MostAtOnce { requests: count("requests", most.requests), bodies: size("bodies", most.bodies) };
    if limits.idle_time < limits.head_time {
        section.fail("idle_time must not be below head_time: a connection whose first head is slow would be cut as idle");
    }
    (limits, at_once)
}
