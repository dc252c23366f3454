//! The published contract for clients: rules of each route for keys, comparison, retention and
//! answers, as draft-ietf-httpapi-idempotency-key-header-07 wants (section 2.6).
//!
//! It must not hold what clients need not know: no upstream, no hold, no region.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::gateway::policy::route::{Binding, Dialect, KeyHeaders, Mode, Policy, Protection, Route, Routes};
use crate::gateway::policy::signature::{FingerprintRule, Pointer, Selection};
use crate::gateway::request::problems::{self, Kind, Problem};
use crate::protocol::key::Syntax;
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::{Outcome, OutcomeSets};

/// The version of this document's form: members are added under the same version, never changed.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    documentation: &'static str,
    unlisted: Unlisted,
    routes: Vec<RouteJson<'a>>,
}

/// Handling of requests that no route takes.
#[derive(Serialize)]
struct Unlisted {
    state_changing: Refusal,
    others: &'static str,
}

#[derive(Serialize)]
struct RouteJson<'a> {
    name: &'a str,
    /// `None`: any.
    methods: Option<Vec<&'a str>>,
    path: &'a str,
    key: &'static str,
    #[serde(flatten)]
    terms: Option<Terms<'a>>,
}

#[derive(Serialize)]
struct Terms<'a> {
    header: Header<'a>,
    key_policy: KeyPolicyJson,
    scope: [&'static str; 1],
    /// Callers within the scope that may get a replay.
    replayed_to: &'static str,
    fingerprint: FingerprintJson<'a>,
    /// A number of seconds, or `"never"` forgotten.
    retention: Value,
    /// `None`: a key never expires, or is forgotten at once.
    expired: Option<Expired>,
    wait_seconds: f64,
    /// - `sync`: the client waits.
    /// - `prefer`: it need not wait, if it says so.
    /// - `accept`: it never waits.
    mode: &'static str,
    /// Address of accepted requests, and of any key; the key follows it.
    status_address: &'static str,
    statuses: BTreeMap<&'static str, Vec<String>>,
    refusals: Vec<Refusal>,
}

/// Answer to a key past its retention, and for how many seconds. After that the key is new again.
#[derive(Serialize)]
struct Expired {
    seconds: u64,
    #[serde(flatten)]
    refusal: Refusal,
}

#[derive(Serialize)]
struct Header<'a> {
    name: &'static str,
    /// The headers that a key is read from, if others than that one: the first that is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<&'a str>>,
    syntax: &'static str,
}

#[derive(Serialize)]
struct KeyPolicyJson {
    min_length: usize,
    max_length: usize,
    alphabet: &'static str,
    form: &'static str,
    entropy_bits: u32,
}

#[derive(Serialize)]
struct FingerprintJson<'a> {
    parts: [&'static str; 3],
    body: &'static str,
    compared: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<&'a str>,
}

#[derive(Serialize)]
struct Refusal {
    status: u16,
    code: &'static str,
    documentation: String,
}

impl Refusal {
    fn of(problem: &Problem, dialect: Dialect) -> Self {
        let code = problem.code();
        Self { status: problem.status_in(dialect), code, documentation: problems::anchor(code) }
    }
}

pub fn document(routes: &Routes, quota: bool) -> Vec<u8> {
    let document = Document {
        version: VERSION,
        documentation: problems::PAGE,
        unlisted: Unlisted {
            state_changing: Refusal::of(&Kind::NoRoute.problem(), Dialect::Plain),
            others: "passed on; a key has no effect",
        },
        routes: routes.0.iter().map(|one| route(one, quota)).collect(),
    };
    serde_json::to_vec(&document).unwrap_or_default()
}

fn route(route: &Route, quota: bool) -> RouteJson<'_> {
    let is_required = matches!(route.protection, Protection::Required(_));
    RouteJson {
        name: &route.name,
        methods: (!route.methods.is_empty())
            .then(|| route.methods.iter().map(|method| method.as_str()).collect()),
        path: route.path.as_str(),
        key: route.protection.name(),
        terms: route.policy().map(|policy| terms(policy, is_required, quota)),
    }
}

