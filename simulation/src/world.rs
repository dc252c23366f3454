//! A whole simulated deployment: stores, network and upstreams of all regions, from one seed.
//!
//! Neighbours: [`crate::cluster`], [`crate::peers`] and [`crate::upstream`] are its parts, each with its own switches. It must be made
//! on a paused tokio runtime, and must not start anything: whoever plays a scenario does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceway::protocol::region::{Origin, RegionName};
use tokio::time::Instant;

use crate::clock::SimClock;
use crate::cluster::Cluster;
use crate::dice::SimDice;
use crate::peers::Network;
use crate::ports::SimPorts;
use crate::upstream::Upstreams;

/// How a region's wall clock stands at first: at most this far off, either way.
const SKEW_MAX_MICROS: u64 = 200_000;

/// A simulated deployment.
pub struct World {
    /// The stores and the replication between them.
    pub cluster: Cluster,
    /// The links between gateways.
    pub network: Network,
    /// The protected services.
    pub upstreams: Upstreams,
    seed: u64,
    begin: Instant,
    skews: BTreeMap<RegionName, i64>,
    processes: AtomicU64,
}

impl World {
    /// A world of these regions, each with an empty store of generation 1 and an upstream; `shared` upstreams know of one another.
    pub fn new(seed: u64, regions: &[RegionName], shared: bool) -> Self {
        let begin = Instant::now();
        // Stream 0 is the world's own; processes get the others.
        let dice = SimDice::new(seed, 0);
        let cluster = Cluster::default();
        let upstreams = Upstreams::new(SimClock::new(begin, Duration::ZERO, 0), shared);
        let mut skews = BTreeMap::new();
        for region in regions {
            let skew = dice.bits() % (2 * SKEW_MAX_MICROS + 1);
            let skew = skew as i64 - SKEW_MAX_MICROS as i64;
            skews.insert(region.clone(), skew);
            let origin = Origin { region: region.clone(), generation: 1 };
            cluster.add(origin, SimClock::new(begin, Duration::ZERO, skew));
            upstreams.add(region.clone());
        }
        let processes = AtomicU64::new(0);
        Self { cluster, network: Network::default(), upstreams, seed, begin, skews, processes }
    }

    /// The ports of a new process in `region`: a boot clock of its own, randomness of its own, all else shared with the
    /// region's other processes. Panics if the world has no such region.
    pub fn ports(&self, region: &RegionName) -> SimPorts {
        let Some(skew) = self.skews.get(region) else { panic!("no region {region} in this world") };
        let process = self.processes.fetch_add(1, Ordering::Relaxed) + 1;
        let dice = SimDice::new(self.seed, process);
        let boot = Duration::from_millis(dice.bits() % 1_000_000_000);
        SimPorts {
            clock: SimClock::new(self.begin, boot, *skew),
            dice,
            store: self.cluster.store(region),
            peers: self.network.peers(region),
            upstream: self.upstreams.upstream(region),
        }
    }
}
