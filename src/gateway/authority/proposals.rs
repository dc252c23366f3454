//! The proposer of this process: its number, and the counters of ballots.
//!
//! [`super::register::propose`] uses it. This file must not know of rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::ports::Dice;
use crate::protocol::region::RegionName;
use crate::protocol::register::Ballot;

/// The proposer of this process.
pub(in crate::gateway) struct Proposals {
    /// 64 random bits: no other process proposes under the same ballot.
    pub(in crate::gateway) proposer: u64,
    counter: AtomicU64,
    /// The highest counter of a ballot that a majority was read to have promised.
    reached: AtomicU64,
    /// Held during a proposal: a process makes one at a time.
    pub(in crate::gateway) proposing: Mutex<()>,
    /// True while another proposer's view is being finished.
    pub(in crate::gateway) finishing: AtomicBool,
}

impl Proposals {
    pub(in crate::gateway) fn new(dice: &impl Dice) -> Self {
        Self {
            proposer: (dice.nonce().0 >> 64) as u64,
            counter: AtomicU64::new(1),
            reached: AtomicU64::new(0),
            proposing: Mutex::new(()),
            finishing: AtomicBool::new(false),
        }
    }

    /// The ballot of this process with that counter.
    pub(in crate::gateway) fn ballot(&self, counter: u64, region: RegionName) -> Ballot {
        Ballot { counter, region, proposer: self.proposer }
    }

    /// The next ballot of this process.
    pub(in crate::gateway) fn next(&self, region: RegionName) -> Ballot {
        self.ballot(self.counter.fetch_add(1, Ordering::SeqCst) + 1, region)
    }

    /// The highest counter that is known here.
    pub(in crate::gateway) fn highest(&self) -> u64 {
        self.counter.load(Ordering::SeqCst).max(self.reached())
    }

    /// Makes the next ballot follow `counter`.
    pub(in crate::gateway) fn follow(&self, counter: u64) {
        self.counter.fetch_max(counter, Ordering::SeqCst);
    }

    /// The highest counter that a majority was read to have promised.
    pub(in crate::gateway) fn reached(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }

    /// Notes the counter that a majority was read to have promised.
    pub(in crate::gateway) fn saw_reached(&self, counter: u64) {
        self.reached.fetch_max(counter, Ordering::SeqCst);
    }
}
