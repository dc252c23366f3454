//! The next view: every legal change of a view, and no other (docs/protocol.md#rule-18).
//!
//! A change that this file refuses cannot be proposed at all. The caller gathers its facts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lifetime::Retention;
use super::plant::{Check, is_disabled};
use super::region::{Origin, RegionName};
use super::ring::Ring;
use super::view::{AcceptorId, Content, Escrowed, Member, Release, Retired, Standing, View, Voters};

/// The report of a region that has stopped and sealed the keys that it gives up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The generation of its store.
    pub generation: u32,
    /// Its seal: the heartbeat after its last commit for the keys that it gives up.
    pub seal: u64,
    /// The keys that it gave up, and for which change.
    pub release: Release,
    /// The highest heartbeat of each lost store that it has applied: its knowledge when it served
    /// their keys (docs/protocol.md#rule-33).
    pub seen: BTreeMap<Origin, u64>,
}

/// The least number of epochs by which a forced view is ahead of all that the remaining regions
/// know. The stopped ones may come back with views that they agreed on, and never got that far. Up
/// to as much again is drawn: two operators who break the glass do not meet in one epoch either.
///
/// As epochs are left out, everything counts as gained by a region that adopts a forced view: its
/// own keys may have run elsewhere meanwhile.
pub const STRIDE: u64 = 1 << 20;

/// A change of a view.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Change {
    /// A clean move to the placement of `target`, once every region that loses keys has reported.
    Move {
        /// The draft, made by [`View::draft`].
        target: Arc<View>,
        reports: BTreeMap<RegionName, Report>,
    },
    /// A region's lease ran out at a majority, or an operator says that it is gone.
    Lose {
        region: RegionName,
        /// The highest heartbeat of it that any surviving region has applied.
        frontier: u64,
    },
    /// A lost region is back with its store intact, complete and sealed, and owns nothing.
    Seal { region: RegionName, generation: u32, seal: u64 },
    /// A sealed or lost region's store is replaced by an empty one. Its origin is retired.
    Rebuild { region: RegionName },
    /// One voter more, less, or replaced. An acceptor that was no voter for a while comes back as a
    /// new one, with a new id: it knows nothing of the grants of the meantime
    /// (docs/protocol.md#rule-17).
    Voters(Voters),
    /// Break glass: no majority is left, and an operator attests that these regions and witnesses
    /// are stopped. The regions are lost, each with its frontier. Stopped members vote no more.
    Force {
        /// The stopped regions, each with its highest heartbeat that a survivor has applied; and
        /// stopped witnesses, with any number.
        stopped: BTreeMap<RegionName, u64>,
        /// The acceptor of the only remaining region, if that was made anew and every voter is
        /// stopped. It votes alone from now on.
        anew: Option<(RegionName, AcceptorId)>,
        /// Any number, drawn for this view. The remainder by [`STRIDE`] is added to the epoch,
        /// which is more than one stride above the base's.
        drawn: u64,
    },
    /// From now on all regions use this version of the peer protocol. A region that does not speak
    /// it serves nothing any more.
    Protocol(u16),
    /// From now on a key may be promised a life of this length (docs/protocol.md#rule-32).
    Life(Retention),
    /// The epoch alone changes, so that a change that was begun can never be agreed on.
    Kill,
}

/// The reason why a change makes no legal next view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Illegal {
    #[error("the change was drafted at epoch {0}, the view is another one now")]
    OtherBase(u64),
    #[error("seed and place_by are fixed at bootstrap: keys would change their owner though no arc moves")]
    Placement,
    #[error("region {0} would lose keys that it has not given up for this change")]
    NotReleased(RegionName),
    #[error("no region would be left that serves")]
    NobodyServes,
    #[error("region {0} cannot be changed like that: see its standing")]
    Standing(RegionName),
    #[error("region {0} speaks for another generation of its store")]
    Generation(RegionName),
    #[error("the seal of region {0} is older than its mark: its store went back")]
    MarkGoesBack(RegionName),
    #[error("the regions go by protocol version {0} already")]
    Protocol(u16),
    #[error("keys may live that long already")]
    Life,
    #[error("voters change one at a time, and at least one is left")]
    Voters,
}

