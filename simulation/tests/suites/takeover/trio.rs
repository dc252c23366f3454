//! Three regions a, b and c that take over from one another by themselves, and clients that ask
//! them.
//!
//! The histories of stores and upstreams decide about the invariants.

use std::ops::Deref;
use std::sync::LazyLock;

pub use onceway::gateway::authority::act_error::ActError;
use onceway::gateway::authority::failover::UpstreamHealth;
use onceway::gateway::authority::register::witness::Duty;
use onceway::gateway::credentials::caller::{Caller, Voucher};
use onceway::gateway::credentials::{Credentials, digest};
use onceway::gateway::policy::route::{Alone, Escrow, Mode, Policy, Route};
use onceway::protocol::authority::GateState;
use simulation::checker::Checker;
use simulation::witness::Witness;

pub use crate::shared::*;

pub const STABLE: Duration = ms(2_000);
pub const HOLD: Duration = ms(30_000);

/// The retention of a key, and its tombstone's time: longer than scenarios about other things.
pub const LIFE: Duration = Duration::from_secs(86_400);
/// Routes, each with its recovery. Those that begin with `strict` lodge their claims with the next
/// region; `strict-alone` runs them if there is none. Those that begin with `later` accept.
pub const ROUTES: [(&str, Recovery); 9] = [
    ("park", Recovery::Park),
    ("probe", Recovery::Probe),
    ("rerun", Recovery::Rerun { max_attempts: 3 }),
    ("strict", Recovery::Park),
    ("strict-probe", Recovery::Probe),
    ("strict-alone", Recovery::Park),
    ("strict-rerun", Recovery::Rerun { max_attempts: 3 }),
    ("later", Recovery::Probe),
    ("later-park", Recovery::Park),
];

pub fn failover() -> Failover {
    crate::shared::failover(Failing::Automatic, STABLE)
}

pub fn settings(me: &RegionName, failover: Failover, life: Duration) -> Settings {
    let mut credentials = Credentials::default();
    credentials.insert(digest(b"sk"), Caller::new(Tenant::parse("acme").unwrap(), Voucher::File, None));
    let routes = ROUTES.map(|(name, recovery)| route(name, recovery, life)).to_vec();
    let upstream_health = Some(UpstreamHealth {
        path: Uri::from_static("/healthz"),
        every: ms(500),
        within: ms(200),
        sick_after: ms(2_000),
        cool_down: ms(20_000),
    });
    Settings { upstream_health, ..crate::shared::settings(me, failover, routes, credentials) }
}

fn route(name: &str, recovery: Recovery, life: Duration) -> Route {
    let alone = if name == "strict-alone" { Alone::Run } else { Alone::Refuse };
    let escrow = if name.starts_with("strict") { Escrow::Claim(alone) } else { Escrow::Off };
    let mode = if name.starts_with("later") { Mode::Accept } else { Mode::Sync };
    crate::shared::route(name, Policy { escrow, mode, ..policy(recovery, HOLD, life) })
}

/// The whole time of a takeover: the lease with its drift and margin, the window, and the messages.
pub const TAKEOVER: Duration = ms(5_500);

pub fn a() -> RegionName {
    region("a-west")
}

pub fn b() -> RegionName {
    region("b-mid")
}

pub fn c() -> RegionName {
    region("c-east")
}

pub fn d() -> RegionName {
    region("d-north")
}

pub fn witness() -> RegionName {
    region("w-ness")
}

pub fn regions() -> [RegionName; 3] {
    [a(), b(), c()]
}

pub fn first_ring() -> Arc<Ring> {
    static RING: LazyLock<Arc<Ring>> = LazyLock::new(|| ring(&regions().map(|name| (name, 100))));
    RING.clone()
}

/// A key of this word whose home and first successor are these.
pub fn key_of(home: &RegionName, next: &RegionName, word: &str) -> String {
    static FIRST: LazyLock<View> = LazyLock::new(|| founding(first_ring()));
    key_under(&FIRST, home, Some(next), word)
}

