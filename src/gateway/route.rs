//! Routes: which requests need a key, and the policy under which a key's effect is performed.
//!
//! Neighbours: `config` parses and checks them, [`super::admit`] matches them. All regions share one set of routes. It must
//! not read files nor answer requests.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, Uri};

use super::signature::FingerprintRule;
use super::spelling::Plain;
use crate::protocol::decide::{Over, Recovery};
use crate::protocol::digest::digest;
use crate::protocol::escrow::Meanings;
use crate::protocol::job::Backoff;
use crate::protocol::key::Syntax;
use crate::protocol::key_policy::KeyPolicy;
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::OutcomeSets;

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name, in metrics and logs.
    pub name: Arc<str>,
    /// The methods it takes; empty means any.
    pub methods: Vec<Method>,
    /// The paths it takes.
    pub path: PathPattern,
    /// What it does about keys.
    pub protection: Protection,
    /// Allows headers of its requests that name another method or path than they have.
    pub allow_overrides: bool,
}

impl Route {
    /// True if it takes this method.
    fn takes(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    /// Its policy, if it looks at keys.
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        match &self.protection {
            Protection::Off { .. } => None,
            Protection::Optional(policy) | Protection::Required(policy) => Some(policy),
        }
    }

    /// How long the upstream may take for a request of this route.
    pub fn upstream_timeout(&self) -> Duration {
        match &self.protection {
            Protection::Off { upstream_timeout } => *upstream_timeout,
            Protection::Optional(policy) | Protection::Required(policy) => policy.upstream_timeout,
        }
    }
}

/// What a route does about keys.
#[derive(Clone, Debug)]
pub enum Protection {
    /// Streams straight through; a key is passed on like any header.
    Off {
        /// How long the upstream may be silent.
        upstream_timeout: Duration,
    },
    /// Requests with a key are protected; those without stream straight through.
    Optional(Arc<Policy>),
    /// Requests without a key are refused.
    Required(Arc<Policy>),
}

/// How keyed requests of a route are performed and remembered.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How the header is parsed.
    pub syntax: Syntax,
    /// Which keys are taken.
    pub key_policy: KeyPolicy,
    /// What of a body says what is asked.
    pub fingerprint: FingerprintRule,
    /// What a client is told whose key was used for another request.
    pub mismatch: Mismatch,
    /// The rule for a key in doubt.
    pub recovery: Recovery,
    /// The upstream's status address, present on every route whose recovery is `probe`.
    pub probe: Option<Uri>,
    /// How long a claim may go without an outcome.
    pub hold: Duration,
    /// How long a duplicate waits for the running attempt.
    pub wait: Duration,
    /// How long the upstream may take for its whole answer. For a request that passes without a key:
    /// how long it may be silent.
    pub upstream_timeout: Duration,
    /// How long a request may still be at work inside the upstream after its hold ran out.
    pub settle_time: Duration,
    /// An answer with an unknown status ends its attempt, so that "did not happen" counts at once.
    pub status_ends_attempt: bool,
    /// How long a key is promised to be remembered.
    pub retention: Retention,
    /// How long a key that is past its retention is refused before it is forgotten.
    pub tombstone: Duration,
    /// The largest request body, in bytes.
    pub body_limit: usize,
    /// The largest answer body that is kept, in bytes.
    pub stored_limit: usize,
    /// What the upstream's statuses mean.
    pub outcomes: OutcomeSets,
    /// The answer headers that a replay carries.
    pub replay_headers: Vec<HeaderName>,
    /// Whether a client waits for the answer or is told where to find it later.
    pub mode: Mode,
    /// How accepted requests are stored and run.
    pub accept: Accept,
    /// The headers that are stored with an accepted request that is not sealed, beside those of
    /// every request.
    pub keep_headers: Vec<HeaderName>,
    /// Who may use a key that was claimed on this route.
    pub bind: Binding,
    /// Whether its claims are also lodged with the next serving region before anything is sent.
    pub escrow: Escrow,
}

impl Policy {
    /// When one of its attempts in doubt is surely over.
    pub fn over(&self) -> Over {
        Over { settle_time: self.settle_time, status_ends_attempt: self.status_ends_attempt }
    }
}