impl View {
    /// A draft of a clean move: this view with other rings, routes under escrow, and regions
    /// serving or sealed. Regions that are new in the ring begin sealed and own nothing. Regions
    /// that left the ring stay while rows of theirs live. Lost regions stay lost.
    pub fn draft(
        &self,
        ring: Arc<Ring>,
        escrow: Escrowed,
        standings: &BTreeMap<RegionName, Standing>,
    ) -> Result<View, Illegal> {
        if !self.ring.places_like(&ring) {
            return Err(Illegal::Placement);
        }
        let voters_before = self.voters.clone();
        let content = Content { epoch: self.epoch + 1, ring, escrow, voters_before, ..self.content() };
        let mut next = View::from_content(content);
        for region in next.content.ring.regions() {
            let newcomer = Member::new(1, Standing::Sealed { drained: region.weight == 0 });
            next.content.members.entry(region.name.clone()).or_insert(newcomer);
        }
        for (name, standing) in standings {
            let member = next.content.members.get_mut(name).ok_or_else(|| Illegal::Standing(name.clone()))?;
            let is_lost = |standing: Standing| matches!(standing, Standing::Lost { .. });
            if member.standing != *standing && (is_lost(member.standing) || is_lost(*standing)) {
                return Err(Illegal::Standing(name.clone()));
            }
            member.standing = *standing;
        }
        if let Some(name) = next.serving().find(|name| next.ring.weight(name).is_none()) {
            return Err(Illegal::Standing(name.clone()));
        }
        somebody_serves(next)
    }

    /// The draft with leases that may be as long as this. They never get shorter
    /// ([`Content::longest_lease`]).
    pub fn with_lease(self, lease: Duration) -> View {
        View::from_content(Content { longest_lease: self.longest_lease.max(lease), ..self.content() })
    }

    /// The view after a change, or the first rule that the change breaks.
    pub fn next(&self, change: &Change) -> Result<View, Illegal> {
        // Values that were derived on the way may belong to an intermediate view.
        self.changed(change).map(|next| View::from_content(next.content()))
    }

    fn changed(&self, change: &Change) -> Result<View, Illegal> {
        let voters_before = self.voters.clone();
        let next = View::from_content(Content { epoch: self.epoch + 1, voters_before, ..self.content() });
        let made = |content| Ok(View::from_content(content));
        match change {
            Change::Kill => Ok(next),
            // Regions may already rely on the newer version, so there is no way back.
            Change::Protocol(version) if *version > self.protocol => {
                made(Content { protocol: *version, ..next.content })
            }
            Change::Protocol(_) => Err(Illegal::Protocol(self.protocol)),
            // Keys of before may be remembered for as long as they were promised.
            Change::Life(life) if *life > self.longest_life => {
                made(Content { longest_life: *life, ..next.content })
            }
            Change::Life(_) => Err(Illegal::Life),
            Change::Force { stopped, anew, drawn } => {
                let epoch = self.epoch + STRIDE + drawn % STRIDE + 1;
                forced(View::from_content(Content { epoch, ..next.content }), stopped, anew.as_ref())
            }
            Change::Move { target, reports } => self.moved(target, reports),
            Change::Lose { region, frontier } => {
                let mut next = next;
                lose(&mut next, region, *frontier)?;
                somebody_may_serve(next)
            }
            Change::Seal { region, generation, seal } => sealed(next, region, *generation, *seal),
            Change::Rebuild { region } => rebuilt(next, region),
            Change::Voters(voters) => {
                let names: BTreeSet<_> = self.voters.keys().chain(voters.keys()).collect();
                let changed = names.into_iter().filter(|name| self.voters.get(*name) != voters.get(*name));
                if changed.count() != 1 || voters.is_empty() {
                    return Err(Illegal::Voters);
                }
                made(Content { voters: voters.clone(), ..next.content })
            }
        }
    }

    fn moved(&self, target: &View, reports: &BTreeMap<RegionName, Report>) -> Result<View, Illegal> {
        if target.epoch != self.epoch + 1 {
            return Err(Illegal::OtherBase(target.epoch.saturating_sub(1)));
        }
        // The placement is built again from this view, so that a draft can carry nothing else.
        let standings = target.members.iter().map(|(name, member)| (name.clone(), member.standing)).collect();
        let next = self.draft(target.ring.clone(), target.escrow.clone(), &standings)?;
        let mut next = next.with_lease(target.longest_lease);
        let release = Release { base: self.epoch, target: next.placement() };
        if let Some(silent) = self.losers(&next).find(|loser| !reports.contains_key(*loser)) {
            return Err(Illegal::NotReleased(silent.clone()));
        }
        for (name, report) in reports {
            if report.release != release {
                return Err(Illegal::NotReleased(name.clone()));
            }
            // A lost region's mark is what others have applied, whatever it reports itself.
            if !self.serves(name) {
                return Err(Illegal::Standing(name.clone()));
            }
            let member = next.content.members.get_mut(name).ok_or_else(|| Illegal::Standing(name.clone()))?;
            if report.generation != member.generation {
                return Err(Illegal::Generation(name.clone()));
            }
            if report.seal < member.mark {
                return Err(Illegal::MarkGoesBack(name.clone()));
            }
            (member.mark, member.release) = (report.seal, Some(report.release));
            for (origin, seen) in &report.seen {
                let Content { members, retired, .. } = &mut next.content;
                let current = members.get_mut(&origin.region);
                let current = current.filter(|member| member.generation == origin.generation);
                let current = current.filter(|member| matches!(member.standing, Standing::Lost { .. }));
                let retired = retired.get_mut(origin).filter(|retired| retired.lost.is_some());
                let marks =
                    [current.map(|member| &mut member.mark), retired.map(|retired| &mut retired.mark)];
                marks.into_iter().flatten().for_each(|mark| *mark = (*mark).max(*seen));
            }
        }
        Ok(next)
    }
}

