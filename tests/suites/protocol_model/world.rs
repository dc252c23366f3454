//! The world of the model: regions with their stores, processes with their clocks, and a network
//! that delays, loses, repeats and reorders.
//!
//! All decisions are the protocol's own: this file carries messages and moves time. It must not
//! give a process a fact that no message brought.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::authority::GateState;
use onceway::protocol::change::Report;
use onceway::protocol::digest::{Digest32, digest};
use onceway::protocol::grants::GrantWatch;
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::lease::{Lease, Tenure};
use onceway::protocol::region::RegionName;
use onceway::protocol::register::{Acceptor, Ballot, Message, Reply};
use onceway::protocol::ring::{PlaceBy, RegionSpec, Ring, RingSpec};
use onceway::protocol::round::Round;
use onceway::protocol::time::{Drift, Moment};
use onceway::protocol::view::{AcceptorId, View};

use crate::protocol_model::chance::Chance;
use crate::protocol_model::truth::Truth;

pub const TTL: Duration = Duration::from_millis(600);
pub const DRIFT: Drift = Drift { ppm: 20_000, margin: Duration::from_millis(5) };

/// A region's store, or a witness's file.
pub struct Site {
    pub acceptor: Acceptor,
    /// The time at which its acceptor was made anew, in real time.
    pub made_at: Option<u64>,
    /// The time from which a new acceptor may be admitted.
    pub quiet_until: Option<u64>,
    /// None for a witness.
    pub gate: Option<GateState>,
    pub views: BTreeMap<u64, Arc<View>>,
    pub seq: u64,
    pub applied: BTreeMap<RegionName, u64>,
}

impl Site {
    pub fn newest(&self) -> Arc<View> {
        self.views.last_key_value().map(|(_, view)| view.clone()).unwrap()
    }

    /// Keeps chosen views, without gaps.
    pub fn keep(&mut self, views: &[Arc<View>]) {
        for view in views {
            if view.epoch() == self.newest().epoch() + 1 {
                self.views.insert(view.epoch(), view.clone());
            }
        }
    }
}

/// A round that a process drives, until real time `until`.
pub struct Active {
    pub round: Round,
    pub ballot: Ballot,
    pub base: Arc<View>,
    pub wanted: Option<Arc<View>>,
    pub until: u64,
    pub tries: u32,
}

/// Reports that a process gathers for a clean move.
pub struct Gather {
    pub base: Arc<View>,
    pub target: Arc<View>,
    pub reports: BTreeMap<RegionName, Report>,
    pub until: u64,
}

/// A handler that has claimed and not sent yet.
pub struct Handler {
    pub run: usize,
    pub tenure: Tenure,
}

pub struct Process {
    pub region: RegionName,
    /// The number of its life: a restart forgets everything below.
    pub life: u64,
    ppm: i64,
    offset: u64,
    pub paused_until: u64,
    pub lease: Lease,
    pub watch: GrantWatch,
    pub view: Arc<View>,
    pub renew_at: u64,
    pub finish_at: Option<u64>,
    pub active: Option<Active>,
    pub gather: Option<Gather>,
    pub held: BTreeMap<RegionName, (AcceptorId, onceway::protocol::register::Accepted)>,
    pub counter: u64,
    pub handlers: Vec<Handler>,
}

impl Process {
    pub fn clock(&self, now: u64) -> Moment {
        let nanos = i128::from(now) * 1_000_000;
        let drifted = nanos + nanos * i128::from(self.ppm) / 1_000_000;
        Moment::from_nanos(self.offset + drifted as u64)
    }

    /// The real time, in milliseconds, at which its clock shows `moment`: rounded down.
    pub fn real(&self, moment: Moment) -> u64 {
        let local = i128::from(moment.as_nanos() - self.offset);
        (local * 1_000_000 / (1_000_000 + i128::from(self.ppm)) / 1_000_000) as u64
    }
}

#[derive(Clone)]
pub enum Tag {
    Renew(Moment),
    Round(Ballot),
    Read,
}

#[derive(Clone)]
pub enum Parcel {
    Ask { site: RegionName, id: Option<AcceptorId>, message: Message, back: Back },
    Answer { site: RegionName, id: AcceptorId, reply: Reply, back: Back },
    Release { site: RegionName, target: Arc<View>, back: Back },
    Released { site: RegionName, target: Arc<View>, report: Report, back: Back },
    Tell { site: RegionName, views: Vec<Arc<View>> },
}

/// The receiver of an answer.
#[derive(Clone)]
pub struct Back {
    pub process: usize,
    pub life: u64,
    pub tag: Tag,
}

pub struct World {
    pub now: u64,
    pub chance: Chance,
    pub truth: Truth,
    pub sites: BTreeMap<RegionName, Site>,
    pub processes: Vec<Process>,
    mail: Vec<(u64, Parcel)>,
    cut: BTreeMap<(RegionName, RegionName), u64>,
    pub keys: Vec<KeyId>,
    lives: u64,
    next_id: u128,
}