/// A key of this word whose owner and target are these under a view.
pub fn key_under(view: &View, owner: &RegionName, target: Option<&RegionName>, word: &str) -> String {
    let is = |key: &String| view.owner(&id(key)) == Some(owner) && view.target(&id(key)) == target;
    (0_u32..).map(|number| format!("{word}-{number}")).find(is).unwrap()
}

pub struct Trio {
    fleet: Arc<Fleet>,
    pub names: Vec<RegionName>,
    ring: Arc<Ring>,
    failover: Failover,
    life: Duration,
    checker: Mutex<Checker>,
}

impl Deref for Trio {
    type Target = Arc<Fleet>;

    fn deref(&self) -> &Arc<Fleet> {
        &self.fleet
    }
}

/// The part of a witness's files that its answers depend on.
fn duty(witness: &RegionName, ring: Arc<Ring>) -> Duty {
    Duty { me: witness.clone(), ring, drift: DRIFT, speaks: Versions::OURS }
}

pub fn on(start: impl Future<Output = Arc<Trio>>, test: impl AsyncFnOnce(Arc<Trio>)) {
    play(async { test(start.await).await });
}

/// Plays a test on a deployment, and checks that the invariants held so far when it has ended.
pub fn checked(start: impl Future<Output = Arc<Trio>>, test: impl AsyncFnOnce(Arc<Trio>)) {
    on(start, async |trio| {
        test(trio.clone()).await;
        trio.check();
    });
}

/// The same with a key of a's that b takes over.
pub fn keyed(start: impl Future<Output = Arc<Trio>>, test: impl AsyncFnOnce(Arc<Trio>, String)) {
    checked(start, async |trio| test(trio, key_of(&a(), &b(), "key")).await);
}

/// Checks that an operator's act was refused with this code, and for a reason with these words.
pub fn refused<T>(answer: Result<T, ActError>, code: &str, words: &str) {
    let error = answer.err().expect("it was not refused");
    assert!(error.code == code && error.detail.contains(words), "{error:?}");
}

impl Trio {
    /// Three founded regions that serve and see one another.
    pub async fn start(seed: u64) -> Arc<Self> {
        Self::begin_with(seed, &regions(), failover(), LIFE).await
    }

    /// Like [`Trio::start`], and no region takes over by itself.
    pub async fn manual(seed: u64) -> Arc<Self> {
        Self::begin_with(seed, &regions(), Failover { mode: Failing::Manual, ..failover() }, LIFE).await
    }

    /// Like [`Trio::start`], with these witnesses.
    pub async fn witnessed(seed: u64, witnesses: Vec<RegionName>) -> Arc<Self> {
        Self::begin_with(seed, &regions(), Failover { witnesses, ..failover() }, LIFE).await
    }

    pub async fn duo(seed: u64) -> Arc<Self> {
        let failover = Failover { witnesses: vec![witness()], ..failover() };
        Self::begin_with(seed, &[a(), b()], failover, LIFE).await
    }

    pub async fn quartet(seed: u64) -> Arc<Self> {
        Self::begin_with(seed, &[a(), b(), c(), d()], failover(), LIFE).await
    }

    /// Three regions with this retention, and tombstones that last as long again.
    pub async fn start_remembering(seed: u64, life: Duration) -> Arc<Self> {
        Self::begin_with(seed, &regions(), failover(), life).await
    }

    async fn begin_with(seed: u64, names: &[RegionName], failover: Failover, life: Duration) -> Arc<Self> {
        let trio = Self::unfounded(seed, names, failover, life);
        let escrowed = ROUTES.iter().filter(|(name, _)| name.starts_with("strict"));
        let Settings { live: Reload { routes, .. }, skew, .. } =
            settings(&trio.names[0], trio.failover.clone(), life);
        let escrow = escrowed.map(|(name, _)| Arc::from(*name)).collect();
        trio.world.found(trio.ring.clone(), escrow, &routes, trio.failover.lease, skew);
        trio.names.iter().for_each(|name| trio.begin_process(name));
        trio.until("all regions serve", ms(20_000), async || trio.names.iter().all(|name| trio.serves(name)))
            .await;
        // Long enough for a lag to be measured: without one, no window ever ends.
        sleep(ms(2_000)).await;
        trio
    }

