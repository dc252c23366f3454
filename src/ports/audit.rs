//! What a region's store knows of keys for those who reconcile: runs that a window alone allowed, keys that ran twice, answers that came
//! too late, and everything else it holds of each key.
//!
//! Neighbours: `gateway::audit` and `gateway::export` call it, `adapters::postgres` and the simulation implement it, `super::upkeep` has the
//! journal that it writes. A settlement that meets another origin's answer is journalled by [`super::KeyStore::settle`] itself. It must not
//! judge which of two answers is served: `protocol::record` does.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::store::{Attempt, StoreError};
use super::upkeep::{Entry, Place};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, RequestId, Row};
use crate::protocol::region::Origin;
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

/// A key that ran at risk in one region, and in another one: surely if both rows are settled, possibly if one of them is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Double {
    /// The key.
    pub id: KeyId,
    /// The row of the run at risk: the own one; or another origin's, of which any region tells that has both rows, once one of the two
    /// stores was replaced.
    pub at_risk: Row,
    /// The other region's row.
    pub other: Row,
}

/// Doubles that were found in one stretch of the runs at risk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoublesPage {
    /// Those that were not in the journal before, in the order of keys.
    pub doubles: Vec<Double>,
    /// The last key of the stretch: the next one begins behind it. `None` if it was empty.
    pub through: Option<KeyId>,
    /// Whether more runs at risk may follow.
    pub more: bool,
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

    /// One stretch of the own rows that ran at risk, in the order of keys, after a key; looks at `most` of them or few more. Those that came to
    /// something are compared with the rows of other origins here, doubles that are not in the journal yet are journalled (kind `double`, once
    /// for each pair of runs) and told. Another origin's row counts if it is settled, or open and not superseded by the run at risk; not
    /// if it is the same attempt. Other origins' runs at risk are looked at in the same way where either row is of a store that was
    /// `replaced`: that one finds nothing itself any more, and what it wrote last may never reach the one that ran too. Of two that are
    /// doubles of each other the own one is told, else the one whose origin's name is less.
    fn audit(
        &self,
        after: Option<&KeyId>,
        most: u32,
        replaced: &[Origin],
    ) -> impl Future<Output = Result<DoublesPage, StoreError>> + Send;

    /// How many doubles the journal holds, whoever found them and whenever: it never falls.
    fn doubles(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Journals (kind `late`) the answer to an attempt that is not this region's any more: its row is gone, was released, or says another
    /// attempt (protocol reference, 3, step 6z). Once for each attempt, whether or not the gate is open; never for an attempt that
    /// stands settled, with whatever answer: that one is known. Returns whether this call journalled it.
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
