//! Other regions: one hop to a key's owner, pings, and questions.
//!
//! The channel is authenticated: a reply comes from the region that was asked, or not at all.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Uri};
use serde::{Deserialize, Serialize};

use super::authority::{CopiedRow, Lodged, Lodging};
use super::body::Body;
use super::store::{Attempt, Call};
use onceway_protocol::change::Report;
use onceway_protocol::digest::Digest32;
use onceway_protocol::job::JobState;
use onceway_protocol::key::KeyId;
use onceway_protocol::opening;
use onceway_protocol::record::{Answer, RequestId};
use onceway_protocol::region::{Origin, RegionName};
use onceway_protocol::register::{Message, Reply};
use onceway_protocol::speakers::Kind;
use onceway_protocol::versions::Versions;
use onceway_protocol::view::{AcceptorId, View};
use onceway_protocol::written::{self, As};

/// The reason why a call to a peer failed, and the knowledge about its effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The call surely did not reach the peer.
    #[error("peer: {0} (not sent)")]
    NotSent(String),
    /// The call may have reached the peer.
    #[error("peer: {0} (may have been sent)")]
    Unknown(String),
    /// The peer speaks no version that this process speaks; nothing was sent.
    #[error(
        "peer: it speaks protocol versions {theirs}, this process {ours}: run neighbouring versions of onceway"
    )]
    Versions {
        /// The peer's versions.
        theirs: Versions,
        /// This process's versions.
        ours: Versions,
    },
}

/// A request on its way to the owner: one hop, never forwarded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The key, with the tenant as the sender verified it.
    pub id: KeyId,
    /// The principal of the tenant, as the sender verified it; `None` if the credential names none.
    pub principal: Option<Digest32>,
    /// The client's method.
    pub method: Method,
    /// The client's path and query.
    pub target: Uri,
    /// The client's end-to-end headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// The id given to the request where it was admitted.
    pub request_id: RequestId,
    /// The sender's epoch.
    pub epoch: u64,
    /// The time for which the sender will wait for the answer.
    pub deadline: Duration,
}

/// The owner's reply to a forward.
pub enum ForwardReply {
    /// The answer to give to the client.
    Answer(Response<Body>),
    /// The peer does not own the key under its view.
    NotOwner {
        /// The peer's epoch.
        epoch: u64,
    },
}

/// A peer's reply to a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// The versions that the peer speaks.
    pub speaks: Versions,
    /// The version of its view.
    pub protocol: u16,
    /// The peer's epoch.
    pub epoch: u64,
    /// Digest of the peer's view.
    pub view: Digest32,
    /// Digest of the settings that all regions must share.
    pub shared: Digest32,
    /// True if the peer serves keys now: its store answers and its gate is open.
    pub serving: bool,
    /// The peer's newest heartbeat; `None` before its first.
    pub beat: Option<Beat>,
    /// The origin under which the peer writes; `None` for a witness.
    pub origin: Option<Origin>,
    /// The highest heartbeat of each other region's present store that is in the peer's store.
    pub applied: BTreeMap<Origin, u64>,
    /// The highest heartbeat of each other region's present store that this process heard of in
    /// pings: so a store that went back is noticed even if its rows are late.
    pub heard: BTreeMap<Origin, u64>,
    /// True if its upstream fails its checks: no region hands keys over to it for that reason.
    pub upstream_failing: bool,
}

/// A peer's newest heartbeat, as its ping reply has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Its number.
    pub seq: u64,
    /// The time between the begin of its commit and the reply, by the peer's boot clock.
    #[serde(rename = "age_ns", with = "As::<u64>")]
    pub age: Duration,
}

