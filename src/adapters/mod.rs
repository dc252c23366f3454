//! The adapters: the ports over the real world. They translate and never decide.
//!
//! `ports` says what each adapter must promise; `server` shares the header rules and the identity.
//! An adapter must not resend, cache, or read meaning into a status.

pub(crate) mod headers;
pub mod identity;
pub mod issue;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
pub mod peers;
pub mod postgres;
pub(crate) mod streaming;
pub mod system;
pub mod tls;
pub mod upstream;
pub(crate) mod views;
pub mod wire;
pub mod witness;

pub(crate) use upstream::writes_through;

use peers::HttpPeers;
use postgres::PgStore;
use system::{SystemClock, SystemDice};
use upstream::HttpUpstream;

use crate::ports::Ports;

/// Postgres, peers over mTLS, an upstream over HTTP, the clocks and the dice of this machine.
pub(crate) struct RealPorts {
    pub(crate) clock: SystemClock,
    pub(crate) dice: SystemDice,
    pub(crate) store: PgStore,
    pub(crate) peers: HttpPeers,
    pub(crate) upstream: HttpUpstream,
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
