//! Looks on while a scenario is played, and reports the outcome in the end.
//!
//! The checker has the invariants, the log the answers to clients, the world the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::gateway::policy::route::Route;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::Recovery;
use onceway::protocol::region::RegionName;
use onceway::protocol::view::{Member, Standing as InView, View};
use tokio::time::Instant;

use super::agreed;
use super::answers;
use super::clients::{KEY_EXPIRED, KEY_REUSED, Sent};
use super::log::{Asked, Broken, Log, Served};
use super::mattered::{self, Seen};
use super::starters::Starters;
use crate::checker::{self, Checker, journalled_doubles};
use crate::deployment::{Deployment, Reply};
use crate::outcome::{
    Breach, FaultSpan, HAPPENINGS, Keys, Outage, Outcome, Requests, Second, ServingSpan, ViewSpan,
};
use crate::table::{Record, Standing, Truth};
use crate::upstream::Attempted;

/// The limit for breaches: more show nothing new.
const MOST_BREACHES: usize = 20;

/// The views that some region kept, by epoch.
type Views = BTreeMap<u64, Arc<View>>;

pub struct Judge {
    deployment: Arc<Deployment>,
    log: Arc<Log>,
    pub(crate) begun: Instant,
    checker: Checker,
    starters: Starters,
    /// True if the story is wanted: then the judge also looks at the reasons why gateways wait.
    tells: bool,
    breaches: Vec<Breach>,
    /// The deaths of loops that were seen.
    dead: BTreeSet<(RegionName, &'static str)>,
    /// The time at which everything was mended and clients were done, and the hops by then.
    mended: (Instant, u64),
}

impl Judge {
    /// Clients begin to ask at `begun`.
    pub fn new(deployment: Arc<Deployment>, log: Arc<Log>, begun: Instant, tells: bool) -> Self {
        let rerun = |route: &&Route| {
            route.policy().is_some_and(|policy| matches!(policy.recovery, Recovery::Rerun { .. }))
        };
        let routes = deployment.scenario.shared.routes.0.iter();
        let rule = deployment.scenario.shared.failover.window;
        let checker = Checker::new(routes.filter(rerun).map(|route| route.name.clone()).collect(), rule)
            .counting_from(deployment.world.elapsed().saturating_sub(begun.elapsed()));
        let starters = Starters::default();
        Self {
            deployment,
            log,
            begun,
            checker,
            starters,
            tells,
            breaches: Vec::new(),
            dead: BTreeSet::new(),
            mended: (begun, 0),
        }
    }

    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// Notes that everything is mended and the clients are done. From now on the keys have to end.
    pub fn all_mended(&mut self) {
        self.mended = (Instant::now(), self.deployment.world.network.hops());
    }

    /// Notes which regions run keys, and checks the invariants for all since the last look.
    pub fn look(&mut self) {
        for region in self.deployment.regions().to_vec() {
            self.log.serves(&region, self.deployment.serves(&region));
            if let Some(name) = self.deployment.node(&region).gateway.dead_loop()
                && self.dead.insert((region.clone(), name))
            {
                self.breach("panic", format!("the loop `{name}` of a gateway of {region} died"));
            }
        }
        if self.tells {
            for region in self.deployment.regions() {
                let node = self.deployment.node(region);
                if !node.process.is_dead() {
                    self.log.waits(region, &node.gateway.authority_status().opening);
                }
            }
        }
        let breaches = self.checker.step(&self.deployment.world);
        self.tell(breaches);
        for (invariant, text) in self.starters.look(&self.deployment, &self.checker) {
            self.breach(&invariant.to_string(), text);
        }
    }

    fn tell(&mut self, breaches: Vec<checker::Breach>) {
        for breach in breaches {
            self.broke(breach.invariant.to_string(), breach.at, breach.text);
        }
    }

    /// Notes a breach, as of now.
    pub fn breach(&mut self, invariant: &str, text: String) {
        self.broke(invariant.to_owned(), self.deployment.world.elapsed(), text);
    }

    fn broke(&mut self, invariant: String, at: Duration, text: String) {
        if self.breaches.len() < MOST_BREACHES {
            let at_ms = millis(self.begun.elapsed());
            let before = self.deployment.world.elapsed().saturating_sub(at);
            let broke_us = u64::try_from(self.begun.elapsed().saturating_sub(before).as_micros());
            let broke_us = broke_us.unwrap_or(u64::MAX);
            self.breaches.push(Breach { invariant, at_ms, broke_us, text });
        }
    }

    pub fn finish(&mut self) {
        let breaches = self.checker.finish(&self.deployment.world);
        self.tell(breaches);
        let ledger = self.deployment.world.upstreams.ledger();
        for (invariant, text) in answers::wrong(&self.log.all_asked(), &ledger) {
            self.breach(&invariant, text);
        }
    }

