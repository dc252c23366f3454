//! The acts of an awake process of the model: learn, adopt, open, renew, claim and send, and drive
//! rounds.
//!
//! `world` carries its messages, `wants` has its wishes for another view; every decision is
//! `onceway::protocol`'s. It must not look into another region's store. The exception is a fact
//! that a message would bring too: the heartbeats that others have applied, for imports and
//! frontiers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::authority::{Pending, Right, right};
use onceway::protocol::change::Report;
use onceway::protocol::lease::Renewal;
use onceway::protocol::opening::{Facts, Told, hindrances};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{Message, Reply, chosen};
use onceway::protocol::round::{Outbox, Step};
use onceway::protocol::view::{AcceptorId, Release, Standing, View};
use onceway::protocol::window;

use crate::protocol_model::truth::Run;
use crate::protocol_model::world::{Back, Handler, Parcel, TTL, Tag, World, boot};

impl World {
    pub fn act(&mut self, index: usize) {
        let region = self.processes[index].region.clone();
        let now = self.processes[index].clock(self.now);
        let process = &mut self.processes[index];
        process.watch.observe(&self.sites[&region].acceptor, now);
        self.admit(index, &region);
        self.learn(index, &region);
        if self.sites[&region].gate.is_some() {
            self.adopt(index, &region);
            self.open(&region);
            self.renew(index, &region);
            self.work(index, &region);
        }
        self.drive(index);
        if self.chance.one_in(40) {
            self.tell(&region);
        }
        if self.chance.one_in(60) {
            self.read(index);
        }
    }

    /// Admits a voter's new acceptor: it learns the chosen views, and stays quiet for one longest
    /// grant (docs/protocol.md#rule-17).
    fn admit(&mut self, index: usize, region: &RegionName) {
        let site = &self.sites[region];
        let view = site.newest();
        if site.acceptor.admitted || view.voters().get(region) != Some(&site.acceptor.id) {
            return;
        }
        let Some((_, ballot)) = self.truth.chosen.get(&view.epoch()).cloned() else { return };
        // In real time and twice over: the quiet is counted on one clock or another.
        let quiet = self.now + 2 * TTL.as_millis() as u64;
        let site = self.sites.get_mut(region).unwrap();
        match site.quiet_until {
            None => site.quiet_until = Some(quiet),
            Some(until) if until > self.now => {}
            Some(_) => {
                let mut next = site.acceptor.clone();
                let accepted = onceway::protocol::register::Accepted { ballot: ballot.clone(), view };
                (next.promised, next.accepted, next.admitted) = (Some(ballot), Some(accepted), true);
                self.truth.acceptor(region, &site.acceptor, &next);
                self.truth.saw("voter admitted");
                site.acceptor = next;
                site.quiet_until = None;
            }
        }
        let _ = index;
    }

    fn learn(&mut self, index: usize, region: &RegionName) {
        let process = &mut self.processes[index];
        while let Some(view) = self.sites[region].views.get(&(process.view.epoch() + 1)) {
            if process.view.loses(view, region) {
                process.lease.lost_keys();
            }
            process.view = view.clone();
        }
        if process.active.as_ref().is_some_and(|active| active.base.epoch() < process.view.epoch()) {
            process.active = None;
        }
        if process.gather.as_ref().is_some_and(|gather| gather.base.epoch() < process.view.epoch()) {
            process.gather = None;
        }
    }

    fn adopt(&mut self, index: usize, region: &RegionName) {
        let newest = self.processes[index].view.epoch();
        let site = self.sites.get_mut(region).unwrap();
        let Some(gate) = &mut site.gate else { return };
        while gate.view.epoch() < newest {
            let Some(view) = site.views.get(&(gate.view.epoch() + 1)) else { return };
            self.truth.adopts(view);
            *gate = gate.adopt(view.clone());
            site.seq += 1;
        }
    }

    /// Opens gained keys, if nothing hinders. Windows are over at once here: the simulation tests
    /// them.
    fn open(&mut self, region: &RegionName) {
        let Some(gate) = self.sites[region].gate.clone().filter(|gate| !gate.is_open()) else { return };
        let view = gate.view.clone();
        let lost: BTreeSet<Origin> = view.losses().map(|(origin, _)| origin).collect();
        let windows = lost.iter().map(|origin| (origin.clone(), window::Standing::Over)).collect();
        let mut told = BTreeMap::new();
        for by in view.serving().filter(|by| *by != region && self.linked(by, region)) {
            for of in &lost {
                let site = &self.sites[by];
                if site.gate.as_ref().is_some_and(|gate| gate.view.epoch() >= view.epoch()) {
                    let applied = site.applied.get(&of.region).copied().unwrap_or(0);
                    told.insert((by.clone(), of.clone()), Told { applied, seal: 0 });
                }
            }
        }
        for ((_, of), told) in &told {
            let site = self.sites.get_mut(region).unwrap();
            let have = site.applied.entry(of.region.clone()).or_default();
            *have = told.applied.max(*have);
        }
        let origin =
            |(name, seq): (&RegionName, &u64)| (Origin { region: name.clone(), generation: 1 }, *seq);
        let applied = self.sites[region].applied.iter().map(origin).collect();
        let facts = Facts {
            view: &view,
            me: &view.origin(region).unwrap(),
            applied: &applied,
            windows: &windows,
            told: &told,
            waived: &BTreeSet::new(),
            converted: &lost,
            keepers: &BTreeSet::new(),
        };
        let waits = hindrances(&facts);
        // No operator accepts a risk here, so a region that waits for a gap waits for ever. The
        // loss itself is over once the region is back.
        if waits.is_empty() {
            self.sites.get_mut(region).unwrap().gate = Some(gate.open());
        }
    }

