//! The simulated ports that one process runs over, and the real gateway over them as a region.
//! Messages reach it as the peer listener would hand them in.
//!
//! The world has all that outlives a process.

use std::sync::Arc;

use onceway::gateway::instance::Gateway;
use onceway::ports::Ports;
use onceway::ports::peers::{Forward, ForwardReply, PeerMessage, PeerReply, Pong, Question};
use onceway::protocol::region::RegionName;

use crate::clock::SimClock;
use crate::dice::SimDice;
use crate::peers::{Answering, Region, SimPeers};
use crate::process::Process;
use crate::store::SimStore;
use crate::upstream::SimUpstream;

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

impl Region for Arc<Gateway<SimPorts>> {
    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        Gateway::hears(self, from, said)
    }

    fn forward(&self, from: RegionName, forward: Forward) -> Answering<'_, ForwardReply> {
        Box::pin(async move {
            match self.place_for_forward(&forward, forward.body.len()) {
                Ok(place) => self.serve_forward(from, forward, place).await,
                Err(refusal) => *refusal,
            }
        })
    }

    fn pong(&self) -> Answering<'_, Pong> {
        Box::pin(Gateway::pong(self))
    }

    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, PeerReply> {
        Box::pin(self.answer_question(from, question))
    }
}
