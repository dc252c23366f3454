//! A region's store beside requests: forgotten keys, abandoned claims, the operator's list.
//!
//! Only rows of the own origin are ever written. Other regions reap their own rows, and an own row
//! that supersedes it ends an attempt that another region left open.

use std::sync::Arc;
use std::time::Duration;

use super::store::{Attempt, Call, ClaimAsk, Written};
use onceway_protocol::double::Why;
use onceway_protocol::key::{Key, KeyId, Tenant};
use onceway_protocol::record::{Answer, Recovery, RequestId, Row, Token};
use onceway_protocol::time::Date;

/// The result of one batch of reaping; each row that it looked at counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Rows whose answer is gone from now on: they are tombstones.
    pub expired: u64,
    /// Tombstones that are forgotten: their key is new again.
    pub forgotten: u64,
    /// Rows that were put off: open ones, and those that mask an open row of another origin.
    pub kept: u64,
}

impl Reaped {
    /// Number of rows that were looked at.
    pub fn seen(&self) -> u64 {
        self.expired + self.forgotten + self.kept
    }
}

/// An attempt of the own origin without a final answer, with all known facts of its request.
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
    /// Claims that are still open as claimed, whether or not their hold is over.
    pub claims: Vec<OpenAttempt>,
    /// The end of the stretch, where the next one begins; `None` if it was empty.
    pub through: Option<Place>,
    /// True if more claims follow at once.
    pub more: bool,
}

/// A key on the operator's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedDoubt {
    /// The attempt: in doubt, or claimed again since it was listed.
    pub open: OpenAttempt,
    /// The time since which it is listed.
    pub since: Date,
    /// The beginning of what the upstream said when it left the key in doubt.
    pub excerpt: Option<String>,
}

/// Keys that other origins left open, found in one stretch of their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignPage {
    /// The keys, in their order.
    pub open: Vec<KeyId>,
    /// The last key, behind which the next stretch begins; `None` if it was empty.
    pub through: Option<KeyId>,
    /// True if more rows may follow.
    pub more: bool,
}

/// One stretch of a tenant's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyStretch {
    /// Number of keys.
    pub keys: u64,
    /// The last one, if more may follow.
    pub through: Option<Key>,
}

/// An operator's ruling about an attempt in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The effect happened, and this is its answer.
    Settled(Answer),
    /// The effect did not happen: a retry runs.
    Released,
}

/// The person who rules, and the reason: for the journal.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The operator.
    pub actor: &'a str,
    /// The operator's reason.
    pub reason: &'a str,
}

/// An operator's act. It is journalled in the transaction that performs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The ruling.
    pub ruling: Ruling,
    /// The operator.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
}

impl Act {
    /// The person, and the reason.
    pub fn by(&self) -> Who<'_> {
        Who { actor: &self.actor, reason: &self.reason }
    }
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The time, by the database's clock.
    pub at: Date,
    /// The kind: `settled-by-hand`, `released-by-hand`, `rule-by-hand`, `double`, `late`.
    pub kind: String,
    /// The attempt that it is about.
    pub token: Option<Token>,
    /// The request that made the attempt, if the entry names it.
    pub request_id: Option<RequestId>,
    /// The status of the attempt's answer, if the entry is about one.
    pub status: Option<u16>,
    /// The person who acted, if one did.
    pub actor: Option<String>,
    /// The reason.
    pub reason: Option<String>,
    /// The explanation of a double, unless an older release journalled it.
    pub explained: Option<Why>,
}

/// The work of a region's store beside requests. All methods bound their own time.
pub trait Upkeep: Send + Sync + 'static {
    /// Reaps at most `most` rows of the own origin that are due. Nothing while the gate is not
    /// open. No token of a reaped row is ever given out again.
    ///
    /// Settled rows, and released ones that hide nothing, become tombstones, and tombstones are
    /// forgotten. An open row is put off, unless another origin has a final row above it: then it
    /// becomes a tombstone too. A tombstone that masks another origin's open row is put off:
    /// forgetting it first would bring that row back (docs/protocol.md#rule-44). So is one of an
    /// epoch from `away` on: a row that it would mask may not have arrived.
    fn reap(&self, most: u32, away: Option<u64>) -> impl Call<Reaped>;

    /// The own claims older than `older`, after a place; looks at `most` rows or few more.
    fn claims(&self, after: Option<Place>, older: Duration, most: u32) -> impl Call<ClaimPage>;

    /// The operator's list after a key, in the order of keys. It has own attempts in doubt, own
    /// claims whose hold is over, and open attempts of others under [enlisted](Upkeep::enlist)
    /// keys. An attempt is left out if a final row of any origin answers for it, or if another row
    /// superseded it knowingly. Of several attempts the list has the one with the highest token.
    fn doubts(&self, after: Option<&KeyId>, most: u32) -> impl Call<Vec<ListedDoubt>>;

    /// The beginning of the answer that left a listed key in doubt, if there was one.
    fn excerpt(&self, id: &KeyId) -> impl Call<Option<String>>;

    /// One stretch of the rows of other origins, in the order of keys, after a key; looks at `most`
    /// of them or few more. Returns keys of open rows that no other row answers for.
    fn foreign(&self, after: Option<&KeyId>, most: u32) -> impl Call<ForeignPage>;

    /// Puts keys on the list, if they are not on it.
    fn enlist(&self, ids: &[KeyId]) -> impl Call<()>;

    /// Takes keys off the list that have no open own row.
    fn delist(&self, ids: &[KeyId]) -> impl Call<()>;

    /// Takes off the list what is no longer open or is answered for. Returns the number left on it.
    fn unlist(&self) -> impl Call<u64>;

    /// Ends an attempt by hand. It must be in doubt and over (it got an answer, or its hold has run
    /// out), or claimed with its hold run out. `Lost` if not.
    fn rule(&self, attempt: &Attempt, act: &Act) -> impl Call<Written>;

    /// Has own attempts in doubt go by this rule from now on, and journals each change in the same
    /// transaction. Returns the number of changes: an attempt that is not in doubt, or goes by that
    /// rule, is left out. Nothing while the gate is not open.
    fn change_rule(&self, attempts: &[Attempt], rule: Recovery, by: Who<'_>) -> impl Call<u64>;

    /// Writes a stand-in for other origins' attempts: an own row in their place, final or released
    /// from its first moment, in one statement. It has the basis of `ask`, and compares the gate
    /// and the other rows as a claim on known rows does. Its nonce is that of the attempt that it
    /// settles. An operator's ruling is journalled in the same transaction. `Lost` if the rows say
    /// something else by now. A repetition finds its row.
    fn stand_in(&self, ask: &ClaimAsk, ruling: &Ruling, by: Option<Who<'_>>) -> impl Call<Written>;

    /// One stretch of the keys of this tenant that the own origin remembers, tombstones included,
    /// in their order, after a key: at most `most`.
    fn live_keys(&self, tenant: &Tenant, after: Option<&Key>, most: u32) -> impl Call<KeyStretch>;

    /// Journals an entry that is about no key. The text holds nothing that a client chose.
    fn note(&self, kind: &str, reason: &str) -> impl Call<()>;

    /// The newest entries about a key, newest first, at most 100.
    fn journal(&self, id: &KeyId) -> impl Call<Vec<Entry>>;
}
