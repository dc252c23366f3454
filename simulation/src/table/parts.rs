//! The parts of a store beside its rows: its log and what a crash would take of it, claims that
//! others lodged, and jobs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::authority::Lodging;
use onceway::ports::jobs::StoredRequest;
use onceway::protocol::job::JobState;
use onceway::protocol::key::KeyId;
use onceway::protocol::observed::Observed;
use onceway::protocol::record::{Answer, Nonce, RequestId, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::time::Date;

use super::stored::Stored;

/// The rows of other origins that a claim supersedes.
pub(super) type Over = Vec<(Origin, Token)>;

/// Entries of each key, by origin.
pub(super) type Keyed<T> = BTreeMap<KeyId, BTreeMap<Origin, T>>;

pub(super) fn at<'a, T>(all: &'a Keyed<T>, id: &KeyId, origin: &Origin) -> Option<&'a T> {
    all.get(id)?.get(origin)
}

pub(super) fn taken<T>(all: &mut Keyed<T>, id: &KeyId, origin: &Origin) -> Option<T> {
    let of_key = all.get_mut(id)?;
    let was = of_key.remove(origin);
    if of_key.is_empty() {
        all.remove(id);
    }
    was
}

/// A heartbeat: its number, its writer's epoch, the time of its commit there, its writer's counter,
/// and the most that the next one adds to that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beaten {
    pub(super) seq: u64,
    pub(super) epoch: u64,
    pub(super) date: Date,
    pub(super) observed: Observed,
    pub(super) step: Duration,
}

/// The change of one commit: the region's own row of a key, written or deleted, or its heartbeat.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Row(KeyId, Box<Stored>),
    Gone(KeyId),
    Beat(Beaten),
}

#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// The time of the commit, since the world began.
    pub(crate) at: Duration,
    /// True if the running boot was approved then.
    pub(super) approved: bool,
    /// For an ended record: true if another origin's row of the key was here then and still open.
    pub(super) beside_open: bool,
    /// True if it brings back what the store had written before it was promoted.
    pub(super) restored: bool,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(super) enum Before {
    Row(KeyId, Option<Box<Stored>>),
    Beat(Option<Beaten>),
}

#[derive(Clone, Debug)]
pub(super) struct Applied {
    pub(super) at: Duration,
    pub(super) from: Origin,
    pub(super) before: Before,
    pub(super) sent: Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) store: u64,
    /// The time of the commit, since the world began.
    pub(crate) at: Duration,
}

/// Commits that were applied and are not on the disk, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Unflushed(pub(super) VecDeque<Applied>);

/// A claim lodged here, and its answer if that was lodged as well.
#[derive(Clone, Debug)]
pub(super) struct Escrowed {
    pub(super) lodging: Lodging,
    pub(super) answer: Option<Arc<Answer>>,
    /// The date for people, and this store's observed time, in microseconds.
    pub(super) date: Date,
    pub(super) stored: i64,
    /// The end of its promise, as a date for people, and of its life, by observed time.
    pub(super) expires: Date,
    pub(super) due: i64,
}

/// A stored job: times are observed times, in microseconds, but for the date of its acceptance.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) state: JobState,
    pub(super) request_id: RequestId,
    pub(super) runs: u32,
    pub(super) nonce: Option<Nonce>,
    pub(super) next: i64,
    pub(super) accepted: i64,
    pub(super) forget: i64,
    pub(super) request: Option<StoredRequest>,
    pub(super) trouble: Option<String>,
}
