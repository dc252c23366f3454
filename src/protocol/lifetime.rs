//! The life of a record: the retention that the client is promised, and the longer stored life.
//!
//! A claim is written with its life, which ends by its store's observed time. Stored life is longer
//! than promised life by the skew (docs/protocol.md#the-record). So a retry that a client sends
//! just before the promised end still meets its answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::Date;
use super::written::{Seconds, Span};

/// The time for which something is kept: a key's promise, or its whole life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Option<Span>", into = "Option<Span>")]
pub enum Retention {
    /// This long, counted from the newest claim.
    For(Duration),
    /// Until an operator deletes it by hand.
    #[default]
    Never,
}

impl Retention {
    /// This long, and so much longer.
    #[must_use]
    pub fn and(self, more: Duration) -> Self {
        match self {
            Self::For(span) => Self::For(span + more),
            Self::Never => Self::Never,
        }
    }
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

/// The expiry date of a key that is kept for ever, printable in HTTP (RFC 9110 section 5.6.7).
pub const NEVER: Date = Date(253_402_300_799_000);

/// The life of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// The promise to the client.
    pub retention: Retention,
    /// The time for which the answer is stored beyond that.
    #[serde(with = "Seconds")]
    pub skew: Duration,
    /// The life of a tombstone after that, while a key that comes again is refused (410).
    #[serde(with = "Seconds")]
    pub tombstone: Duration,
}

impl Lifetime {
    /// The time after which nothing is remembered of the key.
    pub fn whole(&self) -> Retention {
        self.retention.and(self.skew + self.tombstone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_life_is_longer_than_its_promise() {
        let seconds = Duration::from_secs;
        let life = |retention| Lifetime { retention, skew: seconds(2), tombstone: seconds(30) };
        assert_eq!(life(Retention::For(seconds(10))).whole(), Retention::For(seconds(42)));
        assert_eq!(life(Retention::Never).whole(), Retention::Never);
        assert!(Retention::For(Duration::MAX) < Retention::Never);
        for retention in [Retention::For(seconds(10)), Retention::Never] {
            assert_eq!(Retention::from(Option::<Span>::from(retention)), retention);
        }
    }
}
