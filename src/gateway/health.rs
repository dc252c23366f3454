//! A gateway's knowledge of its store and of its peers.
//!
//! The heartbeat and the pings write it. It must not decide what may run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::gateway::settings::Timings;
use crate::ports::peers::Pong;
use crate::ports::store::PeerMemory;
use crate::protocol::lag::LagMeter;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::Moment;

/// This gateway's knowledge of its own heartbeat and its peers.
pub struct Health {
    pub beat: Option<(u64, Moment)>,
    /// True once the store was found to be an old copy, for the life of this process: its counts
    /// run on and would catch up.
    pub went_back: bool,
    pub peers: BTreeMap<RegionName, Peer>,
    /// Memory of other stores that this region's store had when this process began, and the moment
    /// when it was read. No window begins before that (docs/protocol.md#rule-31).
    pub remembered: Option<(BTreeMap<Origin, PeerMemory>, Moment)>,
}

pub struct Peer {
    /// Arrival of its last pong.
    pub heard: Option<Moment>,
    /// Moment when the ping of its last pong was sent.
    pub asked: Option<Moment>,
    pub round_trip: Option<Duration>,
    pub pong: Option<Pong>,
    /// Its store in the view. The next fields are about that store; a replaced one is followed
    /// anew.
    pub origin: Option<Origin>,
    /// The heartbeat up to which its rows are in this region's store; `None` until the store was
    /// read.
    pub applied: Option<u64>,
    /// Its highest heartbeat that a ping reported or that was ever seen here, with its rows or
    /// ahead of them.
    pub announced: Option<u64>,
    pub lag: LagMeter,
    pub trail: crate::gateway::telemetry::lag_history::LagHistory,
    /// True once it was asked, with any result.
    pub tried: bool,
    /// True if it speaks no version that this process speaks.
    pub foreign: bool,
    pub trouble: Option<String>,
}

impl Peer {
    pub fn unknown() -> Self {
        let lag = LagMeter::new(LAG_PERIOD);
        Self {
            heard: None,
            asked: None,
            round_trip: None,
            pong: None,
            origin: None,
            applied: None,
            announced: None,
            lag,
            trail: crate::gateway::telemetry::lag_history::LagHistory::default(),
            tried: false,
            foreign: false,
            trouble: None,
        }
    }

    /// Follows its store in the view. Knowledge about another store is dropped; what was remembered
    /// of this one counts.
    pub fn follow(&mut self, origin: Origin, remembered: Option<&(BTreeMap<Origin, PeerMemory>, Moment)>) {
        if self.origin.as_ref() == Some(&origin) {
            return;
        }
        (self.applied, self.announced, self.lag) = (None, None, LagMeter::new(LAG_PERIOD));
        if let Some((memory, read)) = remembered
            && let Some(past) = memory.get(&origin).filter(|_| !is_disabled(Check::LagRemembered))
        {
            // The peer was seen once; the store says how far its rows are here now.
            self.announced = Some(past.applied);
            past.lag.into_iter().for_each(|lag| self.lag.restore(lag, *read));
        }
        self.origin = Some(origin);
    }

    /// True if the peer was silent for so long that it counts as not reachable.
    pub fn is_silent(&self, now: Moment, timings: &Timings) -> bool {
        let allowed = timings.silent_after + timings.ping + self.round_trip.unwrap_or_default();
        self.heard.is_none_or(|heard| now.since(heard) > allowed)
    }
}

/// The trailing period over which the largest lag is kept.
pub const LAG_PERIOD: Duration = Duration::from_secs(600);
