//! The bundle of ports that a real gateway runs over.
//!
//! `server::run` builds it, `gateway` takes it.

use super::peers::HttpPeers;
use super::postgres::PgStore;
use super::system::{SystemClock, SystemDice};
use super::upstream::HttpUpstream;
use crate::ports::Ports;

/// Postgres, peers over mTLS, an upstream over HTTP, the clocks and the dice of this machine.
pub struct RealPorts {
    pub clock: SystemClock,
    pub dice: SystemDice,
    pub store: PgStore,
    pub peers: HttpPeers,
    pub upstream: HttpUpstream,
}

impl Ports for RealPorts {
    type Clock = SystemClock;
    type Dice = SystemDice;
    type Store = PgStore;
    type Peers = HttpPeers;
    type Upstream = HttpUpstream;

    fn clock(&self) -> &SystemClock {
        &self.clock
    }

    fn dice(&self) -> &SystemDice {
        &self.dice
    }

    fn store(&self) -> &PgStore {
        &self.store
    }

    fn peers(&self) -> &HttpPeers {
        &self.peers
    }

    fn upstream(&self) -> &HttpUpstream {
        &self.upstream
    }
}
