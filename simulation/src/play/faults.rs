//! Breaks and mends things, by the timeline and by the swarm.
//!
//! Each fault takes hold of the parts that it breaks, so that no two of them mend one another.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceway::protocol::lifetime::Retention;
use onceway::protocol::region::RegionName;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::acts;
use super::organs::{self, Stage};
use crate::cluster::StoreMode;
use crate::deployment::{Deployment, Files};
use crate::dice::Chance;
use crate::peers::{LinkMode, Post};
use crate::process::{Point, locked};
use crate::scenario::fault::{
    CLOCK_MOST, CONNECTS_MS, Fault, GHOST_MS, Happens, How, Kind, LAGS_MS, LOWERED_MS, OfLink, OfRegion,
    RAISED, Swarm,
};
use crate::upstream::{ProbeMode, UpstreamMode};

const LINK_SLOWER: Duration = Duration::from_secs(1);
/// The additional delay of rows on a slow subscription.
const ROWS_SLOWER: Duration = Duration::from_secs(4);
/// The mean time of first copies of records in a swarm: up to minutes.
const COPIED: Duration = Duration::from_secs(15);
/// The duration of a statement at a slow store: less than its caller's limit.
const STATEMENT_SLOW: Duration = Duration::from_millis(1_200);
/// The time after which the caller of a statement gives up.
const STATEMENT_LOST: Duration = Duration::from_millis(1_400);
const UPSTREAM_SLOWER: Duration = Duration::from_millis(2_500);
/// The statuses of services and proxies that say nothing about the effect.
const FAILURES: [u16; 5] = [408, 500, 502, 503, 504];
/// The time for which a flapping link is up, and down.
const FLAP: Duration = Duration::from_millis(1_500);
/// The time that clients' clocks count in a second, where they are off.
const CLIENTS_FAST: Duration = Duration::from_secs(10);
const CLIENTS_SLOW: Duration = Duration::from_millis(100);
/// The time after which a supervisor restarts a process that died.
const SUPERVISED: Duration = Duration::from_secs(1);
/// The time for which two processes run beside each other when one replaces the other.
const HANDED_OVER: Duration = Duration::from_secs(5);
/// The time for which a standby waits for a heartbeat that it follows up to.
const PROMOTED_WITHIN: Duration = Duration::from_secs(5);
/// The time from the end of a Postgres to the promotion of its standby.
const FAILED_OVER: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_secs(5);

pub struct Faults {
    on: Stage,
    chance: Chance,
    /// The stores that have forgotten their rows: one keeps them, to come home to.
    forgot: Mutex<BTreeSet<String>>,
}

/// A store that has forgotten its rows, until it was mended.
struct Forgotten<'a>(&'a Mutex<BTreeSet<String>>, String);

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        locked(self.0).remove(&self.1);
    }
}

/// The switches of one region: each is set by a fault that breaks it, and set back in the end.
struct Switches<'a> {
    deployment: &'a Deployment,
    region: &'a RegionName,
    breaks: bool,
}

impl Switches<'_> {
    fn store(&self, mode: StoreMode) {
        match self.breaks {
            true => self.deployment.world.cluster.set_mode(self.region, mode),
            false => self.deployment.normal_store(self.region),
        }
    }

    fn store_down(&self) {
        if self.breaks {
            return self.deployment.world.cluster.kill(self.region);
        }
        self.deployment.normal_store(self.region);
        self.deployment.world.cluster.restart(self.region);
    }

    fn clock(&self, by: Duration, direction: i64) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX) * direction;
        self.deployment.world.cluster.step_clock(self.region, if self.breaks { by } else { -by });
    }

    fn upstream(&self, mode: UpstreamMode) {
        match self.breaks {
            true => self.deployment.world.upstreams.set_mode(self.region, mode),
            false => self.deployment.normal_upstream(self.region),
        }
    }

    fn probes(&self, mode: ProbeMode) {
        let mode = if self.breaks { mode } else { ProbeMode::Ledger };
        self.deployment.world.upstreams.set_probes(self.region, mode);
    }

    fn client_clocks(&self, per_second: Duration) {
        let per_second = if self.breaks { per_second } else { Duration::from_secs(1) };
        self.deployment.set_client_pace(self.region, per_second);
    }

    /// The span while it is broken, and none afterwards.
    fn span(&self, by: Duration) -> Duration {
        if self.breaks { by } else { Duration::ZERO }
    }
}

