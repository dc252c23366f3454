//! The plain spelling of a path, as the most lenient upstream might read it. For comparison only.
//!
//! [`super::route`] compares the plain spelling with its patterns. It refuses a path that only its
//! plain spelling brings to a route with keys. The request itself is never changed: the path that
//! was matched is the path that is sent. Pure: it must not decide anything.

use std::borrow::Cow;

/// A path's segments in one spelling: escapes decoded, letters in lower case, no parameters, no
/// empty segments. Two paths with the same plain spelling may be one resource to some upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    segments: Vec<Cow<'a, str>>,
    climbs: bool,
}

impl<'a> Plain<'a> {
    /// The plain spelling of a path without its query.
    pub fn of(path: &'a str) -> Self {
        let plain = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/');
        if path.bytes().all(plain) {
            let segments: Vec<Cow<str>> =
                path.split('/').filter(|segment| !segment.is_empty()).map(Cow::Borrowed).collect();
            let climbs = segments.iter().any(|segment| climbs(segment));
            return Self { segments, climbs };
        }
        let text = decoded(path).to_ascii_lowercase().replace('\\', "/");
        // RFC 3986 section 3.3: `;` begins the parameters of a segment.
        let bare = |segment: &str| segment.split(';').next().map(str::to_owned).unwrap_or_default();
        let bare = text.split('/').map(bare).map(|segment| trimmed(&segment).to_owned());
        let all: Vec<String> = bare.filter(|segment| !segment.is_empty()).collect();
        let climbs = all.iter().any(|segment| climbs(segment));
        let mut segments = Vec::new();
        for segment in all {
            // An upstream that decodes first may take these for the end of the path.
            let end = segment.find(['?', '#', '\0']);
            let part = trimmed(&segment[..end.unwrap_or(segment.len())]);
            segments.extend((!part.is_empty()).then(|| Cow::Owned(part.to_owned())));
            if end.is_some() {
                break;
            }
        }
        Self { segments, climbs }
    }

    pub fn segments(&self) -> &[Cow<'a, str>] {
        &self.segments
    }

    /// True if a segment is `.` or `..`, so that an upstream may find another resource there.
    pub fn climbs(&self) -> bool {
        self.climbs
    }
}

fn climbs(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

fn trimmed(segment: &str) -> &str {
    segment.trim_matches(|char: char| char.is_ascii_whitespace())
}

/// Decodes escapes until none is left, those of Internet Information Services (`%u0074`) and ASCII
/// in two bytes (`%c1%b4`) among them. One pass: a decoded byte may complete the next escape.
fn decoded(path: &str) -> String {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        out.push(byte);
        while let Some((length, byte)) = escape(&out) {
            out.truncate(out.len() - length);
            out.push(byte);
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length of the escape at the end, and the byte that it stands for.
fn escape(text: &[u8]) -> Option<(usize, u8)> {
    match text {
        [.., b'%', high, low] => Some((3, 16 * hex(*high)? + hex(*low)?)),
        [.., b'%', b'u' | b'U', b'0', b'0', high, low] => Some((6, 16 * hex(*high)? + hex(*low)?)),
        [.., lead @ 0xc0..=0xc1, next @ 0x80..=0xbf] => Some((2, ((lead & 1) << 6) | (next & 0x3f))),
        _ => None,
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_plain_spelling() {
        for path in [
            "/v1/transfers/1",
            "/v1//transfers/1/",
            "//v1///transfers/1/",
            "/v1/%74ransfers/1",
            "/v1/%54ransfers/1",
            "/V1/Transfers/1",
            "/v1/%2574ransfers/1",
            "/v1/%25252574ransfers/1",
            "/v1/%%37%34ransfers/1",
            "/v1/%u0074ransfers/1",
            "/v1/%c1%b4ransfers/1",
            "/v1%2ftransfers%2F1",
            "\\v1\\transfers%5c1",
            "/v1;a=b/transfers;/1;x",
            "/v1%3ba/transfers%3B/1",
            "/v1/transfers%20/%091",
            "/v1/transfers/1%3fx/y",
            "/v1/transfers/1/%23x",
            "/v1/transfers/1%00.txt",
        ] {
            assert_eq!(Plain::of(path).segments(), ["v1", "transfers", "1"], "{path}");
        }
        for (path, plain) in [
            ("/", &[][..]),
            ("/v1/a%b/%zz/%", &["v1", "a%b", "%zz", "%"]),
            ("/v1/caf%C3%A9/a.b", &["v1", "caf\u{e9}", "a.b"]),
            ("/v1/%ff", &["v1", "\u{fffd}"]),
        ] {
            assert_eq!(Plain::of(path).segments(), plain, "{path}");
        }
    }

    #[test]
    fn a_path_climbs_in_every_spelling() {
        for path in
            ["/a/../b", "/a/b/.", "/a/%252e%252E/b", "/a/.;x/b", "/a%5c..%5cb", "/a/%3f/../b", "/a/.%20/b"]
        {
            assert!(Plain::of(path).climbs(), "{path}");
        }
        for path in ["/a/.../b", "/a/x;../b", "/a/.b/c"] {
            assert!(!Plain::of(path).climbs(), "{path}");
        }
    }
}