/// A question of one gateway to another region, or to a witness, beside forwards and pings. Views
/// in it are always chosen ones, but in [`Message`] and as the target of a [`Question::Release`]
/// (docs/protocol.md#rule-16).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// A message to its acceptor.
    Acceptor {
        /// The acceptor that the sender means; `None` to read from any.
        to: Option<AcceptorId>,
        /// The message.
        message: Message,
    },
    /// Asks for all known chosen views with a greater epoch.
    Views {
        /// The asker's epoch.
        after: u64,
    },
    /// Says that this view was chosen, to be adopted.
    Adopt {
        /// The view.
        view: Arc<View>,
    },
    /// Asks to stop and seal the keys that would be lost by this draft.
    Release {
        /// The draft.
        target: Arc<View>,
    },
    /// Asks what the region has of a lost or replaced store.
    Frontier {
        /// The store.
        origin: Origin,
        /// The epoch of its loss, which the asked region must have adopted; 0 if it was not lost.
        at: u64,
    },
    /// Asks for one page of the rows of an origin that are in that store.
    Rows {
        /// The origin.
        origin: Origin,
        /// The page begins after this key.
        after: Option<KeyId>,
        /// The largest number of rows.
        most: u32,
    },
    /// Asks for a page of the asker's rows that its store may lack: [`super::Imports::latest_of`].
    Latest {
        /// The asker's store.
        origin: Origin,
        /// The place where the page begins.
        from: u64,
        /// The largest number of rows, approximately.
        most: u32,
    },
    /// Lodge this claim.
    Lodge(Box<Lodging>),
    /// Lodge this answer beside its claim.
    LodgeAnswer {
        /// The claim.
        #[serde(flatten)]
        attempt: Attempt,
        /// The answer.
        answer: Arc<Answer>,
    },
    /// Take an escrow back: its claim was never sent.
    Void(Attempt),
    /// An operator's order: accept that rows of a lost region may be missing here, and open.
    AcceptRisk {
        /// The lost region.
        region: RegionName,
        /// The epoch of its loss.
        at: u64,
        /// The operator.
        actor: String,
        /// The operator's reason.
        reason: String,
    },
    /// The life of one key, as the asked region's store shows it.
    Key {
        /// The key.
        id: KeyId,
    },
    /// One page of the keys in doubt that the asked region lists.
    Doubts {
        /// The page begins after this key.
        after: Option<KeyId>,
        /// The largest number of keys.
        most: u32,
    },
    /// The accepted requests that the asked region lists.
    Jobs {
        /// Those in this state only; all if absent.
        state: Option<JobState>,
    },
    /// End the doubt of a key of yours, or act on a job of yours, for an operator.
    Act {
        /// Path of the act in the admin API.
        path: String,
        /// Body of the act, JSON.
        body: String,
        /// The operator's proof.
        proof: Proof,
    },
}

/// An operator's `Authorization` header, and a second person's approval. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The header's value.
    pub authorization: String,
    /// The approval, if there is one.
    pub approval: Option<String>,
}

impl fmt::Debug for Proof {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(proof)")
    }
}

/// A message to a process of another region, as [`onceway_protocol::speakers`] judges it.
#[derive(Clone, Copy, Debug)]
pub struct PeerMessage<'a> {
    /// Its kind.
    pub kind: Kind,
    /// The region in whose name it is said, if it names one.
    pub of: Option<&'a RegionName>,
}

impl PeerMessage<'static> {
    /// The making of a connection.
    pub const HELLO: Self = Self { kind: Kind::Hello, of: None };
    /// A ping.
    pub const PING: Self = Self { kind: Kind::Ping, of: None };
    /// A request of a client.
    pub const FORWARD: Self = Self { kind: Kind::Forward, of: None };
}

impl Question {
    /// The kind of the question, a row of [`onceway_protocol::speakers`].
    pub fn kind(&self) -> Kind {
        self.facts().0
    }