    fn renew(&mut self, index: usize, region: &RegionName) {
        let gate_epoch = self.sites[region].gate.as_ref().map(|gate| gate.view.epoch());
        let process = &mut self.processes[index];
        let now = process.clock(self.now);
        process.lease.held(now);
        let view = process.view.clone();
        if self.now < process.renew_at
            || gate_epoch != Some(view.epoch())
            || !view.serves(region)
            || !process.lease.may_ask(now)
        {
            return;
        }
        process.renew_at = self.now + TTL.as_millis() as u64 / 3;
        process.lease.asks(view.clone(), now);
        let message = Message::Renew { region: region.clone(), boot: boot(), view: view.clone(), ttl: TTL };
        let outbox = view.voters().iter().map(|(name, id)| (name.clone(), *id, message.clone())).collect();
        self.ask(index, outbox, &Tag::Renew(now));
    }

    pub fn ask(&mut self, index: usize, outbox: Outbox, tag: &Tag) {
        let (from, life) = (self.processes[index].region.clone(), self.processes[index].life);
        for (site, id, message) in outbox {
            let back = Back { process: index, life, tag: tag.clone() };
            self.post(&from, &site.clone(), Parcel::Ask { site, id: Some(id), message, back });
        }
    }

    pub fn read(&mut self, index: usize) {
        let (from, life) = (self.processes[index].region.clone(), self.processes[index].life);
        self.processes[index].held.clear();
        for site in self.sites.keys().cloned().collect::<Vec<_>>() {
            let back = Back { process: index, life, tag: Tag::Read };
            self.post(&from, &site.clone(), Parcel::Ask { site, id: None, message: Message::Read, back });
        }
    }

    /// Passes on the newest chosen views.
    pub fn tell(&mut self, region: &RegionName) {
        let views = &self.sites[region].views;
        let views: Vec<Arc<View>> = views.values().skip(views.len().saturating_sub(12)).cloned().collect();
        for site in self.sites.keys().filter(|site| *site != region).cloned().collect::<Vec<_>>() {
            self.post(region, &site.clone(), Parcel::Tell { site, views: views.clone() });
        }
    }

    pub fn answered(&mut self, index: usize, site: &RegionName, id: AcceptorId, reply: &Reply, tag: Tag) {
        let now = self.processes[index].clock(self.now);
        let region = self.processes[index].region.clone();
        match tag {
            Tag::Renew(sent) => match self.processes[index].lease.heard(site, reply, sent, now) {
                Renewal::Open => {}
                Renewal::Renewed => self.truth.saw("renewed"),
                Renewal::Newer => self.read(index),
            },
            Tag::Read => {
                if let Reply::Holds { id, accepted, .. } = reply {
                    self.processes[index].held.insert(site.clone(), (*id, accepted.clone()));
                    self.look(index, &region);
                }
            }
            Tag::Round(ballot) => {
                let Some(active) =
                    self.processes[index].active.as_mut().filter(|active| active.ballot == ballot)
                else {
                    return;
                };
                match active.round.heard(site, id, reply) {
                    Step::Wait => {}
                    Step::Send(outbox) => self.ask(index, outbox, &Tag::Round(ballot)),
                    Step::Chosen(view) => self.won(index, &region, &view),
                    Step::Blocked(_) => self.truth.saw("blocked"),
                    Step::Outbid(counter) => {
                        active.until = self.now;
                        self.processes[index].counter = counter.max(self.processes[index].counter);
                        self.truth.saw("outbid");
                    }
                }
            }
        }
    }

    fn won(&mut self, index: usize, region: &RegionName, view: &Arc<View>) {
        let Some(active) = self.processes[index].active.take() else { return };
        if *view != active.base && active.wanted.as_ref() != Some(view) {
            self.truth.saw("foreign value finished");
        }
        self.truth.adopts(view);
        self.sites.get_mut(region).unwrap().keep(std::slice::from_ref(view));
        self.tell(region);
    }

