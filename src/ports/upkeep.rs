//! What a region's store does beside requests: forgetting keys, finding abandoned claims, the operator's list and acts.
//!
//! Neighbours: `gateway::reaper`, `gateway::sweep` and `gateway::operator` call it; `adapters::postgres` and the simulation implement it.
//! Only rows of the own origin are ever written: every other region's rows are that region's to reap, and what it left open is ended by an
//! own row that supersedes it. It must not decide when any
//! of this may run, nor what a row means.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::store::{Attempt, ClaimAsk, StoreError, Written};
use crate::protocol::double::Why;
use crate::protocol::forget::{MayForget, Observed};
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::{Answer, RequestId, Row, Token};
use crate::protocol::time::Date;

/// What one batch of reaping came to; each row it looked at counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Rows whose answer is gone from now on: they are tombstones.
    pub expired: u64,
    /// Tombstones that are forgotten: their key is new again.
    pub forgotten: u64,
    /// Rows that must not go yet and were put off: open ones, and those that mask an open row of another origin.
    pub kept: u64,
}

impl Reaped {
    /// How many rows were looked at.
    pub fn seen(&self) -> u64 {
        self.expired + self.forgotten + self.kept
    }
}

/// An attempt of the own origin that has no final answer, with all that is known of its request: requests are never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAttempt {
    /// The key.
    pub id: KeyId,
    /// The own row.
    pub row: Row,
    /// The route under which it was claimed; empty if its claim is older than routes in records.
    pub route: Arc<str>,
    /// The path of its request.
    pub path: String,
}

impl OpenAttempt {
    /// The attempt, as its holder would name it.
    pub fn attempt(&self) -> Attempt {
        Attempt { id: self.id.clone(), token: self.row.token, nonce: self.row.nonce }
    }
}

/// A place in the order of claims, as a store gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub i64);

/// Claims that were found in one stretch of the order of claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPage {
    /// Those that are still open as claimed, whether or not their hold is over.
    pub claims: Vec<OpenAttempt>,
    /// Where the stretch ended: the next one begins there. `None` if it was empty.
    pub through: Option<Place>,
    /// Whether more claims follow at once.
    pub more: bool,
}

/// A key on the operator's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDoubt {
    /// The attempt: in doubt, or claimed again since it was listed.
    pub open: OpenAttempt,
    /// Since when it is listed.
    pub since: Date,
}

/// Keys that other origins left open, found in one stretch of their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignPage {
    /// The keys, in their order.
    pub open: Vec<KeyId>,
    /// The last key of the stretch: the next one begins behind it. `None` if it was empty.
    pub through: Option<KeyId>,
    /// Whether more rows may follow.
    pub more: bool,
}

/// One stretch of a tenant's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStretch {
    /// How many.
    pub keys: u64,
    /// The last one, if more may follow.
    pub through: Option<Key>,
}

/// What an operator rules about an attempt in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It happened, and this is its answer.
    Settled(Answer),
    /// It did not happen: a retry runs.
    Released,
}

/// The person who rules, and the reason: for the journal.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// Who.
    pub actor: &'a str,
    /// Why.
    pub reason: &'a str,
}

/// An operator's act. It is journalled in the transaction that performs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// What is ruled.
    pub ruling: Ruling,
    /// Who rules.
    pub actor: String,
    /// Why.
    pub reason: String,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, by the database's clock.
    pub at: Date,
    /// What: `settled-by-hand`, `released-by-hand`, `clock-suspect`, `double`, `late`.
    pub kind: String,
    /// The attempt that it is about.
    pub token: Option<Token>,
    /// The request that made the attempt, where the entry says so.
    pub request_id: Option<RequestId>,
    /// The status of the attempt's answer, where the entry is about one.
    pub status: Option<u16>,
    /// Who.
    pub actor: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// What explains a double; `None` for other entries, and for doubles that were journalled by
    /// releases that did not say it.
    pub explained: Option<Why>,
}

