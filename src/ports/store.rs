//! The region's store: records of keys ([`KeyStore`]) and the state of replication ([`Replica`]).
//!
//! A store writes only its own region's rows and reads all. Each writing method compares the facts
//! on which it relies in the statement that writes: the gate's version and boot, token and nonce.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use onceway_protocol::authority::{Boot, Gate, GateVersion};

use onceway_protocol::digest::Digest32;
use onceway_protocol::fingerprint::Fingerprint;
use onceway_protocol::key::KeyId;
use onceway_protocol::lifetime::{Lifetime, Retention};
use onceway_protocol::observed::{Observed, Passed};
use onceway_protocol::record::{Answer, Basis, Nonce, Recovery, RequestId, Row, Token};
use onceway_protocol::region::{Origin, RegionName};
use onceway_protocol::time::Date;
use onceway_protocol::written::{Seconds, plain};

/// The reason why a store method failed, and the knowledge about its effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written, surely. The text is for logs and holds no key.
    #[error("store: {0} (nothing was written)")]
    Definite(String),
    /// The write may or may not have happened.
    #[error("store: {0} (may or may not have been written)")]
    Unknown(String),
}

/// A call to the world that may fail: the future of every port's methods.
pub trait Call<T, E = StoreError>: Future<Output = Result<T, E>> + Send {}

impl<T, E, F: Future<Output = Result<T, E>> + Send> Call<T, E> for F {}

/// The terms of an attempt, as its claim states them and its record keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The nonce of this claim alone, equal in repeats of the statement.
    pub nonce: Nonce,
    /// Digests of what the request asks.
    pub fingerprint: Fingerprint,
    /// The request that makes the attempt.
    pub request_id: RequestId,
    /// The longest time that the claim may last without an outcome.
    #[serde(with = "Seconds")]
    pub hold: Duration,
    /// The longest time that its request may still be inside the upstream after that.
    #[serde(with = "Seconds")]
    pub settle_time: Duration,
    /// The rule for the key, should this attempt end in doubt.
    pub recovery: Recovery,
    /// The life of the key's record, counted from this claim.
    pub lifetime: Lifetime,
    /// The route of the request: its policy applies to the key when no client asks.
    #[serde(deserialize_with = "plain")]
    pub route: Arc<str>,
    /// The path of the request, without its query.
    #[serde(deserialize_with = "plain")]
    pub path: String,
    /// The digest of the principal, if the route binds replays to it.
    pub principal: Option<Digest32>,
}

/// A claim to write.
#[derive(Clone, Debug)]
pub struct ClaimAsk {
    /// The key.
    pub id: KeyId,
    /// The gate's version under which the owner was computed.
    pub gate: GateVersion,
    /// The basis of the claim.
    pub basis: Basis,
    /// Lost regions whose window alone allows it, in the claim itself: no journal can miss it.
    pub risk: Vec<RegionName>,
    /// Its terms.
    pub terms: Terms,
}

impl ClaimAsk {
    /// The time after which nothing is remembered of the key.
    pub fn life(&self) -> Retention {
        self.terms.lifetime.whole().and(self.terms.hold + self.terms.settle_time)
    }
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// The claim is durable and ours, under this token.
    Won {
        /// The attempt's token.
        token: Token,
        /// The end of the promised retention.
        expires: Date,
    },
    /// Rows, at least one, stop the claim; nothing was written.
    Found(Vec<Row>),
    /// The gate is at another version, or its approved boot is not the running one. Nothing was
    /// written, and no earlier call of the same nonce wrote anything.
    GateMoved,
}

/// The result of a write under a token and nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Durable; also if the same was durable already.
    Done,
    /// No row of this token and nonce is in a state that allows it: the claim was lost.
    Lost,
    /// The approved boot is not the running one: nothing was written.
    GateMoved,
}

/// An answer that leaves its attempt in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear {
    /// The upstream's status.
    pub status: u16,
    /// True if the attempt surely ended with it: nothing before the service could answer for it.
    pub ends_attempt: bool,
    /// The beginning of its body, for people, without control characters.
    pub excerpt: Option<String>,
}

/// One attempt, as its holder names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The key.
    pub id: KeyId,
    /// Its token.
    pub token: Token,
    /// Its nonce.
    pub nonce: Nonce,
}

