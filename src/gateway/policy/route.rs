//! Routes: the requests that need a key, and the policy under which a key's effect is performed.
//!
//! `config` parses and checks them. All regions share one set of routes. This file must not read
//! files nor answer requests.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::signature::FingerprintRule;
use super::spelling::Plain;
use crate::ports::upstream::ForwardKey;
use crate::protocol::digest::digest;
use crate::protocol::escrow::Meanings;
use crate::protocol::job::Backoff;
use crate::protocol::key::{Key, KeyError, Syntax};
use crate::protocol::key_policy::KeyPolicy;
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::OutcomeSets;
use crate::protocol::record::Recovery;

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name, in metrics, logs and records: nothing is decided by it but what a view says.
    pub name: Arc<str>,
    /// The methods it takes; empty means any.
    pub methods: Vec<Method>,
    /// The paths it takes.
    pub path: PathPattern,
    /// Its treatment of keys.
    pub protection: Protection,
    /// Allows headers of its requests that name another method or path than they have.
    pub allow_overrides: bool,
}

impl Route {
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

    /// Time limit for the upstream's answer to a request of this route.
    pub fn upstream_timeout(&self) -> Duration {
        match &self.protection {
            Protection::Off { upstream_timeout, .. } => *upstream_timeout,
            Protection::Optional(policy) | Protection::Required(policy) => policy.upstream_timeout,
        }
    }

    /// The upstream that gets its requests; `None` is the default one.
    pub fn upstream(&self) -> Option<&Arc<str>> {
        match &self.protection {
            Protection::Off { upstream, .. } => upstream.as_ref(),
            Protection::Optional(policy) | Protection::Required(policy) => policy.upstream.as_ref(),
        }
    }
}

/// A route's treatment of keys.
#[derive(Clone, Debug)]
pub enum Protection {
    /// Streams straight through; a key is passed on like any header.
    Off {
        /// Time for which the upstream may be silent.
        upstream_timeout: Duration,
        /// The upstream that gets them; `None` is the default one.
        upstream: Option<Arc<str>>,
    },
    /// Requests with a key are protected; those without stream straight through.
    Optional(Arc<Policy>),
    /// Requests without a key are refused.
    Required(Arc<Policy>),
}

/// The headers from which a key is read, and the one in which the upstream gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHeaders {
    /// The first of these that a request has holds its key.
    pub from: Vec<HeaderName>,
    /// The upstream's header, and the form there.
    pub to: ForwardKey,
}

impl Default for KeyHeaders {
    fn default() -> Self {
        let to = ForwardKey::default();
        Self { from: vec![to.header.clone()], to }
    }
}

impl KeyHeaders {
    /// True if one of the headers is there.
    pub fn are_in(&self, headers: &HeaderMap) -> bool {
        self.from.iter().any(|name| headers.contains_key(name))
    }

    /// Reads the key, with its header's value.
    ///
    /// # Errors
    /// There is none, it is malformed, or two headers hold different ones: picking one would be a
    /// guess.
    pub fn read(&self, headers: &HeaderMap, syntax: Syntax) -> Result<(Key, HeaderValue), KeyError> {
        let mut found = None;
        for name in &self.from {
            let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            let Some(written) = headers.get(name) else { continue };
            let key = Key::from_header_values(&lines, syntax)?;
            match &found {
                None => found = Some((key, written.clone())),
                Some((first, _)) if *first == key => {}
                Some(_) => return Err(KeyError::Repeated),
            }
        }
        found.ok_or(KeyError::Missing)
    }

    /// Leaves the key in `Idempotency-Key` alone, as it was written: in the headers that it was
    /// read from, and in those that some services take for them (`X_Request_Key`), the upstream
    /// could find another one.
    pub fn move_into(&self, headers: &mut HeaderMap, own: &HeaderName, written: HeaderValue) {
        if self.from.iter().any(|name| name != own) {
            let is = |name: &HeaderName| {
                let spelt = name.as_str().replace('_', "-");
                self.from.iter().any(|from| from.as_str().replace('_', "-") == spelt)
            };
            let gone: Vec<HeaderName> = headers.keys().filter(|name| is(name)).cloned().collect();
            gone.iter().for_each(|name| drop(headers.remove(name)));
            headers.insert(own.clone(), written);
        }
    }
}

