//! What still keeps a region from starting the keys that a view gave it (protocol reference, 2.5 and 2.6).
//!
//! Neighbours: [`super::view`] has the marks, [`super::window`] the waits; `gateway::authority` gathers the facts, acts on what is missing,
//! and opens the gate when nothing is. *Marks accumulate*: every region's newest mark counts, not only the predecessor's, or rows are
//! forgotten when arcs move on quickly (mutation 7). It must not perform anything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::plant::{Plant, removed};
use super::region::{Origin, RegionName};
use super::view::{Member, Standing, View};
use super::window;

/// What one region knows when it looks whether it may open.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The adopted view.
    pub view: &'a View,
    /// This region.
    pub me: &'a RegionName,
    /// The highest heartbeat of each origin that is applied or imported here, counted only where the copy is known to be whole.
    pub applied: &'a BTreeMap<Origin, u64>,
    /// How the window of each lost region stands.
    pub windows: &'a BTreeMap<RegionName, window::Standing>,
    /// What each serving region said it has applied of each lost one, asked after this view was adopted here.
    pub told: &'a BTreeMap<(RegionName, RegionName), Told>,
    /// Losses whose risk an operator has accepted, by region and epoch.
    pub waived: &'a BTreeSet<(RegionName, u64)>,
    /// Lost regions whose escrow rows here are all turned into own records.
    pub converted: &'a BTreeSet<RegionName>,
}

/// What a serving region said about a lost one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The highest heartbeat of the lost region that it has applied or imported.
    pub applied: u64,
    /// Its own heartbeat after every escrow row of the lost region there had become a record of its own (H3): what must have arrived here.
    pub seal: u64,
}

/// One thing that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Rows of that origin have not arrived up to its mark.
    NotCovered {
        /// The origin.
        origin: Origin,
        /// Its mark.
        mark: u64,
        /// What is here.
        applied: u64,
    },
    /// The window of a lost region runs.
    Window {
        /// The region.
        region: RegionName,
        /// For this long.
        left: Duration,
    },
    /// The window would be longer than `beyond`.
    Beyond {
        /// The region.
        region: RegionName,
        /// How long it would be.
        window: Duration,
    },
    /// No lag was ever measured behind that region.
    Unmeasured {
        /// The region.
        region: RegionName,
    },
    /// Rows of that region are known to be missing everywhere.
    Gap {
        /// The region.
        region: RegionName,
    },
    /// A serving region has not said what it has of a lost one (H4).
    NotTold {
        /// The lost region.
        region: RegionName,
        /// Who is silent.
        by: RegionName,
    },
    /// A serving region has rows of a lost one that are not here.
    Import {
        /// The lost region.
        region: RegionName,
        /// Who has them.
        from: RegionName,
        /// Up to where.
        upto: u64,
    },
    /// Escrow rows of a lost region are not own records yet (H3).
    Escrow {
        /// The lost region.
        region: RegionName,
    },
}

impl Hindrance {
    /// Whether only an operator can lift it.
    pub fn needs_operator(&self) -> bool {
        match self {
            Self::Beyond { .. } | Self::Unmeasured { .. } | Self::Gap { .. } => true,
            Self::NotCovered { .. }
            | Self::Window { .. }
            | Self::NotTold { .. }
            | Self::Import { .. }
            | Self::Escrow { .. } => false,
        }
    }
}

/// All that is missing; empty if the region may open.
pub fn hindrances(facts: &Facts<'_>) -> Vec<Hindrance> {
    let mut missing = Vec::new();
    let applied = |origin: &Origin| facts.applied.get(origin).copied().unwrap_or(0);
    let given = |member: &Member| {
        let now = member.release.is_some_and(|release| release.base + 1 == facts.view.epoch());
        now || !removed(Plant::MarksAccumulate)
    };
    let others = facts.view.members().iter().filter(|(name, member)| *name != facts.me && given(member));
    let marks = others
        .map(|(name, member)| (Origin { region: name.clone(), generation: member.generation }, member.mark));
    // Its own loss keeps a region from nothing: it owns no key until it has returned.
    let lost: BTreeMap<&RegionName, u64> = facts.view.lost().filter(|(name, _)| *name != facts.me).collect();
    let waived = |region: &RegionName| {
        lost.get(region).is_some_and(|at| facts.waived.contains(&(region.clone(), *at)))
    };
    let retired = facts.view.retired().iter().map(|(origin, mark)| (origin.clone(), *mark));
    for (origin, mark) in marks.chain(retired) {
        let have = applied(&origin);
        // Whoever accepted the loss of a region accepted that its last rows may not be here.
        if have < mark && !waived(&origin.region) {
            missing.push(Hindrance::NotCovered { origin, mark, applied: have });
        }
    }
    for region in lost.keys().copied() {
        if facts.converted.contains(region) || removed(Plant::Conversion) {
            missing.extend(import(facts, region, applied, waived(region)));
        } else {
            missing.push(Hindrance::Escrow { region: region.clone() });
        }
        if !waived(region) {
            missing.extend(wait(facts, region));
        }
    }
    missing
}

fn wait(facts: &Facts<'_>, lost: &RegionName) -> Option<Hindrance> {
    let region = lost.clone();
    if matches!(facts.view.standing(lost), Some(Standing::Lost { gap: true, .. })) {
        return Some(Hindrance::Gap { region });
    }
    if removed(Plant::Window) {
        return None;
    }
    match facts.windows.get(lost) {
        Some(window::Standing::Over) => None,
        Some(window::Standing::Runs { left }) => Some(Hindrance::Window { region, left: *left }),
        Some(window::Standing::Beyond { window }) => Some(Hindrance::Beyond { region, window: *window }),
        Some(window::Standing::Unmeasured) | None => Some(Hindrance::Unmeasured { region }),
    }
}

/// Copies of survivors differ, and a mark of before the loss says nothing of the last rows: everybody who serves is asked (H4).
fn import(
    facts: &Facts<'_>,
    lost: &RegionName,
    applied: impl Fn(&Origin) -> u64,
    waived: bool,
) -> Vec<Hindrance> {
    let mine = facts.view.origin(lost).map_or(0, |origin| applied(&origin));
    let mut missing = Vec::new();
    for by in facts.view.serving().filter(|by| *by != facts.me && !removed(Plant::Import)) {
        let region = lost.clone();
        match facts.told.get(&(by.clone(), lost.clone())) {
            None if waived => {}
            None => missing.push(Hindrance::NotTold { region, by: by.clone() }),
            Some(told) => {
                if told.applied > mine {
                    missing.push(Hindrance::Import { region, from: by.clone(), upto: told.applied });
                }
                let origin = facts.view.origin(by);
                missing.extend(origin.and_then(|origin| {
                    let have = applied(&origin);
                    let mark = told.seal;
                    (have < mark).then_some(Hindrance::NotCovered { origin, mark, applied: have })
                }));
            }
        }
    }
    missing
}

#[cfg(test)]
pub(super) mod tests;
