//! Coverage: the state-changing requests that were seen, and if a key protected them.
//!
//! The table is bounded, lives in this process and begins empty. Of a client's text it holds the
//! shape of a path only: segments that may be ids are `{}`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use http::Method;
use serde::Serialize;

use super::labels::OTHER;
use crate::gateway::policy::route::{Matched, PathPattern, Protection};

/// Lines of the table, at most. The path of further requests is [`OTHER`].
const MOST: usize = 1_000;
/// Segments that a shape shows, at most; `*` stands for further ones.
const MOST_SEGMENTS: usize = 8;
/// A longer segment is taken for an id.
const LONGEST_WORD: usize = 24;
/// A longer method that HTTP does not know is not repeated.
const LONGEST_METHOD: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// A key was required, or was present.
    Protected,
    /// Its route takes keys, but it came without one and streamed through.
    OptionalWithoutKey,
    /// Its route ignores keys.
    Off,
    /// No route took it.
    NoRoute,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub route: Option<String>,
    pub protection: How,
    /// True if it was refused because no route took it, so that it never reached the upstream.
    pub refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    #[serde(flatten)]
    pub seen: Seen,
    pub count: u64,
}

/// Requests that this process has seen. Field names are a contract: add, never rename.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub region: String,
    /// Seconds since the count began.
    pub seconds: u64,
    /// True if the table is full, so that some requests are counted as `(other)`.
    pub full: bool,
    pub seen: Vec<Counted>,
}

#[derive(Debug)]
pub struct Coverage {
    lines: Mutex<BTreeMap<Seen, u64>>,
    most: usize,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { lines: Mutex::default(), most: MOST }
    }
}

impl Coverage {
    /// Counts a request, unless its method is safe (RFC 9110, section 9.2.1).
    pub fn saw(&self, method: &Method, path: &str, matched: Matched<'_>, with_key: bool, refused: bool) {
        if method.is_safe() {
            return;
        }
        let (route, protection) = match matched {
            Matched::PassThrough | Matched::Refused(_) => (None, How::NoRoute),
            Matched::Route(route) => {
                let how = match route.protection {
                    Protection::Off => How::Off,
                    Protection::Optional if !with_key => How::OptionalWithoutKey,
                    Protection::Optional | Protection::Required => How::Protected,
                };
                (Some(route), how)
            }
        };
        let method = match method.as_str() {
            long if long.len() > LONGEST_METHOD => OTHER,
            method => method,
        };
        let path = match (route, protection) {
            // Protected requests need no detail: one line per route.
            (Some(route), How::Protected) => route.path.as_str().to_owned(),
            (route, _) => shape(route.map(|route| &route.path), path),
        };
        let route = route.map(|route| route.name.to_string());
        self.count(Seen { method: method.to_owned(), path, route, protection, refused });
    }

    pub fn seen(&self) -> (Vec<Counted>, bool) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let all = lines.iter().map(|(seen, count)| Counted { seen: seen.clone(), count: *count });
        (all.collect(), lines.len() >= self.most)
    }

    fn count(&self, seen: Seen) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = lines.get_mut(&seen) {
            *count += 1;
        } else if lines.len() < self.most {
            lines.insert(seen, 1);
        } else {
            // Routes are the configuration's, so these lines are bounded too.
            let other = Seen { method: OTHER.to_owned(), path: OTHER.to_owned(), ..seen };
            *lines.entry(other).or_default() += 1;
        }
    }
}

/// The path without segments that may be ids. Segments that the route's pattern spells out stay;
/// those that it leaves open go. Others stay if they look like words.
fn shape(pattern: Option<&PathPattern>, path: &str) -> String {
    let known = pattern.map(PathPattern::as_str).unwrap_or_default().strip_prefix('/').unwrap_or_default();
    let mut known = known.split('/');
    let mut text = String::new();
    for (index, segment) in path.strip_prefix('/').unwrap_or(path).split('/').enumerate() {
        text.push('/');
        if index == MOST_SEGMENTS {
            text.push('*');
            break;
        }
        text.push_str(match known.next() {
            Some(known) if known == segment => segment,
            Some(open) if open.starts_with('{') => "{}",
            Some(_) | None if is_word(segment) => segment,
            Some(_) | None => "{}",
        });
    }
    text
}

