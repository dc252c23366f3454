//! Path patterns of routes, compared byte by byte.
//!
//! `route` asks them about requests. This file must not change a path that it matches.

use super::spelling::Plain;

/// A path pattern: segments. `{name}` takes any one segment, and a last `*` takes the rest, even
/// none.
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

    /// True if `path` (without query) matches. Compares bytes: nothing is decoded or normalised, so
    /// the path that was matched is the path that is sent.
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
