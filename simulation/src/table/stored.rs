//! A stored row of one origin, its look-up, and the orders of the own ones.
//!
//! No time of another origin's row is judged here (docs/protocol.md#rule-12): another clock made
//! its dates.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::store::{ClaimReply, Terms};
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{Answer, Nonce, Row, State, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::time::Date;

/// A stored row: times are observed times of its origin, in microseconds. Dates are for people.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// As it was written: a look-up counts the spans of its state.
    pub(crate) row: Row,
    pub(crate) hold: Duration,
    /// When the last claim was made, by its origin's wall clock.
    pub(crate) claimed: Date,
    pub(crate) held: i64,
    pub(crate) due: i64,
    pub(crate) tombstone: Duration,
    pub(crate) route: Arc<str>,
    pub(crate) path: String,
    /// The time of its settlement, also if its answer is gone.
    pub(crate) settled: Option<i64>,
}

/// The states of a stored row whose spans nobody has counted yet.
pub(super) const CLAIMED: State = State::Claimed { left: Duration::ZERO, past: Duration::ZERO };

pub(super) const fn in_doubt(status: Option<u16>) -> State {
    State::InDoubt { status, left: Duration::ZERO, past: Duration::ZERO }
}

pub(super) fn settled(answer: impl Into<Arc<Answer>>) -> State {
    State::Settled { answer: answer.into(), age: Duration::ZERO, expired: false }
}

impl Stored {
    /// A row of this attempt in these terms, claimed at these times by the wall clock and by the
    /// observed one, which ends then: its promise for people, and its life.
    pub(super) fn new(
        terms: &Terms,
        origin: &Origin,
        token: Token,
        state: State,
        (claimed, held): (Date, i64),
        (expires, due): (Date, i64),
    ) -> Self {
        let row = Row {
            origin: origin.clone(),
            token,
            nonce: terms.nonce,
            fingerprint: terms.fingerprint,
            state,
            over: Vec::new(),
            risk: Vec::new(),
            request_id: terms.request_id,
            expires,
            principal: terms.principal,
            accepted: false,
            doubted: 0,
            settle_time: terms.settle_time,
            recovery: terms.recovery,
        };
        let (hold, tombstone) = (terms.hold, terms.lifetime.tombstone);
        let (route, path) = (terms.route.clone(), terms.path.clone());
        Self { row, hold, claimed, held, due, tombstone, route, path, settled: None }
    }

    pub(super) fn is_of(&self, token: Token, nonce: Nonce) -> bool {
        (self.row.token, self.row.nonce) == (token, nonce)
    }

    pub(super) fn is_claimed(&self) -> bool {
        matches!(self.row.state, State::Claimed { .. })
    }

    /// True if its attempt may have happened.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.row.state, State::Claimed { .. } | State::InDoubt { .. })
    }

    pub(super) fn is_final(&self) -> bool {
        matches!(self.row.state, State::Settled { .. } | State::Tombstone)
    }

    /// True if its claim knowingly superseded this attempt.
    pub(super) fn names(&self, origin: &Origin, token: Token) -> bool {
        names(&self.row.over, origin, token)
    }

    /// The rest of the hold at `now`, by the reader's clock: never more than the whole of it.
    pub(super) fn left(&self, now: i64) -> Duration {
        self.hold.saturating_sub(span(now.saturating_sub(self.held)))
    }

    pub(super) fn past(&self, now: i64) -> Duration {
        span(now.saturating_sub(self.held)).saturating_sub(self.hold)
    }

    pub(super) fn won(&self) -> ClaimReply {
        ClaimReply::Won { token: self.row.token, expires: self.row.expires }
    }

    /// The row as a look-up shows it: `now` if the region that reads wrote it, and its wall time.
    pub(super) fn shown(&self, now: Option<i64>, wall: i64) -> Row {
        let mut row = self.row.clone();
        match &mut row.state {
            State::Claimed { left, past } | State::InDoubt { status: _, left, past } => {
                (*left, *past) = match now {
                    Some(now) => (self.left(now), self.past(now)),
                    None => (self.hold, Duration::ZERO),
                }
            }
            State::Settled { answer: _, age, expired } => {
                *age = self.settled.map_or(Duration::ZERO, |at| span(wall.saturating_sub(at)));
                *expired = now.is_some_and(|now| now >= self.due);
            }
            State::Released | State::Tombstone => {}
        }
        row
    }

    /// True if this copy is newer than `other`, a copy of the same origin's row. The higher token
    /// counts. With equal tokens, the copy further along the arrows counts.
    pub(super) fn is_newer_than(&self, other: &Stored) -> bool {
        let rank = |state: &State| match state {
            State::Claimed { .. } => 0,
            State::InDoubt { .. } => 1,
            State::Released => 2,
            State::Settled { .. } => 3,
            State::Tombstone => 4,
        };
        (self.row.token, rank(&self.row.state)) > (other.row.token, rank(&other.row.state))
    }
}

/// True if a list of superseded rows has this attempt.
pub(super) fn names(over: &[(Origin, Token)], origin: &Origin, token: Token) -> bool {
    over.iter().any(|(named, upto)| named == origin && *upto >= token)
}

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

type Dated = BTreeMap<i64, BTreeSet<KeyId>>;

/// The own rows in the orders of their look-ups, as the indexes of Postgres keep them. Else every
/// look of the reaper, the sweep and the audit would go through every living key.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    due: Dated,
    /// By the time of their last claim.
    held: Dated,
    risky: BTreeSet<KeyId>,
}

impl Orders {
    pub(super) fn turn(&mut self, id: &KeyId, was: Option<&Stored>, is: Option<&Stored>) {
        if let Some(was) = was {
            forget(&mut self.due, was.due, id);
            forget(&mut self.held, was.held, id);
            self.risky.remove(id);
        }
        if let Some(is) = is {
            self.due.entry(is.due).or_default().insert(id.clone());
            self.held.entry(is.held).or_default().insert(id.clone());
            if !is.row.risk.is_empty() {
                self.risky.insert(id.clone());
            }
        }
    }

    /// Keys whose rows are due at `by`, the first due first.
    pub(super) fn due(&self, by: i64) -> impl Iterator<Item = &KeyId> {
        self.due.range(..=by).flat_map(|(_, ids)| ids)
    }

    /// Keys claimed after one moment and not after another, the first claimed first.
    pub(super) fn held(&self, after: i64, last: i64) -> impl Iterator<Item = &KeyId> {
        // An empty range whose ends cross would panic.
        let stretch = (Excluded(after.min(last)), Included(last));
        self.held.range(stretch).flat_map(|(_, ids)| ids)
    }

    pub(super) fn risky(&self) -> impl Iterator<Item = &KeyId> {
        self.risky.iter()
    }
}

fn forget(dated: &mut Dated, at: i64, id: &KeyId) {
    if let Some(ids) = dated.get_mut(&at) {
        ids.remove(id);
        if ids.is_empty() {
            dated.remove(&at);
        }
    }
}
