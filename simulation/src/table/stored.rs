//! A stored row of one origin, and its look-up.
//!
//! No time of another origin's row is judged here (docs/protocol.md#rule-12): another clock made
//! its dates.

use std::sync::Arc;
use std::time::Duration;

use onceway::ports::store::{ClaimReply, Terms};
use onceway::protocol::digest::Digest32;
use onceway::protocol::fingerprint::Fingerprint;
use onceway::protocol::lifetime::Lifetime;
use onceway::protocol::record::{Answer, Nonce, Recovery, RequestId, Row, State, Token};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::time::Date;

/// A stored row: times are observed times of its origin, in microseconds. Dates are for people.
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
    /// When the last claim was made, by its origin's wall clock.
    pub(crate) claimed: Date,
    pub(crate) held: i64,
    pub(crate) expires: Date,
    pub(crate) due: i64,
    pub(crate) tombstone: Duration,
    pub(crate) principal: Option<Digest32>,
    pub(crate) accepted: bool,
    /// Attempts before the last one that may have happened.
    pub(crate) doubted: u32,
    pub(crate) settle_time: Duration,
    pub(crate) recovery: Recovery,
    pub(crate) route: Arc<str>,
    pub(crate) path: String,
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
    /// The row of an attempt that began at this date and observed time, and its ends.
    pub(super) fn begun(
        token: Token,
        terms: Terms,
        phase: Phase,
        (claimed, held): (Date, i64),
        (expires, due): (Date, i64),
    ) -> Self {
        let Terms { nonce, fingerprint, request_id, hold, settle_time, recovery, .. } = terms;
        let Terms { lifetime: Lifetime { tombstone, .. }, route, path, principal, .. } = terms;
        let (over, risk, accepted, doubted, was_settled) = Default::default();
        Self {
            token,
            nonce,
            fingerprint,
            phase,
            over,
            risk,
            request_id,
            hold,
            claimed,
            held,
            expires,
            due,
            tombstone,
            principal,
            accepted,
            doubted,
            settle_time,
            recovery,
            route,
            path,
            was_settled,
        }
    }

    /// The rest of the hold at `now`, by the reader's clock: never more than the whole of it.
    pub(super) fn left(&self, now: i64) -> Duration {
        self.hold.saturating_sub(self.passed(now))
    }

    /// The time since the end of the hold at `now`.
    pub(super) fn past(&self, now: i64) -> Duration {
        self.passed(now).saturating_sub(self.hold)
    }

    fn passed(&self, now: i64) -> Duration {
        Duration::from_micros(u64::try_from(now.saturating_sub(self.held)).unwrap_or(0))
    }

    pub(super) fn settled_at(&self) -> Option<i64> {
        match self.phase {
            Phase::Settled(_, at) => Some(at),
            Phase::Tombstone => self.was_settled,
            Phase::Claimed | Phase::InDoubt(_) | Phase::Released => None,
        }
    }

    pub(super) fn won(&self) -> ClaimReply {
        ClaimReply::Won { token: self.token, expires: self.expires }
    }

    /// The row as a look-up shows it: `now` if the region that reads wrote it, and its wall time.
    pub(super) fn shown(&self, origin: Origin, now: Option<i64>, wall: i64) -> Row {
        let (left, past) = match now {
            Some(now) => (self.left(now), self.past(now)),
            None => (self.hold, Duration::ZERO),
        };
        let state = match &self.phase {
            Phase::Claimed => State::Claimed { left, past },
            Phase::InDoubt(status) => State::InDoubt { status: *status, left, past },
            Phase::Released => State::Released,
            Phase::Tombstone => State::Tombstone,
            Phase::Settled(answer, at) => {
                let age = Duration::from_micros(u64::try_from(wall.saturating_sub(*at)).unwrap_or(0));
                let expired = now.is_some_and(|now| now >= self.due);
                State::Settled { answer: answer.clone(), age, expired }
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
            doubted: self.doubted,
            settle_time: self.settle_time,
            recovery: self.recovery,
        }
    }

    /// True if this copy is newer than `other`, a copy of the same origin's row. The higher token
    /// counts. With equal tokens, the copy further along the arrows counts.
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
