//! The observed time of a store as its document: spans and dates in whole milliseconds.
//!
//! `upkeep` reads and writes it; `protocol::forget` says what it means. This file must not judge
//! anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::keys::millis;
use crate::protocol::forget::{Lead, Observed, Promised};
use crate::protocol::time::Date;

/// The document in `onceway.observed`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ObservedDoc {
    at_ms: i64,
    total_ms: u64,
    leads: Vec<LeadDoc>,
    lives: Vec<LifeDoc>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LeadDoc {
    by_ms: u64,
    until_ms: u64,
}

/// A promised life. Without `life_ms` keys are kept for ever.
#[derive(Debug, Serialize, Deserialize)]
struct LifeDoc {
    life_ms: Option<u64>,
    last_ms: u64,
}

impl ObservedDoc {
    pub(super) fn of(observed: &Observed) -> Self {
        let lead = |lead: &Lead| LeadDoc { by_ms: up(lead.by), until_ms: up(lead.until) };
        let life = |known: &Promised| LifeDoc { life_ms: known.life.map(up), last_ms: up(known.last) };
        Self {
            at_ms: observed.at.as_millis(),
            total_ms: down(observed.total),
            leads: observed.leads.iter().map(lead).collect(),
            lives: observed.lives.iter().map(life).collect(),
        }
    }
}

impl From<ObservedDoc> for Observed {
    fn from(doc: ObservedDoc) -> Self {
        let ms = Duration::from_millis;
        let lead = |lead: LeadDoc| Lead { by: ms(lead.by_ms), until: ms(lead.until_ms) };
        let life = |known: LifeDoc| Promised { life: known.life_ms.map(ms), last: ms(known.last_ms) };
        Self {
            at: Date(doc.at_ms),
            total: ms(doc.total_ms),
            leads: doc.leads.into_iter().map(lead).collect(),
            lives: doc.lives.into_iter().map(life).collect(),
        }
    }
}

/// Rounds up: rounding must not end a kept key earlier.
fn up(span: Duration) -> u64 {
    u64::try_from(millis(span)).unwrap_or(u64::MAX)
}

/// Rounds down: the observed time must not exceed the time that passed.
fn down(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