pub fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

pub fn boot() -> Digest32 {
    digest("model/boot", &[b"1"])
}

/// The ring of these regions, one key per order of them.
pub fn ring(regions: &[&str]) -> (Arc<Ring>, Vec<KeyId>) {
    let specs = regions.iter().map(|text| RegionSpec { name: name(text), weight: 1 }).collect();
    let spec = RingSpec { seed: 7, place_by: PlaceBy::Key, regions: specs, pins: Vec::new() };
    let ring = Arc::new(Ring::build(&spec).unwrap());
    let mut keys: BTreeMap<Vec<RegionName>, KeyId> = BTreeMap::new();
    for number in 0..200 {
        let id = KeyId::new(Tenant::parse("t").unwrap(), Key::parse(&format!("k{number}")).unwrap());
        keys.entry(ring.order(&id).names().cloned().collect()).or_insert(id);
    }
    (ring, keys.into_values().collect())
}

impl World {
    /// Regions with two processes each, and witnesses with one, right after the founding.
    pub fn new(seed: u64, ring: &(Arc<Ring>, Vec<KeyId>), witnesses: &[&str]) -> Self {
        let regions: Vec<RegionName> = ring.0.regions().iter().map(|region| region.name.clone()).collect();
        let all: Vec<RegionName> =
            regions.iter().cloned().chain(witnesses.iter().map(|text| name(text))).collect();
        let voters = all.iter().cloned().zip((1..).map(AcceptorId)).collect();
        let view = Arc::new(View::founding(1, ring.0.clone(), Default::default(), voters));
        let mut world = Self {
            now: 1_000,
            chance: Chance::new(seed),
            truth: Truth::default(),
            sites: BTreeMap::new(),
            processes: Vec::new(),
            mail: Vec::new(),
            cut: BTreeMap::new(),
            keys: ring.1.clone(),
            lives: 0,
            next_id: 100,
        };
        let found = Message::Found {
            ballot: Ballot { counter: 0, region: all[0].clone(), proposer: 0 },
            view: view.clone(),
        };
        for (site, id) in view.voters() {
            let made = Acceptor::made(*id);
            let founded = made.answer(None, &found, &|_, _| false).0.unwrap();
            world.truth.acceptor(site, &made, &founded);
            let is_region = regions.contains(site);
            let gate = is_region.then(|| GateState::founded(view.clone()));
            let views = BTreeMap::from([(1, view.clone())]);
            let site_of = Site {
                acceptor: founded,
                made_at: None,
                quiet_until: None,
                gate,
                views,
                seq: 0,
                applied: BTreeMap::new(),
            };
            world.sites.insert(site.clone(), site_of);
            for _ in 0..if is_region { 2 } else { 1 } {
                let process = world.process(site.clone());
                world.processes.push(process);
            }
        }
        world
    }

    /// A process that just started: it knows only its store's facts.
    fn process(&mut self, region: RegionName) -> Process {
        self.lives += 1;
        let half = u64::from(DRIFT.ppm / 2);
        Process {
            life: self.lives,
            ppm: self.chance.below(2 * half) as i64 - half as i64,
            offset: self.chance.below(1 << 40),
            paused_until: 0,
            lease: Lease::new(TTL, DRIFT),
            watch: GrantWatch::new(DRIFT),
            view: self.sites[&region].newest(),
            region,
            renew_at: 0,
            finish_at: None,
            active: None,
            gather: None,
            held: BTreeMap::new(),
            counter: 0,
            handlers: Vec::new(),
        }
    }

    pub fn fresh_id(&mut self) -> AcceptorId {
        self.next_id += 1;
        AcceptorId(self.next_id)
    }

    pub fn linked(&self, from: &RegionName, to: &RegionName) -> bool {
        from == to || self.cut.get(&(from.clone(), to.clone())).is_none_or(|until| *until <= self.now)
    }

    /// Sends: late, twice, or never.
    pub fn post(&mut self, from: &RegionName, to: &RegionName, parcel: Parcel) {
        if !self.linked(from, to) || (from != to && self.chance.one_in(25)) {
            return;
        }
        let copies = if self.chance.one_in(15) { 2 } else { 1 };
        for _ in 0..copies {
            let slow = if self.chance.one_in(12) { 900 } else { 12 };
            let at = self.now + 1 + self.chance.below(slow);
            self.mail.push((at, parcel.clone()));
        }
    }

    pub fn awake(&self, index: usize) -> bool {
        self.processes[index].paused_until <= self.now
    }

    /// Some awake process of that site.
    fn somebody(&mut self, site: &RegionName) -> Option<usize> {
        let there: Vec<usize> = (0..self.processes.len())
            .filter(|index| self.processes[*index].region == *site && self.awake(*index))
            .collect();
        self.chance.pick(&there)
    }