/// Policy for a route's keyed requests: how each is performed and remembered.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The headers of the key.
    pub key_headers: KeyHeaders,
    /// Syntax of the key header.
    pub syntax: Syntax,
    /// Rule for acceptable keys.
    pub key_policy: KeyPolicy,
    /// Parts of a body that count in the fingerprint.
    pub fingerprint: FingerprintRule,
    /// Headers that count in the fingerprint, in the order of their names.
    pub fingerprint_headers: Vec<HeaderName>,
    /// Refusal of a key that was used for another request.
    pub mismatch: Mismatch,
    /// The form of refusals.
    pub dialect: Dialect,
    /// The rule for a key in doubt.
    pub recovery: Recovery,
    /// The upstream's status address, present on every route whose recovery is `probe`.
    pub probe: Option<Uri>,
    /// Time that a claim may last without an outcome.
    pub hold: Duration,
    /// Time that a duplicate waits for the running attempt.
    pub wait: Duration,
    /// Time limit for the upstream's whole answer. For a request that passes without a key: time
    /// for which the upstream may be silent.
    pub upstream_timeout: Duration,
    /// The upstream that performs the effect; `None` is the default one.
    pub upstream: Option<Arc<str>>,
    /// Time that a request may still be at work inside the upstream after its hold ran out.
    pub settle_time: Duration,
    /// An answer with an unknown status ends its attempt, so that "did not happen" counts at once.
    pub status_ends_attempt: bool,
    /// Time for which a key is promised to be remembered.
    pub retention: Retention,
    /// Time for which a key past its retention is refused before it is forgotten.
    pub tombstone: Duration,
    /// The largest request body, in bytes.
    pub body_limit: usize,
    /// The largest answer body that is kept, in bytes.
    pub stored_limit: usize,
    /// Meaning of the upstream's statuses.
    pub outcomes: OutcomeSets,
    /// The answer headers that a replay carries.
    pub replay_headers: Vec<HeaderName>,
    /// Says if a client waits for the answer, or gets the address of a later one.
    pub mode: Mode,
    /// Rules for storing and running accepted requests.
    pub accept: Accept,
    /// The headers that are stored with an accepted request that is not sealed, beside those of
    /// every request.
    pub keep_headers: Vec<HeaderName>,
    /// Callers that may use a key that was claimed on this route.
    pub bind: Binding,
    /// Escrow of its claims: lodged with the next serving region before anything is sent.
    pub escrow: Escrow,
}

impl Policy {
    /// The time after its claim from which a key is surely new again, tombstone included; stored
    /// answers outlive it by the skew.
    pub fn life(&self) -> Retention {
        self.retention.and(self.hold + self.settle_time + self.tombstone)
    }

    /// True if both end a key in doubt in the same way.
    fn ends_alike(&self, other: &Self) -> bool {
        self.recovery == other.recovery
            && self.upstream == other.upstream
            && self.probe == other.probe
            && self.outcomes == other.outcomes
            && self.stored_limit == other.stored_limit
            && self.replay_headers == other.replay_headers
            && self.retention == other.retention
            && self.tombstone == other.tombstone
    }
}

/// Default time limit for the upstream's answer.
pub const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Placeholder for the route of a request that no route takes.
pub(in crate::gateway) const NO_ROUTE: &str = "-";
/// Time for which the upstream may be silent about a request that no route takes.
pub const UNLISTED_TIMEOUT: Duration = Duration::from_secs(60);

/// Escrow of a route: the parts that are lodged with the next serving region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escrow {
    /// Nothing is lodged: a region that is destroyed may take its last claims with it.
    Off,
    /// The claim is lodged before anything is sent.
    Claim(Alone),
    /// The claim is lodged, and the answer before the client gets it.
    ClaimAndAnswer(Alone),
}

/// Time limit for another region to store a claim, or an answer.
pub(in crate::gateway) const LODGED_WITHIN: Duration = Duration::from_secs(1);

impl Escrow {
    /// Time limit for all that a request lodges.
    pub(in crate::gateway) fn time_limit(self) -> Duration {
        match self {
            Self::Off => Duration::ZERO,
            Self::Claim(_) => LODGED_WITHIN,
            Self::ClaimAndAnswer(_) => LODGED_WITHIN * 2,
        }
    }

    /// The name of the lodged parts, as a configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Claim(_) => "claim",
            Self::ClaimAndAnswer(_) => "claim+answer",
        }
    }
}

/// Rule of a route under escrow while no other region serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// Refuses new keys.
    Refuse,
    /// Runs them without escrow.
    Run,
}

/// Says if a client waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The client waits. `Prefer: respond-async` is ignored (RFC 7240 section 2 allows that).
    Sync,
    /// The client chooses: with `Prefer: respond-async` the request is accepted.
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

/// Rules for storing and running accepted requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// Time for which the request itself may be stored.
    pub request_retention: Duration,
    /// Runs of a job before it is a dead letter.
    pub max_runs: u32,
    /// The span between two runs.
    pub backoff: Backoff,
}

