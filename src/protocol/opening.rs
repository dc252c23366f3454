//! Hindrances: all that still keeps a region from starting the keys that a view gave it
//! (docs/protocol.md#rule-26).
//!
//! *Marks accumulate*: every region's newest mark counts, not only the predecessor's. Otherwise
//! rows are forgotten when arcs move on quickly (docs/protocol.md#rule-28).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plant::{Check, is_disabled};
use super::region::{Origin, RegionName};
use super::speakers::tells_of_others;
use super::view::{Member, Standing, View};
use super::window;

/// A region's knowledge when it looks whether it may open.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The adopted view.
    pub view: &'a View,
    /// The store of this region.
    pub me: &'a Origin,
    /// The highest heartbeat of each origin that is here, if the copy is known to be whole.
    pub applied: &'a BTreeMap<Origin, u64>,
    /// The window of each lost store.
    pub windows: &'a BTreeMap<Origin, window::Standing>,
    /// Other regions' answers about lost or replaced stores, asked after this view was adopted.
    pub frontiers: &'a BTreeMap<(RegionName, Origin), Frontier>,
    /// Losses whose risk an operator has accepted, by region and epoch.
    pub waived: &'a BTreeSet<(RegionName, u64)>,
    /// Lost stores whose escrow rows here are all turned into own records.
    pub converted: &'a BTreeSet<Origin>,
    /// Sealed regions that may hold claims of a lost store: [`keepers`].
    pub keepers: &'a BTreeSet<(RegionName, Origin)>,
}

/// A region's answer about a lost or replaced store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frontier {
    /// The highest heartbeat of that store that it has applied or imported.
    pub applied: u64,
    /// The region's own heartbeat after every escrow row of that store there had become a record:
    /// it must have arrived here (docs/protocol.md#rule-39).
    pub seal: u64,
}

/// One thing that is missing. Each `origin` is the store whose rows are missing, `mark` the heartbeat
/// up to which they must be here, and `applied` the one up to which they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Hindrance {
    /// Rows of that origin have not arrived up to its mark.
    NotCovered { origin: Origin, mark: u64, applied: u64 },
    /// The window of a lost store runs.
    Window { origin: Origin, left: Duration },
    /// The window would be longer than `beyond`.
    Beyond { origin: Origin, window: Duration },
    /// No lag was ever measured behind that store.
    Unmeasured(Origin),
    /// Rows of that store are known to be missing everywhere.
    Gap(Origin),
    /// Rows of a lost store are not here, and no remaining region has them. Some region had them up
    /// to the mark.
    Forgotten { origin: Origin, mark: u64, applied: u64 },
    /// A serving region has not answered about a lost or replaced store (docs/protocol.md#rule-33).
    NotTold { origin: Origin, by: RegionName },
    /// A region that left the ring, and whose word counts no more, may have the only rows of a lost
    /// or replaced store (docs/protocol.md#rule-21). If the store is lost, that risk may be
    /// accepted. Else the region must come back.
    LeftRing { origin: Origin, by: RegionName, lost: bool },
    /// A serving region has rows of a lost or replaced store, up to there, that are not here.
    Import { origin: Origin, from: RegionName, upto: u64 },
    /// Escrow rows of a lost store are not own records yet (docs/protocol.md#rule-39).
    Escrow(Origin),
}

impl Hindrance {
    /// Time until a window is over by itself.
    pub fn left(&self) -> Option<Duration> {
        let Self::Window { left, .. } = self else { return None };
        Some(*left)
    }

    /// True if only an operator can lift it.
    pub fn needs_operator(&self) -> bool {
        match self {
            Self::Beyond { .. }
            | Self::Unmeasured { .. }
            | Self::Gap { .. }
            | Self::Forgotten { .. }
            | Self::LeftRing { .. } => true,
            Self::NotCovered { .. }
            | Self::Window { .. }
            | Self::NotTold { .. }
            | Self::Import { .. }
            | Self::Escrow { .. } => false,
        }
    }
}

