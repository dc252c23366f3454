//! The problems that a client can meet: their codes, words and advice (RFC 9457).
//!
//! A code never changes its meaning: clients branch on it. This file must not hold statuses, nor
//! any text that a client or an upstream chose.

mod kinds;
mod listeners;
mod seconds;

use std::time::Duration;

use serde::Serialize;

use crate::gateway::policy::route::{Dialect, Mismatch, Refused};
use crate::gateway::policy::signature::Unsigned;
use crate::protocol::key::KeyError;
use crate::protocol::key_policy::Breach;
use kinds::{KINDS, Kind};
use seconds::Seconds;

/// Path of the page of all problems.
pub const PAGE: &str = "/.well-known/onceway/problems";

/// Reason why a request got no answer of the upstream. `after` is the time until a client should
/// ask again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The key header is missing, repeated, empty, over-long or malformed.
    Key(KeyError),
    /// The key breaks a rule of its route.
    KeyRefused(Breach),
    /// No known credential.
    CredentialInvalid,
    /// No route takes this state-changing request.
    NoRoute,
    /// The path is another spelling of one that a route with keys takes.
    OtherSpelling,
    /// A header names another method or path than the request has.
    Overridden,
    /// The body is over the route's limit.
    BodyTooLarge { limit: usize },
    /// The body broke off or was malformed.
    BodyBroken,
    /// The route compares requests by fields of a JSON body, and this body has no lossless reading.
    FingerprintImpossible(Unsigned),
    /// The key was used for another request.
    KeyReused { dialect: Mismatch },
    /// Past retention.
    KeyExpired,
    /// The first request with this key is still running.
    InProgress { after: Duration },
    /// The key does not exist, or is not this tenant's.
    KeyUnknown,
    /// Its job failed too often, or cannot be run any more; an operator decides.
    DeadLetter,
    /// In doubt until an operator settles or releases it.
    Parked { after: Duration },
    /// An earlier attempt is in doubt, and the upstream could not say yet if it happened.
    InDoubt { after: Duration },
    /// This attempt's outcome is not known.
    OutcomeUnknown {
        /// The upstream's status, if it gave one.
        upstream: Option<u16>,
        after: Duration,
    },
    /// The region's store does not answer, or restarted and is not approved yet; nothing was sent.
    StoreUnavailable { after: Duration },
    /// The deployment's register has no view yet; nothing was sent.
    NotFounded { after: Duration },
    /// The regions go by a protocol version that this gateway does not speak; nothing was sent.
    Outgrown { after: Duration },
    /// The tenant starts keys, or asks for them, faster than its quota, or has as many as it may.
    /// Nothing was stored or sent.
    QuotaExceeded { after: Duration },
    /// The gateway has as many requests, or as large ones, as it may; nothing was read or sent.
    Overloaded { after: Duration },
    /// The key's arc is moving; nothing was sent.
    Moving { after: Duration },
    /// The region has no lease, or the right to send under the claim was over; nothing was sent.
    NotAuthoritative { after: Duration },
    /// The claim could not be lodged with another region; nothing was sent.
    EscrowUnavailable { after: Duration },
    /// This region took the key over, and the last records of its former home may not have arrived.
    /// Nothing was sent.
    CatchingUp {
        after: Duration,
        /// True if only an operator can end this.
        operator: bool,
    },
    /// The key's home region cannot be reached.
    HomeUnavailable { after: Duration },
    /// The upstream refused the connection; nothing was sent.
    UpstreamUnavailable { after: Duration },
    /// The upstream refused this gateway's own credential; nothing happened.
    CredentialRefused { after: Duration },
    /// The upstream broke off after a request without a key was sent: nothing protects a retry.
    UpstreamBroke,
    /// The upstream was silent for too long after a request without a key was sent: nothing
    /// protects a retry.
    UpstreamSilent,
    /// This gateway is stopping; nothing was sent.
    Stopping { after: Duration },
}

/// Says if the request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safe {
    /// Yes, with the same key: it takes effect at most once.
    SameKey,
    /// Not as it is: it would be refused again.
    No,
}

/// A refusal as clients of payment APIs know it. SDKs that look for this member throw, and never
/// take a refusal for an answer.
#[derive(Serialize)]
pub struct ErrorObject<'a> {
    r#type: &'static str,
    code: &'a str,
    message: &'a str,
}

