//! The published contract for clients: rules of each route for keys, comparison, retention and
//! answers, as draft-ietf-httpapi-idempotency-key-header-07 wants (section 2.6).
//!
//! It must not hold what clients need not know: no upstream, no hold, no region.

use http::{HeaderName, Method};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::gateway::policy::route::{Dialect, KeyHeaders, Mode, Policy, Protection, Route, Routes};
use crate::gateway::policy::signature::{Pointer, Selection};
use crate::gateway::request::problems::{self, Kind, Problem};
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::{Outcome, OutcomeSets};

/// The version of this document's form: members are added under the same version, never changed.
const VERSION: u32 = 1;

/// JSON whose members stay in the order in which they are written.
#[derive(Serialize)]
#[serde(untagged)]
enum Json {
    One(Value),
    List(Vec<Json>),
    #[serde(serialize_with = "in_order")]
    Object(Members),
}

type Members = Vec<(&'static str, Json)>;

fn in_order<S: Serializer>(members: &[(&'static str, Json)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(members.iter().map(|(name, value)| (name, value)))
}

fn is(name: &'static str, value: impl Into<Value>) -> (&'static str, Json) {
    (name, Json::One(value.into()))
}

fn refusal(problem: &Problem, dialect: Dialect) -> Members {
    let (status, code) = (problem.status_in(dialect), problem.code());
    vec![is("status", status), is("code", code), is("documentation", problems::anchor(code))]
}

pub fn document(routes: &Routes, quota: bool) -> Vec<u8> {
    // Requests that no route takes.
    let unlisted = vec![
        ("state_changing", Json::Object(refusal(&Kind::NoRoute.problem(), Dialect::Plain))),
        is("others", "passed on; a key has no effect"),
    ];
    let document = Json::Object(vec![
        is("version", VERSION),
        is("documentation", problems::PAGE),
        ("unlisted", Json::Object(unlisted)),
        ("routes", Json::List(routes.0.iter().map(|one| route(one, quota)).collect())),
    ]);
    serde_json::to_vec(&document).unwrap_or_default()
}

fn route(route: &Route, quota: bool) -> Json {
    let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
    let is_required = route.protection == Protection::Required;
    let mut members = vec![
        is("name", &*route.name),
        // `null`: any.
        is("methods", (!methods.is_empty()).then_some(methods)),
        is("path", route.path.as_str()),
        is("key", route.protection.name()),
    ];
    members.extend(route.policy().into_iter().flat_map(|policy| terms(policy, is_required, quota)));
    Json::Object(members)
}

fn terms(policy: &Policy, required: bool, quota: bool) -> Members {
    let from = &policy.key_headers.from;
    // The headers that a key is read from, if others: the first that is there.
    let others = (*from != KeyHeaders::default().from).then(|| is("names", names(from)));
    let header = [Some(is("name", "Idempotency-Key")), others, Some(is("syntax", policy.syntax.name()))];
    let rules = &policy.key_policy;
    let key_policy = vec![
        is("min_length", rules.min_length),
        is("max_length", rules.max_length),
        is("alphabet", rules.alphabet.name()),
        is("form", rules.form.name()),
        is("entropy_bits", rules.entropy_bits),
    ];
    let retention = match policy.retention {
        Retention::For(span) => json!(span.as_secs()),
        Retention::Never => json!("never"),
    };
    let expired = refused_for(policy).map(|seconds| {
        let refusal = refusal(&Kind::KeyExpired.problem(), policy.dialect);
        Json::Object([is("seconds", seconds)].into_iter().chain(refusal).collect())
    });
    vec![
        ("header", Json::Object(header.into_iter().flatten().collect())),
        ("key_policy", Json::Object(key_policy)),
        is("scope", vec!["tenant"]),
        // Callers within the scope that may get a replay.
        is("replayed_to", policy.bind.name()),
        ("fingerprint", fingerprint(policy)),
        is("retention", retention),
        ("expired", expired.unwrap_or(Json::One(Value::Null))),
        is("wait_seconds", policy.wait.as_secs_f64()),
        // `sync`: the client waits. `prefer`: it need not, if it says so. `accept`: it never does.
        is("mode", policy.mode.name()),
        // Address of accepted requests, and of any key; the key follows it.
        is("status_address", problems::KEYS),
        is("statuses", statuses(&policy.outcomes)),
        ("refusals", Json::List(refusals(policy, required, quota))),
    ]
}

fn names(headers: &[HeaderName]) -> Value {
    headers.iter().map(HeaderName::as_str).collect()
}

/// Seconds for which a key past its retention is refused, if it ever is. Then it is new again.
fn refused_for(policy: &Policy) -> Option<u64> {
    let seconds = policy.tombstone.as_secs();
    (policy.retention != Retention::Never && seconds > 0).then_some(seconds)
}

fn fingerprint(policy: &Policy) -> Json {
    let (body, fields) = match &policy.fingerprint {
        None => ("whole", None),
        Some(Selection::Include(fields)) => ("include", Some(fields)),
        Some(Selection::Exclude(fields)) => ("exclude", Some(fields)),
    };
    let compared = match fields {
        Some(_) => "JSON values (RFC 8785)",
        None => "bytes, or JSON values (RFC 8785) where that is lossless",
    };
    let mut members =
        vec![is("parts", vec!["method", "target", "body"]), is("body", body), is("compared", compared)];
    let fields = fields.map(|fields| fields.iter().map(Pointer::as_str).collect::<Value>());
    members.extend(fields.map(|fields| is("fields", fields)));
    let headers = &policy.fingerprint_headers;
    members.extend((!headers.is_empty()).then(|| is("headers", names(headers))));
    Json::Object(members)
}

/// Meaning of each status of an answer for the key; every possible status is in one list.
///
/// - `final`: stored and replayed.
/// - `released`: nothing happened, so the same key runs again. With `Retry-After` only: if that is
///   beside it, and in doubt without.
/// - `unknown`: in doubt, to be retried with the same key only.
fn statuses(sets: &OutcomeSets) -> Value {
    let means = |status: u16| (sets.classify(status, false), sets.classify(status, true));
    let of = |bare: Outcome, with_retry_after: Outcome| {
        let found: Vec<u16> =
            (200..=599).filter(|status| means(*status) == (bare, with_retry_after)).collect();
        let text = |range: &[u16]| match range {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        };
        found.chunk_by(|one, next| one + 1 == *next).map(text).collect::<Value>()
    };
    json!({
        "final": of(Outcome::Final, Outcome::Final),
        "released": of(Outcome::NothingHappened, Outcome::NothingHappened),
        "released_with_retry_after": of(Outcome::Unknown, Outcome::NothingHappened),
        "unknown": of(Outcome::Unknown, Outcome::Unknown),
    })
}

fn refusals(policy: &Policy, required: bool, quota: bool) -> Vec<Json> {
    let refusals = [
        (required, Kind::KeyMissing.problem()),
        (policy.key_policy.entropy_bits > 0, Kind::KeyWeak.problem()),
        (true, Kind::KeyMalformed.problem()),
        (true, Kind::KeyEmpty.problem()),
        (true, Kind::KeyTooLong.problem()),
        (true, Kind::KeyRepeated.problem()),
        (true, Kind::CredentialInvalid.problem()),
        (true, Kind::InProgress.problem()),
        (true, Kind::InDoubt.problem()),
        (true, Kind::BodyTooLarge.problem()),
        (true, policy.mismatch.into()),
        (refused_for(policy).is_some(), Kind::KeyExpired.problem()),
        (policy.mode != Mode::Sync, Kind::DeadLetter.problem()),
        (policy.fingerprint.is_some(), Kind::FingerprintImpossible.problem()),
        (quota, Kind::QuotaExceeded.problem()),
    ];
    let published = refusals.into_iter().filter(|(may_be, _)| *may_be);
    published.map(|(_, problem)| Json::Object(refusal(&problem, policy.dialect))).collect()
}
