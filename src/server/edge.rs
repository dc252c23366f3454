//! The client behind a load balancer or trusted proxies, as they tell it, and the origins of pages.
//!
//! `X-Forwarded-For` grows at its right end, so it is read from there, past the addresses that are
//! trusted: what stands left of the first other one was written by anybody. Of everybody else no
//! such header is believed.
//!
//! CORS is for the origins of `[listen.cors]` (Fetch Standard, "HTTP-redirects and CORS protocol").
//! Every answer to such an origin carries the headers, refusals and replays too: they are written
//! at the listener, and nothing stores them. Nothing is refused here: an origin that is not listed
//! gets no headers, and its browser refuses by itself.

use std::io;
use std::net::{IpAddr, SocketAddr};

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use ppp::v2::{Addresses, Command, Header};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::adapters::headers::{is_like, strip_look_alikes};
use crate::config::listen::Edge;
use crate::ports::{Body, body};

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

/// Bytes of a PROXY header up to and with the length of the rest.
const BEGIN: usize = 16;
/// Longest rest: room for addresses, and for the notes that balancers add.
const MOST_REST: usize = 2_048;

/// Reads a header of the PROXY protocol, version 2: the client's address, or `None` if the proxy
/// speaks for itself. The error: the bytes are no such header, or the connection ended. No byte
/// beyond the header is taken.
///
/// <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>
pub async fn introduction(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut bytes = vec![0; BEGIN];
    stream.read_exact(&mut bytes).await?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("PROXY protocol: {why}"));
    if !bytes.starts_with(ppp::v2::PROTOCOL_PREFIX) {
        return Err(wrong("the connection does not begin with a header of version 2"));
    }
    let rest = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if rest > MOST_REST {
        return Err(wrong("the header is too long"));
    }
    bytes.resize(BEGIN + rest, 0);
    stream.read_exact(&mut bytes[BEGIN..]).await?;
    let header = Header::try_from(&bytes[..]).map_err(|error| wrong(&error.to_string()))?;
    match (header.command, header.addresses) {
        (Command::Local, _) => Ok(None),
        (Command::Proxy, Addresses::IPv4(from)) => Ok(Some(from.source_address.into())),
        (Command::Proxy, Addresses::IPv6(from)) => Ok(Some(from.source_address.into())),
        (Command::Proxy, Addresses::Unspecified | Addresses::Unix(_)) => {
            Err(wrong("the header names no IP address"))
        }
    }
}

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

#[cfg(test)]
mod tests {
    use ppp::v2::{Builder, Protocol, Version};

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

    fn header(command: Command) -> Vec<u8> {
        let from: std::net::SocketAddr = "203.0.113.9:4711".parse().unwrap();
        let to: std::net::SocketAddr = "10.0.0.1:443".parse().unwrap();
        let addresses = Addresses::from((from, to));
        Builder::with_addresses(Version::Two | command, Protocol::Stream, addresses).build().unwrap()
    }

    #[tokio::test]
    async fn a_header_names_the_client_and_what_follows_is_left() {
        let mut bytes = header(Command::Proxy);
        bytes.extend_from_slice(b"GET /");
        let mut stream = &bytes[..];
        assert_eq!(introduction(&mut stream).await.unwrap(), Some("203.0.113.9".parse().unwrap()));
        assert_eq!(stream, b"GET /");
        assert_eq!(introduction(&mut &header(Command::Local)[..]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_connection_without_a_proxy_header_is_refused() {
        let whole = header(Command::Proxy);
        for cut in 0..whole.len() {
            assert!(introduction(&mut &whole[..cut]).await.is_err(), "{cut}");
        }
        let mut long = whole.clone();
        (long[14], long[15]) = (0xff, 0xff);
        long.resize(70_000, 0);
        let mut unknown = whole.clone();
        unknown[12] = 0x31;
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
            &long,
            &unknown,
        ] {
            assert!(introduction(&mut &bytes[..]).await.is_err());
        }
    }
}
