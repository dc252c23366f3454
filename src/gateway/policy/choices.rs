//! The choices of a route: the types of those settings that are no span, size or number.
//!
//! `settings` declares them, and the files that obey them match on them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::ports::upstream::ForwardKey;
use crate::protocol::job::Backoff;
use crate::protocol::key::{Key, KeyError, Syntax};
use crate::protocol::worded;

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
    /// Reads the key, with its header's value. Different ones in two headers are an error: picking
    /// one would be a guess.
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

    /// Leaves the key in `Idempotency-Key` alone, as written. In headers that it was read from, or
    /// that some services take for them (`X_Request_Key`), another one could be found.
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

/// Escrow of a route: the parts that are lodged with the next serving region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Escrow {
    /// Nothing is lodged: a region that is destroyed may take its last claims with it.
    #[default]
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

worded! {
    /// Says if a client waits for the answer.
    #[derive(Default)]
    Mode;
    /// Its word in configuration and in the published contract.
    name {
        /// The client waits. `Prefer: respond-async` is ignored (RFC 7240 section 2 allows that).
        #[default]
        Sync = "sync",
        /// The client chooses: with `Prefer: respond-async` the request is accepted.
        Prefer = "prefer",
        /// Every request is accepted.
        Accept = "accept",
    }
}

/// Rules for storing and running accepted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// Time for which the request itself may be stored.
    pub request_retention: Duration,
    /// Runs of a job before it is a dead letter.
    pub max_runs: u32,
    /// The span between two runs.
    pub backoff: Backoff,
}

worded! {
    /// Binding of a key by its first claim (docs/protocol.md#rule-1).
    #[derive(Default)]
    Binding;
    /// Its word in configuration and in the published contract.
    name {
        /// To the tenant: all its callers get the answer.
        #[default]
        Tenant = "tenant",
        /// To the principal that claimed it: for others it looks like a key of another request.
        Principal = "principal",
    }
}

/// Status of the refusal of a key that was used for another request. Its code is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mismatch {
    /// Status 422, as the IETF draft has it.
    #[default]
    Unprocessable,
    /// Status 409, as some payment APIs have it.
    Conflict,
}

worded! {
    /// The form of a route's refusals. The problem and what it says of a retry are the same.
    #[derive(Default)]
    Dialect;
    /// Its word in configuration.
    name {
        /// RFC 9457, with the statuses of the IETF draft.
        #[default]
        Plain = "plain",
        /// The statuses, the error codes and the retry header that Stripe's SDKs know.
        Stripe = "stripe",
    }
}

/// Headers that a replay carries by default: they describe the answer, not the moment.
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

/// Headers that no replay may carry (RFC 9110 section 7.6.1 for the hop-by-hop ones).
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