/// Everything that a region's store does beside requests. All methods bound their own time.
pub trait Upkeep: Send + Sync + 'static {
    /// Reaps at most `most` rows of the own origin that are due by the database's clock, and by
    /// what may be forgotten: so a database whose clock jumps ahead takes nothing along. Nothing
    /// while the gate is not open. No token of what is reaped is ever given out again.
    ///
    /// Settled rows, and released ones that hide nothing, become tombstones, and tombstones are
    /// forgotten. An open row is put off, unless a final row of another origin stands above it:
    /// then it becomes a tombstone too. A tombstone that masks another origin's open row is put
    /// off: forgetting it first would bring that row back (docs/protocol.md#rule-44).
    fn reap(&self, may: MayForget, most: u32) -> impl Future<Output = Result<Reaped, StoreError>> + Send;

    /// The own claims after a place, in their order, of those made longer than `older` ago; looks at `most` rows or few more.
    fn claims(
        &self,
        after: Option<Place>,
        older: Duration,
        most: u32,
    ) -> impl Future<Output = Result<ClaimPage, StoreError>> + Send;

    /// The operator's list after a key, in the order of keys: own attempts in doubt, own claims whose hold is over, and open attempts of
    /// other origins under keys that were [enlisted](Upkeep::enlist), whatever is left of their holds. Not what a final row of any origin
    /// answers for, nor what another row superseded knowingly. Of several attempts under a key the one with the highest token.
    fn doubts(
        &self,
        after: Option<&KeyId>,
        most: u32,
    ) -> impl Future<Output = Result<Vec<ListedDoubt>, StoreError>> + Send;

    /// One stretch of the rows of other origins, in the order of keys, after a key; looks at `most` of them or few more. Told are the keys of
    /// those that are open, with no final row and no row that superseded them knowingly.
    fn foreign(
        &self,
        after: Option<&KeyId>,
        most: u32,
    ) -> impl Future<Output = Result<ForeignPage, StoreError>> + Send;

    /// Puts keys on the list, where they are not on it.
    fn enlist(&self, ids: &[KeyId]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes keys off the list that have no open own row.
    fn delist(&self, ids: &[KeyId]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes what is no longer open off the list, and what is answered for. Returns how many are left on it.
    fn unlist(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Ends an attempt by hand, if it stands in doubt and its time is over: it got an answer, or its hold has run out; or if it
    /// stands claimed and its hold has run out. `Lost` if not.
    fn rule(&self, attempt: &Attempt, act: &Act) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Writes what became of other origins' attempts: an own row in their place, final or released
    /// from its first moment, in one statement. It stands on the basis of `ask`, compares the gate
    /// and the other rows as a claim on known rows does, and has the nonce of the attempt that it
    /// settles. An operator's word is journalled in the same transaction. `Lost` if the rows say
    /// something else by now. Repeating it finds what it wrote.
    fn stand_in(
        &self,
        ask: &ClaimAsk,
        ruling: &Ruling,
        by: Option<Who<'_>>,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// One stretch of the keys of this tenant that the own origin remembers, tombstones included, in their order, after a key: at most `most`.
    fn live_keys(
        &self,
        tenant: &Tenant,
        after: Option<&Key>,
        most: u32,
    ) -> impl Future<Output = Result<KeyStretch, StoreError>> + Send;

    /// The time that gateways saw pass here, with the version of that, and what the database's
    /// clock shows now.
    fn observed(&self) -> impl Future<Output = Result<(u64, Observed, Date), StoreError>> + Send;

    /// Replaces it, if it is still at that version; `Lost` if not.
    fn observe(
        &self,
        version: u64,
        observed: &Observed,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Journals what is about no key. The text holds nothing that a client chose.
    fn note(&self, kind: &str, reason: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How long ago something of this kind was noted last, by the database's clock; zero if that lies ahead of it.
    fn noted(&self, kind: &str) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send;

    /// The newest entries about a key, newest first, at most 100.
    fn journal(&self, id: &KeyId) -> impl Future<Output = Result<Vec<Entry>, StoreError>> + Send;
}