/// How long the upstream may take unless a route says otherwise.
pub const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the upstream may be silent about a request that no route takes.
pub const UNLISTED_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether claims are lodged with the next serving region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escrow {
    /// They are not: a region that is destroyed may take its last claims with it.
    Off,
    /// The claim is, before anything is sent.
    Claim(Alone),
    /// The claim is, and the answer before it is given.
    ClaimAndAnswer(Alone),
}

impl Escrow {
    /// The name of what is lodged, as a configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Claim(_) => "claim",
            Self::ClaimAndAnswer(_) => "claim+answer",
        }
    }
}

/// What a route under escrow does while no other region serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// Refuses new keys.
    Refuse,
    /// Runs them without escrow.
    Run,
}

/// Whether a client waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It waits. `Prefer: respond-async` is not heeded (RFC 7240 section 2 allows that).
    Sync,
    /// It says so: with `Prefer: respond-async` the request is accepted.
    Prefer,
    /// Every request is accepted.
    Accept,
}

impl Mode {
    /// Its word in configuration and in the published contract.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::Prefer => "prefer",
            Mode::Accept => "accept",
        }
    }
}

/// How accepted requests are stored and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// How long the request itself may be stored.
    pub request_retention: Duration,
    /// How often a job is run before it is a dead letter.
    pub max_runs: u32,
    /// The span between two runs.
    pub backoff: Backoff,
}

/// To whom a key is bound by its first claim (docs/protocol.md#rule-1: the replay cache as an
/// oracle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// To the tenant: whoever asks for it gets the answer.
    Tenant,
    /// To the tenant's principal that claimed it: to everybody else it looks like a key of another request.
    Principal,
}

/// The dialect in which a key that was used for another request is refused. The problem and its code are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// 422, as the IETF draft has it.
    Unprocessable,
    /// 409, as some payment APIs have it.
    Conflict,
}

/// The headers a replay carries unless the route says otherwise: those that describe the answer, not the connection or the moment.
pub const REPLAY_HEADERS: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "vary",
];

/// Headers that no replay may carry, whatever a route lists (RFC 9110 section 7.6.1 for the
/// hop-by-hop ones).
pub const NEVER_REPLAYED: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A path pattern: segments, of which `{name}` takes any one and a last `*` takes the rest, even none.
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
                Plain::of(text).segments().iter().cloned().map(Segment::Exactly).collect()
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

    /// Whether `path` (without query) matches. Compares bytes: nothing is decoded or normalised, so what was matched is what is sent.
    pub fn matches(&self, path: &str) -> bool {
        path.strip_prefix('/').is_some_and(|inner| self.fits(&self.segments, inner.split('/')))
    }

    /// True if a path of this plain spelling may be one that matches, to some upstream.
    fn matches_plain(&self, plain: &Plain) -> bool {
        self.fits(&self.plain, plain.segments().iter().map(String::as_str))
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

/// All routes, in order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Routes(pub Vec<Route>);

/// What the routes say about a request.
#[derive(Clone, Copy, Debug)]
pub enum Matched<'a> {
    /// This route's protection applies.
    Route(&'a Route),
    /// No route; the method is safe or idempotent by itself, so it streams straight through.
    PassThrough,
    /// Refused, so that nothing passes a route with keys by oversight.
    Refused(Refused),
}

/// Why the routes refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No route takes it, and its method may change state each time (POST, PATCH, or one that we do
    /// not know); or its path climbs.
    NoRoute,
    /// Its path is another spelling of one that a route with keys takes.
    Spelling,
    /// A header names another method or path, and its route does not allow that.
    Override,
}

/// Headers by which some frameworks take another method than that of the request.
const METHOD_OVERRIDES: [&str; 4] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-method"];
/// Headers by which some frameworks take another path than that of the request.
const PATH_OVERRIDES: [&str; 4] = ["x-original-url", "x-original-uri", "x-rewrite-url", "x-override-url"];