impl<'a> ErrorObject<'a> {
    pub fn of(code: &'a str, status: u16, message: &'a str) -> Self {
        let kind = match (code, status) {
            ("key-reused" | "key-expired" | "in-progress", _) => "idempotency_error",
            (_, 401) => "authentication_error",
            (_, 429) => "rate_limit_error",
            (_, 500..) => "api_error",
            (_, _) => "invalid_request_error",
        };
        Self { r#type: kind, code, message }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<Seconds>,
    safe_to_retry: bool,
    documentation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorObject<'a>>,
}

/// Every code, for metrics.
pub const CODES: &[&str] = &{
    let mut codes = [""; KINDS.len()];
    let mut at = 0;
    while at < KINDS.len() {
        codes[at] = KINDS[at].code;
        at += 1;
    }
    codes
};

impl From<Refused> for Problem {
    fn from(why: Refused) -> Self {
        match why {
            Refused::NoRoute => Problem::NoRoute,
            Refused::Spelling => Problem::OtherSpelling,
            Refused::Override => Problem::Overridden,
        }
    }
}

impl Problem {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Problem::Key(KeyError::Missing) => "key-missing",
            Problem::Key(KeyError::Empty) => "key-empty",
            Problem::Key(KeyError::TooLong { .. }) => "key-too-long",
            Problem::Key(KeyError::Malformed { .. }) => "key-malformed",
            Problem::Key(KeyError::Repeated) => "key-repeated",
            Problem::KeyRefused(Breach::Guessable { .. }) => "key-weak",
            Problem::KeyRefused(
                Breach::Short { .. } | Breach::Long { .. } | Breach::Alphabet(_) | Breach::Form(_),
            ) => "key-malformed",
            Problem::CredentialInvalid => "credential-invalid",
            Problem::NoRoute => "no-route",
            Problem::OtherSpelling => "path-spelling",
            Problem::Overridden => "override-refused",
            Problem::BodyTooLarge { .. } => "body-too-large",
            Problem::BodyBroken => "body-broken",
            Problem::FingerprintImpossible(_) => "fingerprint-impossible",
            Problem::KeyReused { .. } => "key-reused",
            Problem::KeyExpired => "key-expired",
            Problem::InProgress { .. } => "in-progress",
            Problem::KeyUnknown => "key-unknown",
            Problem::DeadLetter => "dead-letter",
            Problem::Parked { .. } | Problem::InDoubt { .. } | Problem::OutcomeUnknown { .. } => {
                "outcome-unknown"
            }
            Problem::StoreUnavailable { .. } => "store-unavailable",
            Problem::NotFounded { .. } => "not-founded",
            Problem::Outgrown { .. } => "gateway-outdated",
            Problem::QuotaExceeded { .. } => "quota-exceeded",
            Problem::Overloaded { .. } => "overloaded",
            Problem::Moving { .. } => "moving",
            Problem::NotAuthoritative { .. } => "not-authoritative",
            Problem::EscrowUnavailable { .. } => "escrow-unavailable",
            Problem::CatchingUp { .. } | Problem::HomeUnavailable { .. } => "home-unavailable",
            Problem::UpstreamUnavailable { .. } => "upstream-unavailable",
            Problem::CredentialRefused { .. } => "upstream-credential",
            Problem::UpstreamBroke => "upstream-broke",
            Problem::UpstreamSilent => "upstream-timeout",
            Problem::Stopping { .. } => "stopping",
        }
    }

