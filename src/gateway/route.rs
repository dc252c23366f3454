//! Routes: which requests need a key, and the policy under which a key's effect is performed.
//!
//! Neighbours: `config` parses and checks them, [`super::admit`] matches them. All regions share one set of routes. It must
//! not read files nor answer requests.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, Uri};

use super::signature::FingerprintRule;
use crate::protocol::decide::{Over, Recovery};
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
}

impl Route {
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
        let segments =
            whole.into_iter().map(|segment| Self::segment(segment, text)).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), segments, rest })
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
        let Some(inner) = path.strip_prefix('/') else { return false };
        let mut given = inner.split('/');
        for segment in &self.segments {
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
    /// No route, and the method may change state each time (POST, PATCH, or one that we do not know), or a path that climbs: refused, so that no such route stays unprotected by oversight.
    Refused,
}

impl Routes {
    /// The policies of all routes that look at keys.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.0.iter().filter_map(Route::policy)
    }

    /// How long after its claim a key of each route is surely as new again, tombstone included; `None` where it is kept for ever.
    pub fn lives(&self) -> impl Iterator<Item = Option<Duration>> {
        self.policies().map(|policy| match policy.retention {
            Retention::For(span) => Some(policy.hold + policy.settle_time + span + policy.tombstone),
            Retention::Never => None,
        })
    }

    /// The policy of the route of this name, if it looks at keys.
    pub fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        self.0.iter().find(|route| *route.name == *name)?.policy()
    }

    /// The first route that takes this method and path. A request that may change state and whose path climbs is taken by none: its
    /// upstream may find another resource there than the route says, one that asks for a key.
    pub fn find(&self, method: &Method, path: &str) -> Matched<'_> {
        if !method.is_safe() && climbs(path) {
            return Matched::Refused;
        }
        let takes = |route: &&Route| {
            (route.methods.is_empty() || route.methods.contains(method)) && route.path.matches(path)
        };
        match self.0.iter().find(takes) {
            Some(route) => Matched::Route(route),
            // Methods are case-sensitive (RFC 9110, section 9.1) but not every upstream heeds that: `post` is nothing we know.
            None if method.is_idempotent() => Matched::PassThrough,
            None => Matched::Refused,
        }
    }
}

/// Whether a segment is `.` or `..` for some upstream: percent-encoded, beside a backslash or an encoded slash, or with parameters.
fn climbs(path: &str) -> bool {
    let mut read = path.to_ascii_lowercase();
    for (code, character) in [("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("\\", "/"), ("%3b", ";")] {
        read = read.replace(code, character);
    }
    read.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
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

    #[test]
    fn state_changing_methods_without_a_route_are_refused() {
        let routes = Routes::default();
        assert!(matches!(routes.find(&Method::POST, "/x"), Matched::Refused));
        assert!(matches!(routes.find(&Method::PATCH, "/x"), Matched::Refused));
        assert!(matches!(routes.find(&Method::GET, "/x"), Matched::PassThrough));
        assert!(matches!(routes.find(&Method::DELETE, "/x"), Matched::PassThrough));
        for unknown in ["post", "Patch", "MKCOL"] {
            let unknown = Method::from_bytes(unknown.as_bytes()).unwrap();
            assert!(matches!(routes.find(&unknown, "/x"), Matched::Refused), "{unknown}");
        }
    }

    #[test]
    fn a_path_that_climbs_out_of_its_route_changes_nothing() {
        let path = PathPattern::parse("/v1/notes/*").unwrap();
        let protection = Protection::Off { upstream_timeout: UPSTREAM_TIMEOUT };
        let routes = Routes(vec![Route { name: "notes".into(), methods: vec![], path, protection }]);
        for path in [
            "/v1/notes/../charges",
            "/v1/notes/%2e%2E/charges",
            "/v1/notes/.%2e/charges",
            "/v1/notes/..%2Fcharges",
            "/v1/notes/..\\charges",
            "/v1/notes/x%5c..%5ccharges",
            "/v1/notes/..;a=b/charges",
            "/v1/notes/./x",
            "/v1/notes/..",
        ] {
            for method in [Method::POST, Method::PUT, Method::DELETE] {
                assert!(matches!(routes.find(&method, path), Matched::Refused), "{method} {path}");
            }
            assert!(matches!(routes.find(&Method::GET, path), Matched::Route(_)), "{path}");
        }
        for path in
            ["/v1/notes/a.b", "/v1/notes/...", "/v1/notes/.well-known", "/v1/notes/a%2Fb", "/v1/notes/x;.."]
        {
            assert!(matches!(routes.find(&Method::POST, path), Matched::Route(_)), "{path}");
        }
    }
}
