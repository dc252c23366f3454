//! The right of a region to run a key now, from its gate and its lease.
//!
//! A gateway asks [`right`] before a claim, and compares the tenure again directly before the send.
//! A region that does not hold both, an open gate and a valid lease, runs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::key::KeyId;
use super::lease::Held;
use super::plant::{Check, is_disabled};
use super::region::{Origin, RegionName};
use super::time::Moment;
use super::view::{Standing, View};

/// The gate's version, compared by every claim in the statement that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GateVersion(pub u64);

/// One start of the region's Postgres: its cluster, its timeline, its start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Postgres' system identifier.
    pub system: u64,
    /// Its timeline.
    pub timeline: u32,
    /// The start of its postmaster, microseconds since 1970 on its own clock: for equality only.
    pub started: i64,
}

/// The gate row as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Grows with every change of the row.
    pub version: GateVersion,
    /// The epoch that this region has adopted; 1 before the register was founded.
    pub epoch: u64,
    /// The adopted view and its closed keys; `None` before the register was founded.
    pub state: Option<GateState>,
    /// The approved boot; `None` before the first approval.
    pub approved: Option<Boot>,
    /// The boot of the server that answered.
    pub running: Boot,
}

impl Gate {
    /// True if claims can pass: the running server is the approved one.
    pub fn is_open(&self) -> bool {
        self.approved.as_ref() == Some(&self.running)
    }
}

/// A change for which this region has given keys up, and which is not agreed on yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// The draft of the change; its epoch is one more than the base's.
    pub target: Arc<View>,
    /// The seal, once it is written.
    pub seal: Option<u64>,
}

/// The part of a region's gate that views move: all but its version and boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateState {
    /// The adopted view.
    pub view: Arc<View>,
    /// Views that must all name this region as a key's owner: more than the adopted one while keys
    /// were gained that may not start yet.
    pub since: Vec<Arc<View>>,
    /// The keys that the region is giving up.
    pub pending: Option<Pending>,
    /// Losses whose risk an operator has accepted, by region and epoch.
    pub waived: BTreeSet<(RegionName, u64)>,
}

impl GateState {
    /// The state of a region that has adopted the first view.
    pub fn founded(view: Arc<View>) -> Self {
        Self { since: vec![view.clone()], view, pending: None, waived: BTreeSet::new() }
    }

    /// The state of a region that came after the founding: all its keys count as gained.
    pub fn joined(view: Arc<View>) -> Self {
        let nobody = Arc::new(View::unfounded(view.ring().clone()));
        Self { since: vec![nobody, view.clone()], view, pending: None, waived: BTreeSet::new() }
    }

    /// The state after adopting `view`. Gained keys stay closed, a pending change is over, and
    /// waivers of losses that are over are gone. A view that is not newer changes nothing.
    ///
    /// Views are adopted one after the other. If one was skipped, the owners under it are not known
    /// here. Every key then counts as gained.
    pub fn adopt(&self, view: Arc<View>) -> Self {
        if view.epoch() <= self.view.epoch() {
            return self.clone();
        }
        let mut since = self.since.clone();
        if view.epoch() > self.view.epoch() + 1 && !is_disabled(Check::SkippedView) {
            since.push(Arc::new(View::unfounded(view.ring().clone())));
        }
        if since.iter().all(|known| known.placement() != view.placement()) {
            since.push(view.clone());
        }
        let lost: BTreeSet<(RegionName, u64)> =
            view.losses().map(|(origin, at)| (origin.region, at)).collect();
        let waived = self.waived.intersection(&lost).cloned().collect();
        Self { view, since, pending: None, waived }
    }

    /// The state after everything gained may start.
    pub fn open(&self) -> Self {
        Self { since: vec![self.view.clone()], ..self.clone() }
    }

    /// The state while keys are given up for `pending`.
    pub fn give_up(&self, pending: Option<Pending>) -> Self {
        Self { pending, ..self.clone() }
    }

    /// True if everything that the view gives this region may start.
    pub fn is_open(&self) -> bool {
        self.since.len() == 1 && self.since[0].placement() == self.view.placement()
    }

    /// Says if this region may serve a key that the view gives it; leaves the lease out.
    fn serves(&self, id: &KeyId, me: &RegionName) -> Result<(), Closed> {
        let owns = |view: &View| view.owner(id) == Some(me);
        let given_up = self.pending.as_ref().is_some_and(|pending| !owns(&pending.target));
        if given_up && !is_disabled(Check::PendingClosed) {
            return Err(Closed::Moving);
        }
        if !self.since.iter().all(|view| owns(view)) && !is_disabled(Check::ClosedWhenGained) {
            return Err(Closed::CatchingUp);
        }
        Ok(())
    }
}

worded! {
    /// The reason why a key is not run here, though the view names this region its owner.
    #[allow(missing_docs, reason = "the reasons say it")]
    Closed;
    /// The reason in words, for people.
    reason {
        Moving = "it is being handed over",
        CatchingUp = "it was taken over, and what its former region wrote may not have arrived",
        NoLease = "this region holds no lease",
    }
}

