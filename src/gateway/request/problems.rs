//! The problems that a client can meet: their codes, words and advice (RFC 9457); and the own
//! paths.
//!
//! One row of the table says all of a code, which never changes its meaning: clients branch on it.
//! This file must not hold any text that a client or an upstream chose.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::gateway::operator::percent;
use crate::gateway::policy::route::{Dialect, Mismatch, Refused};
use crate::gateway::policy::signature::Unsigned;
use crate::protocol::key::{Key, KeyError};
use crate::protocol::key_policy::Breach;

/// Path of the page of all problems.
pub const PAGE: &str = "/.well-known/onceway/problems";

/// The side that has to change something. It gives the type of the `error` object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Client,
    /// The client, or just the time at which it used the key.
    Key,
    Gateway,
    /// The upstream. Its own status may blame the client.
    Upstream,
}

pub struct Row {
    pub code: &'static str,
    pub fault: Fault,
    /// True if the same request may be sent again with the same key.
    pub safe_to_retry: bool,
    pub title: &'static str,
    /// Advice for the reader. Must be true for every answer with this code.
    pub advice: &'static str,
}

macro_rules! table {
    ($($code:literal $($kind:ident $status:literal)|+ $fault:ident $safe:literal $title:literal $advice:literal)*) => {
        /// A kind of problem. Some kinds share a code, and are told apart only inside the gateway.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[doc = $title] $kind,)+)* }

        /// The first kind of every code.
        pub const KINDS: &[Kind] = &[$([$(Kind::$kind),+][0]),*];

        impl Kind {
            pub const fn row(self) -> &'static Row {
                match self {
                    $($(Kind::$kind)|+ => &Row {
                        code: $code, fault: Fault::$fault, safe_to_retry: $safe, title: $title, advice: $advice,
                    },)*
                }
            }

            const fn status(self) -> u16 {
                match self { $($(Kind::$kind => $status,)+)* }
            }
        }
    };
}

