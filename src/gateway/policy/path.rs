//! Paths: the patterns of routes, compared byte by byte, and the plain spelling of a path.
//!
//! [`super::route`] refuses a path that only its plain spelling, as the most lenient upstream might
//! read it, brings to a route with keys. The path that was matched is the path that is sent.

use std::borrow::Cow;

/// A path pattern. `{name}` takes any one segment, and a last `*` takes the rest, even none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
    /// The same segments in their plain spelling.
    plain: Vec<Segment>,
    rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Exactly(String),
    Any,
}

impl PathPattern {
    /// Parses a pattern such as `/v1/charges`, `/v1/charges/{id}/refunds` or `/v1/*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(inner) = text.strip_prefix('/') else {
            return Err(format!("path {text:?} must start with '/'"));
        };
        let (inner, rest) = match inner.strip_suffix('*') {
            Some("") => ("", true),
            Some(head) => match head.strip_suffix('/') {
                Some(head) => (head, true),
                None => return Err(format!("path {text:?}: '*' must be a whole last segment")),
            },
            None => (inner, false),
        };
        let whole = if inner.is_empty() && rest { Vec::new() } else { inner.split('/').collect() };
        let segments: Vec<Segment> =
            whole.into_iter().map(|segment| Self::segment(segment, text)).collect::<Result<_, _>>()?;
        let plain = segments.iter().flat_map(|segment| match segment {
            Segment::Any => vec![Segment::Any],
            Segment::Exactly(text) => {
                Plain::of(text).segments().iter().map(|part| Segment::Exactly(part.to_string())).collect()
            }
        });
        let plain = plain.collect();
        Ok(Self { text: text.to_owned(), segments, plain, rest })
    }

    fn segment(segment: &str, text: &str) -> Result<Segment, String> {
        if segment.starts_with('{') && segment.ends_with('}') && segment.len() > 2 {
            return Ok(Segment::Any);
        }
        if segment.contains(['{', '}', '*', '?', '#']) {
            return Err(format!(
                "path {text:?}: segment {segment:?} must be plain text, {{name}} or a last *"
            ));
        }
        Ok(Segment::Exactly(segment.to_owned()))
    }

    /// True if `path` (without query) matches, byte by byte.
    pub fn matches(&self, path: &str) -> bool {
        path.strip_prefix('/').is_some_and(|inner| self.fits(&self.segments, inner.split('/')))
    }

    /// True if a path of this plain spelling may be one that matches, to some upstream.
    pub(super) fn matches_plain(&self, plain: &Plain<'_>) -> bool {
        self.fits(&self.plain, plain.segments().iter().map(AsRef::as_ref))
    }

    fn fits<'a>(&self, wanted: &[Segment], mut given: impl Iterator<Item = &'a str>) -> bool {
        for segment in wanted {
            match (segment, given.next()) {
                (Segment::Exactly(text), Some(part)) if text == part => {}
                (Segment::Any, Some(part)) if !part.is_empty() => {}
                (Segment::Exactly(_) | Segment::Any, _) => return false,
            }
        }
        self.rest || given.next().is_none()
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A path's segments in one spelling: two paths with the same may be one resource to some upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    segments: Vec<Cow<'a, str>>,
    climbs: bool,
}

impl<'a> Plain<'a> {
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

    /// True if a segment is `.` or `..`: an upstream may find another resource there.
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
        let spellings = "/v1/transfers/1 /v1//transfers/1/ //v1///transfers/1/ /v1/%74ransfers/1 \
            /v1/%54ransfers/1 /V1/Transfers/1 /v1/%2574ransfers/1 /v1/%25252574ransfers/1 \
            /v1/%%37%34ransfers/1 /v1/%u0074ransfers/1 /v1/%c1%b4ransfers/1 /v1%2ftransfers%2F1 \\v1\\transfers%5c1 \
            /v1;a=b/transfers;/1;x /v1%3ba/transfers%3B/1 /v1/transfers%20/%091 /v1/transfers/1%3fx/y \
            /v1/transfers/1/%23x /v1/transfers/1%00.txt";
        for path in spellings.split(' ') {
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
        let dots = ["/a/../b", "/a/..", "/a/b/.", "/a/.%2e/b", "/a/%252e%252E/b"];
        let more = ["/a/.;x/b", "/a%5c..%5cb", "/a/%3f/../b", "/a/.%20/b", "/a/..%2Fb"];
        for path in dots.into_iter().chain(more) {
            assert!(Plain::of(path).climbs(), "{path}");
        }
        for path in ["/a/.../b", "/a/x;../b", "/a/.b/c"] {
            assert!(!Plain::of(path).climbs(), "{path}");
        }
    }
}