    /// Regions with empty stores, and no gateways yet.
    pub fn unfounded(seed: u64, names: &[RegionName], failover: Failover, life: Duration) -> Arc<Self> {
        let world = world(seed, names);
        let ring = match names.len() {
            3 => first_ring(),
            _ => ring(&names.iter().map(|name| (name.clone(), 100)).collect::<Vec<_>>()),
        };
        for witness in &failover.witnesses {
            world.add_witness(duty(witness, ring.clone()));
        }
        let reruns = [Arc::from("rerun"), Arc::from("strict-rerun")].into();
        let checker = Mutex::new(Checker::new(reruns, failover.window));
        Arc::new(Self { fleet: Fleet::new(world), names: names.to_vec(), ring, failover, life, checker })
    }

    /// A witness of that name that was made anew, and that speaks these protocol versions.
    pub fn new_witness(&self, name: &RegionName, speaks: Versions) -> Arc<Witness> {
        self.world.add_witness(Duty { speaks, ..duty(name, self.ring.clone()) })
    }

    /// Starts a new gateway process in a region's place. The one before lives on, if it does.
    pub fn begin_process(&self, name: &RegionName) {
        self.begin_speaking(name, Versions::OURS);
    }

    pub fn begin_speaking(&self, name: &RegionName, speaks: Versions) {
        let generation = self.world.cluster.origin(name).generation;
        let settings = settings(name, self.failover.clone(), self.life);
        self.put(name, self.launch(Settings { generation, speaks, ..settings }, &self.ring));
    }

    pub fn gate(&self, of: &RegionName) -> GateState {
        self.world.cluster.gate(of).unwrap()
    }

    /// True if this region serves in the views of all regions, has opened everything and holds its
    /// lease.
    pub fn is_home(&self, name: &RegionName) -> bool {
        let seen = |by: &RegionName| self.gate(by).view.serves(name);
        self.names.iter().all(seen) && self.serves(name) && self.gate(name).is_open()
    }

    pub async fn all_home(&self, within: Duration) {
        let home = async || self.names.iter().all(|name| self.is_home(name));
        self.until("all regions are home", within, home).await;
    }

    /// Waits until a region that was away serves, as everybody says, and runs keys.
    pub async fn comes_home(&self, name: &RegionName, within: Duration) {
        let serving = || self.names.iter().all(|by| self.standing(name, by) == "serving");
        self.until("it is home", within, async || serving() && self.serves(name)).await;
    }