impl Routes {
    /// The policies of all routes that look at keys.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.0.iter().filter_map(Route::policy)
    }

    /// The time after its claim from which a key of each route is surely as new again, tombstone
    /// included; `None` where it is kept for ever.
    pub fn lives(&self) -> impl Iterator<Item = Option<Duration>> {
        self.policies().map(|policy| match policy.retention {
            Retention::For(span) => Some(policy.hold + policy.settle_time + span + policy.tombstone),
            Retention::Never => None,
        })
    }

    /// A digest of what each route with keys means, by name: the requests that it takes, the
    /// recovery of their keys and their escrow. The first route that matches takes a request, so
    /// the methods and paths of those before it belong to it.
    pub fn meanings(&self) -> Meanings {
        let mut taken = String::new();
        let mut meanings = Meanings::new();
        for route in &self.0 {
            let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
            // Writing to a `String` cannot fail.
            let _ = writeln!(taken, "{methods:?} {:?}", route.path.as_str());
            if let Some(policy) = route.policy() {
                let how = format!("{} {}", policy.recovery, policy.escrow.name());
                let parts: [&[u8]; 2] = [taken.as_bytes(), how.as_bytes()];
                meanings.insert(route.name.clone(), digest("onceway/route-meaning/1", &parts));
            }
        }
        meanings
    }

    /// The policy of the route of this name, if it looks at keys.
    pub fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        self.0.iter().find(|route| *route.name == *name)?.policy()
    }

    /// The first route that takes this request. It is refused where its upstream may find another
    /// resource than the route says, one that asks for a key: by a path that climbs, by another
    /// spelling of the path, or by a header that overrides method or path.
    pub fn find(&self, method: &Method, path: &str, headers: &HeaderMap) -> Matched<'_> {
        let takes = |route: &Route| route.takes(method) && route.path.matches(path);
        let found = self.0.iter().position(takes);
        let route = found.map(|number| &self.0[number]);
        if !method.is_safe() {
            let plain = Plain::of(path);
            if plain.climbs() {
                return Matched::Refused(Refused::NoRoute);
            }
            if self.is_another_spelling(method, found, &plain) {
                return Matched::Refused(Refused::Spelling);
            }
        }
        let allowed = route.is_some_and(|route| route.allow_overrides) || self.policies().next().is_none();
        if !allowed && is_overridden(method, headers) {
            return Matched::Refused(Refused::Override);
        }
        match route {
            Some(route) => Matched::Route(route),
            // Methods are case-sensitive (RFC 9110, section 9.1) but not every upstream heeds that: `post` is nothing we know.
            None if method.is_idempotent() => Matched::PassThrough,
            None => Matched::Refused(Refused::NoRoute),
        }
    }

    /// True if another route than the one that was found may be meant, one with keys. Not where the
    /// found one takes the plain spelling, too, and stands before: the order of routes says so.
    fn is_another_spelling(&self, method: &Method, found: Option<usize>, plain: &Plain) -> bool {
        let first = found.filter(|number| self.0[*number].path.matches_plain(plain));
        self.0.iter().enumerate().any(|(number, route)| {
            Some(number) != found
                && first.is_none_or(|first| number < first)
                && route.policy().is_some()
                && route.takes(method)
                && route.path.matches_plain(plain)
        })
    }
}

