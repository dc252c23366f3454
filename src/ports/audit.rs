//! What a region's store knows of keys for those who reconcile: runs that a window alone allowed, keys that ran twice, answers that came
//! too late, and everything else it holds of each key.
//!
//! Neighbours: `gateway::doubles`, `gateway::audit` and `gateway::export` call it, `adapters::postgres`
//! and the simulation implement it, `super::upkeep` has the journal that it writes. A settlement that
//! meets another origin's answer is journalled by [`super::KeyStore::settle`] itself. It must not judge
//! which of two answers is served (`protocol::record` does), nor what a double is (`protocol::double`).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::store::{Attempt, StoreError};
use super::upkeep::{Entry, Place};
use crate::protocol::double::Trace;
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, RequestId, Row};
use crate::protocol::time::Date;

/// An own row whose claim a window alone allowed; its `risk` names the lost regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAtRisk {
    /// The key.
    pub id: KeyId,
    /// The own row, in whatever state it is by now.
    pub row: Row,
    /// The route of its claim.
    pub route: Arc<str>,
    /// The path of its request.
    pub path: String,
}

/// A key that two regions ran, as it is journalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Double {
    /// The key.
    pub id: KeyId,
    /// The row that the entry is about: the own one, if it is one of the two.
    pub first: Row,
    /// The other region's row.
    pub second: Row,
    /// Whether one of them ran at risk.
    pub at_risk: bool,
    /// Whether one of them names the other.
    pub named: bool,
    /// What happened, for people.
    pub reason: String,
}

/// Which records a look goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All of them.
    All,
    /// Those whose claim says that it ran at risk: few, and found by an index.
    AtRisk,
}

/// Keys of more than one region that were found in one stretch of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The keys, in their order, with one row of each region.
    pub shared: Vec<(KeyId, Vec<Trace>)>,
    /// The last key of the stretch: the next one begins behind it. `None` if it was empty.
    pub through: Option<KeyId>,
    /// How many records were looked at.
    pub looked_at: u64,
    /// Whether more records may follow.
    pub more: bool,
}

/// How many doubles a journal holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// All of them.
    pub doubles: u64,
    /// Those that nothing explains.
    pub unexplained: u64,
}

/// A double or a late answer in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its place in the journal.
    pub place: Place,
    /// The key.
    pub id: KeyId,
    /// What the journal says.
    pub entry: Entry,
}

/// A row of any origin, as it is told to those who reconcile: its answer without headers and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The row. A settled answer has its status only.
    pub row: Row,
    /// The route of its claim; empty if the claim is older than routes in records.
    pub route: Arc<str>,
    /// The path of its request.
    pub path: String,
    /// When its last attempt was claimed, by its origin's clock; `None` where a survivor handed the row over, as that is not known then.
    pub claimed: Option<Date>,
    /// When it was settled, by its origin's clock; of a tombstone too, if it was settled before.
    pub settled: Option<Date>,
    /// A survivor of a lost region handed the row over; replication did not bring it.
    pub imported: bool,
}

/// Everything that a store holds of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The key.
    pub id: KeyId,
    /// One row per origin, in their order; none if all are forgotten and only the journal knows the key.
    pub rows: Vec<Told>,
    /// What the journal says about it, oldest first.
    pub journal: Vec<Entry>,
}

/// What reconciling needs. All methods bound their own time.
pub trait Audit: Send + Sync + 'static {
    /// One page of the own rows that ran at risk, in the order of keys, after one.
    fn runs_at_risk(
        &self,
        after: Option<&KeyId>,
        most: u32,
    ) -> impl Future<Output = Result<Vec<RunAtRisk>, StoreError>> + Send;

    /// One stretch of the records of all origins, in the order of keys, after a key; looks at `most`
    /// of them or few more, as a key's are not parted. Told are the keys that have rows of more than
    /// one region, with all of their rows, whatever those say.
    fn stretch(
        &self,
        of: Of,
        after: Option<&KeyId>,
        most: u32,
    ) -> impl Future<Output = Result<Stretch, StoreError>> + Send;

    /// The rows of these keys, one of each region, in the order of the keys that were asked for.
    fn traces(&self, ids: &[KeyId]) -> impl Future<Output = Result<Vec<Vec<Trace>>, StoreError>> + Send;

    /// Journals doubles (kind `double`) that the journal does not have yet, in either order of their
    /// rows: once for each pair of attempts. Returns which of them this call journalled.
    fn journal_doubles(&self, found: &[Double])
    -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// How many doubles the journal holds, whoever found them and whenever: it never falls.
    fn doubles(&self) -> impl Future<Output = Result<Counted, StoreError>> + Send;

    /// Journals (kind `late`) the answer to an attempt that is not this region's any more: its row
    /// is gone, was released, or says another attempt (docs/protocol.md#rule-10). Once for each
    /// attempt, whether or not the gate is open; never for an attempt that stands settled, with
    /// whatever answer: that one is known. Returns whether this call journalled it.
    fn late(
        &self,
        attempt: &Attempt,
        request_id: RequestId,
        answer: &Answer,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// One page of the doubles and late answers in the journal, in their order, after a place; those journalled longer ago than `back` are
    /// left out.
    fn findings(
        &self,
        after: Option<Place>,
        back: Duration,
        most: u32,
    ) -> impl Future<Output = Result<Vec<Finding>, StoreError>> + Send;

    /// The keys after one, at most so many, in their order, with everything that is held of each: rows of all origins and the journal.
    /// Fewer than `most` at the end. What it reads is not one moment's state: a key that changes meanwhile is shown before or after.
    fn histories(
        &self,
        after: Option<&KeyId>,
        most: u32,
    ) -> impl Future<Output = Result<Vec<History>, StoreError>> + Send;
}
