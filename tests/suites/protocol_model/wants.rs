//! The wishes of the model's processes: takeovers, drains, returns, kills, seals, other voters; and
//! the rounds that fulfil them.
//!
//! `acts` has their regular work. It must not choose wisely: the protocol has to bear any wish at
//! any time.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceway::protocol::change::Change;
use onceway::protocol::region::RegionName;
use onceway::protocol::register::Ballot;
use onceway::protocol::round::Round;
use onceway::protocol::view::{Standing, View};

use crate::protocol_model::world::{Active, Back, Gather, Parcel, Tag, World};

impl World {
    /// Goes on with a round that got no answer, or begins one.
    pub fn drive(&mut self, index: usize) {
        let active = self.processes[index].active.as_ref();
        if let Some(active) = active {
            if active.until <= self.now {
                let (base, wanted, tries) = (active.base.clone(), active.wanted.clone(), active.tries);
                self.processes[index].active = None;
                if tries > 0 && self.chance.one_in(3) {
                    self.begin(index, base, wanted, tries - 1);
                }
            }
            return;
        }
        let base = self.processes[index].view.clone();
        if self.processes[index].finish_at.is_some_and(|at| at <= self.now) {
            self.processes[index].finish_at = None;
            return self.begin(index, base, None, 0);
        }
        if let Some(wanted) = self.gathered(index) {
            self.processes[index].gather = None;
            self.truth.moves.insert(wanted.epoch());
            return self.begin(index, base, Some(wanted), 6);
        }
        if self.chance.one_in(70) {
            self.wish(index, &base);
        }
    }

    fn begin(&mut self, index: usize, base: Arc<View>, wanted: Option<Arc<View>>, tries: u32) {
        let until = self.now + 60 + self.chance.below(300);
        let process = &mut self.processes[index];
        process.counter += 1;
        let ballot =
            Ballot { counter: process.counter, region: process.region.clone(), proposer: process.life };
        let (round, outbox) = Round::open(ballot.clone(), base.clone(), wanted.clone());
        process.active = Some(Active { round, ballot: ballot.clone(), base, wanted, until, tries });
        self.ask(index, outbox, &Tag::Round(ballot));
    }

    /// The next view of a clean move, once all losers have reported.
    fn gathered(&mut self, index: usize) -> Option<Arc<View>> {
        let gather = self.processes[index].gather.as_ref()?;
        if gather.until <= self.now {
            self.processes[index].gather = None;
            return None;
        }
        let change = Change::Move { target: gather.target.clone(), reports: gather.reports.clone() };
        gather.base.next(&change).ok().map(Arc::new)
    }

    fn wish(&mut self, index: usize, base: &Arc<View>) {
        let region = self.processes[index].region.clone();
        let members: Vec<RegionName> = base.members().keys().cloned().collect();
        let Some(other) = self.chance.pick(&members) else { return };
        let change = match self.chance.below(6) {
            0 | 1 if other != region => {
                let seen = |by: &RegionName| self.sites[by].applied.get(&other).copied().unwrap_or(0);
                let frontier = base.serving().filter(|by| **by != other).map(seen).max().unwrap_or(0);
                Change::Lose { region: other, frontier }
            }
            2 | 3 => return self.move_of(index, base, &other),
            4 => {
                self.truth.kills.insert(base.epoch() + 1);
                Change::Kill
            }
            _ if self.is_lost(&region) => {
                let site = self.sites.get_mut(&region).unwrap();
                site.seq += 1;
                Change::Seal { region, generation: 1, seal: site.seq }
            }
            _ => {
                let ids = self.sites.iter().map(|(name, site)| (name.clone(), site.acceptor.id)).collect();
                Change::Voters(ids)
            }
        };
        if let Ok(wanted) = base.next(&change) {
            self.begin(index, base.clone(), Some(Arc::new(wanted)), 8);
        }
    }

    /// Drains a region, or lets it serve again.
    fn move_of(&mut self, index: usize, base: &Arc<View>, other: &RegionName) {
        let standing = match base.standing(other) {
            Some(Standing::Serving) => Standing::Sealed { drained: true },
            Some(Standing::Sealed { .. }) => Standing::Serving,
            Some(Standing::Lost { .. }) | None => return,
        };
        let standings = BTreeMap::from([(other.clone(), standing)]);
        let Ok(target) = base.draft(base.ring().clone(), base.escrow().clone(), &standings) else { return };
        let target = Arc::new(target);
        let (from, life) = (self.processes[index].region.clone(), self.processes[index].life);
        for site in base.losers(&target).cloned().collect::<Vec<_>>() {
            let back = Back { process: index, life, tag: Tag::Read };
            let parcel = Parcel::Release { site: site.clone(), target: target.clone(), back };
            self.post(&from, &site, parcel);
        }
        let until = self.now + 1_000;
        self.processes[index].gather =
            Some(Gather { base: base.clone(), target, reports: BTreeMap::new(), until });
    }
}
