//! Facts that the loops gather, and that no request reads.
//!
//! One lock holds them all: the loops are few and slow. This file must not judge the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ports::store::{GateVersion, StoreError};
use crate::protocol::grants::Admission;
use crate::protocol::key::KeyId;
use crate::protocol::opening;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::{Drift, Moment};
use crate::protocol::window::Window;

/// Pause before asking a peer again whose views no majority showed. Other peers may know more, and
/// the reason may pass.
const AGAIN: Duration = Duration::from_millis(300);
/// Period for reading again the views that the store keeps: their age ends the risk of stores that
/// were replaced long ago.
const RECALL_EVERY: Duration = Duration::from_secs(60);

/// Facts that this process has gathered.
pub(in crate::gateway) struct Gathered {
    /// The windows of lost stores.
    pub(in crate::gateway) windows: BTreeMap<Origin, Window>,
    /// Answers of serving regions about lost and replaced stores, by region and store.
    pub(in crate::gateway) frontiers: BTreeMap<(RegionName, Origin), opening::Frontier>,
    /// The epoch of those answers. An answer from before a mark was raised does not say which
    /// region has the rows.
    pub(in crate::gateway) frontiers_under: u64,
    /// Lost stores whose escrow rows here are own records.
    pub(in crate::gateway) converted: BTreeSet<Origin>,
    /// Imports that are not at their end, by store.
    pub(in crate::gateway) imports: BTreeMap<Origin, Importing>,
    /// The change that keys are given up for, and the moment when this process first saw it.
    pub(in crate::gateway) pending: Option<(u64, Moment)>,
    /// The silence of the region's acceptor before it may answer.
    pub(in crate::gateway) admission: Admission,
    /// Peers that reported views which no majority showed, and the moments until which they are not
    /// asked again.
    doubted: BTreeMap<RegionName, Moment>,
    /// Moment of the last read of the views that the store keeps.
    recalled: Option<Moment>,
    /// Error of the last try to read the gate.
    unread: Option<StoreError>,
}

/// An import between two looks.
pub(in crate::gateway) struct Importing {
    /// The gate's version under which it began. Another boot of this store may lack what came.
    pub(in crate::gateway) version: GateVersion,
    pub(in crate::gateway) from: RegionName,
    pub(in crate::gateway) upto: u64,
    /// The last key that it has.
    pub(in crate::gateway) after: KeyId,
    pub(in crate::gateway) rows: usize,
}

impl Gathered {
    pub(in crate::gateway) fn new(drift: Drift) -> Self {
        Self {
            windows: BTreeMap::new(),
            frontiers: BTreeMap::new(),
            frontiers_under: 0,
            converted: BTreeSet::new(),
            imports: BTreeMap::new(),
            pending: None,
            admission: Admission::new(drift),
            doubted: BTreeMap::new(),
            recalled: None,
            unread: None,
        }
    }

    /// Notes that this peer's views were not confirmed, or were.
    pub(in crate::gateway) fn doubt(&mut self, peer: &RegionName, in_vain: bool, now: Moment) {
        match in_vain {
            true => drop(self.doubted.insert(peer.clone(), now + AGAIN)),
            false => drop(self.doubted.remove(peer)),
        }
    }

    /// True if a peer is not asked for views at `now`, as no majority showed its last ones.
    pub(in crate::gateway) fn is_doubted(&self, peer: &RegionName, now: Moment) -> bool {
        self.doubted.get(peer).is_some_and(|until| now < *until)
    }

    /// Notes that the views that the store keeps were read.
    pub(in crate::gateway) fn recalled(&mut self, now: Moment) {
        self.recalled = Some(now);
    }

    /// True if the views that the store keeps were read a short while ago.
    pub(in crate::gateway) fn is_recalled(&self, now: Moment) -> bool {
        self.recalled.is_some_and(|at| now.since(at) < RECALL_EVERY)
    }

    /// Logs why the gate cannot be read, once for each reason.
    pub(in crate::gateway) fn log_unread(&mut self, error: Option<&StoreError>) {
        if let Some(error) = error
            && self.unread.as_ref() != Some(error)
        {
            tracing::warn!(%error, "the gate cannot be read: no view is adopted");
        }
        self.unread = error.cloned();
    }
}
