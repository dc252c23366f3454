//! The client behind trusted proxies, as they tell it.
//!
//! `X-Forwarded-For` grows at its right end, so it is read from there, past the addresses that are
//! trusted: what stands left of the first other one was written by anybody. Of everybody else no
//! such header is believed.

use std::net::{IpAddr, SocketAddr};

use http::header::HeaderName;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

use crate::adapters::headers::{is_like, strip_look_alikes};
use crate::config::listen::Edge;

/// Headers in which other proxies write the client's address: their own readers believe them.
const OTHERS: [HeaderName; 3] = [
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("cf-connecting-ip"),
];

/// Facts about a request, as the nearest trusted proxy tells them.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// The client's address; the connection's, if no proxy is trusted.
    pub ip: IpAddr,
    /// True if the client came by TLS; `None` if nobody says it.
    pub tls: Option<bool>,
    /// The host that the client asked for, if a proxy says it.
    pub host: Option<Authority>,
}

/// Reads the headers of a request that came over a connection from `peer`.
pub fn seen(headers: &HeaderMap, peer: IpAddr, edge: &Edge) -> Seen {
    if !edge.trusts(peer) {
        return Seen { ip: peer, tls: None, host: None };
    }
    let last = |name: &str| {
        let line = headers.get_all(name).iter().next_back()?.to_str().ok()?;
        Some(line.rsplit(',').next().unwrap_or(line).trim().to_owned())
    };
    let tls = last("x-forwarded-proto").and_then(|proto| match proto.to_ascii_lowercase().as_str() {
        "https" => Some(true),
        "http" => Some(false),
        _other => None,
    });
    let host = last("x-forwarded-host").and_then(|host| host.parse().ok());
    Seen { ip: client(headers, peer, edge), tls, host }
}

fn client(headers: &HeaderMap, peer: IpAddr, edge: &Edge) -> IpAddr {
    let mut last = peer;
    for line in headers.get_all("x-forwarded-for").iter().rev() {
        // What is no address ends what is believed: the proxy that wrote it is the client.
        let Ok(line) = line.to_str() else { return last };
        for entry in line.rsplit(',') {
            let Some(ip) = address(entry.trim()) else { return last };
            last = ip;
            if !edge.trusts(ip) {
                return last;
            }
        }
    }
    last
}

/// An address, or one with a port, as some proxies write it.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    ip.map(|ip: IpAddr| ip.to_canonical())
}

/// Writes the client's address into the headers of other proxies that are there.
pub fn overwrite_others(headers: &mut HeaderMap, ip: &HeaderValue) {
    // Most requests have none of them: one look.
    if !headers.keys().any(|name| OTHERS.iter().any(|other| is_like(name, other))) {
        return;
    }
    for name in &OTHERS {
        strip_look_alikes(headers, name);
        if headers.contains_key(name) {
            headers.insert(name, ip.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::trusted::Network;

    fn edge() -> Edge {
        let trusted = ["10.0.0.0/8", "2001:db8::/32"].map(|text| Network::parse(text).unwrap());
        Edge { trusted_proxies: trusted.to_vec(), ..Edge::default() }
    }

    fn through(peer: &str, lines: &[(&'static str, &str)]) -> Seen {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        seen(&headers, peer.parse().unwrap(), &edge())
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        for (peer, lines, client) in [
            ("192.0.2.1", &["203.0.113.9"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["6.6.6.6, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["6.6.6.6, 203.0.113.9,10.1.1.1, 10.2.2.2"], "203.0.113.9"),
            ("10.0.0.1", &["6.6.6.6", "203.0.113.9", "10.1.1.1"], "203.0.113.9"),
            ("10.0.0.1", &["10.3.3.3, 10.1.1.1"], "10.3.3.3"),
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db9::1]:443"], "2001:db9::1"),
            ("10.0.0.1", &["[2001:db9::1]"], "2001:db9::1"),
            ("2001:db8::7", &["::ffff:203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9, unknown, 10.1.1.1"], "10.1.1.1"),
            ("10.0.0.1", &["203.0.113.9, "], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9", "\u{e9}"], "10.0.0.1"),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
            assert_eq!(through(peer, &lines).ip, client.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
        }
    }

    #[test]
    fn scheme_and_host_are_believed_of_a_trusted_proxy_only() {
        let lines = [("x-forwarded-proto", "http, HTTPS"), ("x-forwarded-host", "a.example, b.example:8443")];
        let found = through("10.0.0.1", &lines);
        assert_eq!((found.tls, found.host), (Some(true), Some("b.example:8443".parse().unwrap())));
        let found = through("192.0.2.1", &lines);
        assert_eq!((found.tls, found.host), (None, None));
        let found = through("10.0.0.1", &[("x-forwarded-proto", "gopher"), ("x-forwarded-host", "a b")]);
        assert_eq!((found.tls, found.host), (None, None));
    }
}
