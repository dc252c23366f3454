//! Chosen views and held leases, by the votes and grants of acceptors.
//!
//! It reads no gateway, because a gateway may believe something else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::digest::Digest32;
use onceway::protocol::region::RegionName;
use onceway::protocol::register::{Ballot, majority};
use onceway::protocol::view::{AcceptorId, View};

use crate::checker::is_agreed;
use crate::outcome::LeaseSpan;
use crate::table::{Granted, Held, Truth};
use crate::world::World;

/// A view that a majority accepted.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The time of its deciding vote, since the world began.
    pub at: Duration,
    pub view: Arc<View>,
    /// The regions that had voted for it by then.
    pub by: Vec<RegionName>,
}

/// A time in which grants of a majority ran, all of one view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub region: RegionName,
    pub epoch: u64,
    /// The beginning, since the world began.
    pub from: Duration,
    /// The end. No acceptor may end the lease earlier.
    pub to: Duration,
}

/// Every view that was chosen, in order.
pub fn chosen(world: &World, truths: &[Truth]) -> Vec<Chosen> {
    let mut all: Vec<Held> = truths.iter().flat_map(|store| store.history.acceptors.clone()).collect();
    all.extend(world.witnesses().iter().flat_map(|witness| witness.history_since(&mut 0)));
    chosen_by(all)
}

pub fn chosen_by(mut all: Vec<Held>) -> Vec<Chosen> {
    all.sort_by_key(|held| held.at);
    let mut votes: BTreeMap<(Ballot, Digest32), BTreeSet<AcceptorId>> = BTreeMap::new();
    let mut chosen: BTreeMap<u64, Chosen> = BTreeMap::new();
    for Held { at, id, promised: _, accepted } in all {
        let Some(accepted) = accepted else { continue };
        let view = accepted.view;
        let ids = votes.entry((accepted.ballot, view.digest())).or_default();
        ids.insert(id);
        if is_agreed(&view, ids) {
            let by = view.voters().iter().filter(|(_, id)| ids.contains(id));
            let by = by.map(|(name, _)| name.clone()).collect();
            chosen.entry(view.epoch()).or_insert(Chosen { at, view, by });
        }
    }
    chosen.into_values().collect()
}

/// All leases, by region and then in order.
pub fn leases(world: &World, truths: &[Truth]) -> Vec<Lease> {
    let mut all: Vec<Granted> = truths.iter().flat_map(|store| store.history.granted.clone()).collect();
    all.extend(world.witnesses().iter().flat_map(|witness| witness.granted_since(&mut 0)));
    leased_by(all, world.elapsed())
}

/// Computes leases from grants. No lease lasts beyond `now`.
pub fn leased_by(mut all: Vec<Granted>, now: Duration) -> Vec<Lease> {
    all.sort_by_key(|granted| granted.at);
    let mut running: BTreeMap<(RegionName, u64), BTreeMap<AcceptorId, Duration>> = BTreeMap::new();
    let mut leases: BTreeMap<(RegionName, u64), Vec<Lease>> = BTreeMap::new();
    for Granted { at, id, region, until, view } in all {
        let key = (region.clone(), view.epoch());
        let grants = running.entry(key.clone()).or_default();
        grants.insert(id, until);
        let voters = view.voters();
        let mut ends: Vec<Duration> =
            voters.values().filter_map(|id| grants.get(id).copied()).filter(|until| *until > at).collect();
        ends.sort_unstable();
        // It runs for as long as the last majority of grants does.
        let Some(last) = ends.len().checked_sub(majority(voters.len())) else { continue };
        let to = ends[last].min(now);
        let before = leases.entry(key).or_default();
        match before.last_mut().filter(|lease| lease.to >= at) {
            Some(lease) => lease.to = to.max(lease.to),
            None => before.push(Lease { region, epoch: view.epoch(), from: at, to }),
        }
    }
    let mut all: Vec<Lease> = leases.into_values().flatten().collect();
    all.sort_by(|one, other| {
        (&one.region, one.from, one.epoch).cmp(&(&other.region, other.from, other.epoch))
    });
    all
}

/// The leases for an outcome; clients began at `zero`, since the world began.
pub fn lease_spans(world: &World, truths: &[Truth], zero: Duration) -> Vec<LeaseSpan> {
    let ms = |at: Duration| u64::try_from(at.saturating_sub(zero).as_millis()).unwrap_or(u64::MAX);
    let span = |lease: Lease| LeaseSpan {
        region: lease.region.to_string(),
        epoch: lease.epoch,
        from_ms: ms(lease.from),
        to_ms: ms(lease.to),
    };
    leases(world, truths).into_iter().filter(|lease| lease.to > zero).map(span).collect()
}