/// Sealed regions with which a lost store may have lodged claims that are not here. They are no
/// target any more. Until a heartbeat of the lost store from after their time is here, their escrow
/// rows may be the only trace of a claim (docs/protocol.md#rule-39).
pub fn keepers(
    view: &View,
    views: &BTreeMap<u64, Arc<View>>,
    epochs: &BTreeMap<Origin, u64>,
) -> BTreeSet<(RegionName, Origin)> {
    let is_sealed = |member: &Member| matches!(member.standing, Standing::Sealed { .. });
    let mut found = BTreeSet::new();
    for (name, _) in view.members().iter().filter(|(_, member)| is_sealed(member)) {
        // The last known view under which it served. A view that is not known here counts as such.
        let idle = |epoch: &u64| views.get(epoch).is_some_and(|known| !known.serves(name));
        let served = (0..view.epoch()).rev().find(|epoch| !idle(epoch)).unwrap_or(0);
        let reached = |origin: &Origin| epochs.get(origin).copied().unwrap_or(0);
        let missing = view.losses().filter(|(origin, _)| reached(origin) <= served);
        found.extend(missing.map(|(origin, _)| (name.clone(), origin)));
    }
    found
}

/// The epoch from which on no key is forgotten: since when a region is away, or 0 if one is back
/// and its rows are on their way. Else the first one that is not known here.
///
/// Such a region may bring home a request that it had accepted. Whoever ran that key meanwhile must
/// still know it then (docs/protocol.md#rule-44).
pub fn remembered_from(view: &View, me: &Origin, applied: &BTreeMap<Origin, u64>) -> u64 {
    let others = view.members().iter().filter(|(name, _)| **name != me.region);
    let since = |(name, member): (&RegionName, &Member)| {
        let origin = view.origin(name).filter(|origin| !view.is_gone(origin))?;
        match member.standing {
            Standing::Lost { at, .. } => Some(at),
            Standing::Serving | Standing::Sealed { .. } => {
                (applied.get(&origin).copied().unwrap_or(0) < member.mark).then_some(0)
            }
        }
    };
    let away = others.filter_map(since).min().filter(|_| !is_disabled(Check::AwayRemembered));
    away.unwrap_or(view.epoch() + 1)
}

/// All hindrances; empty if the region may open.
pub fn hindrances(facts: &Facts<'_>) -> Vec<Hindrance> {
    let given = |member: &Member| {
        let now = member.release.is_some_and(|release| release.base + 1 == facts.view.epoch());
        now || !is_disabled(Check::MarksAccumulate)
    };
    let members =
        facts.view.members().iter().filter(|(_, member)| given(member)).map(|(name, member)| {
            (Origin { region: name.clone(), generation: member.generation }, member.mark)
        });
    let retired = facts.view.retired.iter().map(|(origin, retired)| (origin.clone(), retired.mark));
    // A store's own loss hinders it in nothing, as it owns no key. That of the store before does.
    let lost: BTreeMap<Origin, u64> = facts.view.losses().filter(|(origin, _)| origin != facts.me).collect();
    let mut missing = Vec::new();
    for (origin, mark) in members.chain(retired).filter(|(origin, _)| origin != facts.me) {
        let applied = applied(facts, &origin);
        // Who accepted the loss of a region accepted that its last rows may not be here.
        if applied < mark && !lost.get(&origin).is_some_and(|at| waived(facts, &origin, *at)) {
            missing.push(Hindrance::NotCovered { origin: origin.clone(), mark, applied });
            // Replication brings no rows of a replaced store, nor of a region that left before this
            // one joined: other regions have them.
            if facts.view.is_gone(&origin) && !lost.contains_key(&origin) {
                missing.extend(import(facts, &origin, false));
            }
        }
    }
    for (origin, at) in lost {
        let waived = waived(facts, &origin, at);
        if facts.converted.contains(&origin) || is_disabled(Check::Conversion) {
            let elsewhere = import(facts, &origin, waived);
            // All remaining regions have answered. A lost region that has more answers once it is
            // back, and this hindrance ends by itself.
            let (mark, applied) = (mark(facts.view, &origin), applied(facts, &origin));
            if elsewhere.is_empty() && !waived && applied < mark && !is_disabled(Check::Import) {
                missing.push(Hindrance::Forgotten { origin: origin.clone(), mark, applied });
            }
            missing.extend(elsewhere);
        } else {
            missing.push(Hindrance::Escrow(origin.clone()));
        }
        if !waived {
            missing.extend(wait(facts, origin));
        }
    }
    missing
}

