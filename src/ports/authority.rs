//! What a region's store keeps of views, leases and moves of arcs: the gate's state, the chosen views, the acceptor, escrow rows and
//! rows imported from survivors.
//!
//! Neighbours: `gateway::authority` calls it, `protocol::{authority, register, escrow}` give the values; `adapters::postgres` and the
//! simulation implement all of it, a witness only [`Acceptors`]. Each write compares what it relies on in the statement that writes. It
//! must not judge anything.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::store::{GateVersion, StoreError, Written};
use crate::protocol::authority::GateState;
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::forget::MayForget;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::record::{Answer, Nonce, RequestId, Row, Token};
use crate::protocol::region::Origin;
use crate::protocol::register::Acceptor;
use crate::protocol::view::View;

/// An acceptor on disk: one row or file, read and written whole.
pub trait Acceptors: Send + Sync + 'static {
    /// The acceptor, with the version of its row. It is made with the store, holding nothing.
    fn acceptor(&self) -> impl Future<Output = Result<(u64, Acceptor), StoreError>> + Send;

    /// Replaces it, if its row is still at `version` and, in a region, the running server's boot is approved (a store that forgot
    /// promises must not promise). Durable when it returns `Done`; `Lost` if somebody else was faster, `GateMoved` if not approved.
    /// The founding of the register is written before any boot is approved: an acceptor that holds nothing has nothing to forget.
    fn set_acceptor(
        &self,
        version: u64,
        acceptor: &Acceptor,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;
}

/// The gate's state and the views behind it.
pub trait Authority: Acceptors {
    /// Replaces the gate's state, if the gate is still at `version` and the running boot is approved, and in the same transaction keeps the
    /// view and commits the next heartbeat with the view's epoch: after that no claim made under an older version can commit. The
    /// view's epoch never goes back. `Lost` if the gate moved on, `GateMoved` if the boot is not approved.
    fn set_gate(
        &self,
        version: GateVersion,
        state: &GateState,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Keeps chosen views, by epoch. One that is kept already stays.
    fn keep_views(&self, views: &[Arc<View>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// All chosen views kept here, oldest first, each with how long ago it was stored here.
    fn views(&self) -> impl Future<Output = Result<Vec<(Arc<View>, Duration)>, StoreError>> + Send;
}

/// A claim to lodge with the target, before anything is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lodging {
    /// The key.
    pub id: KeyId,
    /// The claim's origin.
    pub origin: Origin,
    /// Its token; the epoch is the one of the claim's view.
    pub token: Token,
    /// Its nonce.
    pub nonce: Nonce,
    /// What the request asks.
    pub fingerprint: Fingerprint,
    /// The request that makes the attempt.
    pub request_id: RequestId,
    /// The claim's hold.
    pub hold: Duration,
    /// How long the key is remembered.
    pub lifetime: Lifetime,
    /// The route.
    pub route: Arc<str>,
    /// The path of the request, without its query.
    pub path: String,
    /// The digest of who asks, where the route binds replays to it.
    pub principal: Option<Digest32>,
}

/// What came of a lodging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lodged {
    /// It stands here, durably: also when it stood here before.
    Done,
    /// The gate is at another version, or not approved; nothing was written.
    GateMoved,
    /// A higher token of that origin stands here; nothing was written.
    Superseded,
}

/// Claims of other regions that were lodged here. Local: never published. A row lives until its origin's record of at least its token
/// is applied here, until it is voided or converted, or until its life and the skew are over by this store's clock.
pub trait Escrows: Send + Sync + 'static {
    /// Lodges a claim, comparing this gate's version in the statement that writes: once a gate has
    /// adopted a newer view, no escrow of an older one can slip in (docs/protocol.md#rule-37). One
    /// row per key and origin: a higher token replaces a lower one.
    fn lodge(
        &self,
        lodging: &Lodging,
        gate: GateVersion,
    ) -> impl Future<Output = Result<Lodged, StoreError>> + Send;

    /// Takes an escrow back whose claim was never sent. Nothing if there is none of that token and nonce.
    fn void(
        &self,
        id: &KeyId,
        origin: &Origin,
        token: Token,
        nonce: Nonce,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lodges the answer beside the claim of that token and nonce, whatever the epoch: a fact is never refused. `Lost` if there is none.
    fn lodge_answer(
        &self,
        id: &KeyId,
        origin: &Origin,
        token: Token,
        nonce: Nonce,
        answer: &Answer,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Turns at most `most` escrow rows of `origin` into own records, in doubt or settled, with the
    /// same token and nonce, where neither a record of that origin nor the own one has a token as
    /// high; and deletes them. Returns how many rows of that origin it took off, 0 when none is
    /// left (docs/protocol.md#rule-39).
    fn convert(&self, origin: &Origin, most: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Deletes escrow rows that are not needed any more, at most `most`; none for its life before
    /// that may be forgotten, and none while the running boot is not approved. Returns how many.
    fn reap_escrows(&self, may: MayForget, most: u32)
    -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A row of another origin as one survivor hands it to another: times as spans, as no region
/// compares another's dates (docs/protocol.md#rule-12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRow {
    /// The key.
    pub id: KeyId,
    /// The row, as read there.
    pub row: Row,
    /// Its hold.
    pub hold: Duration,
    /// What is left of its stored life.
    pub lives: Duration,
    /// How long its tombstone stays.
    pub tombstone: Duration,
    /// The route of its claim.
    pub route: Arc<str>,
    /// The path of its request.
    pub path: String,
}

/// Rows of a lost origin that one survivor has and another lacks (docs/protocol.md#rule-33).
pub trait Imports: Send + Sync + 'static {
    /// One page of the rows of `origin` that stand here, replicated or imported, in the order of keys, after one.
    fn rows_of(
        &self,
        origin: &Origin,
        after: Option<&KeyId>,
        most: u32,
    ) -> impl Future<Output = Result<Vec<CopiedRow>, StoreError>> + Send;

    /// Stores rows of another origin beside its replicated ones; of two of one key, look-ups give the
    /// higher token. A lower token does not replace a higher one. Fails, and writes nothing, while the
    /// running boot is not approved.
    fn import(
        &self,
        origin: &Origin,
        rows: &[CopiedRow],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Looks at imported rows whose life, tombstone included, is over by the database's clock and
    /// may be forgotten, at most `most`, and deletes those that are not needed. A final row goes
    /// once no open row of another origin is left to mask. An open one goes once a final row
    /// answers for it, or one that superseded it knowingly and is itself over; a released one once
    /// no attempt of another origin is open. Nothing goes while the running boot is not approved.
    /// Returns how many were deleted.
    fn reap_imports(&self, may: MayForget, most: u32)
    -> impl Future<Output = Result<u64, StoreError>> + Send;
}
