//! The region's store: records of keys ([`KeyStore`]) and the state of replication ([`Replica`]).
//!
//! Neighbours: `gateway::request` and `gateway::heartbeat` call it, `adapters::postgres` and the simulation implement it. A store
//! writes only its own region's rows and reads all. Each writing method compares what it relies on in the statement that
//! writes: the gate's version and boot, the row's token and nonce. It must not decide what rows mean: `protocol::record` does.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::authority::GateState;
use crate::protocol::decide::Basis;
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::record::{Answer, Nonce, RequestId, Row, Token};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::Date;

/// Why a store method failed, and what is known about its effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written, surely. The text is for logs and holds no key.
    #[error("store: {0} (nothing was written)")]
    Definite(String),
    /// It may or may not have been written.
    #[error("store: {0} (may or may not have been written)")]
    Unknown(String),
}

/// The gate's version, compared by every claim in the statement that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GateVersion(pub u64);

/// One start of the region's Postgres: which cluster, which timeline, started when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Postgres' system identifier.
    pub system: u64,
    /// Its timeline.
    pub timeline: u32,
    /// Start of its postmaster, microseconds since 1970 on its own clock; compared for equality only.
    pub started: i64,
}

/// The gate row as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Grows with every change of the row.
    pub version: GateVersion,
    /// The epoch that this region has adopted; 1 before the register was founded.
    pub epoch: u64,
    /// The adopted view and what is still closed under it; `None` before the register was founded.
    pub state: Option<GateState>,
    /// The approved boot; `None` before the first approval.
    pub approved: Option<Boot>,
    /// The boot of the server that answered.
    pub running: Boot,
}

impl Gate {
    /// Whether claims can pass: the running server is the approved one.
    pub fn is_open(&self) -> bool {
        self.approved.as_ref() == Some(&self.running)
    }
}

/// A claim to write.
#[derive(Clone, Debug)]
pub struct ClaimAsk {
    /// The key.
    pub id: KeyId,
    /// What the request asks.
    pub fingerprint: Fingerprint,
    /// Tells this claim from every other, over repeats of the statement.
    pub nonce: Nonce,
    /// The request that makes the attempt.
    pub request_id: RequestId,
    /// The gate's version that the owner was computed under.
    pub gate: GateVersion,
    /// What the claim stands on.
    pub basis: Basis,
    /// Lost regions whose window alone allows it: in the claim itself, so that the journal cannot miss it.
    pub risk: Vec<RegionName>,
    /// How long the claim may go without an outcome.
    pub hold: Duration,
    /// How long the key is remembered, counted from this claim.
    pub lifetime: Lifetime,
    /// The route of the request: under its policy the key is looked after when no client asks.
    pub route: Arc<str>,
    /// The path of the request, without its query.
    pub path: String,
    /// The digest of who asks, where the route binds replays to it.
    pub principal: Option<Digest32>,
}

/// What a claim found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// The claim is durable and ours, under this token.
    Won {
        /// The attempt's token.
        token: Token,
        /// Until when the key is promised to be remembered.
        expires: Date,
    },
    /// Rows stand in the way, at least one; nothing was written.
    Found(Vec<Row>),
    /// The gate is at another version, or its approved boot is not the running one; nothing was written, by an earlier call of the
    /// same nonce neither.
    GateMoved,
}

/// Whether a write under a token and nonce took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Durable; also when the same was durable already.
    Done,
    /// No row of this token and nonce stands in a state that allows it: the claim was lost.
    Lost,
    /// The approved boot is not the running one; nothing was written, try again once it is approved.
    GateMoved,
}

/// One attempt, as its holder names it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The key.
    pub id: KeyId,
    /// Its token.
    pub token: Token,
    /// Its nonce.
    pub nonce: Nonce,
}