fn applied(facts: &Facts<'_>, origin: &Origin) -> u64 {
    facts.applied.get(origin).copied().unwrap_or(0)
}

fn mark(view: &View, origin: &Origin) -> u64 {
    let current = view.members().get(&origin.region);
    let current = current.filter(|member| member.generation == origin.generation).map(|member| member.mark);
    current.or_else(|| view.retired.get(origin).map(|retired| retired.mark)).unwrap_or(0)
}

fn waived(facts: &Facts<'_>, origin: &Origin, at: u64) -> bool {
    facts.waived.contains(&(origin.region.clone(), at))
}

fn wait(facts: &Facts<'_>, origin: Origin) -> Option<Hindrance> {
    // No rows of a replaced store are on their way any more.
    if facts.view.retired.contains_key(&origin) {
        return None;
    }
    if matches!(facts.view.standing(&origin.region), Some(Standing::Lost { gap: true, .. })) {
        return Some(Hindrance::Gap(origin));
    }
    if is_disabled(Check::Window) {
        return None;
    }
    match facts.windows.get(&origin) {
        Some(window::Standing::Over) => None,
        Some(window::Standing::Runs(left)) => Some(Hindrance::Window { origin, left: *left }),
        Some(window::Standing::Beyond(window)) => Some(Hindrance::Beyond { origin, window: *window }),
        Some(window::Standing::Unmeasured) | None => Some(Hindrance::Unmeasured(origin)),
    }
}

/// The hindrances of asking other regions about a lost store. Copies of survivors differ, and a
/// mark from before the loss says nothing of the last rows. So every serving region is asked
/// (docs/protocol.md#rule-33). A sealed region is asked if it may hold lodged claims, or rows up to
/// the mark, which it may alone have seen. Once it has left the ring, only an operator decides.
fn import(facts: &Facts<'_>, origin: &Origin, waived: bool) -> Vec<Hindrance> {
    let mine = applied(facts, origin);
    let mut missing = Vec::new();
    let short = mine < mark(facts.view, origin);
    let asked = |by: &RegionName, member: &Member| match member.standing {
        Standing::Serving => true,
        Standing::Sealed { .. } if is_disabled(Check::SealedAsked) => false,
        // A store that replaced another has its rows only by import.
        Standing::Sealed { .. } if *by == origin.region => false,
        Standing::Sealed { .. } => short || facts.keepers.contains(&(by.clone(), origin.clone())),
        Standing::Lost { .. } => false,
    };
    let others = facts.view.members().iter().filter(|(by, member)| asked(by, member)).map(|(by, _)| by);
    let others = others.filter(|by| **by != facts.me.region && !is_disabled(Check::Import));
    let (others, left): (Vec<_>, Vec<_>) = others.partition(|by| tells_of_others(by, facts.view));
    for by in others {
        match facts.frontiers.get(&(by.clone(), origin.clone())) {
            None if waived => {}
            None => missing.push(Hindrance::NotTold { origin: origin.clone(), by: by.clone() }),
            Some(frontier) => {
                if frontier.applied > mine {
                    let (origin, from) = (origin.clone(), by.clone());
                    missing.push(Hindrance::Import { origin, from, upto: frontier.applied });
                }
                let of_teller = facts.view.origin(by);
                missing.extend(of_teller.and_then(|origin| {
                    let (mark, applied) = (frontier.seal, applied(facts, &origin));
                    (applied < mark).then_some(Hindrance::NotCovered { origin, mark, applied })
                }));
            }
        }
    }
    // What regions of the ring still say or hand over may be all that is missing.
    if missing.is_empty() && !waived {
        let lost = facts.view.losses().any(|(lost, _)| lost == *origin);
        let hindrance =
            |by: &RegionName| Hindrance::LeftRing { origin: origin.clone(), by: by.clone(), lost };
        missing.extend(left.into_iter().map(hindrance));
    }
    missing
}

#[cfg(test)]
pub(super) mod tests;
