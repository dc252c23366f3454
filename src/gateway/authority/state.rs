//! The state of authority in one process: the snapshot that decisions read, and what the loops
//! keep.
//!
//! [`Authority::change`] is the only way from one snapshot to the next: under one lock, in one
//! swap. Facts that no request reads have locks of their own. Nothing here decides anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Mutex as Turn, Notify};

use crate::ports::Dice;
use crate::ports::lock::Lock;
use crate::ports::store::{GateVersion, StoreError};
use crate::protocol::grants::{Admission, GrantWatch};
use crate::protocol::health::Health;
use crate::protocol::key::KeyId;
use crate::protocol::lease::Lease;
use crate::protocol::opening;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::Ballot;
use crate::protocol::snapshot::{Site, Snapshot, StoreHealth};
use crate::protocol::time::Moment;
use crate::protocol::view::View;
use crate::protocol::window::Window;

/// One gateway's knowledge about authority.
pub struct Authority {
    snapshot: ArcSwap<Snapshot>,
    /// The holder's side of the lease. Its lock is held while a snapshot is made.
    lease: Lock<Lease>,
    /// Observations of this process about the grants of the region's acceptor.
    pub watch: Lock<GrantWatch>,
    pub gathered: Lock<Gathered>,
    /// The silence of the region's acceptor before it may answer.
    pub admission: Lock<Admission>,
    /// Attempts of this process that may still be sent or settled.
    pub running: Running,
    pub proposals: Proposals,
    /// Results of the checks of this region's upstream.
    pub upstream: Lock<Health>,
    pub wakes: Wakes,
}

/// Loops that do not wait for their period if something happens.
#[derive(Default)]
pub struct Wakes {
    pub renewal: Notify,
    pub gate: Notify,
    pub jobs: Notify,
}

impl Authority {
    pub fn new(site: Site, view: Arc<View>, store: StoreHealth, dice: &impl Dice) -> Self {
        let (lease, drift) = (Lease::new(site.lease, site.drift), site.drift);
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::first(site, view, store, &lease)),
            lease: Lock::new(lease),
            watch: Lock::new(GrantWatch::new(drift)),
            gathered: Lock::default(),
            admission: Lock::new(Admission::new(drift)),
            running: Running::default(),
            proposals: Proposals::new(dice),
            upstream: Lock::default(),
            wakes: Wakes::default(),
        }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Changes the snapshot, the lease or both, and publishes them together.
    pub fn change<T>(&self, change: impl FnOnce(&mut Snapshot, &mut Lease) -> T) -> T {
        let mut lease = self.lease.lock();
        let mut next = (**self.snapshot.load()).clone();
        let value = change(&mut next, &mut lease);
        next.take_lease(&lease);
        self.snapshot.store(Arc::new(next));
        value
    }

    pub fn with_lease<T>(&self, change: impl FnOnce(&mut Lease) -> T) -> T {
        self.change(|_, lease| change(lease))
    }
}

/// Pause before asking a peer again whose views no majority showed: the reason may pass.
const AGAIN: Duration = Duration::from_millis(300);
/// Period for reading kept views again: their age ends the risk of stores replaced long ago.
const RECALL_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Gathered {
    pub windows: BTreeMap<Origin, Window>,
    /// Answers of serving regions about lost and replaced stores, by region and store.
    pub frontiers: BTreeMap<(RegionName, Origin), opening::Frontier>,
    /// The epoch of those answers: one from before a mark was raised does not say who has the rows.
    pub frontiers_under: u64,
    /// Lost stores whose escrow rows here are own records.
    pub converted: BTreeSet<Origin>,
    /// Imports that are not at their end, by store.
    pub imports: BTreeMap<Origin, Importing>,
    /// The change that keys are given up for, and the moment when this process saw it first.
    pub pending: Option<(u64, Moment)>,
    /// Peers whose views no majority showed, and until when they are not asked again.
    doubted: BTreeMap<RegionName, Moment>,
    /// Moment of the last read of the views that the store keeps.
    pub recalled: Option<Moment>,
    /// Error of the last try to read the gate.
    unread: Option<StoreError>,
}

/// An import between two looks.
pub struct Importing {
    /// The gate's version under which it began. Another boot of this store may lack what came.
    pub version: GateVersion,
    pub from: RegionName,
    pub upto: u64,
    /// The last key that it has.
    pub after: KeyId,
    pub rows: usize,
}

impl Gathered {
    /// Notes that this peer's views were not confirmed, or were.
    pub fn doubt(&mut self, peer: &RegionName, in_vain: bool, now: Moment) {
        match in_vain {
            true => drop(self.doubted.insert(peer.clone(), now + AGAIN)),
            false => drop(self.doubted.remove(peer)),
        }
    }

    /// True if a peer is not asked for views at `now`, as no majority showed its last ones.
    pub fn is_doubted(&self, peer: &RegionName, now: Moment) -> bool {
        self.doubted.get(peer).is_some_and(|until| now < *until)
    }

    pub fn is_recalled(&self, now: Moment) -> bool {
        self.recalled.is_some_and(|at| now.since(at) < RECALL_EVERY)
    }

    /// Logs why the gate cannot be read, once for each reason.
    pub fn log_unread(&mut self, error: Option<&StoreError>) {
        if let Some(error) = error
            && self.unread.as_ref() != Some(error)
        {
            tracing::warn!(%error, "the gate cannot be read: no view is adopted");
        }
        self.unread = error.cloned();
    }
}

pub struct Proposals {
    /// 64 random bits: no other process proposes under the same ballot.
    pub proposer: u64,
    counter: AtomicU64,
    /// The highest counter of a ballot that a majority was read to have promised.
    pub reached: AtomicU64,
    /// Held during a proposal: a process makes one at a time.
    pub proposing: Turn<()>,
    /// True while another proposer's view is being finished.
    pub finishing: AtomicBool,
}

impl Proposals {
    pub fn new(dice: &impl Dice) -> Self {
        Self {
            proposer: (dice.nonce().0 >> 64) as u64,
            counter: AtomicU64::new(1),
            reached: AtomicU64::new(0),
            proposing: Turn::new(()),
            finishing: AtomicBool::new(false),
        }
    }

    pub fn ballot(&self, counter: u64, region: RegionName) -> Ballot {
        Ballot { counter, region, proposer: self.proposer }
    }

    pub fn next(&self, region: RegionName) -> Ballot {
        self.ballot(self.counter.fetch_add(1, Ordering::SeqCst) + 1, region)
    }

    pub fn highest(&self) -> u64 {
        self.counter.load(Ordering::SeqCst).max(self.reached.load(Ordering::SeqCst))
    }

    pub fn follow(&self, counter: u64) {
        self.counter.fetch_max(counter, Ordering::SeqCst);
    }
}

/// Attempts of this process between their claim and their stored outcome.
#[derive(Clone, Default)]
pub struct Running(Arc<Lock<BTreeMap<KeyId, usize>>>);

pub struct Run {
    all: Running,
    id: KeyId,
}

impl Running {
    pub fn begin(&self, id: &KeyId) -> Run {
        *self.0.lock().entry(id.clone()).or_default() += 1;
        Run { all: self.clone(), id: id.clone() }
    }

    /// True if an attempt runs whose key `among` accepts.
    pub fn any(&self, among: impl Fn(&KeyId) -> bool) -> bool {
        self.0.lock().keys().any(among)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut running = self.all.0.lock();
        if let Some(count) = running.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.id);
            }
        }
    }
}