// Code, kinds with their statuses, fault, safe to retry; title; advice.
table! {
    "key-missing" KeyMissing 400 Client false
        "This route requires an Idempotency-Key"
        "Send one header, Idempotency-Key, with a fresh random value such as a UUID for every intended effect, and the same value for every retry of it."
    "key-empty" KeyEmpty 400 Client false
        "The Idempotency-Key is empty"
        "Send 1 to 255 visible ASCII characters."
    "key-too-long" KeyTooLong 400 Client false
        "The Idempotency-Key is too long"
        "Send at most 255 characters."
    "key-malformed" KeyMalformed 400 | KeyUnfit 400 Client false
        "The Idempotency-Key is malformed"
        "Send visible ASCII characters, best as a quoted string: Idempotency-Key: \"8e03978e-40d5-43dd-bc93-6894a57f9324\"."
    "key-repeated" KeyRepeated 400 Client false
        "More than one Idempotency-Key"
        "Send exactly one header with exactly one value."
    "key-weak" KeyWeak 400 Client false
        "The Idempotency-Key is too easy to guess"
        "Send a fresh random value for every intended effect, such as a UUID of version 4 or 7. A counter, a date or a word is used twice sooner or later, and the second effect would be lost."
    "credential-invalid" CredentialInvalid 401 Client false
        "No valid credential"
        "Send Authorization: Bearer followed by a token that this gateway knows."
    "no-route" NoRoute 404 Client false
        "No route takes this request"
        "State-changing requests are refused unless a route says how they are protected. Check method and path, or ask the operator to add a route."
    "path-spelling" OtherSpelling 400 Client false
        "The path is another spelling of one that asks for a key"
        "Nothing was stored or sent. Some upstreams read this path as one that a route with keys takes: after decoding it, without its repeated or trailing slashes or its parameters, or with other letters. Send the path as the route writes it, with its key."
    "override-refused" Overridden 400 Client false
        "A header names another method or path"
        "Nothing was stored or sent. Send the method and the path that are meant, without headers such as X-HTTP-Method-Override or X-Original-URL; or ask the operator to allow them on this route."
    "body-too-large" BodyTooLarge 413 Client false
        "The request body is over this route's limit"
        "Send a smaller body; nothing was stored or sent."
    "body-broken" BodyBroken 400 Client true
        "The request body could not be read"
        "The body broke off before its end; nothing was stored or sent. Send the request again with the same key."
    "fingerprint-impossible" FingerprintImpossible 422 Client false
        "The request cannot be compared with a retry"
        "This route compares requests by fields of a JSON body. Send application/json in UTF-8 without a byte order mark, without two members of one name, without numbers from 2^53 on or beyond a double's precision, without half surrogate pairs, and nested at most 64 levels deep. Nothing was stored or sent."
    "key-reused" KeyReused 422 Key false
        "The Idempotency-Key was used for another request"
        "A key names one intended effect. Use a fresh key for a new request; repeat the exact request to get its answer again."
    "key-expired" KeyExpired 410 Key false
        "The Idempotency-Key is past its retention"
        "The key was used, its answer is no longer kept, and it never runs again. Find out by other means whether the effect happened, then use a fresh key."
    "in-progress" InProgress 409 Key true
        "The first request with this key is still running"
        "Send the same request again with the same key after Retry-After."
    "key-unknown" KeyUnknown 404 Client false
        "There is no such key"
        "No request with this key is known here. A request that was refused before it ran leaves no key behind."
    "dead-letter" DeadLetter 409 Upstream false
        "The accepted request could not be run"
        "It was accepted and its runs failed, or its request may no longer be stored. An operator has to retry or drop it; until then no retry runs it. Never send it with a fresh key before you know what became of it: the status address tells."
    "outcome-unknown" OutcomeUnknown 504 | UpstreamUnclear 502 | InDoubt 409 | Parked 409 Upstream true
        "It is not known whether the effect happened"
        "Retry with the same key after Retry-After: the effect happens at most once. Never retry with a fresh key. Where safe_to_retry stays true and the answer stays unknown, an operator has to look."
    "store-unavailable" StoreUnavailable 503 Gateway true
        "The key store does not answer"
        "Nothing was sent. Retry with the same key after Retry-After."
    "not-founded" NotFounded 503 Gateway true
        "This deployment runs no keys yet"
        "Nothing was sent. An operator has to found it once with `onceway init`; retry with the same key after that."
    "gateway-outdated" Outgrown 503 Gateway true
        "This gateway is too old for its deployment"
        "Nothing was sent. Retry with the same key after Retry-After: a gateway of a newer version has to answer."
    "quota-exceeded" QuotaExceeded 429 Client true
        "The tenant is over one of its quotas"
        "Nothing was stored or sent. Send it again with the same key after Retry-After; start keys, retry and ask for their state more slowly; a new key may have to wait until older ones are forgotten."
    "overloaded" Overloaded 503 Gateway true
        "The gateway has all the requests that it can take at once"
        "Nothing was stored or sent. Send it again with the same key after Retry-After; it may be answered by another gateway then."
    "moving" Moving 503 Gateway true
        "The key's home is moving"
        "Nothing was sent. Retry with the same key after Retry-After."
    "not-authoritative" NotAuthoritative 503 Gateway true
        "This region may not run the key now"
        "Nothing was sent. Retry with the same key after Retry-After."
    "home-unavailable" HomeUnavailable 503 Gateway true
        "The key's home region cannot be reached"
        "Retry with the same key after Retry-After. If an earlier attempt reached the home region, the retry will find its answer."
    "escrow-unavailable" EscrowUnavailable 503 Gateway true
        "The key's claim could not be stored in a second region"
        "Nothing was sent. Retry with the same key after Retry-After."
    "upstream-unavailable" UpstreamUnavailable 502 Upstream true
        "The upstream cannot be reached"
        "Nothing was sent. Retry with the same key after Retry-After."
    "upstream-credential" CredentialRefused 502 Upstream true
        "The upstream refuses this gateway"
        "The gateway's own credential for the upstream is wrong or was withdrawn, so nothing happened. An operator has to put it right; retry with the same key after Retry-After."
    "upstream-broke" UpstreamBroke 502 Upstream false
        "The upstream broke off before it answered"
        "The request was sent without an Idempotency-Key and may have taken effect. Repeat it only if its method is idempotent; else find out by other means first."
    "upstream-timeout" UpstreamSilent 504 Upstream false
        "The upstream did not answer in time"
        "The request was sent without an Idempotency-Key and may have taken effect, now or later. Repeat it only if its method is idempotent; else find out by other means first."
    "stopping" Stopping 503 Gateway true
        "This gateway is stopping"
        "Nothing was sent. Retry with the same key."
    "body-not-kept" BodyNotKept 200 Upstream true
        "The answer's body was too large to keep"
        "The effect happened once and its status is replayed; the first client got the body. Fetch the resource by other means."

    // Refusals of the listeners, before the gateway sees the request.
    "bad-request" BadRequest 400 Client true
        "The request is malformed"
        "The request's head, target or framing can be read in more than one way, so nothing was made of it. Send it as RFC 9112 has it: one Host, one length, a path as its target."
    "method-not-supported" MethodNotSupported 501 Gateway true
        "The method is not supported"
        "CONNECT and TRACE are not passed on by this gateway."
    "head-too-large" HeadTooLarge 431 Client true
        "The request's head is too large"
        "Send at most 100 headers, and 64 KiB of them."
    "head-too-slow" HeadTooSlow 408 Client true
        "The request's head took too long"
        "Nothing was made of the request. Send it again, with the same key, over a new connection."
    "target-too-long" TargetTooLong 414 Client true
        "The target is too long"
        "Send at most 8 KiB of path and query."
    "expectation-failed" ExpectationFailed 417 Client true
        "The expectation cannot be met"
        "Send Expect: 100-continue, or no Expect at all."
    "not-a-peer-message" NotAPeerMessage 404 Client true
        "There is no such peer message"
        "Between gateways: run neighbouring versions of onceway in all regions."
    "peer-version" PeerVersion 409 Client true
        "The peer speaks no protocol version that is spoken here"
        "Between gateways: run neighbouring versions of onceway in all regions, see docs/operate/upgrade.md."
    "peer-forged" PeerForged 403 Client true
        "The certificate is of another region"
        "Between gateways: a message names the region that its sender's certificate names."
    "peer-forbidden" PeerForbidden 403 Client true
        "The peer may not say this here"
        "Between gateways: the table of deploy/PEERS.md says who may; revoke what a region that left still has."
    "peer-revoked" PeerRevoked 403 Client true
        "The certificate was revoked"
        "Between gateways: a region that was removed stays out; another certificate lets a present one in."
    "bad-peer-message" BadPeerMessage 400 Client true
        "The peer's message is malformed"
        "Between gateways: run neighbouring versions of onceway in all regions."
    "peer-body-too-large" PeerBodyTooLarge 413 Client true
        "The body of the peer's message is too large"
        "Between gateways: run one configuration in all regions."
    "peer-body-broken" PeerBodyBroken 408 Client true
        "The body of the peer's message did not arrive"
        "Between gateways: the sender tells its client that the outcome is unknown."
}

