//! The life of a record: the retention that the client is promised, and the longer stored life.
//!
//! A claim is written with its life, which ends by its store's observed time. Stored life is
//! longer than promised life by the skew (docs/protocol.md#the-record). So a retry that a client
//! sends just before the promised end still meets its answer. This file must not read a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::Date;
use super::written::{Span, span};

/// The promised retention of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<Span>", into = "Option<Span>")]
pub enum Retention {
    /// This long, counted from the newest claim.
    For(Duration),
    /// Until an operator deletes it by hand.
    Never,
}

impl From<Option<Span>> for Retention {
    fn from(span: Option<Span>) -> Self {
        span.map_or(Self::Never, |Span(span)| Self::For(span))
    }
}

impl From<Retention> for Option<Span> {
    fn from(retention: Retention) -> Self {
        match retention {
            Retention::For(span) => Some(Span(span)),
            Retention::Never => None,
        }
    }
}

/// The expiry date of a key that is kept for ever: every HTTP library can print it (RFC 9110
/// section 5.6.7).
pub const NEVER: Date = Date(253_402_300_799_000);

/// The life of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// The promise to the client.
    pub retention: Retention,
    /// The time for which the answer is stored beyond that.
    #[serde(with = "span")]
    pub skew: Duration,
    /// The life of a tombstone after that. A key that comes again meanwhile is refused and never
    /// runs (410).
    #[serde(with = "span")]
    pub tombstone: Duration,
}