    pub fn outcome(&mut self, seed: u64, simulated: Duration, sent: &[Sent]) -> Outcome {
        let (asked, world) = (self.log.all_asked(), &self.deployment.world);
        let truths = world.cluster.truths();
        let views = views(&truths);
        let routes = self.keys(&asked, sent, &truths);
        let mut keys = Keys::default();
        routes.values().for_each(|of_route| keys += of_route);
        let served = |Served { region, from, to }| {
            let (from_ms, to_ms) = (self.since(from), self.since(to));
            ServingSpan { region: region.to_string(), from_ms, to_ms }
        };
        let mut outcome = Outcome {
            seed,
            simulated_ms: millis(simulated),
            events: world.events(),
            keys,
            routes,
            hops: self.mended.1,
            requests: requests(&asked),
            latency_ms: latencies(&asked),
            outages: self.outages(&asked, sent),
            views: self.view_spans(&truths, &views),
            serving: self.log.all_served().into_iter().map(served).collect(),
            leases: agreed::lease_spans(world, &truths, world.elapsed().saturating_sub(self.begun.elapsed())),
            seconds: self.seconds(&asked),
            ..Outcome::default()
        };
        outcome.faults = self.fault_spans(&asked, &outcome.views, &views);
        outcome.happened = happened(&asked, &truths, &views, &outcome);
        let after = self.replayed_after_takeovers(&asked, &outcome.views);
        outcome.happened.insert("marked at risk too much".to_owned(), self.checker.marks().over);
        outcome.happened.insert("run anew".to_owned(), self.checker.ran_anew());
        outcome.happened.insert("replayed after a takeover".to_owned(), after);
        outcome.breaches = std::mem::take(&mut self.breaches);
        outcome
    }

    /// The retries that got an answer of a region lost by then: it was settled before the takeover.
    fn replayed_after_takeovers(&self, asked: &[Asked], views: &[ViewSpan]) -> u64 {
        let is_after = |asked: &&Asked| {
            let Reply::Answered { replayed: true, by, .. } = &asked.reply else { return false };
            let begun = self.since(asked.begun);
            let view = views.iter().take_while(|view| view.at_ms <= begun).last();
            view.is_some_and(|view| view.standings.get(by).is_some_and(|standing| standing == "lost"))
        };
        asked.iter().filter(is_after).count() as u64
    }

    fn since(&self, at: Instant) -> u64 {
        millis(at.saturating_duration_since(self.begun))
    }

    fn keys(&self, asked: &[Asked], sent: &[Sent], truths: &[Truth]) -> BTreeMap<String, Keys> {
        let gave_up = self.log.given_up();
        let in_time = |asked: &&Asked| asked.ended <= self.mended.0 && asked.reply.is_answer();
        let answered: BTreeSet<&KeyId> = asked.iter().filter(in_time).map(|asked| &asked.id).collect();
        let in_the_end: BTreeMap<&KeyId, &Reply> =
            asked.iter().map(|asked| (&asked.id, &asked.reply)).collect();
        let listed: BTreeSet<&KeyId> = journalled_doubles(truths).collect();
        let ledger = self.deployment.world.upstreams.ledger();
        let doubled = self.checker.doubled();
        let twice = ledger.iter().filter(|(id, effects)| effects.len() > 1 && doubled.contains(id));
        let doubles: BTreeSet<&KeyId> = twice.map(|(id, _)| id).collect();
        let gone = if doubles.is_empty() { BTreeSet::new() } else { self.gone() };
        let mut routes: BTreeMap<String, Keys> = BTreeMap::new();
        for Sent { id, workload, tenant: _ } in sent {
            let reruns = matches!(workload.policy.recovery, Recovery::Rerun { .. });
            let double = doubles.contains(id);
            let in_doubt = in_the_end.get(id).is_some_and(|reply| reply.code() == "outcome-unknown");
            *routes.entry(workload.route.clone()).or_default() += &Keys {
                begun: 1,
                answered: answered.contains(id).into(),
                given_up: gave_up.contains(id).into(),
                in_doubt: in_doubt.into(),
                doubles: double.into(),
                doubles_listed: (double && listed.contains(id)).into(),
                doubles_allowed: (double && reruns).into(),
                doubles_gone: (double && !reruns && gone.contains(id)).into(),
            };
        }
        routes
    }

    /// Keys first sent just before their region was lost: their claims never left the region.
    fn gone(&self) -> BTreeSet<KeyId> {
        let mut first = BTreeMap::new();
        for Attempted { at, by, id, .. } in self.deployment.world.upstreams.arrived_since(&mut 0) {
            first.entry(id).or_insert((by, at));
        }
        let gone = first.into_iter().filter(|(_, (region, at))| self.deployment.never_left(region, *at));
        gone.map(|(id, _)| id).collect()
    }

