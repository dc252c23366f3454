//! A region's store of views, leases and moves of arcs: gate, views, acceptor, escrow, imports.
//!
//! A witness implements [`Acceptors`] alone. Each writing statement compares its facts.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::store::{Attempt, Call, GateVersion, Terms, Written};
use onceway_protocol::authority::GateState;
use onceway_protocol::key::KeyId;
use onceway_protocol::record::{Answer, Row, Token};
use onceway_protocol::region::Origin;
use onceway_protocol::register::Acceptor;
use onceway_protocol::view::View;
use onceway_protocol::written::{Seconds, plain};

/// An acceptor on disk: one row or file, read and written whole.
pub trait Acceptors: Send + Sync + 'static {
    /// The acceptor, with the version of its row. It is made with the store, holding nothing.
    fn acceptor(&self) -> impl Call<(u64, Acceptor)>;

    /// Replaces the acceptor, if its row is still at `version` and, in a region, the running
    /// server's boot is approved: a store that forgot promises must not promise. Before that only
    /// the founding is written, as nothing can be forgotten yet. Durable when it returns `Done`.
    /// `Lost` if another writer was faster, `GateMoved` if the boot is not approved.
    fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> impl Call<Written>;
}

/// The gate's state and the views behind it.
pub trait Authority: Acceptors {
    /// Replaces the gate's state, if the gate is still at `version` and the running boot is
    /// approved. The same transaction keeps the view and commits the next heartbeat with the view's
    /// epoch. After that no claim made under an older version can commit. The view's epoch never
    /// goes back. `Lost` if the gate moved on, `GateMoved` if the boot is not approved.
    fn set_gate(&self, version: GateVersion, state: &GateState) -> impl Call<Written>;

    /// Keeps chosen views, by epoch. A view that is kept already stays.
    fn keep_views(&self, views: &[Arc<View>]) -> impl Call<()>;

    /// All chosen views kept here, oldest first, each with the time since it was stored here.
    fn views(&self) -> impl Call<Vec<(Arc<View>, Duration)>>;
}

/// A claim to lodge with the target, before anything is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lodging {
    /// The key.
    pub id: KeyId,
    /// The claim's origin.
    pub origin: Origin,
    /// Its token; the epoch is the one of the claim's view.
    pub token: Token,
    /// The claim's terms.
    #[serde(flatten)]
    pub terms: Terms,
}

impl Lodging {
    /// The attempt, as its holder would name it.
    pub fn attempt(&self) -> Attempt {
        Attempt { id: self.id.clone(), token: self.token, nonce: self.terms.nonce }
    }
}

/// The result of a lodging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lodged {
    /// The escrow row is here, durably: also if it was here before.
    Done,
    /// The gate is at another version, or not approved; nothing was written.
    GateMoved,
    /// The store has a higher token of that origin; nothing was written.
    Superseded,
}

/// Claims of other regions that were lodged here. Local: never published. A row lives until its
/// origin's record of at least its token is applied here, or it is voided or converted. At the
/// latest it ends with its key's life by this store's observed time, skew and tombstone included.
pub trait Escrows: Send + Sync + 'static {
    /// Lodges a claim, comparing this gate's version in the statement that writes. So no escrow of
    /// an older view can slip in once the gate has adopted a newer one (docs/protocol.md#rule-37).
    /// One row per key and origin: a higher token replaces a lower one.
    fn lodge(&self, lodging: &Lodging, gate: GateVersion) -> impl Call<Lodged>;

    /// Takes back an escrow of that token and nonce, if there is one: its claim was never sent.
    fn void(&self, origin: &Origin, attempt: &Attempt) -> impl Call<()>;

    /// Lodges the answer beside the claim of that token and nonce, at any epoch: a fact is never
    /// refused. `Lost` if no row has them.
    fn lodge_answer(&self, origin: &Origin, attempt: &Attempt, answer: &Answer) -> impl Call<Written>;

    /// Turns at most `most` escrow rows of `origin` into own records, and deletes them. A record is
    /// in doubt or settled, with the same token and nonce. No record is made if a record of that
    /// origin, or the own one, has a token as high. Returns the number of escrow rows that it took
    /// off, 0 if none is left (docs/protocol.md#rule-39).
    fn convert(&self, origin: &Origin, most: u32) -> impl Call<u64>;

    /// Deletes at most `most` escrow rows that are not needed, none while the running boot is not
    /// approved. Returns the number.
    fn reap_escrows(&self, most: u32) -> impl Call<u64>;
}

/// A row of another origin as one survivor hands it to another: times as spans, as no region
/// compares another's dates (docs/protocol.md#rule-12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedRow {
    /// The key.
    pub id: KeyId,
    /// The row, as read by that survivor.
    #[serde(deserialize_with = "bounded")]
    pub row: Row,
    /// Its hold.
    #[serde(with = "Seconds")]
    pub hold: Duration,
    /// The rest of its stored life.
    #[serde(with = "Seconds")]
    pub lives: Duration,
    /// The life of its tombstone.
    #[serde(with = "Seconds")]
    pub tombstone: Duration,
    /// The route of its claim.
    #[serde(deserialize_with = "plain")]
    pub route: Arc<str>,
    /// The path of its request.
    #[serde(deserialize_with = "plain")]
    pub path: String,
}

/// Reads a row. No peer makes its count of doubts overflow.
fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<Row, D::Error> {
    let row = Row::deserialize(from)?;
    Ok(Row { doubted: row.doubted.min(row.token.attempts()), ..row })
}

/// A part of the rows of an origin that its store may lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latest {
    /// The rows, each with its place.
    pub rows: Vec<(u64, CopiedRow)>,
    /// The place where the next part begins; `None` after the last one.
    pub next: Option<u64>,
}

/// Rows of a lost origin that one survivor has and another lacks (docs/protocol.md#rule-33).
pub trait Imports: Send + Sync + 'static {
    /// One page of the rows of `origin` here, replicated or imported, in the order of keys.
    fn rows_of(&self, origin: &Origin, after: Option<&KeyId>, most: u32) -> impl Call<Vec<CopiedRow>>;

    /// Stores rows of another origin beside its replicated ones. Of two rows of one key, look-ups
    /// give the higher token, and a lower token does not replace a higher one. Fails, and writes
    /// nothing, while the running boot is not approved.
    fn import(&self, origin: &Origin, rows: &[CopiedRow]) -> impl Call<()>;

    /// Rows of `origin` that a store with its newest heartbeat may lack: those that came here after
    /// that heartbeat, and claims that are lodged here. All rows of the origin are read, a part in
    /// each call, in the order of the disk. At most `most` rows are returned, and more where
    /// several have one place. Begin at place 0.
    fn latest_of(&self, origin: &Origin, from: u64, most: u32) -> impl Call<Latest>;

    /// Stores own rows that this store may lack, as what they are: holds and lives begin now. A
    /// row that is here stays, unless the other has a higher token, or a later state of the same
    /// attempt. `GateMoved`, and nothing is written, once the running boot is approved: rows may
    /// have been forgotten since (docs/protocol.md#rule-8).
    fn restore(&self, rows: &[CopiedRow]) -> impl Call<Written>;

    /// Looks at imported rows, at most `most`, and deletes those whose life is over, tombstone
    /// included, and that are not needed. A final row is needed while it masks an open row of
    /// another origin, and a released row while such a row is open. An open row is, until a final
    /// row answers for it, or one that superseded it knowingly and is over. Nothing goes while the
    /// running boot is not approved. Returns the number of deleted rows.
    fn reap_imports(&self, most: u32) -> impl Call<u64>;
}
