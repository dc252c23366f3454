//! A whole simulated deployment: stores, network and upstreams of all regions, from one seed.
//!
//! Each part has its own switches. It must be made on a paused tokio runtime, and starts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceway::gateway::authority::register::witness::Duty;
use onceway::gateway::policy::route::Routes;
use onceway::protocol::lifetime::Retention;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::Ballot;
use onceway::protocol::ring::Ring;
use onceway::protocol::view::{AcceptorId, Content, View};
use tokio::time::Instant;

use crate::clock::SimClock;
use crate::cluster::Cluster;
use crate::dice::SimDice;
use crate::peers::{LinkMode, Network};
use crate::ports::SimPorts;
use crate::process::{Process, locked};
use crate::upstream::Upstreams;
use crate::witness::Witness;

/// The greatest initial error of a region's wall clock, either way.
const SKEW_MAX_MICROS: u64 = 200_000;

pub struct World {
    pub cluster: Cluster,
    pub network: Network,
    pub upstreams: Upstreams,
    seed: u64,
    begin: Instant,
    skews: BTreeMap<RegionName, i64>,
    processes: AtomicU64,
    witnesses: Mutex<BTreeMap<RegionName, Arc<Witness>>>,
}

impl World {
    /// These regions, each with an empty store and an upstream; `shared` ones know of one another.
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
        let witnesses = Mutex::default();
        Self { cluster, network: Network::default(), upstreams, seed, begin, skews, processes, witnesses }
    }

    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.begin)
    }

    /// Adds a witness under its name, before the founding: it votes from the first view on.
    pub fn add_witness(&self, duty: Duty) -> Arc<Witness> {
        let mut witnesses = locked(&self.witnesses);
        // Counted downwards, because the ids of stores' acceptors count upwards.
        let id = AcceptorId(u128::MAX - witnesses.len() as u128);
        let clock = SimClock::new(self.begin, Duration::from_secs(7), 0);
        let name = duty.me.clone();
        let witness = Arc::new(Witness::new(id, clock, duty));
        self.network.plug(name.clone(), witness.clone());
        witnesses.insert(name, witness.clone());
        witness
    }

    pub fn witnesses(&self) -> Vec<Arc<Witness>> {
        locked(&self.witnesses).values().cloned().collect()
    }

    /// Founds the register: all stores and witnesses vote, every region of the ring serves, and all
    /// have adopted that view. It allows the lives of these routes. Returns the first view.
    pub fn found(
        &self,
        ring: Arc<Ring>,
        escrow: BTreeSet<Arc<str>>,
        routes: &Routes,
        longest_lease: Duration,
        skew: Duration,
    ) -> Arc<View> {
        let meanings = routes.meanings();
        let escrow = escrow.into_iter().map(|route| (meanings[&route], route));
        let escrow = escrow.map(|(meaning, route)| (route, meaning)).collect();
        let witnesses = locked(&self.witnesses);
        let mut voters = self.cluster.acceptors();
        voters.extend(witnesses.iter().map(|(name, witness)| (name.clone(), witness.acceptor().id)));
        let Some(region) = voters.keys().next().cloned() else { panic!("a world without voters") };
        let longest_life = routes.longest_life().unwrap_or(Retention::For(Duration::ZERO)).and(skew);
        let content = View::founding(1, ring, escrow, voters).content();
        let view = Arc::new(View::from_content(Content { longest_lease, longest_life, ..content }));
        let ballot = Ballot { counter: 1, region, proposer: 0 };
        self.cluster.found(&ballot, &view);
        for witness in witnesses.values() {
            witness.found(&ballot, &view);
        }
        view
    }

    /// The number of statements, commits applied elsewhere, calls and arrivals at upstreams so far.
    pub fn events(&self) -> u64 {
        self.cluster.events() + self.network.events() + self.upstreams.events()
    }

    /// Cuts the link between two regions, or mends it: a cut swallows calls and replication.
    pub fn cut(&self, one: &RegionName, other: &RegionName, cut: bool, one_way: Duration) {
        let mode = if cut { LinkMode::Silent } else { LinkMode::Up };
        for (from, to) in [(one, other), (other, one)] {
            self.network.set_link(from, to, mode, one_way);
            self.cluster.hold(from, to, cut);
        }
    }

    /// Loses everything that `from` sends to `to`: calls of `to` arrive, and their replies do not.
    /// Replication stops both ways, because neither works without acknowledgements.
    pub fn cut_one_way(&self, from: &RegionName, to: &RegionName, one_way: Duration) {
        self.network.set_link(from, to, LinkMode::Silent, one_way);
        self.network.set_link(to, from, LinkMode::Deaf, one_way);
        self.cluster.hold(from, to, true);
        self.cluster.hold(to, from, true);
    }

    /// The ports of a new process in `region`. It has a boot clock and randomness of its own, and
    /// shares all else with the region's other processes. [`SimPorts::process`] pauses or kills it.
    /// Panics if the world has no such region.
    pub fn ports(&self, region: &RegionName) -> SimPorts {
        let Some(skew) = self.skews.get(region) else { panic!("no region {region} in this world") };
        let process = self.processes.fetch_add(1, Ordering::Relaxed) + 1;
        let dice = SimDice::new(self.seed, process);
        let boot = Duration::from_millis(dice.bits() % 1_000_000_000);
        let process = Process::default();
        SimPorts {
            clock: SimClock::new(self.begin, boot, *skew).of(&process),
            dice,
            store: self.cluster.store(region).of(&process),
            peers: self.network.peers(region).of(&process),
            upstream: self.upstreams.upstream(region).of(&process),
            process,
        }
    }
}
