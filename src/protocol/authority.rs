//! Whether a region may run a key now: its gate, its lease, and what they say together.
//!
//! Neighbours: `ports::gate` stores a [`GateState`], [`super::lease`] holds the lease, `gateway::request` asks [`right`] before a claim and
//! [`Right`]'s tenure in the same breath as the send. It must not read a clock, nor perform anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::KeyId;
use super::lease::{Held, Tenure};
use super::region::RegionName;
use super::time::Moment;
use super::view::View;

/// A change that this region has given keys up for, and that is not agreed on yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The draft of the change; its epoch is one more than the base's.
    pub target: Arc<View>,
    /// The seal, once it is written.
    pub seal: Option<u64>,
}

/// What a region's gate says beside its version and boot: the part that views move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateState {
    /// The adopted view.
    pub view: Arc<View>,
    /// Views that must all name this region as a key's owner. One, the adopted view, where nothing is to be caught up with; more while
    /// keys were gained that may not start yet.
    pub since: Vec<Arc<View>>,
    /// What it is giving up.
    pub pending: Option<Pending>,
    /// Losses whose risk an operator has accepted, by region and epoch.
    pub waived: BTreeSet<(RegionName, u64)>,
}

impl GateState {
    /// The state of a region that has adopted the first view.
    pub fn founded(view: Arc<View>) -> Self {
        Self { since: vec![view.clone()], view, pending: None, waived: BTreeSet::new() }
    }

    /// After adopting `view`: what was gained stays closed, what was pending is over, and waivers of losses that are over are gone.
    pub fn adopt(&self, view: Arc<View>) -> Self {
        let mut since = self.since.clone();
        if since.iter().all(|known| known.placement() != view.placement()) {
            since.push(view.clone());
        }
        let lost: BTreeSet<(RegionName, u64)> =
            view.lost().map(|(region, at)| (region.clone(), at)).collect();
        let waived = self.waived.intersection(&lost).cloned().collect();
        Self { view, since, pending: None, waived }
    }

    /// After everything gained may start.
    pub fn open(&self) -> Self {
        Self { since: vec![self.view.clone()], ..self.clone() }
    }

    /// While keys are given up for `pending`.
    pub fn give_up(&self, pending: Option<Pending>) -> Self {
        Self { pending, ..self.clone() }
    }

    /// Whether everything the view gives this region may start.
    pub fn is_open(&self) -> bool {
        self.since.len() == 1 && self.since[0].placement() == self.view.placement()
    }

    /// Whether this region owns the key and may serve it, the lease apart.
    fn serves(&self, id: &KeyId, me: &RegionName) -> Option<Closed> {
        let owns = |view: &View| view.owner(id) == Some(me);
        if self.pending.as_ref().is_some_and(|pending| !owns(&pending.target)) {
            return Some(Closed::Moving);
        }
        if !self.since.iter().all(|view| owns(view)) {
            return Some(Closed::CatchingUp);
        }
        None
    }
}

/// Why a key is not run here, though the view names this region its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is being handed over.
    Moving,
    /// It was gained, and may not start yet.
    CatchingUp,
    /// The lease is not held.
    NoLease,
}

/// What this region may do about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// Run it, as long as the tenure stays.
    Run(Tenure),
    /// The view names it the owner, but it must not run it now.
    Closed(Closed),
    /// Another region owns it.
    Elsewhere(RegionName),
    /// No region of its order serves.
    Nobody,
}

/// What this region may do about a key at `now`.
///
/// A lease that was granted under an older view is good for the keys that this region owned under it and still owns: acceptors let nobody
/// take those without a release (lease lemma, protocol reference section 5).
pub fn right(
    gate: &GateState,
    held: Option<&Held>,
    tenure: Tenure,
    id: &KeyId,
    me: &RegionName,
    now: Moment,
) -> Right {
    match gate.view.owner(id) {
        None => return Right::Nobody,
        Some(owner) if owner != me => return Right::Elsewhere(owner.clone()),
        Some(_) => {}
    }
    if let Some(closed) = gate.serves(id, me) {
        return Right::Closed(closed);
    }
    match holds(gate, held, id, me, now) {
        true => Right::Run(tenure),
        false => Right::Closed(Closed::NoLease),
    }
}

/// Whether the lease covers the key.
fn holds(gate: &GateState, held: Option<&Held>, id: &KeyId, me: &RegionName, now: Moment) -> bool {
    let held = held.filter(|held| now < held.until && held.view.epoch() <= gate.view.epoch());
    let covers = |held: &Held| held.view.epoch() == gate.view.epoch() || held.view.owner(id) == Some(me);
    held.is_some_and(covers)
}

/// What this region may do at `now` about a key of which it is proven that no lost region ever sent it (protocol reference, 4.1): what it
/// still has to catch up with does not matter then. The lease does, and that the key is not given up.
pub fn right_if_never_sent(
    gate: &GateState,
    held: Option<&Held>,
    tenure: Tenure,
    id: &KeyId,
    me: &RegionName,
    now: Moment,
) -> Right {
    let open = gate.open();
    right(&open, held, tenure, id, me, now)
}

/// Lost regions that may have run this key without a trace here: those that owned it when they were lost. `views` are all chosen views
/// known here, by epoch; where the one before a loss is not known, the region counts.
pub fn at_risk(
    view: &View,
    views: &std::collections::BTreeMap<u64, Arc<View>>,
    id: &KeyId,
) -> Vec<RegionName> {
    let owned = |(region, at): &(&RegionName, u64)| {
        let before = views.get(&at.saturating_sub(1));
        before.is_none_or(|before| before.owner(id) == Some(*region))
    };
    view.lost().filter(owned).map(|(region, _)| region.clone()).collect()
}