/// Changes of a region's files.
const RENAMED: fn(&mut Files) = |files| files.renamed = true;
const ESCROW_MOVED: fn(&mut Files) = |files| files.escrow_moved = true;
const PATIENT: fn(&mut Files) = |files| files.patient = true;

fn remembers(by: Duration) -> impl Fn(&mut Files) + Copy + Send + 'static {
    move |files| files.retention = Some(by)
}

fn fails_after(how: &How) -> UpstreamMode {
    UpstreamMode::EffectThenFail { status: how.status.unwrap_or(500) }
}

/// A proxy that gives up, and a service that goes on. A service that turns a request away and says
/// when to come back is believed, so it does nothing.
fn fails_first(how: &How) -> UpstreamMode {
    match (how.status.unwrap_or(504), how.says_when) {
        (503, true) => UpstreamMode::Busy { retry_after: 1 },
        (status, says_when) => UpstreamMode::FailThenEffect { status, says_when, after: how.by },
    }
}

impl Faults {
    pub fn new(on: Stage, chance: Chance) -> Arc<Self> {
        Arc::new(Self { on, chance, forgot: Mutex::default() })
    }

    /// Lets all faults of the scenario happen until `end`, and ends with the mending of the last.
    pub async fn run(self: Arc<Self>, begun: Instant, end: Instant) {
        let scenario = self.on.deployment.scenario.clone();
        let mut all = JoinSet::new();
        for fault in scenario.faults.clone() {
            all.spawn(self.clone().on_time(fault, begun, end));
        }
        if let Some(swarm) = scenario.swarm.clone() {
            self.clone().swarm(&swarm, end, &mut all).await;
        }
        while all.join_next().await.is_some() {}
    }

    async fn on_time(self: Arc<Self>, fault: Fault, begun: Instant, end: Instant) {
        sleep_until(begun + fault.at).await;
        let what = match fault.what {
            Happens::Anywhere(kind) => self.somewhere(kind),
            what @ (Happens::Region(..) | Happens::Link(..)) => what,
        };
        self.happen(what, fault.how, (Instant::now() + fault.lasts).min(end)).await;
    }

    async fn swarm(self: Arc<Self>, swarm: &Swarm, end: Instant, all: &mut JoinSet<()>) {
        let on: Vec<Kind> = swarm.kinds.iter().copied().filter(|_| !self.chance.percent(swarm.off)).collect();
        if on.is_empty() {
            return;
        }
        loop {
            sleep(self.chance.about(swarm.every)).await;
            if Instant::now() >= end {
                return;
            }
            while all.try_join_next().is_some() {}
            if all.len() >= swarm.at_once {
                continue;
            }
            let kind = on[self.chance.below(on.len() as u64) as usize];
            let (what, lasts) = (self.somewhere(kind), self.chance.about(swarm.lasts));
            let mut how = self.somehow(kind);
            if kind.copies() {
                how.copied = self.chance.about(COPIED);
            }
            all.spawn(self.clone().happen(what, how, (Instant::now() + lasts).min(end)));
        }
    }

    /// Chooses the details of a fault whose kind has several.
    fn somehow(&self, kind: Kind) -> How {
        let Kind::Region(kind) = kind else { return How::default() };
        let about = |ms| self.chance.about(Duration::from_millis(ms));
        let by = match kind {
            OfRegion::GatewayDiesAfter => {
                let point = Point::ALL[self.chance.below(Point::ALL.len() as u64) as usize];
                return How { points: vec![point], ..How::default() };
            }
            OfRegion::StoreClockFarAhead | OfRegion::StoreClockFarBack => {
                // Seconds are as likely as minutes, hours, days and years.
                let most = [60, 3_600, 86_400, 86_400 * 60, CLOCK_MOST][self.chance.below(5) as usize];
                Duration::from_secs(1 + self.chance.below(most))
            }
            OfRegion::RetentionLowered => self.less(),
            OfRegion::StoreLate => about(GHOST_MS),
            OfRegion::UpstreamEffectThenFail => return self.failure(Duration::ZERO),
            OfRegion::UpstreamFailThenEffect => {
                let policies = self.on.deployment.scenario.shared.routes.policies();
                let longest = policies.map(|policy| policy.hold + policy.settle_time).max();
                return self.failure(longest.unwrap_or_default());
            }
            OfRegion::UpstreamConnectsSlowly => about(CONNECTS_MS),
            OfRegion::ProbesLag => about(LAGS_MS),
            OfRegion::RetentionReloaded => [self.less(), RAISED][self.chance.below(2) as usize],
            _ => return How::default(),
        };
        How { by, ..How::default() }
    }