fn terms(policy: &Policy, required: bool, quota: bool) -> Terms<'_> {
    let rules = &policy.key_policy;
    Terms {
        header: Header {
            name: "Idempotency-Key",
            names: (policy.key_headers.from != KeyHeaders::default().from)
                .then(|| policy.key_headers.from.iter().map(http::HeaderName::as_str).collect()),
            syntax: match policy.syntax {
                Syntax::Lenient => "lenient",
                Syntax::Strict => "strict",
            },
        },
        key_policy: KeyPolicyJson {
            min_length: rules.min_length,
            max_length: rules.max_length,
            alphabet: rules.alphabet.name(),
            form: rules.form.name(),
            entropy_bits: rules.entropy_bits,
        },
        scope: ["tenant"],
        replayed_to: match policy.bind {
            Binding::Tenant => "tenant",
            Binding::Principal => "principal",
        },
        fingerprint: fingerprint(policy),
        retention: match policy.retention {
            Retention::For(span) => json!(span.as_secs()),
            Retention::Never => json!("never"),
        },
        expired: expired(policy),
        wait_seconds: policy.wait.as_secs_f64(),
        mode: policy.mode.name(),
        status_address: problems::KEYS,
        statuses: statuses(&policy.outcomes),
        refusals: refusals(policy, required, quota),
    }
}

fn expired(policy: &Policy) -> Option<Expired> {
    let seconds = policy.tombstone.as_secs();
    match policy.retention {
        Retention::For(_) if seconds > 0 => {
            Some(Expired { seconds, refusal: Refusal::of(&Kind::KeyExpired.problem(), policy.dialect) })
        }
        Retention::For(_) | Retention::Never => None,
    }
}

fn fingerprint(policy: &Policy) -> FingerprintJson<'_> {
    let (body, fields) = match &policy.fingerprint {
        FingerprintRule::Whole => ("whole", None),
        FingerprintRule::Signature(Selection::Include(fields)) => ("include", Some(fields)),
        FingerprintRule::Signature(Selection::Exclude(fields)) => ("exclude", Some(fields)),
    };
    FingerprintJson {
        parts: ["method", "target", "body"],
        body,
        compared: match fields {
            Some(_) => "JSON values (RFC 8785)",
            None => "bytes, or JSON values (RFC 8785) where that is lossless",
        },
        fields: fields.map(|fields| fields.iter().map(Pointer::as_str).collect()),
        headers: policy.fingerprint_headers.iter().map(http::HeaderName::as_str).collect(),
    }
}

/// Meaning of each status of an answer for the key; every possible status is in one list.
///
/// - `final`: stored and replayed.
/// - `released`: nothing happened, so the same key runs again. With `Retry-After` only: if that is
///   beside it, and in doubt without.
/// - `unknown`: in doubt, to be retried with the same key only.
fn statuses(sets: &OutcomeSets) -> BTreeMap<&'static str, Vec<String>> {
    let means = |status: u16| (sets.classify(status, false), sets.classify(status, true));
    let of = |bare: Outcome, with_retry_after: Outcome| {
        let found: Vec<u16> =
            (200..=599).filter(|status| means(*status) == (bare, with_retry_after)).collect();
        let text = |range: &[u16]| match range {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        };
        found.chunk_by(|one, next| one + 1 == *next).map(text).collect()
    };
    BTreeMap::from([
        ("final", of(Outcome::Final, Outcome::Final)),
        ("released", of(Outcome::NothingHappened, Outcome::NothingHappened)),
        ("released_with_retry_after", of(Outcome::Unknown, Outcome::NothingHappened)),
        ("unknown", of(Outcome::Unknown, Outcome::Unknown)),
    ])
}

fn refusals(policy: &Policy, required: bool, quota: bool) -> Vec<Refusal> {
    let signed = matches!(policy.fingerprint, FingerprintRule::Signature(_));
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
        (expired(policy).is_some(), Kind::KeyExpired.problem()),
        (policy.mode != Mode::Sync, Kind::DeadLetter.problem()),
        (signed, Kind::FingerprintImpossible.problem()),
        (quota, Kind::QuotaExceeded.problem()),
    ];
    let published = refusals.into_iter().filter(|(may_be, _)| *may_be);
    published.map(|(_, problem)| Refusal::of(&problem, policy.dialect)).collect()
}