    pub fn step(&mut self) {
        self.now += 1 + self.chance.below(12);
        self.faults();
        let now = self.now;
        let mut due: Vec<Parcel> = Vec::new();
        self.mail.retain(|(at, parcel)| {
            if *at <= now {
                due.push(parcel.clone());
            }
            *at > now
        });
        while !due.is_empty() {
            let index = self.chance.below(due.len() as u64) as usize;
            let parcel = due.swap_remove(index);
            self.deliver(parcel);
        }
        for index in 0..self.processes.len() {
            if self.awake(index) {
                self.act(index);
            }
        }
        self.replicate();
        self.check();
    }

    fn deliver(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Ask { site, id, message, back } => {
                let Some(index) = self.somebody(&site) else { return };
                let reply = self.ask_acceptor(index, &site, id, &message);
                let to = self.processes[back.process].region.clone();
                let id = self.sites[&site].acceptor.id;
                self.post(&site.clone(), &to, Parcel::Answer { site, id, reply, back });
            }
            Parcel::Answer { site, id, reply, back } => {
                if self.processes[back.process].life == back.life && self.awake(back.process) {
                    self.answered(back.process, &site, id, &reply, back.tag);
                }
            }
            Parcel::Release { site, target, back } => {
                if self.somebody(&site).is_some() {
                    self.release(site, target, back);
                }
            }
            Parcel::Released { site, target, report, back } => {
                let process = &mut self.processes[back.process];
                let gather = process.gather.as_mut().filter(|gather| gather.target == target);
                if process.life == back.life
                    && let Some(gather) = gather
                {
                    gather.reports.insert(site, report);
                }
            }
            Parcel::Tell { site, views } => {
                if self.somebody(&site).is_some() {
                    self.sites.get_mut(&site).unwrap().keep(&views);
                }
            }
        }
    }

    fn ask_acceptor(
        &mut self,
        index: usize,
        site: &RegionName,
        id: Option<AcceptorId>,
        message: &Message,
    ) -> Reply {
        let process = &mut self.processes[index];
        let now = process.clock(self.now);
        let before = self.sites[site].acceptor.clone();
        process.watch.observe(&before, now);
        let (next, reply) =
            before.answer(id, message, &|region, grant| process.watch.is_over(region, grant, now));
        if let (Reply::Blocked(_), Message::Accept { view, .. }) = (&reply, message) {
            self.truth.blocked(before.id, view);
        }
        if let Some(next) = next {
            self.truth.acceptor(site, &before, &next);
            process.watch.observe(&next, now);
            self.sites.get_mut(site).unwrap().acceptor = next;
        }
        reply
    }

    fn faults(&mut self) {
        let names: Vec<RegionName> = self.sites.keys().cloned().collect();
        if self.chance.one_in(200)
            && let (Some(from), Some(to)) = (self.chance.pick(&names), self.chance.pick(&names))
        {
            let until = self.now + self.chance.below(3_000);
            self.cut.insert((from.clone(), to.clone()), until);
            if self.chance.one_in(2) {
                self.cut.insert((to, from), until);
            }
        }
        if self.chance.one_in(100) {
            let index = self.chance.below(self.processes.len() as u64) as usize;
            self.processes[index].paused_until = self.now + self.chance.below(2_500);
        }
        // A whole region stands still: another one will take over.
        if self.chance.one_in(300)
            && let Some(region) = self.chance.pick(&names)
        {
            let until = self.now + 800 + self.chance.below(2_500);
            for process in self.processes.iter_mut().filter(|process| process.region == region) {
                process.paused_until = until;
            }
        }
        if self.chance.one_in(150) {
            let index = self.chance.below(self.processes.len() as u64) as usize;
            let region = self.processes[index].region.clone();
            self.processes[index] = self.process(region);
        }
        // An acceptor's disk is replaced, one at a time.
        let whole = self.sites.values().all(|site| site.acceptor.admitted && site.quiet_until.is_none());
        if whole
            && self.chance.one_in(700)
            && let Some(site) = self.chance.pick(&names)
        {
            let (id, now) = (self.fresh_id(), self.now);
            let site = self.sites.get_mut(&site).unwrap();
            site.acceptor = Acceptor::made(id);
            site.made_at = Some(now);
        }
    }

    fn replicate(&mut self) {
        let names: Vec<RegionName> = self.sites.keys().cloned().collect();
        for from in &names {
            for to in names.iter().filter(|to| *to != from) {
                if !self.linked(from, to) || !self.chance.one_in(6) {
                    continue;
                }
                let seq = self.sites[from].seq;
                let site = self.sites.get_mut(to).unwrap();
                let have = site.applied.get(from).copied().unwrap_or(0);
                let upto = have + self.chance.below(seq.saturating_sub(have) + 1);
                site.applied.insert(from.clone(), have.max(upto));
            }
        }
    }
}