fn lose(next: &mut View, region: &RegionName, frontier: u64) -> Result<(), Illegal> {
    let at = next.epoch;
    let member = next.content.members.get_mut(region).ok_or_else(|| Illegal::Standing(region.clone()))?;
    match member.standing {
        Standing::Serving | Standing::Sealed { .. } => {
            // The frontier takes the mark's place. Behind the mark it shows that rows are missing
            // everywhere (docs/protocol.md#rule-30).
            member.standing = Standing::Lost { at, gap: frontier < member.mark };
            // Its earlier release was for that change only: its lease may cover all other keys.
            let release = member.release.filter(|_| is_disabled(Check::ReleaseBound));
            (member.mark, member.release) = (frontier, release);
            Ok(())
        }
        Standing::Lost { .. } => Err(Illegal::Standing(region.clone())),
    }
}

/// Allows a loss that leaves no serving region, if a sealed region waits to take arcs back.
/// Otherwise the last serving region, once it is gone for good, would hold all keys for ever.
fn somebody_may_serve(next: View) -> Result<View, Illegal> {
    let owns = |name: &RegionName| next.ring.weight(name).is_some_and(|weight| weight > 0);
    let waits = |(name, member): (&RegionName, &Member)| {
        matches!(member.standing, Standing::Sealed { .. }) && owns(name)
    };
    if next.members.iter().any(waits) { Ok(next) } else { somebody_serves(next) }
}

fn somebody_serves(next: View) -> Result<View, Illegal> {
    let serves = next.serving().next().is_some();
    if serves { Ok(next) } else { Err(Illegal::NobodyServes) }
}

fn forced(
    mut next: View,
    stopped: &BTreeMap<RegionName, u64>,
    anew: Option<&(RegionName, AcceptorId)>,
) -> Result<View, Illegal> {
    for (region, frontier) in stopped {
        next.content.voters.remove(region);
        if let Some(Standing::Serving | Standing::Sealed { .. }) = next.standing(region) {
            lose(&mut next, region, *frontier)?;
        }
    }
    if let Some((name, id)) = anew {
        // An acceptor that remembers its promises may not be left out for one that does not.
        if next.voters.keys().any(|voter| voter != name) || next.voters.get(name) == Some(id) {
            return Err(Illegal::Voters);
        }
        next.content.voters = [(name.clone(), *id)].into();
    }
    if next.voters.is_empty() {
        return Err(Illegal::Voters);
    }
    // The former voters are not asked: no majority of them is left.
    next.content.voters_before = next.voters.clone();
    // The remaining region may itself be lost in the view, as the others agreed before they were
    // gone. It then seals the rows that it wrote and comes home.
    let is_left = |name: &RegionName| {
        !stopped.contains_key(name) && next.ring.weight(name).is_some_and(|weight| weight > 0)
    };
    if next.members.keys().any(is_left) { Ok(next) } else { Err(Illegal::NobodyServes) }
}

fn sealed(mut next: View, region: &RegionName, generation: u32, seal: u64) -> Result<View, Illegal> {
    let member = next.content.members.get_mut(region).ok_or_else(|| Illegal::Standing(region.clone()))?;
    if member.generation != generation {
        return Err(Illegal::Generation(region.clone()));
    }
    match member.standing {
        Standing::Lost { .. } if seal >= member.mark => {
            member.standing = Standing::Sealed { drained: false };
            (member.mark, member.release) = (seal, None);
            Ok(next)
        }
        Standing::Lost { .. } => Err(Illegal::MarkGoesBack(region.clone())),
        Standing::Serving | Standing::Sealed { .. } => Err(Illegal::Standing(region.clone())),
    }
}

fn rebuilt(mut next: View, region: &RegionName) -> Result<View, Illegal> {
    let member = next.content.members.get_mut(region).ok_or_else(|| Illegal::Standing(region.clone()))?;
    let (lost, drained) = match member.standing {
        Standing::Lost { at, gap: _ } => (Some(at), false),
        Standing::Sealed { drained } => (None, drained),
        Standing::Serving => return Err(Illegal::Standing(region.clone())),
    };
    let old = Origin { region: region.clone(), generation: member.generation };
    let generation = member.generation.checked_add(1).ok_or_else(|| Illegal::Generation(region.clone()))?;
    next.content.retired.insert(old, Retired { mark: member.mark, lost });
    *member = Member::new(generation, Standing::Sealed { drained });
    Ok(next)
}

#[cfg(test)]
mod tests;