    /// Times in which live gateways refused keys of a home region and a route. The first such
    /// request begins it. The next key of these that is answered for the first time ends it. A dead
    /// gateway's requests do not count: clients send them elsewhere.
    fn outages(&self, asked: &[Asked], sent: &[Sent]) -> Vec<Outage> {
        let routes: BTreeMap<&KeyId, &String> =
            sent.iter().map(|key| (&key.id, &key.workload.route)).collect();
        let ring = &self.deployment.scenario.shared.ring;
        let mut open: BTreeMap<(String, String), Instant> = BTreeMap::new();
        let mut all = Vec::new();
        let outage = |(home, route): (String, String), from: Instant, to: Instant| {
            let (from_ms, to_ms) = (self.since(from), self.since(to));
            Outage { home, route, from_ms, to_ms }
        };
        for asked in asked {
            let home = ring.order(&asked.id).names().next().map(ToString::to_string);
            let Some((home, route)) = home.zip(routes.get(&asked.id)) else { continue };
            let arc = (home, String::clone(route));
            if asked.reply.is_answer() {
                let replayed = matches!(asked.reply, Reply::Answered { replayed: true, .. });
                if !replayed && let Some(from) = open.remove(&arc) {
                    all.push(outage(arc, from, asked.ended));
                }
            } else if !matches!(asked.reply.code(), "" | "in-progress" | "outcome-unknown" | KEY_REUSED) {
                open.entry(arc).or_insert(asked.begun);
            }
        }
        let end = asked.last().map_or(self.begun, |asked| asked.ended);
        all.extend(open.into_iter().map(|(arc, from)| outage(arc, from, end)));
        all
    }

    fn view_spans(&self, truths: &[Truth], views: &Views) -> Vec<ViewSpan> {
        let begun = millis(self.deployment.world.elapsed()).saturating_sub(millis(self.begun.elapsed()));
        let first = |epoch: u64| {
            let gates = truths.iter().flat_map(|store| &store.history.gates);
            gates.filter(|gate| gate.state.view.epoch() >= epoch).map(|gate| gate.at).min()
        };
        let stood =
            |(name, member): (&RegionName, &Member)| (name.to_string(), standing(member.standing).to_owned());
        let span = |view: &Arc<View>| ViewSpan {
            epoch: view.epoch(),
            at_ms: first(view.epoch()).map_or(0, millis).saturating_sub(begun),
            standings: view.members().iter().map(stood).collect(),
        };
        views.values().map(span).collect()
    }

    fn seconds(&self, asked: &[Asked]) -> Vec<Second> {
        let mut seconds: Vec<Second> = Vec::new();
        for asked in asked.iter().filter(|asked| asked.begun <= self.mended.0) {
            let number = (self.since(asked.ended) / 1_000) as usize;
            seconds.resize(seconds.len().max(number + 1), Second::default());
            let second = &mut seconds[number];
            match &asked.reply {
                Reply::Answered { status, .. } if !status.is_success() => second.refused += 1,
                Reply::Answered { replayed: true, .. } => second.replayed += 1,
                Reply::Answered { .. } => second.answered += 1,
                Reply::Broken | Reply::TimedOut => second.failed += 1,
            }
        }
        seconds
    }