    pub fn standing(&self, of: &RegionName, seen_by: &RegionName) -> &'static str {
        let status = self.gateway(seen_by).authority_status();
        let found = status.regions.into_iter().find(|region| region.name == of.as_str());
        found.unwrap_or_else(|| panic!("{seen_by} knows no region {of}")).standing
    }

    /// Repeats an operator's act while it is not possible yet, for ten seconds.
    pub async fn ask(&self, mut act: impl AsyncFnMut() -> Result<u64, ActError>) -> Result<u64, ActError> {
        let end = Instant::now() + ms(10_000);
        loop {
            match act().await {
                Err(error) if error.code == "not-yet" && Instant::now() < end => sleep(ms(200)).await,
                answer => return answer,
            }
        }
    }

    pub async fn drain(&self, at: &RegionName, region: &RegionName, force: bool) -> Result<u64, ActError> {
        self.ask(async || self.gateway(at).drain(region, force, "test", "test").await).await
    }

    /// Drains a region, and then takes it out of the ring, as an operator does at `at`. Waits until
    /// it votes no more in the gate of any other region.
    pub async fn leave(&self, at: &RegionName, leaver: &RegionName) {
        self.drain(at, leaver, false).await.unwrap();
        let others: Vec<&RegionName> = self.names.iter().filter(|name| *name != leaver).collect();
        let weights: Vec<_> = others.iter().map(|name| ((*name).clone(), 100)).collect();
        self.apply(at, ring(&weights)).await.unwrap();
        let votes = |by: &RegionName| self.gate(by).view.voters().contains_key(leaver);
        self.until("it votes no more", ms(10_000), async || !others.iter().any(|by| votes(by))).await;
    }

    /// Applies a ring, as an operator does at `at`. Repeats the act while it is not possible yet.
    pub async fn apply(&self, at: &RegionName, ring: Arc<Ring>) -> Result<u64, ActError> {
        let gateway = self.gateway(at);
        let escrow: BTreeSet<Arc<str>> = ["strict", "strict-probe"].map(Arc::from).into();
        self.ask(async || {
            let epoch = gateway.authority_status().epoch;
            gateway.apply(ring.clone(), escrow.clone(), epoch, "test").await
        })
        .await
    }

    pub fn cut_off(&self, name: &RegionName, cut: bool) {
        for other in self.names.iter().filter(|other| *other != name) {
            self.world.cut(name, other, cut, ONE_WAY);
        }
    }

    /// Sets the links between two ends, both ways, for calls alone.
    pub fn link(&self, one: &RegionName, other: &RegionName, mode: LinkMode) {
        self.world.network.set_link(one, other, mode, ONE_WAY);
        self.world.network.set_link(other, one, mode, ONE_WAY);
    }

    /// Leaves a change at a region's acceptor, as a proposer that dies before any other accepts.
    pub async fn begin_change(&self, at: &RegionName, by: RegionName, view: Arc<View>) {
        let store = self.world.cluster.store(at);
        let (version, held) = store.acceptor().await.unwrap();
        let ballot = Ballot { counter: 1_000, region: by, proposer: 1 };
        let accepted = Some(Accepted { ballot: ballot.clone(), view });
        let begun = Acceptor { promised: Some(ballot), accepted, ..held };
        assert_eq!(store.set_acceptor(version, &begun).await, Ok(Written::Done));
    }

    /// Loses a whole region: process, store and links.
    pub fn lose(&self, name: &RegionName) {
        self.node(name).process.kill();
        self.world.cluster.kill(name);
        self.cut_off(name, true);
    }

    /// Loses a whole region, and waits until that other one knows.
    pub async fn lose_before(&self, name: &RegionName, by: &RegionName) {
        self.lose(name);
        self.until_lost(name, by).await;
    }

    pub fn lose_disk(&self, name: &RegionName) {
        self.lose(name);
        self.world.cluster.destroy(name);
    }

    /// Starts a region anew on an empty store, with a gateway that knows its second generation.
    pub fn begin_anew(&self, name: &RegionName) {
        self.world.cluster.rebuild(name, 2);
        self.cut_off(name, false);
        self.begin_process(name);
    }

    /// Brings a region back, with its store as it was: Postgres starts anew, and so does a gateway.
    pub fn bring_back(&self, name: &RegionName) {
        self.store(name, StoreMode::Up);
        self.world.cluster.restart(name);
        self.cut_off(name, false);
        self.begin_process(name);
    }

    pub fn hold(&self, from: &RegionName, to: &[RegionName], held: bool) {
        to.iter().for_each(|to| self.world.cluster.hold(from, to, held));
    }

    /// Lets a run a key, and nothing that a writes reaches these any more.
    pub async fn runs_unheard(&self, by: &[RegionName], path: &str, key: &str) {
        self.hold(&a(), by, true);
        assert_eq!(self.send(&a(), path, key).await.status, 201);
    }

    pub async fn until_lost(&self, name: &RegionName, by: &RegionName) {
        let lost = async || matches!(self.gate(by).view.standing(name), Some(Standing::Lost { .. }));
        self.until("it is lost", TAKEOVER, lost).await;
    }

    /// Sends a request so many times, 100 ms apart. Each answer has one of these statuses.
    pub async fn refuses(&self, at: &RegionName, path: &str, key: &str, statuses: &[u16], times: u32) {
        for _ in 0..times {
            let answer = self.send(at, path, key).await;
            assert!(statuses.contains(&answer.status), "{key} at {at}: {answer:?}");
            self.check();
            sleep(ms(100)).await;
        }
    }

    /// Checks that a region refuses a key that ran elsewhere once, and calls it a doubt at last.
    pub async fn never_reruns(&self, at: &RegionName, path: &str, key: &str, times: u32) {
        self.refuses(at, path, key, &[409, 503], times).await;
        assert_eq!(self.send(at, path, key).await.said(), (409, "outcome-unknown"));
        assert_eq!(self.effects(key).len(), 1);
    }

    /// Sends a request again and again until it is answered, at most `within`.
    pub async fn insist(&self, to: &RegionName, path: &str, key: &str, within: Duration) -> ClientAnswer {
        let end = Instant::now() + within;
        loop {
            let answer = self.send(to, path, key).await;
            if (200..300).contains(&answer.status) {
                return answer;
            }
            assert!(Instant::now() < end, "{key} at {to} was not answered within {within:?}: {answer:?}");
            sleep(ms(50)).await;
        }
    }

    /// A region replays a key, which took effect once.
    pub async fn replays_once(&self, at: &RegionName, path: &str, key: &str, within: Duration) {
        let answer = self.insist(at, path, key, within).await;
        assert!(answer.replayed, "{key} at {at}: {answer:?}");
        assert_eq!(self.effects(key).len(), 1, "{key}");
    }

    /// Waits until the condition holds, in virtual time, and checks the invariants meanwhile.
    pub async fn until(&self, what: &str, within: Duration, mut condition: impl AsyncFnMut() -> bool) {
        let end = Instant::now() + within;
        while !condition().await {
            assert!(Instant::now() < end, "{what}: not within {within:?}; {}", self.shown());
            sleep(ms(50)).await;
        }
        self.check();
    }

    pub async fn until_state(&self, at: &RegionName, key: &str, wanted: &str, within: Duration) {
        self.until(wanted, within, async || self.state(at, key).await == wanted).await;
    }

    pub fn check(&self) {
        let breaches = self.checker.lock().unwrap().step(&self.world);
        assert!(breaches.is_empty(), "{breaches:#?}");
    }

    /// Checks that the invariants held, and that nothing is missing in the end.
    pub fn finish(&self) {
        let breaches = self.checker.lock().unwrap().finish(&self.world);
        assert!(breaches.is_empty(), "{breaches:#?}");
    }

    /// The lost regions at whose risk claims of a key were made.
    pub fn risk(&self, key: &str) -> Vec<RegionName> {
        let truths = self.world.cluster.truths();
        let writes = truths.iter().flat_map(|store| &store.writes).filter(|write| write.id == id(key));
        writes.filter_map(|write| write.record.as_ref()).flat_map(|record| record.risk.clone()).collect()
    }

    /// Keys that some journal has an entry of this kind for.
    pub fn journalled(&self, kind: &str) -> Vec<KeyId> {
        let truths = self.world.cluster.truths();
        let entries = truths.iter().flat_map(|store| &store.journal).filter(|(_, entry)| entry.kind == kind);
        entries.filter_map(|(id, _)| id.clone()).collect()
    }

    pub fn arrived(&self, at: &RegionName, key: &str) -> usize {
        let arrivals = self.world.upstreams.arrivals(at);
        arrivals
            .iter()
            .filter(|arrival| arrival.attempt.as_ref().is_some_and(|(of, ..)| *of == id(key)))
            .count()
    }

    fn shown(&self) -> String {
        let of = |name: &RegionName| {
            let gateway = self.gateway(name);
            format!("{name}: {:?} {:?}", gateway.readiness().reasons, gateway.authority_status())
        };
        self.names.iter().map(of).collect::<Vec<_>>().join("\n")
    }
}