    /// The question as its receiver judges it. It is in the name of the holder of a lease, the
    /// proposer of a ballot, the origin of a claim. A founding's is of the region that began it.
    pub fn said(&self) -> PeerMessage<'_> {
        let (kind, of, _) = self.facts();
        PeerMessage { kind, of }
    }

    /// The view that it brings, if it brings one.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.facts().2
    }

    fn facts(&self) -> (Kind, Option<&RegionName>, Option<&Arc<View>>) {
        match self {
            Self::Acceptor { to: _, message } => match message {
                Message::Read => (Kind::Read, None, None),
                Message::Prepare { ballot } => (Kind::Prepare, Some(&ballot.region), None),
                Message::Accept { ballot, view } => (Kind::Accept, Some(&ballot.region), Some(view)),
                Message::Renew { region, view, .. } => (Kind::Renew, Some(region), Some(view)),
                Message::Force { ballot, view } => (Kind::Force, Some(&ballot.region), Some(view)),
                Message::Found { ballot: _, view } => (Kind::Found, None, Some(view)),
            },
            Self::Views { .. } => (Kind::Views, None, None),
            Self::Adopt { view } => (Kind::Adopt, None, Some(view)),
            Self::Release { target } => (Kind::Release, None, Some(target)),
            Self::Frontier { .. } => (Kind::Frontier, None, None),
            Self::Rows { .. } => (Kind::Rows, None, None),
            Self::Latest { origin, .. } => (Kind::Latest, Some(&origin.region), None),
            Self::Lodge(lodging) => (Kind::Lodge, Some(&lodging.origin.region), None),
            Self::LodgeAnswer { .. } => (Kind::LodgeAnswer, None, None),
            Self::Void(_) => (Kind::Void, None, None),
            Self::AcceptRisk { .. } => (Kind::AcceptRisk, None, None),
            Self::Key { .. } => (Kind::Key, None, None),
            Self::Doubts { .. } => (Kind::Doubts, None, None),
            Self::Jobs { .. } => (Kind::Jobs, None, None),
            Self::Act { .. } => (Kind::Act, None, None),
        }
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerReply {
    /// To [`Question::Acceptor`].
    Acceptor(Reply),
    /// To [`Question::Views`], oldest first.
    Views(Vec<Arc<View>>),
    /// To [`Question::Adopt`]: the epoch that it has adopted now.
    #[serde(with = "As::<written::Epoch<_>>")]
    Adopted(u64),
    /// To [`Question::Release`].
    Released(Report),
    /// To [`Question::Frontier`].
    Frontier(opening::Frontier),
    /// To [`Question::Rows`]; fewer than asked for are the last.
    Rows(Vec<CopiedRow>),
    /// To [`Question::Latest`].
    Latest {
        /// The rows.
        rows: Vec<CopiedRow>,
        /// The place where the next page begins; `None` after the last one.
        next: Option<u64>,
    },
    /// To [`Question::Lodge`].
    Lodged(Lodged),
    /// To [`Question::Key`]: its status as JSON, for people.
    #[serde(with = "As::<written::Status<_>>")]
    Key(String),
    /// To [`Question::Doubts`]: the page as JSON, for people.
    #[serde(with = "As::<written::Page<_>>")]
    Doubts(String),
    /// To [`Question::Jobs`]: the list as JSON, for people.
    #[serde(with = "As::<written::Page<_>>")]
    Jobs(String),
    /// To [`Question::Act`]: the answer of the owner's admin API.
    Acted {
        /// The status.
        status: u16,
        /// The body, JSON.
        body: String,
    },
    /// To the others: done, durably.
    Done,
    /// To any: not now or not like that; the text says why. Nothing was done.
    #[serde(with = "As::<written::Why<_>>")]
    Refused(String),
}

/// Calls to other regions. A call to a region that is not in the peers' list is `NotSent`.
pub trait Peers: Send + Sync + 'static {
    /// Forwards a request. Returns when the answer's head has arrived; gives up when dropped.
    fn forward(&self, to: &RegionName, forward: Forward) -> impl Call<ForwardReply, PeerError>;

    /// Asks `to` for its state. Gives up after `within`.
    fn ping(&self, to: &RegionName, within: Duration) -> impl Call<Pong, PeerError>;

    /// Asks `to`, a region or a witness. Gives up after `within`.
    fn ask(&self, to: &RegionName, question: Question, within: Duration) -> impl Call<PeerReply, PeerError>;
}