    /// Looks at the acceptors' reports: a chosen view is learned, and an unfinished one keeps its
    /// loser from renewing.
    fn look(&mut self, index: usize, region: &RegionName) {
        let held = self.processes[index].held.clone();
        let known = self.processes[index].view.clone();
        let reported = held.iter().map(|(name, (id, accepted))| (name, *id, accepted));
        if let Some(accepted) = chosen(reported) {
            self.truth.adopts(&accepted.view);
            self.sites.get_mut(region).unwrap().keep(std::slice::from_ref(&accepted.view));
        } else if let Some((_, newer)) =
            held.values().find(|(_, accepted)| accepted.view.epoch() > known.epoch())
        {
            let process = &mut self.processes[index];
            let now = process.clock(self.now);
            if known.loses(&newer.view, region) {
                process.lease.wait_for_newer(now);
            }
            process.finish_at = process.finish_at.or(Some(self.now + 50 + self.chance.below(800)));
        }
    }

    /// Gives up the keys that the region would lose by a draft, and seals.
    pub fn release(&mut self, region: RegionName, target: Arc<View>, back: Back) {
        let site = self.sites.get_mut(&region).unwrap();
        let Some(gate) = &site.gate else { return };
        let fits = gate.view.epoch() + 1 == target.epoch();
        let free = gate.pending.as_ref().is_none_or(|pending| *pending.target == *target);
        if !fits || !free || !gate.view.loses(&target, &region) {
            return;
        }
        let known = gate.pending.as_ref().and_then(|pending| pending.seal);
        let seal = known.unwrap_or(site.seq + 1);
        site.seq = site.seq.max(seal);
        let seen = gate.view.losses().map(|(lost, _)| {
            let seen = site.applied.get(&lost.region).copied().unwrap_or(0);
            (lost, seen)
        });
        let release = Release { base: gate.view.epoch(), target: target.placement() };
        let report = Report { generation: 1, seal, release, seen: seen.collect() };
        site.gate = Some(gate.give_up(Some(Pending { target: target.clone(), seal: Some(seal) })));
        let to = self.processes[back.process].region.clone();
        self.post(&region.clone(), &to, Parcel::Released { site: region, target, report, back });
    }

    /// Claims keys and sends claimed ones. The lease and the tenure are checked again at the moment
    /// of the send.
    fn work(&mut self, index: usize, region: &RegionName) {
        let Some(gate) = self.sites[region].gate.clone() else { return };
        let process = &self.processes[index];
        let now = process.clock(self.now);
        if self.chance.one_in(12) {
            let key = self.chance.below(self.keys.len() as u64) as usize;
            let tenure = process.lease.tenure();
            if let Right::Run(tenure) =
                right(&gate, process.lease.current(), tenure, &self.keys[key], region, now)
            {
                let site = self.sites.get_mut(region).unwrap();
                site.seq += 1;
                let (seq, knew) = (site.seq, site.applied.clone());
                self.truth.runs(Run { key, region: region.clone(), seq, epoch: gate.view.epoch(), knew });
                self.truth.saw("claimed");
                let run = self.truth.runs.len() - 1;
                self.processes[index].handlers.push(Handler { run, tenure });
            }
        }
        if self.chance.one_in(25) {
            let process = &mut self.processes[index];
            for handler in std::mem::take(&mut process.handlers) {
                let held = process.lease.current().is_some_and(|held| now < held.until);
                if held && process.lease.tenure() == handler.tenure {
                    self.truth.sends(handler.run);
                    self.truth.saw("sent");
                }
            }
        }
    }

    /// The invariants that hold between the parts at every moment.
    pub fn check(&mut self) {
        let mut owners: BTreeMap<usize, RegionName> = BTreeMap::new();
        for process in &self.processes {
            let Some(gate) = &self.sites[&process.region].gate else { continue };
            let now = process.clock(self.now);
            let Some(held) = process.lease.current().filter(|held| now < held.until) else { continue };
            // 13: by every judge's clock, the grants outlive the lease at a majority.
            let until = process.real(held.until);
            let outlives = |name: &&RegionName| {
                let site = &self.sites[*name];
                let Some(grant) = site.acceptor.grants.get(&process.region) else {
                    // A new acceptor is quiet for longer than the grant that it forgot.
                    return site.made_at.is_some();
                };
                let judges = self.processes.iter().filter(|judge| judge.region == **name);
                judges
                    .filter_map(|judge| {
                        judge.watch.over_at(&process.region, grant).map(|over| judge.real(over))
                    })
                    .all(|over| over >= until)
            };
            let voters = held.view.voters();
            let count = voters.keys().filter(outlives).count();
            assert!(
                count >= onceway::protocol::register::majority(voters.len()),
                "a lease outlives its grants at {}",
                self.now
            );
            for (index, key) in self.keys.iter().enumerate() {
                let right = right(gate, Some(held), process.lease.tenure(), key, &process.region, now);
                if matches!(right, Right::Run(_)) {
                    // 3: never two regions at one time.
                    let owner = owners.entry(index).or_insert_with(|| process.region.clone());
                    assert_eq!(*owner, process.region, "two regions may run key {index} at {}", self.now);
                }
            }
        }
    }

    /// True if the region is lost under the view that its store knows.
    pub fn is_lost(&self, region: &RegionName) -> bool {
        matches!(self.sites[region].newest().standing(region), Some(Standing::Lost { .. }))
    }
}
