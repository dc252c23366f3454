//! Every setting of a route, declared once: its field, and its key, type, bounds, default and
//! words.
//!
//! `config::settings` reads and shows them, `config/routes.toml` is written from them. This file
//! must not change a default: it is left out of the digest of shared settings, so no region would
//! notice.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, Uri};
use serde_json::{Value, json};

use super::choices::{Accept, Binding, Dialect, Escrow, KeyHeaders, Mismatch, Mode, REPLAY_HEADERS};
use super::path::PathPattern;
use super::signature::{Pointer, Selection};
use crate::ports::upstream::KeyForm;
use crate::protocol::key::Syntax;
use crate::protocol::key_policy::{Alphabet, Form, KeyPolicy};
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::{Outcome, OutcomeSets};
use crate::protocol::record::Recovery;
use crate::protocol::worded;

use Kind::{Flag, Life, Number, OfRoute, Own, Size, Span, Word};

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
    /// Its settings; where keys are ignored, only the upstream and its time limit count.
    pub terms: Arc<Policy>,
    /// Allows headers of its requests that name another method or path than they have.
    pub allow_overrides: bool,
}

impl Route {
    pub(super) fn takes(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    /// Its policy, if it looks at keys.
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        (self.protection != Protection::Off).then_some(&self.terms)
    }

    /// Its policy for such a request; `None` if that streams straight through.
    pub(in crate::gateway) fn policy_for(&self, with_key: bool) -> Option<&Arc<Policy>> {
        self.policy().filter(|_| with_key || self.protection == Protection::Required)
    }

    /// The upstream that gets its requests; `None` is the default one.
    pub fn upstream(&self) -> Option<&Arc<str>> {
        self.terms.upstream.as_ref()
    }
}

worded! {
    /// A route's treatment of keys.
    Protection;
    /// Its word in configuration.
    name {
        /// Requests without a key are refused.
        Required = "required",
        /// Requests with a key are protected; those without stream straight through.
        Optional = "optional",
        /// Streams straight through; a key is passed on like any header.
        Off = "off",
    }
}

/// Policy for a route's keyed requests: how each is performed and remembered. Its derived default
/// is blank; [`Policy::usual`] is that of a route.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The headers of the key.
    pub key_headers: KeyHeaders,
    /// Syntax of the key header.
    pub syntax: Syntax,
    /// Rule for acceptable keys.
    pub key_policy: KeyPolicy,
    /// The business signature: parts of a JSON body that count in the fingerprint. `None`: the
    /// whole body, as raw bytes, and in its canonical form if there is a lossless one.
    pub fingerprint: Option<Selection>,
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
    /// Headers that are stored with an unsealed accepted request, beside those of every one.
    pub keep_headers: Vec<HeaderName>,
    /// Callers that may use a key that was claimed on this route.
    pub bind: Binding,
    /// Escrow of its claims: lodged with the next serving region before anything is sent.
    pub escrow: Escrow,
}

impl Policy {
    /// The policy of a route that says nothing: all defaults of the declaration.
    pub fn usual() -> Self {
        let mut policy = Self::default();
        for setting in settings() {
            setting.kind.reset(&mut policy);
        }
        policy
    }

    /// The time after its claim from which a key is surely new again, tombstone included.
    pub fn life(&self) -> Retention {
        self.retention.and(self.hold + self.settle_time + self.tombstone)
    }

