//! The bundle of simulated ports that one process runs over.
//!
//! [`crate::world`] makes them. It must not hold anything that outlives a process: that belongs to
//! the world.

use onceway::ports::Ports;

use crate::clock::SimClock;
use crate::dice::SimDice;
use crate::peers::SimPeers;
use crate::process::Process;
use crate::store::SimStore;
use crate::upstream::SimUpstream;

/// One process's ports.
#[derive(Clone)]
pub struct SimPorts {
    pub(crate) clock: SimClock,
    pub(crate) dice: SimDice,
    pub(crate) store: SimStore,
    pub(crate) peers: SimPeers,
    pub(crate) upstream: SimUpstream,
    pub(crate) process: Process,
}

impl SimPorts {
    /// The process that runs over these ports.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl Ports for SimPorts {
    type Clock = SimClock;
    type Dice = SimDice;
    type Store = SimStore;
    type Peers = SimPeers;
    type Upstream = SimUpstream;

    fn clock(&self) -> &SimClock {
        &self.clock
    }

    fn dice(&self) -> &SimDice {
        &self.dice
    }

    fn store(&self) -> &SimStore {
        &self.store
    }

    fn peers(&self) -> &SimPeers {
        &self.peers
    }

    fn upstream(&self) -> &SimUpstream {
        &self.upstream
    }
}