    /// A shorter retention than that of any route, by a third where they are short.
    fn less(&self) -> Duration {
        let policies = self.on.deployment.scenario.shared.routes.policies();
        let spans = policies.filter_map(|policy| match policy.retention {
            Retention::For(span) => Some(span * 2 / 3),
            Retention::Never => None,
        });
        spans.chain([Duration::from_millis(LOWERED_MS)]).min().unwrap_or_default()
    }

    /// Chooses a failure, whose effect is so late at most.
    fn failure(&self, latest: Duration) -> How {
        let status = Some(FAILURES[self.chance.below(FAILURES.len() as u64) as usize]);
        How { status, says_when: self.chance.percent(30), by: self.chance.within(latest), ..How::default() }
    }

    /// Lets a region's process die after these statements and starts another, again and again.
    async fn dies_after(&self, region: &RegionName, points: &[Point], until: Instant) {
        while Instant::now() < until {
            let process = self.on.deployment.node(region).process;
            process.dies_at(points);
            let died = timeout_at(until, process.died()).await.is_ok();
            process.dies_at(&[]);
            if died {
                let at = (Instant::now() + SUPERVISED).min(until);
                self.begins(at, || self.on.deployment.begin_process(region)).await;
            }
        }
    }

    async fn killed(&self, region: &RegionName, until: Instant) {
        self.on.deployment.node(region).process.kill();
        self.begins(until, || self.on.deployment.begin_process(region)).await;
    }

    /// Lets gateways begin at that time, once nobody attests that one is stopped.
    async fn begins(&self, at: Instant, begin: impl FnOnce()) {
        sleep_until(at).await;
        let _begins = self.on.organs.may_begin().await;
        begin();
    }

    /// Lets a region remember keys for only this long.
    async fn lowered(&self, region: &RegionName, by: Duration, until: Instant) {
        self.restarts_with(region, |files| files.retention = Some(by)).await;
        sleep_until(until).await;
        self.restarts_with(region, |files| files.retention = None).await;
    }

    /// Lets leases run for this long: from region to region, as the setting needs a restart.
    async fn leases_raised(&self, first: &RegionName, by: Duration, until: Instant) {
        for region in self.from(first) {
            self.restarts_with(region, |files| files.lease = Some(by)).await;
        }
        sleep_until(until).await;
        for region in self.from(first) {
            self.restarts_with(region, |files| files.lease = None).await;
        }
    }

    fn from(&self, first: &RegionName) -> impl Iterator<Item = &RegionName> {
        let regions = self.on.deployment.regions();
        let begins = regions.iter().position(|region| region == first).unwrap_or(0);
        regions.iter().cycle().skip(begins).take(regions.len())
    }

    /// Changes the files of a region, has its gateway read them, and takes that back in the end.
    async fn read_other(&self, region: &RegionName, change: impl Fn(&mut Files), until: Instant) {
        let deployment = &self.on.deployment;
        let before = deployment.files(region);
        deployment.write_files(region, change);
        deployment.read_again(region).await;
        sleep_until(until).await;
        deployment.write_files(region, |files| *files = before);
        deployment.read_again(region).await;
    }

    /// The same in all regions, from this one on: half of the time goes by until the last one has
    /// read them, and the first one goes back when it has.
    async fn rolled_out(
        self: &Arc<Self>,
        first: &RegionName,
        change: impl Fn(&mut Files) + Copy + Send + 'static,
        until: Instant,
    ) {
        let (now, count) = (Instant::now(), self.on.deployment.regions().len() as u32);
        let half = until.duration_since(now) / 2;
        let mut all = JoinSet::new();
        for (turn, region) in (0..).zip(self.from(first)) {
            let later = half * turn / count;
            let (this, region) = (self.clone(), region.clone());
            all.spawn(async move {
                sleep_until(now + later).await;
                this.read_other(&region, change, now + half + later).await;
            });
        }
        while all.join_next().await.is_some() {}
    }

