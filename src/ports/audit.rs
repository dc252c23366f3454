//! What a region's store knows of keys that may have run twice: own runs that a window alone allowed, and doubles found among them.
//!
//! Neighbours: `gateway` calls it after a region's return, `adapters::postgres` implements it, `super::upkeep` has the journal that it
//! writes. A settlement that meets another origin's answer is journalled by [`super::KeyStore::settle`] itself. It must not judge which of
//! two answers is served: `protocol::record` does.

use std::future::Future;
use std::sync::Arc;

use super::store::StoreError;
use crate::protocol::key::KeyId;
use crate::protocol::record::Row;

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

/// A key that ran at risk here, and in another region: surely if both rows are settled, possibly if one of them is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Double {
    /// The key.
    pub id: KeyId,
    /// The own row.
    pub own: Row,
    /// The other region's row.
    pub other: Row,
}

/// The audit of runs at risk. All methods bound their own time.
pub trait Audit: Send + Sync + 'static {
    /// One page of the own rows that ran at risk, in the order of keys, after one.
    fn runs_at_risk(
        &self,
        after: Option<&KeyId>,
        most: u32,
    ) -> impl Future<Output = Result<Vec<RunAtRisk>, StoreError>> + Send;

    /// Compares own rows that ran at risk and came to something with the rows of other origins here, journals at most `most` doubles that
    /// are not in the journal yet (kind `double`, once for each key, other origin and its token), and returns them; fewer than `most`
    /// when no more are to be found now. Another origin's row counts if it is settled, or open and not superseded by the own one; not if
    /// it is the same attempt.
    fn audit(&self, most: u32) -> impl Future<Output = Result<Vec<Double>, StoreError>> + Send;
}
