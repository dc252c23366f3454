//! Whether a region may run a key now: its gate, its lease, and what they say together.
//!
//! Neighbours: `ports::gate` stores a [`GateState`], [`super::lease`] holds the lease, `gateway::request` asks [`right`] before a claim and
//! [`Right`]'s tenure in the same breath as the send. It must not read a clock, nor perform anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::key::KeyId;
use super::lease::{Held, Tenure};
use super::plant::{Plant, removed};
use super::region::{Origin, RegionName};
use super::time::Moment;
use super::view::{Standing, View};

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

    /// The state of a region whose store was not there at the founding: whatever `view` gives it counts as gained.
    pub fn joined(view: Arc<View>) -> Self {
        let nobody = Arc::new(View::unfounded(view.ring().clone()));
        Self { since: vec![nobody, view.clone()], view, pending: None, waived: BTreeSet::new() }
    }

    /// After adopting `view`: what was gained stays closed, what was pending is over, and waivers of losses that are over are gone. A
    /// view that is not newer changes nothing: what is pending for the next one stays pending.
    ///
    /// Views are adopted one after the other. Where one was skipped, nobody knows here who owned what under it: then every key counts as
    /// gained.
    pub fn adopt(&self, view: Arc<View>) -> Self {
        if view.epoch() <= self.view.epoch() {
            return self.clone();
        }
        let mut since = self.since.clone();
        if view.epoch() > self.view.epoch() + 1 && !removed(Plant::SkippedView) {
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
        let given_up = self.pending.as_ref().is_some_and(|pending| !owns(&pending.target));
        if given_up && !removed(Plant::PendingClosed) {
            return Some(Closed::Moving);
        }
        if !self.since.iter().all(|view| owns(view)) && !removed(Plant::ClosedWhenGained) {
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

impl Closed {
    /// For people.
    pub fn told(self) -> &'static str {
        match self {
            Self::Moving => "it is being handed over",
            Self::CatchingUp => "it was taken over, and what its former region wrote may not have arrived",
            Self::NoLease => "this region holds no lease",
        }
    }
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
/// A lease that was granted under an older view is good for the keys that this region owned under
/// it and still owns: acceptors let nobody take those without a release (lease lemma,
/// docs/protocol.md#rule-24).
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
    let valid = |held: &&Held| now < held.until && held.view.epoch() <= gate.view.epoch();
    match held.filter(valid) {
        None => Right::Closed(Closed::NoLease),
        Some(held) if covers(held, gate, id, me) => Right::Run(tenure),
        // It was just given to this region, and the renewal that covers it is on its way.
        Some(_) => Right::Closed(Closed::Moving),
    }
}

/// Whether a valid lease covers the key.
fn covers(held: &Held, gate: &GateState, id: &KeyId, me: &RegionName) -> bool {
    let same = held.view.epoch() == gate.view.epoch() || removed(Plant::LeaseOfOlderView);
    same || held.view.owner(id) == Some(me)
}

/// What this region may do at `now` about a key of which it is proven that no lost region ever sent
/// it (docs/protocol.md#rule-38): what it still has to catch up with does not matter then. The
/// lease does, and that the key is not given up.
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

/// One loss of a region whose claims of before may still be missing here.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The region.
    pub region: RegionName,
    /// The view before its loss, where it is known here.
    before: Option<Arc<View>>,
    /// Rows are known to be missing, of whatever it owned at any time.
    gap: bool,
}

/// The losses whose claims may still be missing at `me`: of regions that are lost; of those that are back, until a heartbeat has come that
/// they wrote after they had learned of their loss, as all claims of before come with it; and of stores that were replaced, until no key
/// of theirs is remembered any more. `views` are all chosen views known here, by epoch; `epochs` the epoch in the newest heartbeat of each
/// origin that is applied here. `outlived` is the newest epoch that was agreed on so long ago that every key claimed before has been
/// forgotten: 0 if there is none.
///
/// Were a region that is back left out at once, its successor would start keys that it has not heard of yet, and leave no trace of that.
pub fn losses(
    view: &View,
    views: &BTreeMap<u64, Arc<View>>,
    epochs: &BTreeMap<Origin, u64>,
    me: &RegionName,
    outlived: u64,
) -> Vec<Loss> {
    let mut found: BTreeMap<(Origin, u64), bool> = BTreeMap::new();
    let known = views.values().map(Arc::as_ref).filter(|known| known.epoch() < view.epoch());
    for known in known.chain([view]) {
        for (region, member) in known.members() {
            if let Standing::Lost { at, gap } = member.standing {
                let origin = Origin { region: region.clone(), generation: member.generation };
                found.insert((origin, at), gap);
            }
        }
    }
    // A store that came later may not have the views of then.
    for (loss, at) in view.losses() {
        found.entry((loss, at)).or_insert(false);
    }
    let mine = view.origin(me);
    let replaced = |origin: &Origin| view.retired().get(origin).and_then(|retired| retired.lost);
    let open = |(origin, at): &(Origin, u64)| {
        let lost =
            matches!(view.standing(&origin.region), Some(Standing::Lost { at: now, .. }) if now == *at);
        let current = view.origin(&origin.region).as_ref() == Some(origin);
        let matters = current || (replaced(origin) == Some(*at) && *at > outlived);
        let heard = epochs.get(origin).is_some_and(|epoch| epoch >= at) || removed(Plant::LossUntilHeard);
        mine.as_ref() != Some(origin) && matters && ((lost && current) || !heard)
    };
    let open = found.into_iter().filter(|(loss, _)| open(loss));
    open.map(|((origin, at), gap)| Loss {
        region: origin.region,
        before: views.get(&at.saturating_sub(1)).cloned(),
        gap,
    })
    .collect()
}

/// Regions that may have run this key without a trace here: those that owned it when they were lost. Where the view of then is not known,
/// the region counts.
pub fn at_risk(losses: &[Loss], id: &KeyId) -> Vec<RegionName> {
    let owned = |loss: &&Loss| {
        loss.gap || loss.before.as_ref().is_none_or(|before| before.owner(id) == Some(&loss.region))
    };
    let regions: BTreeSet<&RegionName> = losses.iter().filter(owned).map(|loss| &loss.region).collect();
    regions.into_iter().cloned().collect()
}

#[cfg(test)]
pub(super) mod tests;