    /// Promotes a standby that follows the store up to its next heartbeat, so long after that.
    async fn promoted(&self, region: &RegionName, until: Instant) {
        let cluster = &self.on.deployment.world.cluster;
        let (lasts, before) = (until - Instant::now(), cluster.copy(region).heartbeat());
        let mut standby = cluster.copy(region);
        while standby.heartbeat() == before && Instant::now() < until + PROMOTED_WITHIN {
            sleep(Duration::from_millis(10)).await;
            standby = cluster.copy(region);
        }
        sleep(lasts).await;
        // What was sent to others by then still arrives there.
        cluster.kill(region);
        sleep(FAILED_OVER).await;
        cluster.promote_to(region, standby);
        self.on.deployment.normal_store(region);
    }

    async fn witnesses_put_back(&self, until: Instant) {
        let copied = self.on.deployment.world.witnesses().into_iter();
        let copied: Vec<_> = copied.map(|witness| (witness.acceptor(), witness)).collect();
        sleep_until(until).await;
        copied.iter().for_each(|(then, witness)| witness.put_back(then));
    }

    async fn restarts_with(&self, region: &RegionName, change: impl Fn(&mut Files)) {
        self.on.deployment.write_files(region, change);
        let before = self.on.deployment.node(region).process;
        let begins = self.on.organs.may_begin().await;
        self.on.deployment.begin_process(region);
        drop(begins);
        // The old process ends its running attempts, as in an upgrade.
        sleep(HANDED_OVER).await;
        before.kill();
    }

    fn somewhere(&self, kind: Kind) -> Happens {
        let regions = self.on.deployment.regions();
        let count = regions.len() as u64;
        let one = self.chance.below(count);
        let name = |number: u64| regions[(number % count) as usize].clone();
        match kind {
            Kind::Region(kind) => Happens::Region(kind, name(one)),
            Kind::Link(kind) => {
                let other = one + 1 + self.chance.below(count.saturating_sub(1).max(1));
                Happens::Link(kind, name(one), name(other))
            }
        }
    }

    /// One fault, from its beginning to the end of its mending.
    async fn happen(self: Arc<Self>, what: Happens, how: How, until: Instant) {
        let (kind, place) = match &what {
            Happens::Region(kind, region) => (Kind::Region(*kind), region.to_string()),
            Happens::Link(kind, from, to) => (Kind::Link(*kind), format!("{from}>{to}")),
            Happens::Anywhere(_) => return,
        };
        let Some(_taken) = self.on.organs.take(organs::of(&what, &how, self.on.deployment.regions())) else {
            self.on
                .log
                .not_possible(format!("{} at {place}: something there is broken already", kind.name()));
            return;
        };
        let _forgotten = match kind {
            Kind::Region(OfRegion::DiskLost | OfRegion::StoreRestored) => {
                if !self.another_is_whole(&place) {
                    self.on
                        .log
                        .not_possible(format!("{} at {place}: it is the last whole store", kind.name()));
                    return;
                }
                locked(&self.forgot).insert(place.clone());
                Some(Forgotten(&self.forgot, place.clone()))
            }
            Kind::Region(_) | Kind::Link(_) => None,
        };
        let number = self.on.log.breaks(kind.name(), place);
        match &what {
            Happens::Region(kind, region) => self.clone().region(*kind, region, &how, until).await,
            Happens::Link(kind, from, to) => self.link(*kind, from, to, &how, until).await,
            Happens::Anywhere(_) => {}
        }
        self.on.log.mended(number);
    }

    /// True if another region's store has all its rows and follows a view. A store that was
    /// restored follows none before it was approved, and alone it could not go on.
    fn another_is_whole(&self, region: &str) -> bool {
        let forgot = locked(&self.forgot);
        let is_whole = |other: &RegionName| {
            let follows = || self.on.deployment.world.cluster.gate(other).is_some();
            !forgot.contains(other.as_str()) && follows()
        };
        self.on.deployment.regions().iter().any(|other| other.as_str() != region && is_whole(other))
    }