    fn fault_spans(&self, asked: &[Asked], spans: &[ViewSpan], views: &Views) -> Vec<FaultSpan> {
        let end = Instant::now();
        let ring = &self.deployment.scenario.shared.ring;
        let seen = |asked: &Asked| Seen {
            from_ms: self.since(asked.begun),
            to_ms: self.since(asked.ended),
            regions: mattered::touched(asked, ring.order(&asked.id).names().next()),
        };
        let odd = |asked: &&Asked| !asked.reply.is_answer() && asked.reply.code() != KEY_REUSED;
        let odd = asked.iter().filter(odd).map(seen);
        let all: Vec<Seen> = odd.chain(mattered::changes(spans, views)).collect();
        let span = |broken: Broken| {
            let (from_ms, to_ms) = (self.since(broken.from), self.since(broken.to.unwrap_or(end)));
            let mattered = mattered::mattered(&broken.place, from_ms, to_ms, &all);
            FaultSpan { kind: broken.kind.to_owned(), place: broken.place, from_ms, to_ms, mattered }
        };
        self.log.all_broken().into_iter().map(span).collect()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn standing(standing: InView) -> &'static str {
    match standing {
        InView::Serving => "serving",
        InView::Sealed { .. } => "sealed",
        InView::Lost { .. } => "lost",
    }
}

fn views(truths: &[Truth]) -> Views {
    let kept = truths.iter().flat_map(|store| &store.history.views);
    let adopted = truths.iter().flat_map(|store| &store.history.gates).map(|gate| &gate.state.view);
    kept.chain(adopted).map(|view| (view.epoch(), view.clone())).collect()
}

fn requests(asked: &[Asked]) -> Requests {
    let mut requests = Requests { sent: asked.len() as u64, ..Requests::default() };
    for asked in asked {
        match &asked.reply {
            Reply::Answered { status, code, replayed, by, .. } => {
                if status.is_success() {
                    let count = if *replayed { &mut requests.replayed } else { &mut requests.answered };
                    *count += 1;
                    requests.forwarded += u64::from(!by.is_empty() && by != asked.at.as_str());
                } else {
                    // No problem of the gateway: the upstream's own answer.
                    let what =
                        if code.is_empty() { format!("upstream-{}", status.as_u16()) } else { code.clone() };
                    *requests.refused.entry(what).or_default() += 1;
                }
            }
            Reply::Broken => requests.broken += 1,
            Reply::TimedOut => requests.timed_out += 1,
        }
    }
    requests
}

fn latencies(asked: &[Asked]) -> Vec<u64> {
    let mut first: BTreeMap<&KeyId, Instant> = BTreeMap::new();
    let mut answered: BTreeMap<&KeyId, Instant> = BTreeMap::new();
    for asked in asked {
        let begun = first.entry(&asked.id).or_insert(asked.begun);
        *begun = (*begun).min(asked.begun);
        if asked.reply.is_answer() {
            answered.entry(&asked.id).or_insert(asked.ended);
        }
    }
    let took = answered.iter().filter_map(|(id, at)| Some(millis(at.duration_since(*first.get(id)?))));
    let mut all: Vec<u64> = took.collect();
    all.sort_unstable();
    all
}

/// Counts the happenings that a batch of seeds must have seen: without them it shows nothing.
fn happened(asked: &[Asked], truths: &[Truth], views: &Views, outcome: &Outcome) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = HAPPENINGS.iter().map(|what| ((*what).to_owned(), 0)).collect();
    let mut add = |what: &str, count: usize| *all.entry(what.to_owned()).or_default() += count as u64;
    for (before, after) in views.values().zip(views.values().skip(1)) {
        let lost = |view: &View, name| matches!(view.standing(name), Some(InView::Lost { .. }));
        for name in after.members().keys() {
            add("takeover", usize::from(!lost(before, name) && lost(after, name)));
            add("return", usize::from(!before.serves(name) && after.serves(name)));
        }
        add("ring change", usize::from(before.ring().digest() != after.ring().digest()));
        add("store retired", usize::from(after.retired.len() > before.retired.len()));
    }
    let requests = |are: fn(&&Record) -> bool| {
        let records = truths.iter().flat_map(|store| &store.writes).filter_map(|write| write.record.as_ref());
        records.filter(are).map(|record| record.request_id).collect::<BTreeSet<_>>().len()
    };
    add("in doubt", requests(|record| record.standing == Standing::InDoubt));
    add("run at risk", requests(|record| !record.risk.is_empty()));
    add("run over another region's attempt", requests(|record| !record.over.is_empty()));
    for (what, kind) in [("risk accepted", "risk-accepted"), ("glass broken", "glass-broken")] {
        let notes = truths.iter().flat_map(|store| &store.journal).filter(|(_, entry)| entry.kind == kind);
        add(what, notes.count());
    }
    add("stale writer refused", truths.iter().map(|store| store.history.stale as usize).sum());
    add("lodged", truths.iter().map(|store| store.history.lodged.len()).sum());
    let gone = |store: &Truth| store.writes.iter().filter(|write| write.record.is_none()).count();
    add("keys forgotten", truths.iter().map(gone).sum());
    add("imports forgotten", truths.iter().map(|store| store.history.imports_gone as usize).sum());
    add("lodged claims forgotten", truths.iter().map(|store| store.history.escrows_gone as usize).sum());
    for (what, wanted) in [
        ("refused while keys move", "moving"),
        ("refused while a window runs", "home-unavailable"),
        ("refused for another body", KEY_REUSED),
        ("refused after its life", KEY_EXPIRED),
    ] {
        add(what, asked.iter().filter(|asked| asked.reply.code() == wanted).count());
    }
    let across = |asked: &&Asked| match &asked.reply {
        Reply::Answered { replayed: true, by, .. } => !by.is_empty() && by != asked.at.as_str(),
        Reply::Answered { .. } | Reply::Broken | Reply::TimedOut => false,
    };
    add("replayed across regions", asked.iter().filter(across).count());
    add("double", outcome.keys.doubles as usize);
    add("double in a journal", outcome.keys.doubles_listed as usize);
    all
}