    /// Time until a client should ask again, if that helps.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Problem::InProgress { after }
            | Problem::Parked { after }
            | Problem::InDoubt { after }
            | Problem::OutcomeUnknown { after, .. }
            | Problem::StoreUnavailable { after }
            | Problem::NotFounded { after }
            | Problem::Outgrown { after }
            | Problem::QuotaExceeded { after }
            | Problem::Overloaded { after }
            | Problem::Moving { after }
            | Problem::NotAuthoritative { after }
            | Problem::EscrowUnavailable { after }
            | Problem::CatchingUp { after, .. }
            | Problem::HomeUnavailable { after }
            | Problem::UpstreamUnavailable { after }
            | Problem::CredentialRefused { after }
            | Problem::Stopping { after } => Some(*after),
            Problem::Key(_)
            | Problem::KeyRefused(_)
            | Problem::CredentialInvalid
            | Problem::NoRoute
            | Problem::OtherSpelling
            | Problem::Overridden
            | Problem::BodyTooLarge { .. }
            | Problem::BodyBroken
            | Problem::UpstreamBroke
            | Problem::UpstreamSilent
            | Problem::FingerprintImpossible(_)
            | Problem::KeyReused { .. }
            | Problem::KeyUnknown
            | Problem::DeadLetter
            | Problem::KeyExpired => None,
        }
    }

    /// Says if the same request may be sent again with the same key: whoever is told when to ask
    /// again may do so. So may a client whose body broke off.
    pub fn safe(&self) -> Safe {
        match matches!(self, Problem::BodyBroken) || self.retry_after().is_some() {
            true => Safe::SameKey,
            false => Safe::No,
        }
    }

    /// The problem document (RFC 9457, section 3).
    pub fn to_json(&self, status: u16, dialect: Dialect) -> Vec<u8> {
        let code = self.code();
        let detail = match self {
            Problem::Key(error) => format!("{error}. {}", kind(code).advice),
            Problem::KeyRefused(breach) => format!("{breach}. {}", kind(code).advice),
            Problem::FingerprintImpossible(why) => format!("{why}. {}", kind(code).advice),
            Problem::BodyTooLarge { limit } => format!("The limit is {limit} bytes. {}", kind(code).advice),
            Problem::CatchingUp { operator: false, .. } => format!(
                "The key's home is lost, and its last records may still be on their way here. {}",
                kind(code).advice
            ),
            Problem::CatchingUp { operator: true, .. } => format!(
                "The key's home is lost, and its last records may be missing here: an operator has to accept that before new keys run. {}",
                kind(code).advice
            ),
            Problem::Parked { .. } => format!("The key is parked for an operator. {}", kind(code).advice),
            Problem::OutcomeUnknown { upstream: Some(status), .. } => {
                format!("The upstream answered {status}. {}", kind(code).advice)
            }
            Problem::CredentialInvalid
            | Problem::NoRoute
            | Problem::OtherSpelling
            | Problem::Overridden
            | Problem::BodyBroken
            | Problem::UpstreamBroke
            | Problem::UpstreamSilent
            | Problem::KeyReused { .. }
            | Problem::KeyUnknown
            | Problem::DeadLetter
            | Problem::KeyExpired
            | Problem::InProgress { .. }
            | Problem::InDoubt { .. }
            | Problem::OutcomeUnknown { upstream: None, .. }
            | Problem::StoreUnavailable { .. }
            | Problem::NotFounded { .. }
            | Problem::Outgrown { .. }
            | Problem::QuotaExceeded { .. }
            | Problem::Overloaded { .. }
            | Problem::Moving { .. }
            | Problem::NotAuthoritative { .. }
            | Problem::EscrowUnavailable { .. }
            | Problem::HomeUnavailable { .. }
            | Problem::UpstreamUnavailable { .. }
            | Problem::CredentialRefused { .. }
            | Problem::Stopping { .. } => kind(code).advice.to_owned(),
        };
        let after = self.retry_after().map(|span| match self {
            Problem::Moving { .. } => Seconds::exact(span),
            _whole => Seconds::whole(span),
        });
        let named = match (self, dialect) {
            (Problem::InProgress { .. }, Dialect::Stripe) => "idempotency_key_in_use",
            (_, Dialect::Plain | Dialect::Stripe) => code,
        };
        let error = Some(ErrorObject { code: named, ..ErrorObject::of(code, status, &detail) });
        document(code, status, &detail, after, self.safe(), error)
    }

    /// The document that a replay gives in place of a body that was not kept. It is no error: the
    /// effect happened.
    pub fn body_not_kept(status: u16) -> Vec<u8> {
        let code = "body-not-kept";
        document(code, status, kind(code).advice, None, Safe::SameKey, None)
    }
}

/// The link to a code's explanation, as the value of a `Link` header (RFC 8288; the IETF draft asks
/// for `describedby`).
pub fn described_by(code: &str) -> String {
    format!("<{}>; rel=\"describedby\"", anchor(code))
}

/// The address of a code's explanation on the page.
pub fn anchor(code: &str) -> String {
    format!("{PAGE}#{code}")
}

/// The page that documents every problem.
pub fn page() -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>onceway: problems</title>\n<h1>Problems</h1>\n",
    );
    page.push_str(&format!(
        "<p>What each route asks of a key, compares, remembers and answers: <a href=\"{path}\">{path}</a>.</p>\n",
        path = crate::gateway::well_known::PUBLICATION
    ));
    for Kind { code, title, advice } in KINDS.iter().chain(listeners::KINDS) {
        page.push_str(&format!("<h2 id=\"{code}\">{code}</h2>\n<p><b>{title}.</b> {advice}</p>\n"));
    }
    page
}

fn document(
    code: &str,
    status: u16,
    detail: &str,
    retry_after: Option<Seconds>,
    safe: Safe,
    error: Option<ErrorObject<'_>>,
) -> Vec<u8> {
    let json = Json {
        r#type: format!("urn:onceway:problem:{code}"),
        title: kind(code).title,
        status,
        detail,
        code,
        retry_after,
        safe_to_retry: safe == Safe::SameKey,
        documentation: anchor(code),
        error,
    };
    serde_json::to_vec(&json).unwrap_or_default()
}

fn kind(code: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.code == code).unwrap_or(&KINDS[0])
}
