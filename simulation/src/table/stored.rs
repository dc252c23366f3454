//! A stored row of one origin, and how a look-up shows it.
//!
//! Neighbours: [`super`] writes and ships rows. Of another origin's row no time is judged here
//! (docs/protocol.md#rule-12): its dates were made by another clock. It must not decide what a row
//! means.

use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::digest::Digest32;
use onceway::protocol::fingerprint::Fingerprint;
use onceway::protocol::record::{Answer, Nonce, RequestId, Row, State, Token};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::time::Date;

/// A stored row: times are wall times of its origin, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) token: Token,
    pub(crate) nonce: Nonce,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) phase: Phase,
    pub(crate) over: Vec<(Origin, Token)>,
    pub(crate) risk: Vec<RegionName>,
    pub(crate) request_id: RequestId,
    pub(crate) hold: Duration,
    pub(crate) held_at: i64,
    pub(crate) expires: Date,
    pub(crate) due: i64,
    pub(crate) tombstone: Duration,
    pub(crate) principal: Option<Digest32>,
    pub(crate) accepted: bool,
    pub(crate) route: Arc<str>,
    pub(crate) path: String,
    /// When a tombstone was settled, if it was before.
    pub(crate) was_settled: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Claimed,
    InDoubt(Option<u16>),
    Released,
    Settled(Arc<Answer>, i64),
    Tombstone,
}

impl Stored {
    /// What is left of the hold at `now`, by the clock of whoever reads: never more than the whole of it.
    pub(super) fn left(&self, now: i64) -> Duration {
        self.hold.saturating_sub(self.passed(now))
    }

    /// How long the hold has been over at `now`.
    pub(super) fn past(&self, now: i64) -> Duration {
        self.passed(now).saturating_sub(self.hold)
    }

    fn passed(&self, now: i64) -> Duration {
        Duration::from_micros(u64::try_from(now.saturating_sub(self.held_at)).unwrap_or(0))
    }

    /// When its attempt was settled, in tombstones too.
    pub(super) fn settled_at(&self) -> Option<i64> {
        match self.phase {
            Phase::Settled(_, at) => Some(at),
            Phase::Tombstone => self.was_settled,
            Phase::Claimed | Phase::InDoubt(_) | Phase::Released => None,
        }
    }

    /// Whether it was settled, in a life of the key that is not over at `now`.
    pub(super) fn was_settled(&self, now: i64) -> bool {
        let ends = match self.phase {
            Phase::Settled(..) => self.due.saturating_add(micros(self.tombstone)),
            Phase::Claimed | Phase::InDoubt(_) | Phase::Released | Phase::Tombstone => self.due,
        };
        self.settled_at().is_some() && ends > now
    }

    /// As a look-up at `now` shows it; `own` if the region that reads wrote it.
    pub(super) fn shown(&self, origin: Origin, now: i64, own: bool) -> Row {
        let (left, past) = if own { (self.left(now), self.past(now)) } else { (self.hold, Duration::ZERO) };
        let state = match &self.phase {
            Phase::Claimed => State::Claimed { left, past },
            Phase::InDoubt(status) => State::InDoubt { status: *status, left, past },
            Phase::Released => State::Released,
            Phase::Tombstone => State::Tombstone,
            Phase::Settled(answer, at) => {
                let age = Duration::from_micros(u64::try_from(now.saturating_sub(*at)).unwrap_or(0));
                State::Settled { answer: answer.clone(), age, expired: own && now >= self.due }
            }
        };
        Row {
            origin,
            token: self.token,
            nonce: self.nonce,
            fingerprint: self.fingerprint,
            state,
            over: self.over.clone(),
            risk: self.risk.clone(),
            request_id: self.request_id,
            expires: self.expires,
            principal: self.principal,
            accepted: self.accepted,
            seen: Date(now.div_euclid(1_000)),
        }
    }

    /// Whether `other`, a copy of the same origin's row, says less: of two copies the higher token counts, and of equal ones the
    /// one that is further along the arrows.
    pub(super) fn is_newer_than(&self, other: &Stored) -> bool {
        let rank = |phase: &Phase| match phase {
            Phase::Claimed => 0,
            Phase::InDoubt(_) => 1,
            Phase::Released => 2,
            Phase::Settled(..) => 3,
            Phase::Tombstone => 4,
        };
        (self.token, rank(&self.phase)) > (other.token, rank(&other.phase))
    }
}

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}