    async fn region(self: Arc<Self>, kind: OfRegion, region: &RegionName, how: &How, until: Instant) {
        let deployment = &self.on.deployment;
        let (cluster, upstreams) = (&deployment.world.cluster, &deployment.world.upstreams);
        let slower = deployment.scenario.upstream.answers_after + UPSTREAM_SLOWER;
        // A fault of one switch is broken by it and mended by it. All others end in the first turn.
        for breaks in [true, false] {
            if !breaks {
                sleep_until(until).await;
            }
            let at = Switches { deployment, region, breaks };
            match kind {
                OfRegion::RegionLoss => return self.lost(region, until).await,
                OfRegion::MachineRestarts => return self.machine_restarts(region, until).await,
                OfRegion::DiskLost => return acts::disk_lost(&self.on, region, until, how.copied).await,
                OfRegion::StoreRestored => {
                    return acts::store_restored(&self.on, region, until, how.copied).await;
                }
                OfRegion::StorePromoted => return self.promoted(region, until).await,
                OfRegion::Drain => return acts::drain(&self.on, region, until).await,
                OfRegion::RingChange => return acts::ring_change(&self.on, region, until).await,
                OfRegion::GatewayKilled => return self.killed(region, until).await,
                OfRegion::GatewayDiesAfter => return self.dies_after(region, &how.points, until).await,
                OfRegion::RoutesRenamed => return self.read_other(region, RENAMED, until).await,
                OfRegion::RetentionReloaded => {
                    return self.rolled_out(region, remembers(how.by), until).await;
                }
                OfRegion::EscrowReloaded => return self.rolled_out(region, ESCROW_MOVED, until).await,
                OfRegion::HoldsReloaded => return self.rolled_out(region, PATIENT, until).await,
                OfRegion::LeaseRaised => return self.leases_raised(region, how.by, until).await,
                OfRegion::RetentionLowered => return self.lowered(region, how.by, until).await,
                OfRegion::WitnessPutBack => return self.witnesses_put_back(until).await,
                OfRegion::GatewayPaused => return self.paused(region, until).await,
                OfRegion::GatewayUpgraded => return self.upgraded(region, until).await,
                OfRegion::ConfirmationsLate => cluster.set_confirms(region, at.span(how.by)),
                OfRegion::StoreDown => at.store_down(),
                OfRegion::StoreStalls => at.store(StoreMode::Stall(STATEMENT_LOST)),
                OfRegion::StoreLosesReplies => at.store(StoreMode::LoseReplies(STATEMENT_LOST)),
                OfRegion::StoreLate => at.store(StoreMode::Late { bound: STATEMENT_LOST, after: how.by }),
                OfRegion::StoreSlow if breaks => cluster.set_latency(region, STATEMENT_SLOW),
                OfRegion::StoreSlow => deployment.normal_store(region),
                OfRegion::StoreRestarts if breaks => cluster.crash(region),
                OfRegion::StoreRestarts => {}
                OfRegion::StoreClockAhead => at.clock(STEP, 1),
                OfRegion::StoreClockBack => at.clock(STEP, -1),
                OfRegion::StoreClockFarAhead => at.clock(how.by, 1),
                OfRegion::StoreClockFarBack => at.clock(how.by, -1),
                OfRegion::ClockFast => self.drift(region, i64::from(breaks)),
                OfRegion::ClockSlow => self.drift(region, -i64::from(breaks)),
                OfRegion::Isolated => deployment.cut_off(region, breaks),
                OfRegion::BigTransaction => self.stall(region, breaks),
                OfRegion::UpstreamRefuses => at.upstream(UpstreamMode::Refuse),
                OfRegion::UpstreamSlow => at.upstream(UpstreamMode::Receipt { after: slower }),
                OfRegion::UpstreamEffectThenDrop => at.upstream(UpstreamMode::EffectThenDrop),
                OfRegion::UpstreamDropsBefore => at.upstream(UpstreamMode::DropBeforeEffect),
                OfRegion::UpstreamEffectThenFail => at.upstream(fails_after(how)),
                OfRegion::UpstreamFailThenEffect => at.upstream(fails_first(how)),
                OfRegion::UpstreamConnectsSlowly => upstreams.set_connect(region, at.span(how.by)),
                OfRegion::UpstreamBusy => at.upstream(UpstreamMode::Busy { retry_after: 1 }),
                OfRegion::UpstreamHangs => at.upstream(UpstreamMode::Hang),
                OfRegion::UpstreamHangsInBody => at.upstream(UpstreamMode::HangInBody),
                OfRegion::ClientClocksFast => at.client_clocks(CLIENTS_FAST),
                OfRegion::ClientClocksSlow => at.client_clocks(CLIENTS_SLOW),
                OfRegion::ProbesSilent => at.probes(ProbeMode::Silent),
                OfRegion::ProbesLag => at.probes(ProbeMode::Lags { by: how.by }),
                OfRegion::ProbesCannotSay => at.probes(ProbeMode::CannotSay),
            }
        }
    }

