//! Headers that end at this hop, and headers that only onceway may write, in every spelling that a
//! reader takes for them.
//!
//! `upstream`, `wire` and `server::public` remove headers by these rules, so that all three agree.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName};

/// Prefix of names that only onceway writes. A client's headers with it are never passed on.
pub const RESERVED_PREFIX: &str = "onceway-";

/// Prefix of names that only the public listener sets, from its own observations.
pub const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Headers of one connection, beside those that `Connection` names (RFC 9110 section 7.6.1).
const HOP_BY_HOP: &[&str] =
    &["connection", "http2-settings", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// True if a header ends at this hop, even if `Connection` does not name it.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

/// Names in all `Connection` lines, in lower case. Texts that are no header names are left out.
pub fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter();
    let parts = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    parts.filter_map(|part| HeaderName::from_bytes(part.trim_ascii()).ok()).collect()
}

/// Removes the headers that end at this hop: the names above and those that `Connection` names.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    remove_where(headers, is_hop_by_hop);
}

/// True if some reader (CGI, WSGI, Rack, PHP) takes a name as beginning with `prefix` (lower case).
pub fn is_under(name: &HeaderName, prefix: &str) -> bool {
    let start = name.as_str().as_bytes().get(..prefix.len());
    start.is_some_and(|start| start.iter().zip(prefix.as_bytes()).all(|(given, own)| dashed(*given) == *own))
}

/// Removes every header whose name is under `prefix` (lower case).
pub fn strip_prefix(headers: &mut HeaderMap, prefix: &str) {
    remove_where(headers, |name| is_under(name, prefix));
}

/// Removes every header that is not `own` but that some readers take for it, `_` for `-`.
pub fn strip_look_alikes(headers: &mut HeaderMap, own: &HeaderName) {
    remove_where(headers, |name| name != own && is_like(name, own));
}

/// True if some readers take the one name for the other, `_` for `-`.
pub fn is_like(name: &HeaderName, own: &HeaderName) -> bool {
    name.as_str().len() == own.as_str().len() && is_under(name, own.as_str())
}

fn dashed(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte }
}

fn remove_where(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn hop_by_hop_headers_are_stripped() {
        let mut headers = map(&[
            ("Connection", "close, X-Private ,, b@d"),
            ("Connection", "x-other"),
            ("X-Private", "1"),
            ("X-Other", "1"),
            ("Keep-Alive", "5"),
            ("Proxy-Authorization", "secret"),
            ("Proxy-Anything", "1"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "x"),
            ("Accept", "a"),
            ("Accept", "b"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("accept", "a"), ("accept", "b")]));
    }

    #[test]
    fn prefixes_are_stripped_in_any_case_and_with_underscores() {
        let mut headers = map(&[
            ("ONCEWAY-Tenant", "1"),
            ("onceway", "2"),
            ("Onceway-Token", "3"),
            ("Onceway_Tenant", "4"),
            ("oncewayx", "5"),
        ]);
        strip_prefix(&mut headers, RESERVED_PREFIX);
        assert_eq!(headers, map(&[("onceway", "2"), ("oncewayx", "5")]));
    }

    #[test]
    fn look_alikes_go_and_the_header_itself_stays() {
        let mut headers = map(&[("idempotency-key", "1"), ("Idempotency_Key", "2"), ("idempotency", "3")]);
        strip_look_alikes(&mut headers, &HeaderName::from_static("idempotency-key"));
        assert_eq!(headers, map(&[("idempotency-key", "1"), ("idempotency", "3")]));
    }
}