/// True if a header names another method; or another path, where the method may change state.
fn is_overridden(method: &Method, headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        // CGI, WSGI, Rack and PHP take `_` for `-`.
        let name = name.as_str().replace('_', "-");
        METHOD_OVERRIDES.contains(&&*name) || !method.is_safe() && PATH_OVERRIDES.contains(&&*name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        PathPattern::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn patterns_match_bytes_and_whole_segments() {
        assert!(matches("/v1/charges", "/v1/charges"));
        assert!(!matches("/v1/charges", "/v1/charges/"));
        assert!(!matches("/v1/charges", "/v1//charges"));
        assert!(!matches("/v1/charges", "/v1/%63harges"));
        assert!(matches("/v1/charges/{id}/refunds", "/v1/charges/ch_1/refunds"));
        assert!(!matches("/v1/charges/{id}/refunds", "/v1/charges//refunds"));
        assert!(matches("/v1/*", "/v1/"));
        assert!(matches("/v1/*", "/v1/a/b"));
        assert!(matches("/*", "/"));
        assert!(!matches("/v1/*", "/v2/a"));
        assert!(matches("/", "/"));
        assert!(!matches("/", "*"));
    }

    #[test]
    fn bad_patterns_are_refused() {
        for bad in ["v1", "", "/v1/*/x", "/v1/a*", "/v1/{id", "/v1?x"] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
    }

    fn find<'a>(routes: &'a Routes, method: &str, path: &str) -> Matched<'a> {
        routes.find(&Method::from_bytes(method.as_bytes()).unwrap(), path, &HeaderMap::new())
    }

    #[test]
    fn state_changing_methods_without_a_route_are_refused() {
        let routes = Routes::default();
        for refused in ["POST", "PATCH", "post", "Patch", "MKCOL"] {
            let matched = find(&routes, refused, "/x");
            assert!(matches!(matched, Matched::Refused(Refused::NoRoute)), "{refused}");
        }
        for passes in ["GET", "DELETE"] {
            assert!(matches!(find(&routes, passes, "/x"), Matched::PassThrough), "{passes}");
        }
    }

    /// Routes of these paths and with these words for keys, which take any method.
    fn routes(all: &[(&str, &str)]) -> Routes {
        let route = |(path, key): &(&str, &str)| Route {
            name: (*path).into(),
            methods: vec![],
            path: PathPattern::parse(path).unwrap(),
            protection: match *key {
                "off" => Protection::Off { upstream_timeout: UPSTREAM_TIMEOUT },
                "optional" => Protection::Optional(policy()),
                _ => Protection::Required(policy()),
            },
            allow_overrides: *key == "allows",
        };
        Routes(all.iter().map(route).collect())
    }

    fn policy() -> Arc<Policy> {
        Arc::new(Policy {
            syntax: Syntax::Lenient,
            key_policy: KeyPolicy::default(),
            fingerprint: FingerprintRule::Whole,
            mismatch: Mismatch::Unprocessable,
            recovery: Recovery::Park,
            probe: None,
            hold: Duration::ZERO,
            wait: Duration::ZERO,
            upstream_timeout: UPSTREAM_TIMEOUT,
            settle_time: Duration::ZERO,
            status_ends_attempt: false,
            retention: Retention::Never,
            tombstone: Duration::ZERO,
            body_limit: 0,
            stored_limit: 0,
            outcomes: OutcomeSets::default(),
            replay_headers: Vec::new(),
            mode: Mode::Sync,
            accept: Accept {
                request_retention: Duration::ZERO,
                max_runs: 1,
                backoff: Backoff { first: Duration::ZERO, most: Duration::ZERO },
            },
            keep_headers: Vec::new(),
            bind: Binding::Tenant,
            escrow: Escrow::Off,
        })
    }

    fn is_other_spelling(routes: &Routes, path: &str) -> bool {
        matches!(find(routes, "PUT", path), Matched::Refused(Refused::Spelling))
    }

    #[test]
    fn another_spelling_of_a_path_with_keys_is_refused_whatever_else_takes_it() {
        let keyed = ("/v1/transfers/{id}", "required");
        for rest in [&[][..], &[("/*", "off")], &[("/*", "optional")], &[("/*", "required")]] {
            let routes = routes(&[&[("/v1/notes", "off"), keyed, ("/V2/Pay%2f", "required")], rest].concat());
            for other in ["//v1/transfers/1", "/v1/%74ransfers/1", "/v1;a/transfers/1", "/v1/transfers/1/"] {
                assert!(is_other_spelling(&routes, other), "{rest:?} {other}");
            }
            assert!(is_other_spelling(&routes, "/v2/p%61y"), "a pattern has a plain spelling, too");
            for plain in ["/v1/transfers/1", "/v1/transfers/%31", "/v1/notes", "/v1/transfers", "/v1"] {
                assert!(!is_other_spelling(&routes, plain), "{rest:?} {plain}");
            }
            assert!(!matches!(find(&routes, "GET", "//v1/transfers/1"), Matched::Refused(_)), "{rest:?}");
        }
    }

    #[test]
    fn a_route_means_the_requests_that_come_to_it() {
        let usual = [("/v1/pay", "required"), ("/v1/notes", "required")];
        let means = |all: &[(&str, &str)], name| routes(all).meanings().get(name).copied();
        let pay = means(&usual, "/v1/pay").unwrap();
        let with_more = [usual[0], usual[1], ("/v1/more", "required")];
        assert_eq!(means(&with_more, "/v1/pay"), Some(pay), "what comes after takes nothing from it");
        for other in [
            [("/v1/{any}", "required"), ("/v1/pay", "required")],
            [("/v1/notes", "required"), ("/v1/pay", "required")],
        ] {
            assert_ne!(means(&other, "/v1/pay"), Some(pay), "{other:?}");
        }
        let mut put = routes(&usual);
        put.0[0].methods = vec![Method::PUT];
        assert_ne!(put.meanings()["/v1/pay"], pay);
        let lodged = |escrow, recovery| {
            let mut all = routes(&usual);
            all.0[0].protection =
                Protection::Required(Arc::new(Policy { escrow, recovery, ..(*policy()).clone() }));
            all.meanings()["/v1/pay"]
        };
        assert_eq!(lodged(policy().escrow, policy().recovery), pay);
        assert_ne!(lodged(Escrow::Claim(Alone::Refuse), policy().recovery), pay);
        assert_ne!(lodged(policy().escrow, Recovery::Rerun { max_attempts: 77 }), pay);
        let off = Protection::Off { upstream_timeout: UPSTREAM_TIMEOUT };
        let open = Routes(vec![Route { protection: off, ..routes(&usual).0[0].clone() }]);
        assert!(open.meanings().is_empty(), "without keys there is nothing to prove");
    }

    #[test]
    fn the_order_of_routes_says_which_of_two_is_meant() {
        let first = routes(&[("/v1/{name}", "off"), ("/v1/pay", "required")]);
        assert!(!is_other_spelling(&first, "/v1/p%61y"), "/v1/pay itself asks for no key");
        let empty = routes(&[("/a/{x}/pay", "off"), ("/a/pay", "required")]);
        assert!(is_other_spelling(&empty, "/a/;/pay"), "the first does not take the plain spelling");
        assert!(!is_other_spelling(&empty, "/a/x/pay"));
        let split = routes(&[("/c/{id}", "required"), ("/c/{id}/refunds", "required")]);
        assert!(is_other_spelling(&split, "/c/1%2frefunds"), "under which of the two policies?");
    }

    #[test]
    fn a_header_that_overrides_is_refused_unless_its_route_allows_it() {
        let routes = routes(&[("/a", "required"), ("/b", "allows"), ("/c", "off")]);
        let overridden = |method: &str, path: &str, name: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), "/a".parse().unwrap());
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            matches!(routes.find(&method, path, &headers), Matched::Refused(Refused::Override))
        };
        for name in METHOD_OVERRIDES.iter().chain(&PATH_OVERRIDES) {
            for path in ["/a", "/c", "/unlisted"] {
                assert!(overridden("PUT", path, name), "{path} {name}");
            }
            assert!(!overridden("PUT", "/b", name), "{name}");
        }
        assert!(overridden("GET", "/unlisted", "X_HTTP_Method_Override"));
        assert!(!overridden("GET", "/unlisted", "X-Original-URL"), "it stays a GET");
        assert!(!overridden("PUT", "/c", "X-Other"));
        let mut headers = HeaderMap::new();
        headers.insert("x-http-method", "POST".parse().unwrap());
        let none = Routes::default();
        let unkeyed = none.find(&Method::GET, "/a", &headers);
        assert!(matches!(unkeyed, Matched::PassThrough), "there is nothing to get past");
    }

    #[test]
    fn a_path_that_climbs_out_of_its_route_changes_nothing() {
        let routes = routes(&[("/v1/notes/*", "off")]);
        for path in [
            "/v1/notes/../charges",
            "/v1/notes/%2e%2E/charges",
            "/v1/notes/%252e%252e/charges",
            "/v1/notes/.%2e/charges",
            "/v1/notes/..%2Fcharges",
            "/v1/notes/..\\charges",
            "/v1/notes/x%5c..%5ccharges",
            "/v1/notes/..;a=b/charges",
            "/v1/notes/./x",
            "/v1/notes/..",
        ] {
            for method in ["POST", "PUT", "DELETE"] {
                let matched = find(&routes, method, path);
                assert!(matches!(matched, Matched::Refused(Refused::NoRoute)), "{method} {path}");
            }
            assert!(matches!(find(&routes, "GET", path), Matched::Route(_)), "{path}");
        }
        for path in
            ["/v1/notes/a.b", "/v1/notes/...", "/v1/notes/.well-known", "/v1/notes/a%2Fb", "/v1/notes/x;.."]
        {
            assert!(matches!(find(&routes, "POST", path), Matched::Route(_)), "{path}");
        }
    }
}