/// Says if this region has the right to a key at `now`, which runs as long as the tenure stays. A
/// key that another region owns by the gate's view is on the move.
///
/// A lease of an older view is good for keys that this region owned under that view and still owns:
/// acceptors let no other region take those without a release (docs/protocol.md#rule-24).
pub(super) fn right(
    gate: &GateState,
    held: Option<&Held>,
    id: &KeyId,
    me: &RegionName,
    now: Moment,
) -> Result<(), Closed> {
    if gate.view.owner(id) != Some(me) {
        return Err(Closed::Moving);
    }
    gate.serves(id, me)?;
    let valid = |held: &&Held| now < held.until && held.view.epoch() <= gate.view.epoch();
    let covers = |held: &Held| {
        let same = held.view.epoch() == gate.view.epoch() || is_disabled(Check::LeaseOfOlderView);
        same || held.view.owner(id) == Some(me)
    };
    match held.filter(valid) {
        None => Err(Closed::NoLease),
        Some(held) if covers(held) => Ok(()),
        // The view just gave the key to this region, and the renewal that covers it is on its way.
        Some(_) => Err(Closed::Moving),
    }
}

/// A loss of a store whose earlier claims may still be missing here.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    /// The store.
    pub origin: Origin,
    /// The views under which claims may be missing; `None` if one of them is not known here.
    under: Option<Vec<Arc<View>>>,
}

impl Loss {
    /// True if the region may have run this key without a trace here.
    pub fn may_hide(&self, id: &KeyId) -> bool {
        let owns = |view: &Arc<View>| view.owner(id) == Some(&self.origin.region);
        self.under.as_ref().is_none_or(|under| under.iter().any(owns))
    }
}

/// A region's knowledge when it looks which losses may hide claims, and which claims they do not.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    /// The newest chosen view.
    pub view: &'a View,
    /// All chosen views known here, by epoch.
    pub views: &'a BTreeMap<u64, Arc<View>>,
    /// The epoch in the newest heartbeat of each origin that is applied here.
    pub epochs: &'a BTreeMap<Origin, u64>,
    /// The heartbeat up to which the rows of each origin are here, applied or imported.
    pub rows: &'a BTreeMap<Origin, u64>,
    /// The losses whose risk an operator accepted, by region and epoch. `None` while the gate is
    /// not known: then each loss counts as accepted.
    pub waived: Option<&'a BTreeSet<(RegionName, u64)>>,
    /// This region.
    pub me: &'a RegionName,
    /// The newest epoch so old that every key claimed before it has been forgotten; 0 if none is.
    pub outlived: u64,
}

impl Facts<'_> {
    /// True if the region is lost by this loss now; a rebuild would have ended it.
    fn is_current(&self, region: &RegionName, at: u64) -> bool {
        matches!(self.view.standing(region), Some(Standing::Lost { at: now, .. }) if now == at)
    }

    /// True if the loss may still hide claims. A store that was replaced may have been lost before,
    /// too, and have returned unheard.
    fn counts(&self, origin: &Origin, at: u64) -> bool {
        let replaced = self.view.retired.get(origin).and_then(|retired| retired.lost);
        let left = replaced.is_some_and(|last| at <= last) && at > self.outlived;
        let heard = self.epochs.get(origin).is_some_and(|epoch| *epoch >= at);
        let heard = heard || is_disabled(Check::LossUntilHeard);
        let mine = self.view.origin(self.me).as_ref() == Some(origin);
        !mine && (self.view.is_present(origin) || left) && (self.is_current(&origin.region, at) || !heard)
    }

    /// The first epoch under which claims may be missing.
    ///
    /// Rows of earlier views are here up to the store's last seal, as nothing opens without them.
    /// An operator who accepts the loss opens all the same. The waiver is gone once the region is
    /// back, and its claims may still be on their way. So such a loss counts as accepted.
    fn since(&self, origin: &Origin, at: u64, gap: bool) -> u64 {
        if gap {
            return 1;
        }
        let before = at.saturating_sub(1);
        let member = self.views.get(&before).filter(|view| view.is_present(origin));
        let seal = member.and_then(|view| view.members().get(&origin.region)).map(|member| member.mark);
        let waived = self.waived.is_none_or(|waived| waived.contains(&(origin.region.clone(), at)));
        let opened = waived || !self.is_current(&origin.region, at);
        let covered = self.rows.get(origin).copied().unwrap_or(0) >= seal.unwrap_or(u64::MAX);
        if covered || !opened {
            return before;
        }
        self.epochs.get(origin).copied().unwrap_or(0).max(1).min(before)
    }
}

/// The losses whose claims may still be missing at this region:
///
/// - of regions that are lost;
/// - of regions that are back, until a heartbeat is applied that the region wrote after it had
///   learned of its loss: all its earlier claims come with that heartbeat;
/// - of stores that were replaced, until none of their keys is remembered any more.
///
/// If a region that is back were left out at once, its successor would start keys whose earlier
/// claims have not arrived, and would leave no trace of that.
pub(super) fn losses(facts: &Facts<'_>) -> Vec<Loss> {
    let mut found: BTreeMap<(Origin, u64), bool> = BTreeMap::new();
    let known = facts.views.values().map(Arc::as_ref).filter(|known| known.epoch() < facts.view.epoch());
    for known in known.chain([facts.view]) {
        for (region, member) in known.members() {
            if let Standing::Lost { at, gap } = member.standing {
                let origin = Origin { region: region.clone(), generation: member.generation };
                found.insert((origin, at), gap);
            }
        }
    }
    // A store that was added later may lack the older views.
    for loss in facts.view.losses() {
        found.entry(loss).or_insert(false);
    }
    let open = found.into_iter().filter(|((origin, at), _)| facts.counts(origin, *at));
    open.map(|((origin, at), gap)| {
        let epochs = facts.since(&origin, at, gap)..at.max(1);
        let under = epochs.map(|epoch| facts.views.get(&epoch).cloned()).collect();
        Loss { origin, under }
    })
    .collect()
}

#[cfg(test)]
pub(super) mod tests;