    async fn lost(&self, region: &RegionName, until: Instant) {
        self.on.deployment.lose(region);
        self.begins(until, || self.on.deployment.bring_back(region)).await;
    }

    async fn machine_restarts(&self, region: &RegionName, until: Instant) {
        let deployment = &self.on.deployment;
        deployment.node(region).process.kill();
        deployment.world.cluster.kill(region);
        let begin = || {
            deployment.normal_store(region);
            deployment.world.cluster.restart(region);
            deployment.begin_process(region);
        };
        self.begins(until, begin).await;
    }

    async fn paused(&self, region: &RegionName, until: Instant) {
        let process = self.on.deployment.node(region).process;
        process.pause();
        sleep_until(until).await;
        process.resume();
    }

    async fn upgraded(&self, region: &RegionName, until: Instant) {
        let before = self.on.deployment.node(region).process;
        self.on.deployment.begin_process(region);
        sleep_until(until).await;
        before.kill();
    }

    fn stall(&self, region: &RegionName, stalled: bool) {
        for other in self.on.deployment.regions().iter().filter(|other| *other != region) {
            self.on.deployment.world.cluster.stall(region, other, stalled);
        }
    }

    /// The allowed drift is between any two clocks: each may be off by half of it.
    fn drift(&self, region: &RegionName, direction: i64) {
        let most = i64::from(self.on.deployment.scenario.shared.drift.ppm / 2);
        self.on.deployment.node(region).clock.drift(direction * most);
    }

    async fn link(&self, kind: OfLink, from: &RegionName, to: &RegionName, how: &How, until: Instant) {
        let deployment = &self.on.deployment;
        let world = &deployment.world;
        let one_way = deployment.scenario.network.one_way(from, to);
        let mode = |mode| world.network.set_link(from, to, mode, one_way);
        let post = |post| {
            how.letters.iter().for_each(|letter| world.network.set_letters(from, to, *letter, post));
        };
        match kind {
            OfLink::LettersLost | OfLink::LettersLate => {
                post(Some(if kind == OfLink::LettersLost { Post::Lost } else { Post::Late(how.by) }));
                sleep_until(until).await;
                return post(None);
            }
            OfLink::LinkCut => deployment.cut(from, to, true),
            OfLink::OneWayCut => world.cut_one_way(from, to, one_way),
            OfLink::LinkRefuses => mode(LinkMode::Refuse),
            OfLink::LinkLosesRequests => mode(LinkMode::LoseRequest),
            OfLink::LinkLosesReplies => mode(LinkMode::LoseReply),
            OfLink::LinkSlow => {
                for (from, to) in [(from, to), (to, from)] {
                    world.network.set_link(from, to, LinkMode::Up, one_way + LINK_SLOWER);
                }
            }
            OfLink::LinkFlaps => {
                while Instant::now() < until {
                    deployment.cut(from, to, true);
                    sleep(FLAP).await;
                    deployment.cut(from, to, false);
                    sleep(FLAP).await;
                }
            }
            OfLink::SlotLost => return acts::slot_lost(&self.on, [from, to], until, how.copied).await,
            OfLink::ReplicationStalls => world.cluster.hold(from, to, true),
            OfLink::ReplicationSlow => {
                let delay = one_way + deployment.scenario.network.replication;
                world.cluster.set_delay(from, to, delay + ROWS_SLOWER);
                sleep_until(until).await;
                return deployment.normal_replication(from, to);
            }
        }
        sleep_until(until).await;
        deployment.cut(from, to, false);
    }
}
