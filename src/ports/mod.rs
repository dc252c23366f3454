//! The ports: the gateway's needs from the world, as small traits named by need.
//!
//! `adapters` implements them over the real world, the simulation over memory, and [`contract`]
//! tests both. A trait is here only if the simulation must replace it. Every failing method says
//! *definite* or *unknown*. A port must not decide anything.

pub mod audit;
pub mod authority;
pub mod body;
pub mod jobs;
pub mod lock;
pub mod observe;
pub mod peers;
pub mod store;
pub mod upkeep;
pub mod upstream;

use std::time::Duration;

use onceway_protocol::record::{Nonce, RequestId};
use onceway_protocol::time::{Date, Moment};

pub use audit::Audit;
pub use authority::{Acceptors, Authority, Escrows, Imports};
pub use body::{Body, BodyError, Polled};
pub use jobs::Jobs;
pub use peers::Peers;
pub use store::{KeyStore, Replica};
pub use upkeep::Upkeep;
pub use upstream::Upstream;

/// The clocks of this process.
pub trait Clock: Send + Sync + 'static {
    /// The boot clock: counts suspended time, never steps, means nothing elsewhere.
    fn now(&self) -> Moment;

    /// The wall clock, for dates shown to people and for those in signed credentials (RFC 7519,
    /// `exp` and `nbf`). Nothing about keys may be decided by it.
    fn date(&self) -> Date;

    /// Completes at `deadline` or later; at once if it has passed.
    fn sleep_until(&self, deadline: Moment) -> impl Future<Output = ()> + Send;
}

/// Randomness.
pub trait Dice: Send + Sync + 'static {
    /// 128 random bits for one claim statement.
    fn nonce(&self) -> Nonce;

    /// An id for one request.
    fn request_id(&self) -> RequestId;

    /// A span between zero and `most`, for jitter.
    fn jitter(&self, most: Duration) -> Duration;
}

/// The bundle of all ports that a gateway runs over.
pub trait Ports: Send + Sync + 'static {
    /// Clocks.
    type Clock: Clock;
    /// Randomness.
    type Dice: Dice;
    /// The region's store of records, jobs and views.
    type Store: KeyStore + Replica + Upkeep + Jobs + Authority + Escrows + Imports + Audit;
    /// Other regions.
    type Peers: Peers;
    /// The protected service of this region.
    type Upstream: Upstream;

    /// The clocks.
    fn clock(&self) -> &Self::Clock;
    /// The randomness.
    fn dice(&self) -> &Self::Dice;
    /// The store.
    fn store(&self) -> &Self::Store;
    /// The peers.
    fn peers(&self) -> &Self::Peers;
    /// The upstream.
    fn upstream(&self) -> &Self::Upstream;
}