/// The records of keys. All methods bound their own time and never resend behind the caller's back.
pub trait KeyStore: Send + Sync + 'static {
    /// Claims a key durably, in one round trip, or says what stands in the way. Repeating it with the same nonce finds the own claim.
    fn claim(&self, ask: &ClaimAsk) -> impl Future<Output = Result<ClaimReply, StoreError>> + Send;

    /// Stores the final answer, from claimed or in doubt. Where another origin's answer is here
    /// already, that one is stored instead, since it may have been replayed, and both are
    /// journalled (kind `double`) in the same transaction, unless they are one attempt: then
    /// `Lost`, as to whoever else settled the key (docs/protocol.md#rule-10).
    fn settle(
        &self,
        attempt: &Attempt,
        answer: &Answer,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Ends the attempt as "nothing happened", from claimed or in doubt.
    fn release(&self, attempt: &Attempt) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// Marks the attempt in doubt, from claimed; `status` is the upstream's, where it gave one.
    fn doubt(
        &self,
        attempt: &Attempt,
        status: Option<u16>,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;

    /// All rows of each key, in the order of `ids`, in one round trip.
    fn look_up(&self, ids: &[KeyId]) -> impl Future<Output = Result<Vec<Vec<Row>>, StoreError>> + Send;

    /// The same for people: where many requests wait for the store, it waits behind none of them.
    fn look_up_beside(
        &self,
        ids: &[KeyId],
    ) -> impl Future<Output = Result<Vec<Vec<Row>>, StoreError>> + Send {
        self.look_up(ids)
    }

    /// What the store is not asked at all for now, since it did not answer, in words for people; each such call fails at once and is
    /// definite. `None`: it is asked everything.
    fn spares(&self) -> Option<String> {
        None
    }

    /// The gate for a request whose claim found it moved: after a move there are many of them, and none may stand in the way of what fences.
    fn gate_again(&self) -> impl Future<Output = Result<Gate, StoreError>> + Send {
        self.gate()
    }

    /// Reads the gate.
    fn gate(&self) -> impl Future<Output = Result<Gate, StoreError>> + Send;

    /// Approves `boot`, if the gate is still at `version` and `boot` is still the running one. `Lost` if not.
    fn approve(
        &self,
        version: GateVersion,
        boot: &Boot,
    ) -> impl Future<Output = Result<Written, StoreError>> + Send;
}

/// What this region remembers of a peer's origin, over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    /// The peer's origin.
    pub origin: Origin,
    /// The highest heartbeat of it that was seen applied here.
    pub applied: u64,
    /// The largest observed lag of the trailing period.
    pub lag: Option<Duration>,
    /// Up to which heartbeat its rows were imported from survivors; 0 if never. Never goes back.
    pub imported: u64,
}

/// A heartbeat as it stands in this region's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who wrote it.
    pub origin: Origin,
    /// Its number.
    pub seq: u64,
    /// The epoch of its writer's gate.
    pub epoch: u64,
    /// True if every row that its writer committed before it is here. Not while the first copy of
    /// any table of its subscription runs: tables are copied one by one, and this one is the
    /// smallest (docs/protocol.md#rule-29).
    pub whole: bool,
}

/// A heartbeat just committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its number.
    pub seq: u64,
    /// When it was committed, by the database's clock.
    pub date: Date,
}

/// One incoming replication, as its subscriber's Postgres sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The region whose rows it brings.
    pub from: String,
    /// Whether the initial copy of all its tables is done.
    pub ready: bool,
    /// Whether a worker is running now.
    pub streaming: bool,
}

/// One replication slot of this region's server, whoever made it: each keeps WAL on the disk until it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// How much WAL is kept for it, in bytes.
    pub retained: u64,
    /// Its WAL was given up, so it can never be read on.
    pub lost: bool,
}

/// The state of replication, as this region's store shows it.
pub trait Replica: Send + Sync + 'static {
    /// Commits this region's next heartbeat durably; `None` while the gate is not open.
    fn beat(&self) -> impl Future<Output = Result<Option<Beat>, StoreError>> + Send;

    /// All heartbeats that stand here, own and foreign, each with its `whole` of the same moment.
    fn heartbeats(&self) -> impl Future<Output = Result<Vec<Heartbeat>, StoreError>> + Send;

    /// Stores what is remembered of the peers. A heartbeat that is smaller than the one remembered does not replace it.
    fn remember(&self, memory: &[PeerMemory]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What was remembered last.
    fn recall(&self) -> impl Future<Output = Result<Vec<PeerMemory>, StoreError>> + Send;

    /// All incoming replications.
    fn subscriptions(&self) -> impl Future<Output = Result<Vec<Subscription>, StoreError>> + Send;

    /// All replication slots of the region's server. None where replication needs no slots.
    fn slots(&self) -> impl Future<Output = Result<Vec<Slot>, StoreError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }
}
