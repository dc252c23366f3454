//! Admission to the public listener: one host, one target, end-to-end headers, no forged names.
//!
//! The framing was judged before: by [`super::guard`] for HTTP/1, by the h2 crate for HTTP/2. The
//! h2 crate checks RFC 9113 section 8.2: connection headers, `transfer-encoding`, names and values,
//! and a length that the body does not have.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderName, HeaderValue,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Request, Uri, Version};

use super::edge;
use super::guard::Refusal;
use super::head::{MOST_HEADERS, malformed};
use super::listener_kind::Door;
use crate::adapters::headers::{
    FORWARDED_PREFIX, RESERVED_PREFIX, is_under, named_by_connection, strip_hop_by_hop, strip_look_alikes,
    strip_prefix,
};
use crate::gateway::request::problems::{Kind, Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest target, in bytes.
const TARGET_LIMIT: usize = 8 * 1024;

#[derive(Clone, Debug)]
pub struct Client {
    pub ip: IpAddr,
    /// The same as a header's value, as each request gets it.
    pub forwarded_for: HeaderValue,
    pub tls: bool,
    pub door: Door,
    /// Refusal of the connection's framing guard, if any.
    pub refusal: Refusal,
}

impl Client {
    /// The client at this address, about which nothing was refused yet.
    pub fn new(ip: IpAddr, tls: bool, door: Door) -> Self {
        let ip = ip.to_canonical();
        let forwarded_for = HeaderValue::from_str(&ip.to_string()).expect("an address is visible ASCII");
        Self { ip, forwarded_for, tls, door, refusal: Refusal::default() }
    }
}

/// Checks what hyper lets pass, and leaves the client's end-to-end request. The error is why the
/// request is refused. Later bytes of an HTTP/1 connection may be a part of it.
pub fn admit<B>(request: Request<B>, client: &Client) -> Result<Request<B>, Problem> {
    let (mut head, body) = request.into_parts();
    if [Method::CONNECT, Method::TRACE].contains(&head.method) {
        let why = format!("{} is not passed on by this gateway", head.method);
        return Err(Kind::MethodNotSupported.said(why));
    }
    let host = check_host(&head.headers, &head.uri, head.version)?;
    head.uri = origin_form(&head.uri, client)?;
    check_headers(&head.headers)?;
    check_connection(&head.headers)?;
    strip_hop_by_hop(&mut head.headers);
    let seen = client.door.edge().map(|edge| edge::seen(&head.headers, client.ip, edge));
    strip_prefix(&mut head.headers, RESERVED_PREFIX);
    strip_prefix(&mut head.headers, FORWARDED_PREFIX);
    head.headers.remove(FORWARDED);
    for own in [IDEMPOTENCY_KEY, CONTENT_LENGTH, TRANSFER_ENCODING] {
        strip_look_alikes(&mut head.headers, &own);
    }
    client.door.pass(&mut head);
    join_cookies(&mut head.headers)?;
    let host = written(&host);
    let (from, tls, asked) = match seen {
        Some(seen) if seen.ip != client.ip || seen.tls.is_some() || seen.host.is_some() => {
            let from = HeaderValue::from_str(&seen.ip.to_string()).expect("an address is visible ASCII");
            (from, seen.tls.unwrap_or(client.tls), seen.host.as_ref().map(written))
        }
        Some(_) | None => (client.forwarded_for.clone(), client.tls, None),
    };
    let proto = HeaderValue::from_static(if tls { "https" } else { "http" });
    edge::overwrite_others(&mut head.headers, &from);
    head.headers.insert(HOST, host.clone());
    head.headers.insert(HeaderName::from_static("x-forwarded-for"), from);
    head.headers.insert(HeaderName::from_static("x-forwarded-host"), asked.unwrap_or(host));
    head.headers.insert(HeaderName::from_static("x-forwarded-proto"), proto);
    Ok(Request::from_parts(head, body))
}

fn written(host: &Authority) -> HeaderValue {
    HeaderValue::from_str(host.as_str()).expect("an authority is visible ASCII")
}

/// The one host that the request names: in a Host header, the target, or equal in both (RFC 9112
/// section 3.2). Over HTTP/2 the target's host stands for both (RFC 9113 section 8.3.1).
fn check_host(headers: &HeaderMap, target: &Uri, version: Version) -> Result<Authority, Problem> {
    // The guard's marker passes here: its target has no host. `origin_form` refuses it.
    let mut values = headers.get_all(HOST).iter();
    let (header, second) = (values.next(), values.next());
    if second.is_some() || (header.is_none() && (version < Version::HTTP_2 || target.authority().is_none())) {
        return Err(malformed("send exactly one Host"));
    }
    let unclear = || malformed("the Host must be a host and an optional port");
    let header = header.map(|host| Authority::try_from(host.as_bytes())).transpose();
    let header = header.map_err(|_| unclear())?;
    if let (Some(header), Some(target)) = (&header, target.authority())
        && header != target
    {
        return Err(malformed("the target names another host than the Host header"));
    }
    let host = header.or_else(|| target.authority().cloned());
    host.filter(|authority| is_strict(authority.as_str())).ok_or_else(unclear)
}

/// True if every reader takes the same host and port from the text.
///
/// The host is a name of letters, digits, `-`, `_` and dots, or an address. It has no user and no
/// escapes. The port is 1 to 65535, or absent.
fn is_strict(authority: &str) -> bool {
    let (host, port) = match authority.rfind(':').filter(|at| !authority[*at..].contains(']')) {
        Some(at) => (&authority[..at], Some(&authority[at + 1..])),
        None => (authority, None),
    };
    let port_is_one = port.is_none_or(|port| {
        port.len() <= 5
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(allowed);
    port_is_one
        && match in_brackets {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => host.len() <= 254 && host.strip_suffix('.').unwrap_or(host).split('.').all(is_label),
        }
}

fn origin_form(target: &Uri, client: &Client) -> Result<Uri, Problem> {
    if target == "*"
        && let Some(refused) = client.refusal.get()
    {
        return Err(refused.clone());
    }
    if target.scheme_str().is_some_and(|scheme| !["http", "https"].contains(&scheme)) {
        return Err(malformed("the target's scheme must be http or https"));
    }
    let path = target.path_and_query().filter(|path| path.as_str().starts_with('/'));
    let path = path.ok_or_else(|| malformed("the target must be a path"))?;
    if !path.as_str().is_ascii() {
        return Err(malformed("the target must be ASCII: write other characters as %XX"));
    }
    if path.as_str().len() > TARGET_LIMIT {
        return Err(Kind::TargetTooLong.said(format!("a target may have at most {TARGET_LIMIT} bytes")));
    }
    Ok(Uri::from(PathAndQuery::clone(path)))
}

/// Refuses headers that switch protocols or leave the body's length open, and too many headers.
fn check_headers(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.len() > MOST_HEADERS {
        return Err(Kind::HeadTooLarge.said(format!("a request may have at most {MOST_HEADERS} headers")));
    }
    if headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(malformed("send exactly one Content-Length"));
    }
    if headers.contains_key(UPGRADE) {
        return Err(malformed("Upgrade is not supported"));
    }
    let expects_other =
        headers.get_all(EXPECT).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if expects_other {
        Err(Kind::ExpectationFailed.said("only Expect: 100-continue is supported"))
    } else {
        Ok(())
    }
}

/// Refuses a `Connection` that takes away who the caller is, or what the request means.
fn check_connection(headers: &HeaderMap) -> Result<(), Problem> {
    let vital = [HOST, AUTHORIZATION, CONTENT_LENGTH, IDEMPOTENCY_KEY];
    let taken = named_by_connection(headers);
    match taken.iter().find(|name| vital.contains(name) || is_under(name, RESERVED_PREFIX)) {
        Some(name) => Err(Kind::BadRequest.said(format!("Connection must not name {name}"))),
        None => Ok(()),
    }
}

/// Joins cookies into one line. HTTP/2 clients may send each by itself; upstreams speak HTTP/1.1,
/// which has one line (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Problem> {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1 {
        let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]));
        headers.insert(COOKIE, joined.map_err(|_| malformed("the cookies are malformed"))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(tls: bool) -> Client {
        Client::new("192.0.2.7".parse().unwrap(), tls, Door::Public(None, std::sync::Arc::default()))
    }

    fn ask_over(
        version: Version,
        method: &str,
        target: &str,
        lines: &[(&str, &str)],
    ) -> Result<Request<()>, Problem> {
        let mut request = Request::builder().method(method).uri(target).version(version);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        admit(request.body(()).unwrap(), &client(version == Version::HTTP_2))
    }

    fn ask(method: &str, target: &str, lines: &[(&str, &str)]) -> Result<Request<()>, Problem> {
        ask_over(Version::HTTP_11, method, target, lines)
    }

    const HOST: (&str, &str) = ("Host", "api.example");

    /// Method, target, headers, and the expected status.
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);

    #[test]
    fn ambiguous_requests_are_refused() {
        let long = format!("/{}", "a".repeat(TARGET_LIMIT));
        let many = vec![("x", "1"); MOST_HEADERS];
        let many: Vec<(&str, &str)> = [HOST].into_iter().chain(many).collect();
        let table: &[Case] = &[
            ("GET", "/", &[], 400),
            ("GET", "/", &[HOST, HOST], 400),
            ("GET", "/", &[("Host", "")], 400),
            ("GET", "/", &[("Host", "user@api.example")], 400),
            ("GET", "/", &[("Host", "a, b")], 400),
            ("GET", "http://other.example/", &[HOST], 400),
            ("GET", "http://api.example/", &[], 400),
            ("GET", "http://api.example:81/", &[HOST], 400),
            ("GET", "http://user@api.example/", &[HOST], 400),
            ("GET", "ftp://api.example/", &[HOST], 400),
            ("OPTIONS", "*", &[HOST], 400),
            ("GET", "api.example", &[HOST], 400),
            ("GET", "/\u{e9}", &[HOST], 400),
            ("CONNECT", "api.example:80", &[HOST], 501),
            ("TRACE", "/", &[HOST], 501),
            ("GET", &long, &[HOST], 414),
            ("GET", "/", &many, 431),
            ("POST", "/", &[HOST, ("Content-Length", "1"), ("Content-Length", "1")], 400),
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
            assert_eq!(problem.status, *status, "{method} {target} {lines:?}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_a_port() {
        for host in
            ["a", "api.example", "api.example.", "A_b-1.x:1", "192.0.2.7:65535", "[::1]", "[2001:db8::1]:443"]
        {
            assert!(ask("GET", "/", &[("Host", host)]).is_ok(), "{host}");
        }
        let wrong = [
            "a:", "a:0", "a:65536", "a:99999", "a:080080", "a:+80", "a:b", "a:1:2", ":80", ".", "a..b", ".a",
            "a%2eb", "a%00", "a;b", "a=b", "a$b", "a!b", "a'b", "(a)", "a*", "*", "a+b", "::1", "[::1",
            "::1]", "[a]", "[::1]x", "[::1]:", "[]", "a,b", "a b", "a/b", "a?b", "a#b", "a\\b", "a~b",
        ];
        for host in wrong.into_iter().chain(["[fe80::1%25eth0]"]) {
            assert_eq!(ask("GET", "/", &[("Host", host)]).unwrap_err().status, 400, "{host}");
        }
    }

    #[test]
    fn an_http2_host_header_must_match_its_target() {
        let two = |target, lines: &[(&str, &str)]| ask_over(Version::HTTP_2, "GET", target, lines);
        let host = |asked: Result<Request<()>, Problem>| {
            asked.map(|request| request.headers()["host"].to_str().unwrap().to_owned()).map_err(|_| ())
        };
        assert_eq!(host(two("https://api.example/", &[])), Ok("api.example".into()));
        assert_eq!(host(two("https://api.example/", &[("Host", "API.example")])), Ok("API.example".into()));
        assert_eq!(host(two("/", &[HOST])), Ok("api.example".into()));
        assert_eq!(host(two("https://api.example/", &[("Host", "b")])), Err(()));
        assert_eq!(host(two("https://api.example/", &[HOST, HOST])), Err(()));
        assert_eq!(host(two("https://user@api.example/", &[])), Err(()));
        assert_eq!(host(two("/", &[])), Err(()));
        let crumbs = two("https://a/", &[("Cookie", "a=1"), ("Cookie", "b=2")]).unwrap();
        assert_eq!(crumbs.headers().get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert_eq!(crumbs.headers()["x-forwarded-proto"], "https");
    }

    #[test]
    fn no_client_can_forge_the_guards_refusal_marker() {
        let marker =
            || Request::builder().method("OPTIONS").uri("*").header("host", "refused").body(()).unwrap();
        let (guarded, open) = (client(false), client(false));
        guarded.refusal.set(Kind::HeadTooLarge.said("too much")).unwrap();
        assert_eq!(admit(marker(), &guarded).unwrap_err(), Kind::HeadTooLarge.said("too much"));
        assert_eq!(admit(marker(), &open).unwrap_err().code(), "bad-request");
    }

    #[test]
    fn the_service_sees_end_to_end_headers_and_an_origin_form() {
        let lines = [
            ("Host", "API.example"),
            ("Connection", "keep-alive, X-Private"),
            ("X-Private", "1"),
            ("Onceway-Tenant", "forged"),
            ("Onceway_Tenant", "forged"),
            ("Idempotency_Key", "another"),
            ("X_Forwarded_For", "10.0.0.1"),
            ("Content_Length", "1"),
            ("Transfer_Encoding", "chunked"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("X-Forwarded-Port", "1"),
            ("Forwarded", "for=10.0.0.1"),
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
