//! A region's store, as seen by people who reconcile: runs at risk, keys that ran twice, late
//! answers, and everything else it holds of each key.
//!
//! [`super::KeyStore::settle`] itself journals a settlement that meets another origin's answer.

use std::sync::Arc;
use std::time::Duration;

use super::store::{Attempt, Call};
use super::upkeep::{Entry, OpenAttempt, Place};
use onceway_protocol::double::Trace;
use onceway_protocol::key::{KeyId, Tenant};
use onceway_protocol::record::{Answer, RequestId, Row};
use onceway_protocol::time::Date;

/// An own row whose claim was allowed by a window alone; its `risk` names the lost regions.
pub type RunAtRisk = OpenAttempt;

/// A key that two regions ran, as it is journalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Double {
    /// The key.
    pub id: KeyId,
    /// The row that the entry is about: the own one, if it is one of the two.
    pub first: Row,
    /// The other region's row.
    pub second: Row,
    /// True if one of them ran at risk.
    pub at_risk: bool,
    /// True if one of them names the other.
    pub named: bool,
    /// The event, in words for people.
    pub reason: String,
}

/// The place where a page of keys begins.
#[derive(Clone, Copy, Debug)]
pub enum Begin<'a> {
    /// The first key.
    First,
    /// The first key of this tenant, or of the next one.
    At(&'a Tenant),
    /// The key behind this one.
    After(&'a KeyId),
}

impl<'a> From<Option<&'a KeyId>> for Begin<'a> {
    fn from(after: Option<&'a KeyId>) -> Self {
        after.map_or(Self::First, Self::After)
    }
}

/// The records that a look goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All records.
    All,
    /// Records whose claim says that it ran at risk: few, and found by an index.
    AtRisk,
}

/// Keys with rows of more than one region, found in one stretch of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The keys, in their order, with one row of each region.
    pub shared: Vec<(KeyId, Vec<Trace>)>,
    /// The last key, behind which the next stretch begins; `None` if it was empty.
    pub through: Option<KeyId>,
    /// Number of records that were looked at.
    pub looked_at: u64,
    /// True if more records may follow.
    pub more: bool,
}

/// The numbers of doubles in a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// All doubles.
    pub doubles: u64,
    /// Doubles without an explanation.
    pub unexplained: u64,
}

/// A double or a late answer in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its place in the journal.
    pub place: Place,
    /// The key.
    pub id: KeyId,
    /// The journal's entry.
    pub entry: Entry,
}

/// A row of any origin, as people who reconcile see it: its answer without headers and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// The row. A settled answer has its status only.
    pub row: Row,
    /// The route of its claim; empty if the claim is older than routes in records.
    pub route: Arc<str>,
    /// The path of its request.
    pub path: String,
    /// The time of its last attempt's claim, by its origin's clock; `None` if the row was imported.
    pub claimed: Option<Date>,
    /// The time of its settlement, also of a tombstone's, by its origin's clock.
    pub settled: Option<Date>,
    /// True if a survivor of a lost region handed the row over; replication did not bring it.
    pub imported: bool,
}

/// Everything that a store holds of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The key.
    pub id: KeyId,
    /// One row per origin, in their order; none if only the journal knows the key.
    pub rows: Vec<HistoryRow>,
    /// The journal's entries about it, oldest first.
    pub journal: Vec<Entry>,
}

/// Looks at a store, and journal entries, for reconciling. All methods bound their own time.
pub trait Audit: Send + Sync + 'static {
    /// One page of the own rows that ran at risk, in the order of keys, after one.
    fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> impl Call<Vec<RunAtRisk>>;

    /// One stretch of the records of all origins, in the order of keys, after a key. It looks at
    /// `most` of them or few more, as a key's records are not parted. It returns the keys that have
    /// rows of more than one region, with all of their rows, in any state.
    fn stretch(&self, of: Of, after: Option<&KeyId>, most: u32) -> impl Call<Stretch>;

    /// The rows of these keys, one of each region, in the order of `ids`.
    fn traces(&self, ids: &[KeyId]) -> impl Call<Vec<Vec<Trace>>>;

    /// Journals doubles (kind `double`) once for each pair of attempts, in either order of their
    /// rows. Returns for each whether this call journalled it.
    fn journal_doubles(&self, found: &[Double]) -> impl Call<Vec<bool>>;

    /// Number of doubles in the journal, from any finder and time: it never falls.
    fn doubles(&self) -> impl Call<Counted>;

    /// Journals (kind `late`) the answer to an attempt that is not this region's any more: its row
    /// is gone, was released, or names another attempt (docs/protocol.md#rule-10). Once for each
    /// attempt, whether or not the gate is open. Never for a settled attempt, with any answer: that
    /// one is known. Returns whether this call journalled it.
    fn late(&self, attempt: &Attempt, request_id: Option<RequestId>, answer: &Answer) -> impl Call<bool>;

    /// One page of the doubles and late answers in the journal, in their order, after a place.
    /// Entries older than `back` are left out.
    fn findings(&self, after: Option<Place>, back: Duration, most: u32) -> impl Call<Vec<Finding>>;

    /// All rows of this key, one per origin, in their order.
    fn rows_of_key(&self, id: &KeyId) -> impl Call<Vec<HistoryRow>>;

    /// At most `most` keys from a place on, in their order, with everything that the store holds of
    /// each: rows of all origins and the journal. Fewer than `most` only at the end. The result is
    /// not one moment's state: a key that changes meanwhile is shown before or after.
    fn histories(&self, begin: Begin<'_>, most: u32) -> impl Call<Vec<History>>;
}
