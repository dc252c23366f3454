//! Settings of a gateway: those that it gets before it starts, and those that stay.
//!
//! Nothing here changes while the gateway runs: [`crate::gateway::reloadable`] has what may.

use std::time::Duration;

use crate::gateway::authority::failover::{Failover, UpstreamHealth};
use crate::gateway::policy::route::Policy;
use crate::gateway::reloadable::Reload;
use crate::protocol::lifetime::Lifetime;
use crate::protocol::region::RegionName;
use crate::protocol::time::Drift;
use crate::protocol::versions::Versions;

/// Settings that a gateway gets before it starts.
pub struct Settings {
    /// The region it serves in.
    pub me: RegionName,
    /// The generation of its store, as its region file says.
    pub generation: u32,
    /// Those that may be replaced while it runs.
    pub live: Reload,
    /// Bounds on clock errors.
    pub drift: Drift,
    /// Time for which an answer is stored beyond its promised retention.
    pub skew: Duration,
    /// True if stored requests are sealed, so that clients' credentials may be stored with them.
    pub seals_requests: bool,
    /// Periods and time limits.
    pub timings: Timings,
    /// Shadow mode: requests pass, decisions are counted, neither store nor peers are asked.
    pub shadow: bool,
    /// Failover settings.
    pub failover: Failover,
    /// Check of this region's upstream; `None` without a check.
    pub upstream_health: Option<UpstreamHealth>,
    /// Versions of the protocol between regions that this process speaks.
    pub speaks: Versions,
}

/// Periods and bounds of one gateway.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Pause between two heartbeats.
    pub heartbeat: Duration,
    /// Pause between two pings to a peer.
    pub ping: Duration,
    /// Silence after which a peer counts as not reachable.
    pub silent_after: Duration,
    /// Pause between two looks at the copies of other regions' heartbeats.
    pub poll: Duration,
    /// Pause between two looks at records that duplicates wait for.
    pub attach_poll: Duration,
    /// Time limit for a client to send its body.
    pub body_within: Duration,
    /// Time limit for claiming a key, repeats included.
    pub claim_within: Duration,
    /// Time that an answer may take to be stored. After that the client gets `outcome-unknown`.
    pub settle_within: Duration,
    /// Time limit for a question to the upstream's status address.
    pub probe_within: Duration,
    /// Pause between two looks for jobs that are due.
    pub jobs_poll: Duration,
    /// Pause between two sweeps for abandoned claims and keys in doubt.
    pub sweep: Duration,
    /// Pause between two looks of the reaper while little is due.
    pub reap: Duration,
    /// Pause between two batches of the reaper while much is due, at least.
    pub reap_pause: Duration,
}

/// Settings that stay as they are until the process ends.
pub(super) struct Fixed {
    pub(super) me: RegionName,
    pub(super) drift: Drift,
    pub(super) skew: Duration,
    pub(super) seals_requests: bool,
    pub(super) timings: Timings,
    pub(super) failover: Failover,
    pub(super) upstream_health: Option<UpstreamHealth>,
    pub(super) speaks: Versions,
}

impl Fixed {
    /// Retention, skew and tombstone time of a key under this policy.
    pub(super) fn lifetime(&self, policy: &Policy) -> Lifetime {
        Lifetime { retention: policy.retention, skew: self.skew, tombstone: policy.tombstone }
    }

    /// Time that an answer to a request under this policy may take at the owner.
    pub(super) fn patience(&self, policy: &Policy) -> Duration {
        let timings = &self.timings;
        policy.wait
            + timings.claim_within
            + policy.escrow.time_limit()
            + policy.upstream_timeout.max(timings.probe_within)
            + timings.settle_within
    }
}