/// Binding of a key by its first claim (docs/protocol.md#rule-1: the replay cache as an oracle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// To the tenant: all its callers get the answer.
    Tenant,
    /// To the tenant's principal that claimed it: for all others it looks like a key of another
    /// request.
    Principal,
}

/// Dialect of the refusal of a key that was used for another request. The problem and its code are
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Status 422, as the IETF draft has it.
    Unprocessable,
    /// Status 409, as some payment APIs have it.
    Conflict,
}

/// The form that a route's clients expect of refusals. It decides nothing: the problem, its code
/// and whether a retry is safe are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// RFC 9457, with the statuses of the IETF draft.
    Plain,
    /// The statuses, the error codes and the retry header that Stripe's SDKs know.
    Stripe,
}

/// Headers that a replay carries by default: those that describe the answer, not the connection or
/// the moment.
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

/// Headers that no replay may carry, even if a route lists them (RFC 9110 section 7.6.1 for the
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
    fn matches_plain(&self, plain: &Plain<'_>) -> bool {
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

/// All routes, in order of precedence.
#[derive(Clone, Debug, Default)]
pub struct Routes(pub Vec<Route>);

/// Decision of the routes about a request.
#[derive(Clone, Copy, Debug)]
pub enum Matched<'a> {
    /// This route's protection applies.
    Route(&'a Route),
    /// No route; the method is safe or idempotent by itself, so it streams straight through.
    PassThrough,
    /// Refused, so that nothing passes a route with keys by oversight.
    Refused(Refused),
}

impl Matched<'_> {
    /// True if the request has a key.
    pub fn has_key(&self, headers: &HeaderMap) -> bool {
        let policy = match self {
            Matched::Route(route) => route.policy(),
            Matched::PassThrough | Matched::Refused(_) => None,
        };
        match policy {
            Some(policy) => policy.key_headers.are_in(headers),
            None => headers.contains_key("idempotency-key"),
        }
    }
}

/// Reason why the routes refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No route takes it, and its method may change state each time (POST, PATCH, or an unknown
    /// one). Or its path climbs.
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

    /// The longest life that a route promises.
    pub fn longest_life(&self) -> Option<Retention> {
        self.policies().map(|policy| policy.life()).max()
    }

    /// A digest of each route's meaning, by name: the requests that it takes, the recovery of its
    /// keys and its escrow. The first route that matches takes a request. So the methods and paths
    /// of earlier routes are part of the meaning.
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

    /// The policy under which a doubt is ended whose request is not at hand: that of the routes
    /// that take a request with its path, which is what a record says of it. `None` if no route
    /// does, or if their methods make a difference: then only the request itself shows which it is.
    ///
    /// The name in a record says nothing here: it is from the files of some region at some time.
    pub fn of_path(&self, path: &str) -> Option<&Arc<Policy>> {
        let (mut taken, mut found) = (Vec::new(), None);
        for route in self.0.iter().filter(|route| route.path.matches(path)) {
            let any = route.methods.is_empty();
            let takes = any || route.methods.iter().any(|method| !taken.contains(&method));
            match (route.policy().filter(|_| takes), found) {
                (Some(policy), None) => found = Some(policy),
                (Some(policy), Some(other)) if !policy.ends_alike(other) => return None,
                (Some(_), Some(_)) | (None, _) => {}
            }
            if any {
                break;
            }
            taken.extend(&route.methods);
        }
        found
    }

    /// The first route that takes this request. The request is refused if its upstream may find
    /// another resource, one that needs a key. Ways to that are a path that climbs, another
    /// spelling of the path, and a header that overrides method or path.
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
            // Methods are case-sensitive (RFC 9110, section 9.1), but some upstreams ignore that:
            // `post` is an unknown method.
            None if method.is_idempotent() => Matched::PassThrough,
            None => Matched::Refused(Refused::NoRoute),
        }
    }

    /// True if the request may mean another route than the found one, and that route has keys.
    /// False if the found one also takes the plain spelling and comes earlier: the order of routes
    /// decides.
    fn is_another_spelling(&self, method: &Method, found: Option<usize>, plain: &Plain<'_>) -> bool {
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

/// True if a header names another method, or another path if the method may change state.
fn is_overridden(method: &Method, headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        // CGI, WSGI, Rack and PHP take `_` for `-`.
        let name = name.as_str().replace('_', "-");
        METHOD_OVERRIDES.contains(&&*name) || !method.is_safe() && PATH_OVERRIDES.contains(&&*name)
    })
}

#[cfg(test)]
mod tests;