    /// True if both end a key in doubt in the same way.
    pub(super) fn ends_alike(&self, other: &Self) -> bool {
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

/// One setting.
pub struct Setting {
    /// Its key below the route, with its table: `hold`, `accept.backoff`.
    pub key: &'static str,
    /// Its type, bounds, default and field.
    pub kind: Kind,
    /// Its purpose and bounds for people, one sentence per line.
    pub words: &'static str,
}

/// A field of a policy.
pub type Field<T> = fn(&mut Policy) -> &mut T;

/// Type of a setting, with its bounds, its default and its field, in this order.
pub enum Kind {
    /// `true` or `false`, which is the default.
    Flag(Field<bool>),
    /// A span of time from the first to the second; the third is the default.
    Span(Duration, Duration, Duration, Field<Duration>),
    /// A span or `"never"`; the span is the default.
    Life(Duration, Field<Retention>),
    /// A size in bytes from the first to [`MOST_BYTES`]; the second is the default.
    Size(usize, usize, Field<usize>),
    /// A whole number from the first to the second; the third is the default. Written and read.
    Number(u64, u64, u64, fn(&mut Policy, u64), fn(&Policy) -> u64),
    /// One of a few words.
    Word(&'static dyn OneOf),
    /// A value with rules of its own, as the reference file writes it, and as peers compare it.
    Own(&'static str, fn(&Policy) -> Value),
    /// The same of the route itself. `null` is its default.
    OfRoute(&'static str, fn(&Route) -> Value),
}

impl Kind {
    /// Gives the field its default. Values with rules of their own have theirs already.
    fn reset(&self, policy: &mut Policy) {
        match *self {
            Self::Flag(field) => *field(policy) = false,
            Self::Span(_, _, usual, field) => *field(policy) = usual,
            Self::Life(usual, field) => *field(policy) = Retention::For(usual),
            Self::Size(_, usual, field) => *field(policy) = usual,
            Self::Number(_, _, usual, set, _) => set(policy, usual),
            Self::Word(words) => words.set(policy, 0),
            Self::Own(..) | Self::OfRoute(..) => {}
        }
    }
}

/// A setting that is one of a few words, by their place. The first is the default.
pub trait OneOf: Sync {
    /// The words.
    fn words(&self) -> Vec<&'static str>;
    /// Takes the word at this place.
    fn set(&self, policy: &mut Policy, place: usize);
    /// The word of this policy.
    fn get(&self, policy: &mut Policy) -> &'static str;
}

/// All meanings, the word of each, and the field.
struct Words<T: 'static>(&'static [T], fn(T) -> &'static str, Field<T>);

impl<T: Copy + Sync> OneOf for Words<T> {
    fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|meaning| self.1(*meaning)).collect()
    }

    fn set(&self, policy: &mut Policy, place: usize) {
        if let Some(meaning) = self.0.get(place) {
            *self.2(policy) = *meaning;
        }
    }

    fn get(&self, policy: &mut Policy) -> &'static str {
        self.1(*self.2(policy))
    }
}

const fn of(key: &'static str, kind: Kind, words: &'static str) -> Setting {
    Setting { key, kind, words }
}

/// All settings, in the order in which the reference file has them.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    EVERY.iter().chain(&KEYED)
}

/// Most bytes of a body: bodies are held in memory while they are read, and answers in one row.
pub const MOST_BYTES: usize = 256 << 20;
const MIB: usize = 1 << 20;
/// Longest span of a setting.
pub const LONG: Duration = days(3_650);
/// Longest span of a job.
const YEAR: Duration = days(365);
const ZERO: Duration = Duration::ZERO;

const fn days(count: u64) -> Duration {
    secs(count * 86_400)
}

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

const TEN_MS: Duration = Duration::from_millis(10);

/// The tables of a route with their purposes.
#[rustfmt::skip]
pub const TABLES: [(&str, &str); 3] = [
    ("key_policy", "
        Which keys are taken; the rest is refused with 400 before anything is looked up.
        A table of a route stands after its plain settings."),
    ("fingerprint", "
        Without this table the whole body says what is asked.
        That is its bytes, or, for JSON that every parser reads alike, its values.
        With it only the named fields do (include), or all others (exclude).
        So a retry may differ elsewhere and still gets the first answer.
        A field is a JSON pointer, in which * stands for every element or member.
        There ~1 is a slash, and ~0 a tilde.
        A field that is absent counts as absent, which is not null.
        Method and target always count.
        Requests without such a JSON body are refused (422), never guessed."),
    ("accept", "
        How accepted requests are stored and run.
        Only where mode is \"prefer\" or \"accept\"."),
];

/// Settings that a route has whether it looks at keys or not.
#[rustfmt::skip]
pub static EVERY: [Setting; 7] = [
    of("name", OfRoute("name = \"charges\" # no default", |route| json!(*route.name)), "
        Its name, in metrics and logs: letters, digits, '-', '_', '.'."),
    of("methods", OfRoute("methods = [\"POST\"] # default: [], any",
        |route| listed(&route.methods, Method::as_str)), "
        The methods of the requests that it takes."),
    of("path", OfRoute("path = \"/v1/charges\" # no default", |route| json!(route.path.as_str())), "
        The path it takes, byte by byte.
        One segment of any text is {id}, and a last * takes the rest.
        No route takes a request that may change state and whose path climbs (a segment of dots).
        The upstream could find another resource there, so it is refused.
        Nor does another spelling of a path with keys pass: it is refused with 400.
        Such are %74 for t, //, ;x, a trailing slash, and other letters."),
    of("allow_overrides", OfRoute("allow_overrides = false # default",
        |route| route.allow_overrides.then_some(true).into()), "
        Whether requests may have headers that name another method or path.
        Such are X-HTTP-Method-Override, X-Original-URL and their kin.
        Elsewhere they are refused with 400, on requests without a route too.
        A service that heeds them would find a route with keys."),
    of("key", OfRoute("key = \"required\" # no default", |route| json!(route.protection.name())), "
        The handling of keys: \"required\", \"optional\" or \"off\".
        Where it is \"required\", requests without a key are refused.
        Where it is \"optional\", those without stream straight through.
        Where it is \"off\", no key is looked at.
        Then nothing below may be written but upstream and upstream_timeout."),
    of("upstream", OfRoute("# upstream = \"stripe\" # default: none, that of [upstream]",
        |route| route.upstream().map(|name| &**name).into()), "
        The service that gets this route's requests: [upstreams.NAME] of the region file."),
    of("upstream_timeout", Span(TEN_MS, LONG, secs(10), |p| &mut p.upstream_timeout), "
        How long the upstream may take for its whole answer, at least 10ms.
        When it is over, the key is in doubt.
        For a request that passes without a key: how long the upstream may be silent, at one go.
        Then the client gets 504 `upstream-timeout`, or its answer breaks off.
        It is 60s for requests that no route takes."),
];

/// Settings of routes that look at keys.
#[rustfmt::skip]
pub static KEYED: [Setting; 37] = [
    of("syntax", Word(&Words(&Syntax::ALL, Syntax::name, |p| &mut p.syntax)), "
        How the Idempotency-Key header is parsed.
        With \"lenient\", \"abc\" in quotes (RFC 8941) and bare abc are the same key.
        With \"strict\", only the quoted form is taken."),
    of("key_from", Own("key_from = [\"header:Idempotency-Key\"] # default",
        |policy| listed(&policy.key_headers.from, HeaderName::as_str)), "
        The headers that a key is read from, each as \"header:NAME\": the first that is there.
        Two that hold different keys are refused with 400."),
    of("forward_key", Word(&Words(&KeyForm::ALL, KeyForm::name, |p| &mut p.key_headers.to.form)), "
        The form in which the upstream gets the key: \"quoted\" (RFC 8941), \"bare\" or \"as-sent\".
        A lenient syntax with recovery = \"rerun\" refuses \"as-sent\"."),
    of("forward_key_header", Own("forward_key_header = \"Idempotency-Key\" # default",
        |policy| json!(policy.key_headers.to.header.as_str())), "
        The header in which the upstream gets the key.
        The headers of key_from are not passed on beside it."),
    of("mismatch", Own("mismatch = 422 # default",
        |policy| json!(if policy.mismatch == Mismatch::Conflict { 409 } else { 422 })), "
        The status of a key that was used for another request.
        It is 422, as the IETF draft has it, or 409.
        The problem and its code stay."),
    of("dialect", Word(&Words(&Dialect::ALL, Dialect::name, |p| &mut p.dialect)), "
        The form of this route's refusals.
        The form \"plain\" is RFC 9457, with an error object beside it.
        With \"stripe\" there is also what Stripe's SDKs know: 400 for a reused or expired key,
        the code idempotency_key_in_use, and the header Stripe-Should-Retry.
        Then mismatch is left out."),
    of("recovery", Own("recovery = \"probe\"",
        |policy| json!(policy.recovery.to_string().split(' ').next())), "
        What happens to a key in doubt: one whose effect may or may not have happened.
        No default, because a wrong guess is a double charge.
          \"rerun\"  run it again, up to max_attempts: the upstream is idempotent by key, or
                   checks the fencing token
          \"probe\"  ask the upstream's status address, given as probe
          \"park\"   leave it to an operator"),
    of("probe", Own("probe = \"/onceway/effects\" # no default",
        |policy| policy.probe.as_ref().map(ToString::to_string).into()), "
        The upstream's path that tells whether an attempt happened.
        Needed for, and only for, recovery = \"probe\"."),
    of("hold", Span(secs(1), LONG, secs(30), |p| &mut p.hold), "
        How long a claim may go without an outcome before it is in doubt; at least 1s.
        Less clock drift, it must leave room for claiming (4s) and for upstream_timeout.
        Otherwise nothing could ever be sent."),
    of("wait", Span(ZERO, LONG, secs(5), |p| &mut p.wait), "
        How long a duplicate waits for the running attempt before it is told to come back.
        At most hold; \"0s\": not at all."),
    of("settle_time", Span(ZERO, LONG, ZERO, |p| &mut p.settle_time), "
        How long a request may still be at work inside the upstream after its hold ran out.
        An answer \"did not happen\" counts only after that.
        From 0s."),
    of("status_ends_attempt", Flag(|p| &mut p.status_ends_attempt), "
        Whether an answer with an unknown status (5xx, 408) ends its attempt.
        Then \"did not happen\" counts at once, and not after hold and settle_time.
        A proxy or load balancer answers 502 or 504 while the service still works.
        So true only where nothing stands between."),
    of("retention", Life(days(1), |p| &mut p.retention), "
        How long a key is remembered from its newest attempt, not from its first.
        At least 1s, and longer than hold and settle_time together.
        Then it is refused, never run again.
        With tombstone, longer than hold, settle_time, and lease and beyond of ring.toml together.
        So long may a client have to retry when a region is lost.
        With \"never\" the key is remembered until somebody deletes it (ledgers)."),
    of("tombstone", Span(ZERO, LONG, days(30), |p| &mut p.tombstone), "
        How long a key past its retention is refused with 410 before it is forgotten.
        With 0s it is forgotten at once."),
    of("escrow", Own("escrow = \"off\" # default", |_| Value::Null), "
        Replication is asynchronous, so a region that is destroyed takes its last rows with it.
        With \"claim\", a key's claim is also lodged with the next serving region before anything
        is sent, so that region knows what was begun.
        With \"claim+answer\", so is the answer, before a client gets it.
        One round trip between regions each, for which hold must leave room (1s each).
        With \"off\", what was lost with a region may run a second time.
        What is written here is a proposal.
        It holds in all regions at once by `onceway init` and `onceway ring apply`."),
    of("bind", Word(&Words(&Binding::ALL, Binding::name, |p| &mut p.bind)), "
        To whom a key is bound by its first use.
        With \"tenant\", whoever of the tenant asks again gets the answer.
        With \"principal\", only the same principal (credentials.toml) does.
        To all others it is 422 key-reused, as if the key were another request's."),
    of("body_limit", Size(0, MIB, |p| &mut p.body_limit), "
        The largest request body, read whole before anything is claimed; 0B to 256MiB."),
    of("stored_limit", Size(1, MIB, |p| &mut p.stored_limit), "
        The largest answer body that is kept for replays, 1B to 256MiB.
        A larger one is passed on, and replays say that it was not kept."),
    of("final", Own(
    r#"final = ["2xx", "3xx", 400, 402, "404-407", "409-420", "422-424", "426-428", "430-499"] # default"#,
        |policy| statuses(&policy.outcomes, Outcome::Final)), "
        What the upstream's statuses mean: 404, \"4xx\" or \"400-407\".
        One list left out is its default without what the other claims.
        Every status in neither list is unknown, and leaves the key in doubt.
        Here are those whose answer is final, which is kept and replayed."),
    of("nothing_happened", Own(
        "nothing_happened = [401, 403, 421, 425, 429, \"503+Retry-After\"] # default",
        |policy| statuses(&policy.outcomes, Outcome::NothingHappened)), "
        The statuses with which the upstream surely did nothing, so the key is free again.
        Proxies answer 503 also when a connection broke after the request was sent.
        So list it only where nothing stands between.
        An item \"503+Retry-After\" counts only where the answer says when to come back."),
    of("replay_headers", Own("replay_headers = [\"x-charge-id\"] # default: []",
        |policy| {
            let all = policy.replay_headers.iter().map(HeaderName::as_str);
            sorted(all.filter(|name| !REPLAY_HEADERS.contains(name)))
        }), "
        Answer headers that a replay carries beyond those that describe the answer itself.
        Those are content-type, location, etag and their like.
        Set-Cookie, Date and those of one connection are refused."),
    of("mode", Word(&Words(&Mode::ALL, Mode::name, |p| &mut p.mode)), "
        Whether a client waits for the answer.
        With \"sync\" it does, and Prefer is not heeded.
        With \"prefer\", a request with Prefer: respond-async is stored and run by a worker.
        Its client gets 202 and an address to ask at.
        With \"accept\", so is every request."),
    of("key_policy.min_length", Number(1, 255, 1,
        |p, n| p.key_policy.min_length = n as usize, |p| p.key_policy.min_length as u64), "
        How many characters at least, 1 to 255."),
    of("key_policy.max_length", Number(1, 255, 255,
        |p, n| p.key_policy.max_length = n as usize, |p| p.key_policy.max_length as u64), "
        How many characters at most, 1 to 255."),
    of("key_policy.alphabet", Word(&Words(
        &Alphabet::ALL, Alphabet::name, |p| &mut p.key_policy.alphabet)), "
        The characters of a key: \"visible\" (any visible ASCII), \"url-safe\" (letters, digits and
        -_.~) or \"hex\" (digits and a-f)."),
    of("key_policy.form", Word(&Words(&Form::ALL, Form::name, |p| &mut p.key_policy.form)), "
        The form of a key: \"any\", \"uuid\" (any version but nil and max), \"uuid-v4\" or \"uuid-v7\"."),
    of("key_policy.entropy_bits", Number(0, KeyPolicy::MOST_BITS as u64, 0,
        |p, n| p.key_policy.entropy_bits = n as u32, |p| u64::from(p.key_policy.entropy_bits)), "
        The least randomness, 0 to 32 bits, by a plain estimate; 0: no estimate.
        A digit counts 3 bits, a letter 4 (2 in a run of four or more of one case).
        What continues a run (aaa, 123) or repeats three characters seen before counts nothing.
        So \"order-1001\" has 22, and a random UUID about 103.
        A floor of 32 catches counters and words."),
    of("fingerprint.include", Own(
        "include = [\"/amount\", \"/currency\", \"/destination/account\", \"/lines/*/amount\"] # no default",
        |policy| match &policy.fingerprint {
            Some(Selection::Include(fields)) => pointers(fields),
            _other => Value::Null,
        }), "
        From 1 to 64 fields that count, and no others."),
    of("fingerprint.exclude", Own("# exclude = [\"/metadata\", \"/sent_at\"] # no default",
        |policy| match &policy.fingerprint {
            Some(Selection::Exclude(fields)) => pointers(fields),
            _other => Value::Null,
        }), "
        In place of include: 1 to 64 fields that do not count, while all others do."),
    of("fingerprint.headers", Own("headers = [\"Stripe-Account\"] # default: []",
        |policy| listed(&policy.fingerprint_headers, HeaderName::as_str)), "
        Headers that are part of what a request asks, with all their values.
        With them alone the whole body counts."),
    of("max_attempts", Own("max_attempts = 3 # default", |policy| match policy.recovery {
        Recovery::Rerun { max_attempts } => json!(max_attempts),
        Recovery::Probe | Recovery::Park => Value::Null,
    }), "
        After so many attempts that may have happened the key is parked, 1 to 1000.
        One that surely did nothing does not count.
        Only with recovery = \"rerun\"."),
    of("accept.request_retention", Span(secs(1), YEAR, days(1), |p| &mut p.accept.request_retention), "
        How long the request itself may be stored, 1s to 365d.
        At most as long as the key is remembered.
        Then it is erased, run or not."),
    of("accept.max_runs", Number(1, 1_000, 20,
        |p, n| p.accept.max_runs = n as u32, |p| u64::from(p.accept.max_runs)), "
        How often it is run before it is a dead letter for an operator (`onceway jobs`), 1 to 1000.
        With the spans below, that is half an hour to an hour."),
    of("accept.backoff", Span(TEN_MS, YEAR, secs(1), |p| &mut p.accept.backoff.first), "
        The span between the first two runs, 10ms to 365d, doubled each time.
        Half of each span is chance."),
    of("accept.backoff_most", Span(TEN_MS, YEAR, secs(300), |p| &mut p.accept.backoff.most), "
        The longest such span, 10ms to 365d."),
    of("accept.keep_headers", Own("keep_headers = [] # default",
        |policy| sorted(policy.keep_headers.iter().map(HeaderName::as_str))), "
        Headers that are stored with a request that is not sealed ([accept] of the region file).
        They stand beside those that describe every request: Accept*, Content-*, Host,
        Idempotency-Key, Prefer, User-Agent, trace and X-Forwarded-*, X-Request-Id.
        Others may be secrets, and are left out.
        Not Authorization, Cookie and Proxy-Authorization: only a sealed request keeps those."),
    of("escrow_alone", Own("escrow_alone = \"run\" # default: \"refuse\"", |_| Value::Null), "
        Only with escrow: what to do while no other region serves.
        With \"refuse\" new keys are refused (503), with \"run\" they run without escrow."),
];

fn listed<T>(all: &[T], text: impl Fn(&T) -> &str) -> Value {
    all.iter().map(text).collect()
}

/// The texts in an order of their own, for lists in which order has no meaning.
fn sorted<'a>(texts: impl Iterator<Item = &'a str>) -> Value {
    let mut texts: Vec<&str> = texts.collect();
    texts.sort_unstable();
    json!(texts)
}

fn pointers(fields: &[Pointer]) -> Value {
    sorted(fields.iter().map(Pointer::as_str))
}

/// The statuses of this meaning. Those that need a date to come back say so.
fn statuses(sets: &OutcomeSets, meaning: Outcome) -> Value {
    let one = |status: u16| match (sets.classify(status, false), sets.classify(status, true)) {
        (said, _) if said == meaning => Some(json!(status)),
        (Outcome::Unknown, said) if said == meaning => Some(json!(format!("{status}+Retry-After"))),
        _ => None,
    };
    (200..=599).filter_map(one).collect()
}
