//! How long a key is remembered: what the client is promised, and what is stored beyond that.
//!
//! Neighbours: a route's policy states it, `ports::store` writes it with the claim, judged by the
//! database's clock from then on. Stored life is longer than promised life by the skew
//! (docs/protocol.md#the-record), so a retry that a client sends just before the promised end still
//! meets its answer. It must not read a clock.

use std::time::Duration;

use super::time::Date;

/// How long a key is promised to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// This long, counted from the newest claim.
    For(Duration),
    /// Until somebody deletes it by hand.
    Never,
}

/// When a key that is kept for ever expires: a date that every HTTP library can print (RFC 9110 section 5.6.7).
pub const NEVER: Date = Date(253_402_300_799_000);

/// The life of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// What the client is promised.
    pub retention: Retention,
    /// How much longer the answer is stored.
    pub skew: Duration,
    /// How long a tombstone stays after that: a key that comes again meanwhile is refused and never runs (410).
    pub tombstone: Duration,
}