/// True for letters with '-', '_' or '.' between them, or a version such as v1. In any other
/// segment, a digit makes it an id.
fn is_word(segment: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphabetic() || b"-_.".contains(&byte);
    let version = segment.strip_prefix('v').is_some_and(|number| {
        !number.is_empty() && number.len() <= 2 && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    segment.len() <= LONGEST_WORD && (version || segment.bytes().all(word))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;

    use super::*;
    use crate::gateway::policy::route::{Route, Routes};

    fn routes() -> Routes {
        let route = |name: &str, path: &str| Route {
            name: name.into(),
            methods: Vec::new(),
            path: PathPattern::parse(path).unwrap(),
            protection: Protection::Off,
            terms: Arc::default(),
            allow_overrides: false,
        };
        Routes(vec![route("search", "/v1/{shop}/search"), route("rest", "/open/*")])
    }

    fn see(coverage: &Coverage, method: &str, path: &str) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let routes = routes();
        let matched = routes.find(&method, path, &HeaderMap::new());
        coverage.saw(&method, path, matched, false, matches!(matched, Matched::Refused(_)));
    }

    #[test]
    fn shapes_hold_no_ids() {
        let of = |path: &str| shape(None, path);
        assert_eq!(of("/v1/charges/ch_4711/refunds"), "/v1/charges/{}/refunds");
        assert_eq!(of("/users/alice@example.com"), "/users/{}");
        assert_eq!(of("/o/8e03978e-40d5-43dd-bc93-6894a57f9324"), "/o/{}");
        assert_eq!(of("/t/sk-abcdefghijklmnopqrstuvwxyz"), "/t/{}");
        assert_eq!(of("/v1/%41"), "/v1/{}");
        assert_eq!(of("/v12/v123/"), "/v12/{}/");
        assert_eq!(of("/a/b/c/d/e/f/g/h/i/j"), "/a/b/c/d/e/f/g/h/*");
        let shop = PathPattern::parse("/v1/{shop}/search").unwrap();
        assert_eq!(shape(Some(&shop), "/v1/acme/search"), "/v1/{}/search", "the route leaves it open");
        let rest = PathPattern::parse("/v2x/*").unwrap();
        assert_eq!(shape(Some(&rest), "/v2x/notes/7"), "/v2x/notes/{}", "the route spells it out");
        assert!(PathPattern::parse(&of("/v1/x/y/1").replace("{}", "{id}")).is_ok(), "shapes become patterns");
    }

    #[test]
    fn safe_methods_are_not_seen_and_unknown_ones_are() {
        let coverage = Coverage::default();
        for method in ["GET", "HEAD", "OPTIONS"] {
            see(&coverage, method, "/x");
        }
        assert_eq!(coverage.seen().0, []);
        for method in ["PUT", "post", "A-METHOD-OF-A-CLIENTS-CHOICE"] {
            see(&coverage, method, "/x");
        }
        let seen = coverage.seen().0;
        let lines: Vec<_> = seen.iter().map(|line| (line.seen.method.as_str(), line.seen.refused)).collect();
        assert_eq!(lines, [(OTHER, true), ("PUT", false), ("post", true)]);
    }

    #[test]
    fn a_full_table_still_says_what_is_unprotected() {
        let coverage = Coverage { most: 2, ..Coverage::default() };
        for path in ["/a", "/b", "/c", "/d", "/a", "/v1/acme/search", "/v1/globex/search"] {
            see(&coverage, "POST", path);
        }
        let (seen, full) = coverage.seen();
        assert!(full);
        let lines: Vec<_> = seen
            .iter()
            .map(|line| {
                (line.seen.path.as_str(), line.seen.route.as_deref(), line.seen.protection, line.count)
            })
            .collect();
        let expected = [
            (OTHER, None, How::NoRoute, 2),
            (OTHER, Some("search"), How::Off, 2),
            ("/a", None, How::NoRoute, 2),
            ("/b", None, How::NoRoute, 1),
        ];
        assert_eq!(lines, expected);
    }
}
