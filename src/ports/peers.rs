//! Other regions: one hop to a key's owner, and pings.
//!
//! Neighbours: `gateway::forward` and `gateway::heartbeat` call it; `adapters::peers` and the simulation implement it. The channel
//! is authenticated: a reply comes from the region that was asked, or not at all. It must not resend: one call is one attempt.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Uri};

use super::Body;
use crate::protocol::digest::Digest32;
use crate::protocol::key::KeyId;
use crate::protocol::record::RequestId;
use crate::protocol::region::RegionName;

/// Why a call to a peer failed, and what is known about its effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The call surely did not reach the peer.
    #[error("peer: {0} (not sent)")]
    NotSent(String),
    /// The call may have reached the peer.
    #[error("peer: {0} (may have been sent)")]
    Unknown(String),
}

/// A request on its way to the owner: one hop, never forwarded again.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The key, with the tenant as the sender verified it.
    pub id: KeyId,
    /// Who of the tenant asks, as the sender verified it; `None` if the credential names nobody.
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
    /// How long the sender will wait for the answer.
    pub deadline: Duration,
}

/// What the owner made of a forward.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The peer's epoch.
    pub epoch: u64,
    /// Digest of the peer's view.
    pub view: Digest32,
    /// Digest of the settings that all regions must share.
    pub shared: Digest32,
    /// Whether the peer serves keys now: its store answers and its gate is open.
    pub serving: bool,
    /// The peer's newest heartbeat; `None` before its first.
    pub beat: Option<Beat>,
    /// The highest heartbeat of each region that stands in the peer's store; empty while its store does not answer.
    pub applied: BTreeMap<RegionName, u64>,
}

/// A peer's newest heartbeat, as told in a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its number.
    pub seq: u64,
    /// How long before the reply its commit began, by the peer's boot clock.
    pub age: Duration,
}

/// Calls to other regions. A call made to a region that is not in the peers' list is `NotSent`.
pub trait Peers: Send + Sync + 'static {
    /// Forwards a request to `to`. Returns when the answer's head has arrived; gives up when dropped.
    fn forward(
        &self,
        to: &RegionName,
        forward: Forward,
    ) -> impl Future<Output = Result<ForwardReply, PeerError>> + Send;

    /// Asks `to` how it is. Gives up after `within`.
    fn ping(&self, to: &RegionName, within: Duration)
    -> impl Future<Output = Result<Pong, PeerError>> + Send;
}