impl Kind {
    /// The first kind of every code of the gateway itself.
    fn own() -> impl Iterator<Item = Self> {
        KINDS.iter().copied().filter(|kind| *kind < Kind::BadRequest)
    }

    /// The gateway's own kind with this code.
    pub fn of(code: &str) -> Option<Self> {
        Self::own().find(|kind| kind.row().code == code)
    }

    /// The problem, explained by the advice of its code.
    pub fn problem(self) -> Problem {
        self.said(self.row().advice)
    }

    /// The problem, with the time until a client should ask again.
    pub fn after(self, after: Duration) -> Problem {
        Problem { after: Some(after), ..self.problem() }
    }

    /// The problem, explained by nothing but this.
    pub fn said(self, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem { kind: self, status: self.status(), after: None, detail: detail.into() }
    }

    /// The word for logs and metrics about a request that ended so.
    pub fn verdict(self) -> &'static str {
        match self {
            Kind::OutcomeUnknown | Kind::UpstreamUnclear | Kind::InDoubt | Kind::Parked => "in_doubt",
            Kind::InProgress => "in_progress",
            Kind::KeyReused => "key_reused",
            Kind::KeyExpired => "key_expired",
            _other => "refused",
        }
    }
}

/// Reason why a request got no answer of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: Kind,
    /// The status of its answer in the plain dialect.
    pub status: u16,
    /// Time until a client should ask again, if that helps.
    pub after: Option<Duration>,
    pub detail: Cow<'static, str>,
}

impl From<Refused> for Problem {
    fn from(why: Refused) -> Self {
        match why {
            Refused::NoRoute => Kind::NoRoute,
            Refused::Spelling => Kind::OtherSpelling,
            Refused::Override => Kind::Overridden,
        }
        .problem()
    }
}

impl From<KeyError> for Problem {
    fn from(why: KeyError) -> Self {
        let kind = match why {
            KeyError::Missing => Kind::KeyMissing,
            KeyError::Empty => Kind::KeyEmpty,
            KeyError::TooLong { .. } => Kind::KeyTooLong,
            KeyError::Malformed { .. } => Kind::KeyMalformed,
            KeyError::Repeated => Kind::KeyRepeated,
        };
        kind.problem().because(why)
    }
}

impl From<Breach> for Problem {
    fn from(why: Breach) -> Self {
        let kind = match why {
            Breach::Guessable { .. } => Kind::KeyWeak,
            Breach::Short { .. } | Breach::Long { .. } | Breach::Alphabet(_) | Breach::Form(_) => {
                Kind::KeyUnfit
            }
        };
        kind.problem().because(why)
    }
}

impl From<Unsigned> for Problem {
    fn from(why: Unsigned) -> Self {
        Kind::FingerprintImpossible.problem().because(why)
    }
}