/// The records of keys. All methods bound their own time and never resend on their own.
pub trait KeyStore: Send + Sync + 'static {
    /// Claims a key durably, in one round trip, or returns the rows that stop the claim. A
    /// repetition with the same nonce finds the own claim.
    fn claim(&self, ask: &ClaimAsk) -> impl Call<ClaimReply>;

    /// Stores the final answer, from claimed or in doubt. `Lost` if the key was settled otherwise.
    /// If another origin's answer is here already, that one is stored instead, since it may have
    /// been replayed. Both are journalled (kind `double`) in the same transaction, unless they are
    /// one attempt. The result is `Lost` then too (docs/protocol.md#rule-10).
    fn settle(&self, attempt: &Attempt, answer: &Answer) -> impl Call<Written>;

    /// Ends the attempt as "nothing happened", from claimed or in doubt.
    fn release(&self, attempt: &Attempt) -> impl Call<Written>;

    /// Marks the attempt in doubt, from claimed, with the upstream's answer if it gave one. If that
    /// ended the attempt, hold and settle time are zero from then on.
    fn doubt(&self, attempt: &Attempt, answer: Option<Unclear>) -> impl Call<Written>;

    /// All rows of each key, in the order of `ids`, in one round trip.
    fn look_up(&self, ids: &[KeyId]) -> impl Call<Vec<Vec<Row>>>;

    /// Looks up for people, behind no request that waits for the store.
    fn look_up_beside(&self, ids: &[KeyId]) -> impl Call<Vec<Vec<Row>>> {
        self.look_up(ids)
    }

    /// In words for people, the calls that are not made for now because the store did not answer
    /// earlier ones. Each such call fails at once and is definite. `None`: every call is made.
    fn breaker_status(&self) -> Option<String> {
        None
    }

    /// Reads the gate for a request whose claim found it moved. After a move there are many of
    /// these, and none may delay the calls that fence.
    fn gate_again(&self) -> impl Call<Gate> {
        self.gate()
    }

    /// Reads the gate.
    fn gate(&self) -> impl Call<Gate>;

    /// Approves `boot`, if the gate is still at `version` and `boot` still runs. `Lost` if not.
    fn approve(&self, version: GateVersion, boot: &Boot) -> impl Call<Written>;
}

/// A region's memory of a peer's origin, over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    /// The peer's origin.
    pub origin: Origin,
    /// The highest heartbeat of it that was seen applied here.
    pub applied: u64,
    /// The largest observed lag of the trailing period.
    pub lag: Option<Duration>,
    /// The heartbeat up to which its rows were imported from survivors; 0 if never.
    pub imported: u64,
}

/// A heartbeat as it is in this region's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The origin that wrote it.
    pub origin: Origin,
    /// Its number.
    pub seq: u64,
    /// The epoch of its writer's gate.
    pub epoch: u64,
    /// True if every row that its writer committed before it is here: not while the first copy of
    /// any table of its subscription runs (docs/protocol.md#rule-29).
    pub whole: bool,
    /// The time of its commit, by the clock of its writer's database.
    pub date: Date,
}

/// A heartbeat just committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its number.
    pub seq: u64,
    /// The time of its commit, by the database's clock: for people.
    pub date: Date,
    /// The store's counter since.
    pub observed: Observed,
    /// True if this heartbeat counted what passed.
    pub counted: bool,
}

/// One incoming replication, as its subscriber's Postgres sees it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Subscription {
    /// The region whose rows it brings.
    pub from: String,
    /// True if the initial copy of all its tables is done.
    pub ready: bool,
    /// True if a worker is running now.
    pub streaming: bool,
}

/// One replication slot of this region's server, which keeps WAL on the disk until it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// The WAL that is kept for it, in bytes.
    pub retained: u64,
    /// True if its WAL was given up, so it can never be read on.
    pub lost: bool,
}

/// The state of replication, as this region's store shows it.
pub trait Replica: Send + Sync + 'static {
    /// Commits this region's next heartbeat durably, and counts what passed in the same statement
    /// (`protocol::observed::next`). `None`, and nothing is written, while the gate is not open.
    fn beat(&self, passed: Option<Passed>) -> impl Call<Option<Beat>>;

    /// All heartbeats in this store, own and foreign, each with its `whole` of the same moment.
    fn heartbeats(&self) -> impl Call<Vec<Heartbeat>>;

    /// Stores the memory of peers. A smaller heartbeat does not replace a remembered one. Where no
    /// lag is given, the known one stays.
    fn remember(&self, memory: &[PeerMemory]) -> impl Call<()>;

    /// The memory as stored last.
    fn recall(&self) -> impl Call<Vec<PeerMemory>>;

    /// All incoming replications.
    fn subscriptions(&self) -> impl Call<Vec<Subscription>>;

    /// All replication slots of the region's server. None where replication needs no slots.
    fn slots(&self) -> impl Call<Vec<Slot>> {
        std::future::ready(Ok(Vec::new()))
    }
}