impl From<Mismatch> for Problem {
    fn from(form: Mismatch) -> Self {
        let problem = Kind::KeyReused.problem();
        if form == Mismatch::Conflict { problem.with_status(409) } else { problem }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<Value>,
    safe_to_retry: bool,
    documentation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorObject<'a>>,
}

/// A refusal as clients of payment APIs know it: SDKs that look for this member throw.
#[derive(Serialize)]
struct ErrorObject<'a> {
    r#type: &'static str,
    code: &'a str,
    message: &'a str,
}

impl Problem {
    pub fn code(&self) -> &'static str {
        self.kind.row().code
    }

    pub fn status_in(&self, dialect: Dialect) -> u16 {
        match (self.kind, dialect) {
            (Kind::KeyReused | Kind::KeyExpired, Dialect::Stripe) => 400,
            (_, Dialect::Plain | Dialect::Stripe) => self.status,
        }
    }

    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// The same with a reason before the advice of its code.
    pub fn because(self, reason: impl Display) -> Self {
        Self { detail: format!("{reason}. {}", self.kind.row().advice).into(), ..self }
    }

    /// The problem document (RFC 9457, section 3).
    pub fn to_json(&self, dialect: Dialect) -> Vec<u8> {
        let row = self.kind.row();
        let (status, detail) = (self.status_in(dialect), &*self.detail);
        let code = match (self.kind, dialect) {
            (Kind::InProgress, Dialect::Stripe) => "idempotency_key_in_use",
            (_, Dialect::Plain | Dialect::Stripe) => row.code,
        };
        let r#type = match (row.fault, status) {
            (Fault::Key, _) => "idempotency_error",
            (Fault::Gateway, _) | (Fault::Upstream, 500..) => "api_error",
            (Fault::Client | Fault::Upstream, 401) => "authentication_error",
            (Fault::Client | Fault::Upstream, 429) => "rate_limit_error",
            (Fault::Client | Fault::Upstream, _) => "invalid_request_error",
        };
        let document = Document {
            r#type: format!("urn:onceway:problem:{}", row.code),
            title: row.title,
            status,
            detail,
            code: row.code,
            retry_after: self.after.map(|span| match self.kind {
                Kind::Moving => Value::from(span.as_nanos().div_ceil(1_000_000) as f64 / 1_000.0),
                _whole => Value::from(seconds(span)),
            }),
            safe_to_retry: row.safe_to_retry,
            documentation: anchor(row.code),
            // A replay whose body was not kept is no error: the effect happened.
            error: (self.kind != Kind::BodyNotKept).then_some(ErrorObject { r#type, code, message: detail }),
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }
}

/// Whole seconds, rounded up: the header `Retry-After` has no others (RFC 9110, 10.2.3).
pub fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// The codes of the gateway's own problems, for metrics.
pub fn codes() -> impl Iterator<Item = &'static str> {
    Kind::own().map(|kind| kind.row().code)
}

/// The `Link` to a code's explanation (RFC 8288; the IETF draft asks for `describedby`).
pub fn described_by(code: &str) -> String {
    format!("<{}>; rel=\"describedby\"", anchor(code))
}

pub fn anchor(code: &str) -> String {
    format!("{PAGE}#{code}")
}

pub fn page() -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>onceway: problems</title>\n<h1>Problems</h1>\n",
    );
    page.push_str(&format!(
        "<p>What each route asks of a key, compares, remembers and answers: <a href=\"{path}\">{path}</a>.</p>\n",
        path = PUBLICATION
    ));
    for Row { code, title, advice, .. } in KINDS.iter().map(|kind| kind.row()) {
        page.push_str(&format!("<h2 id=\"{code}\">{code}</h2>\n<p><b>{title}.</b> {advice}</p>\n"));
    }
    page
}

/// Path of the contract for clients.
pub const PUBLICATION: &str = "/.well-known/idempotency";
/// Path of the state of keys; the key follows, percent-encoded.
pub const KEYS: &str = "/.well-known/onceway/requests/";

/// The address of a key's state.
pub fn status_url(key: &Key) -> String {
    format!("{KEYS}{}", percent::encode(key.as_str()))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn every_code_is_once_in_the_table() {
        let codes: std::collections::BTreeSet<&str> = KINDS.iter().map(|kind| kind.row().code).collect();
        assert_eq!(codes.len(), KINDS.len());
    }

    #[test]
    fn seconds_round_up() {
        let text = |problem: Problem| {
            let json: Value = serde_json::from_slice(&problem.to_json(Dialect::Plain)).unwrap();
            json["retry_after"].to_string()
        };
        assert_eq!(text(Kind::Stopping.after(Duration::from_millis(1_001))), "2");
        assert_eq!(text(Kind::Moving.after(Duration::from_micros(250_001))), "0.251");
    }
}
