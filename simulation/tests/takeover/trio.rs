//! Three regions a, b and c that take over from one another by themselves, and clients that ask them.
//!
//! Neighbours: every part of the suite. It must not look into a gateway: it asks as a client or as an operator does, and the invariants
//! are judged by what stores and upstreams went through.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};
use onceway::gateway::authority::acts::ActError;
use onceway::gateway::authority::upstream::UpstreamHealth;
use onceway::gateway::authority::{Failover, Mode as Failing};
use onceway::gateway::credentials::{Caller, Credentials, Voucher, digest};
use onceway::gateway::route::{
    Accept, Alone, Binding, Escrow, Mismatch, Mode, PathPattern, Policy, Protection, Route, Routes,
};
use onceway::gateway::signature::FingerprintRule;
use onceway::gateway::{Gateway, Settings, Timings};
use onceway::ports::body::{self, Collected};
use onceway::protocol::decide::Recovery;
use onceway::protocol::job::Backoff;
use onceway::protocol::key::{Key, KeyId, Syntax, Tenant};
use onceway::protocol::key_policy::KeyPolicy;
use onceway::protocol::lifetime::Retention;
use onceway::protocol::outcome::OutcomeSets;
use onceway::protocol::region::RegionName;
use onceway::protocol::ring::{PlaceBy, RegionSpec, Ring, RingSpec};
use onceway::protocol::time::Drift;
use onceway::protocol::view::View;
use onceway::protocol::window::WindowRule;
use simulation::checker;
use simulation::clock::SimClock;
use simulation::cluster::StoreMode;
use simulation::peers::LinkMode;
use simulation::ports::SimPorts;
use simulation::process::Process;
use simulation::upstream::{Happening, UpstreamMode};
use simulation::world::World;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

/// How long a lease runs.
pub const LEASE: Duration = ms(3_000);
/// The shortest window.
pub const FLOOR: Duration = ms(1_000);
/// How long a region that came back must have been well.
pub const STABLE: Duration = ms(2_000);
/// One way between two regions.
pub const ONE_WAY: Duration = ms(20);
/// How long a commit takes from one region to another.
pub const LAG: Duration = ms(40);
/// Everything that a takeover takes: the lease with its drift and margin, the window, and the messages.
pub const TAKEOVER: Duration = ms(5_500);

const HOLD: Duration = ms(30_000);
const DAY: Duration = Duration::from_secs(86_400);
const DRIFT: Drift = Drift { ppm: 1_000, margin: ms(50) };
/// Routes, each with its recovery; those that begin with `strict` lodge their claims with the next region.
const ROUTES: [(&str, Recovery); 5] = [
    ("park", Recovery::Park),
    ("probe", Recovery::Probe),
    ("rerun", Recovery::Rerun { max_attempts: 3 }),
    ("strict", Recovery::Park),
    ("strict-probe", Recovery::Probe),
];

/// Whole milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Region a.
pub fn a() -> RegionName {
    RegionName::parse("a-west").unwrap()
}

/// Region b.
pub fn b() -> RegionName {
    RegionName::parse("b-mid").unwrap()
}

/// Region c.
pub fn c() -> RegionName {
    RegionName::parse("c-east").unwrap()
}

/// All three.
pub fn regions() -> [RegionName; 3] {
    [a(), b(), c()]
}

/// Plays a scenario on a paused clock.
pub fn play<T>(scenario: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(scenario)
}

fn ring() -> Arc<Ring> {
    static RING: LazyLock<Arc<Ring>> = LazyLock::new(|| {
        let regions = regions().map(|name| RegionSpec { name, weight: 100 }).to_vec();
        let spec = RingSpec { seed: 7, place_by: PlaceBy::Key, regions, pins: Vec::new() };
        Arc::new(Ring::build(&spec).unwrap())
    });
    RING.clone()
}

/// A key of this word whose home and first successor are these.
pub fn key_of(home: &RegionName, next: &RegionName, word: &str) -> String {
    static FIRST: LazyLock<View> =
        LazyLock::new(|| View::founding(1, ring(), BTreeSet::new(), BTreeMap::new()));
    let is = |key: &String| FIRST.owner(&id(key)) == Some(home) && FIRST.target(&id(key)) == Some(next);
    (0_u32..).map(|number| format!("{word}-{number}")).find(is).unwrap()
}

/// A key's id.
pub fn id(key: &str) -> KeyId {
    KeyId::new(Tenant::parse("acme").unwrap(), Key::parse(key).unwrap())
}

/// What a client was told; status 0 if its connection broke.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The status.
    pub status: u16,
    /// The code of a problem; empty on an answer.
    pub code: String,
    /// Whether it is a replay.
    pub replayed: bool,
    /// The region that is said to have run it.
    pub by: String,
    /// When to come again, in seconds.
    pub retry_after: Option<u64>,
    /// The body.
    pub body: Bytes,
}

impl Told {
    /// The status and the problem's code.
    pub fn said(&self) -> (u16, &str) {
        (self.status, &self.code)
    }
}

/// One gateway process.
#[derive(Clone)]
pub struct Node {
    /// The gateway.
    pub gateway: Arc<Gateway<SimPorts>>,
    /// Its process: to be paused or killed.
    pub process: Process,
    /// Its clocks: to be made to drift.
    pub clock: SimClock,
}

/// The deployment.
pub struct Trio {
    /// Everything below the gateways.
    pub world: Arc<World>,
    nodes: Mutex<BTreeMap<RegionName, Node>>,
}

impl Trio {
    /// Three founded regions that serve and see one another.
    pub async fn start(seed: u64) -> Arc<Self> {
        let world = Arc::new(World::new(seed, &regions(), false));
        for from in regions() {
            world.cluster.set_latency(&from, ms(2));
            world.upstreams.set_mode(&from, UpstreamMode::Receipt { after: ms(50) });
            for to in regions().iter().filter(|to| **to != from) {
                world.network.set_link(&from, to, LinkMode::Up, ONE_WAY);
                world.cluster.set_delay(&from, to, LAG);
            }
        }
        let escrowed = ROUTES.iter().filter(|(name, _)| name.starts_with("strict"));
        world.found(ring(), escrowed.map(|(name, _)| Arc::from(*name)).collect());
        let trio = Arc::new(Self { world, nodes: Mutex::default() });
        regions().iter().for_each(|name| trio.begin_process(name));
        trio.until("all regions serve", ms(20_000), async || regions().iter().all(|name| trio.serves(name)))
            .await;
        // Long enough for a lag to be measured: without one, no window ever ends.
        sleep(ms(2_000)).await;
        trio
    }

    /// Starts a new gateway process in a region's place. The one before lives on, if it does.
    pub fn begin_process(&self, name: &RegionName) {
        let ports = self.world.ports(name);
        let (process, clock) = (ports.process().clone(), onceway::ports::Ports::clock(&ports).clone());
        let generation = self.world.cluster.origin(name).generation;
        let settings = Settings { generation, ..settings(name) };
        let gateway = Gateway::new(ports, settings, View::unfounded(ring())).unwrap();
        gateway.start();
        self.world.network.plug_process(name.clone(), Arc::new(gateway.clone()), process.clone());
        self.nodes.lock().unwrap().insert(name.clone(), Node { gateway, process, clock });
    }

    /// A region's process.
    pub fn node(&self, name: &RegionName) -> Node {
        self.nodes.lock().unwrap()[name].clone()
    }

    /// Whether a region runs keys.
    pub fn serves(&self, name: &RegionName) -> bool {
        self.node(name).gateway.readiness().serves
    }

    /// How a region stands, as another one sees it.
    pub fn standing(&self, of: &RegionName, seen_by: &RegionName) -> &'static str {
        let status = self.node(seen_by).gateway.authority_status();
        let found = status.regions.into_iter().find(|region| region.name == of.as_str());
        found.unwrap_or_else(|| panic!("{seen_by} knows no region {of}")).standing
    }

    /// Asks for an operator's act again while it is not possible yet, for ten seconds.
    pub async fn ask(&self, mut act: impl AsyncFnMut() -> Result<u64, ActError>) -> Result<u64, ActError> {
        let end = Instant::now() + ms(10_000);
        loop {
            match act().await {
                Err(error) if error.code == "not-yet" && Instant::now() < end => sleep(ms(200)).await,
                told => return told,
            }
        }
    }

    /// Drains a region, asked for at another one.
    pub async fn drain(&self, at: &RegionName, region: &RegionName, force: bool) -> Result<u64, ActError> {
        let gateway = self.node(at).gateway;
        self.ask(async || gateway.drain(region, force, "test", "test").await).await
    }

    /// Cuts a region off the others, or mends that: calls are swallowed, replication stands still.
    pub fn cut_off(&self, name: &RegionName, cut: bool) {
        for other in regions().iter().filter(|other| *other != name) {
            self.world.cut(name, other, cut, ONE_WAY);
        }
    }

    /// The whole region is gone: process, store and links.
    pub fn lose(&self, name: &RegionName) {
        self.node(name).process.kill();
        self.world.cluster.set_mode(name, StoreMode::Refuse);
        self.cut_off(name, true);
    }

    /// It is back, with its store as it was: Postgres starts anew, and so does a gateway.
    pub fn bring_back(&self, name: &RegionName) {
        self.world.cluster.set_mode(name, StoreMode::Up);
        self.world.cluster.restart(name);
        self.cut_off(name, false);
        self.begin_process(name);
    }

    /// Sends a request to a region's gateway; its connection breaks with the process.
    pub async fn send(&self, to: &RegionName, path: &str, key: &str) -> Told {
        let node = self.node(to);
        if node.process.is_dead() {
            return Told::default();
        }
        let asking = async {
            node.process.runs().await;
            let told = told(node.gateway.handle(request(path, key)).await).await;
            node.process.runs().await;
            told
        };
        node.process.while_alive(asking).await.unwrap_or_default()
    }

    /// Sends a request in the background.
    pub fn begin(self: &Arc<Self>, to: &RegionName, path: &str, key: &str) -> tokio::task::JoinHandle<Told> {
        let (trio, to, path, key) = (self.clone(), to.clone(), path.to_owned(), key.to_owned());
        tokio::spawn(async move { trio.send(&to, &path, &key).await })
    }

    /// Sends a request again and again until it is answered, at most `within`.
    pub async fn insist(&self, to: &RegionName, path: &str, key: &str, within: Duration) -> Told {
        let end = Instant::now() + within;
        loop {
            let told = self.send(to, path, key).await;
            if (200..300).contains(&told.status) {
                return told;
            }
            assert!(Instant::now() < end, "{key} at {to} was not answered within {within:?}: {told:?}");
            sleep(ms(50)).await;
        }
    }

    /// Waits until the condition holds, in virtual time; the invariants hold meanwhile.
    pub async fn until(&self, what: &str, within: Duration, mut condition: impl AsyncFnMut() -> bool) {
        let end = Instant::now() + within;
        while !condition().await {
            assert!(Instant::now() < end, "{what}: not within {within:?}; {}", self.shown());
            sleep(ms(50)).await;
        }
        self.check();
    }

    /// The invariants hold so far.
    pub fn check(&self) {
        let breaches = checker::breaches(&self.world, &|route| route == "rerun");
        assert!(breaches.is_empty(), "{breaches:#?}");
    }

    /// The effects on a key.
    pub fn effects(&self, key: &str) -> Vec<Happening> {
        self.world.upstreams.effects(&id(key))
    }

    /// How many requests arrived at a region's upstream under a key.
    pub fn arrived(&self, at: &RegionName, key: &str) -> usize {
        let arrivals = self.world.upstreams.arrivals(at);
        arrivals
            .iter()
            .filter(|arrival| arrival.attempt.as_ref().is_some_and(|(of, ..)| *of == id(key)))
            .count()
    }

    fn shown(&self) -> String {
        let of = |name: &RegionName| {
            let gateway = self.node(name).gateway;
            format!("{name}: {:?} {:?}", gateway.readiness().reasons, gateway.authority_status())
        };
        regions().iter().map(of).collect::<Vec<_>>().join("\n")
    }
}

fn request(path: &str, key: &str) -> Request<onceway::ports::Body> {
    Request::post(path)
        .header("authorization", "Bearer sk")
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body::full("{}"))
        .unwrap()
}

async fn told(response: http::Response<onceway::ports::Body>) -> Told {
    let (head, rest) = response.into_parts();
    let bytes = match body::collect(rest, 1 << 20).await.unwrap() {
        Collected::Whole(bytes) => bytes,
        Collected::Over(..) => panic!("an answer of more than a megabyte"),
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let code = text.split_once("\"code\":\"").and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
    let header = |name: &str| head.headers.get(name).map(|text| text.to_str().unwrap()).unwrap_or_default();
    Told {
        status: head.status.as_u16(),
        code: code.unwrap_or_default(),
        replayed: header("idempotent-replayed") == "true",
        by: header("onceway-region").to_owned(),
        retry_after: header("retry-after").parse().ok(),
        body: bytes,
    }
}

fn settings(me: &RegionName) -> Settings {
    let mut credentials = Credentials::default();
    credentials.insert(digest(b"sk"), Caller::new(Tenant::parse("acme").unwrap(), Voucher::File, None));
    Settings {
        failover: Failover {
            mode: Failing::Automatic,
            lease: LEASE,
            window: WindowRule { percent: 200, floor: FLOOR, beyond: ms(60_000) },
            drain_limit: ms(300),
            kill_after: ms(5_000),
            stable_for: STABLE,
            min_serving: 1,
            witnesses: Vec::new(),
        },
        me: me.clone(),
        generation: 1,
        routes: Routes(ROUTES.map(|(name, recovery)| route(name, recovery)).to_vec()),
        credentials: Arc::new(credentials),
        drift: DRIFT,
        skew: ms(100),
        seals_requests: false,
        timings: Timings {
            heartbeat: ms(100),
            ping: ms(100),
            silent_after: ms(1_000),
            poll: ms(100),
            attach_poll: ms(50),
            body_within: ms(5_000),
            claim_within: ms(2_000),
            settle_within: ms(2_000),
            probe_within: ms(1_000),
            jobs_poll: ms(200),
            sweep: ms(1_000),
            reap: ms(1_000),
            reap_pause: ms(20),
        },
        quota: None,
        shadow: false,
        upstream_health: Some(UpstreamHealth {
            path: Uri::from_static("/healthz"),
            every: ms(500),
            within: ms(200),
            sick_after: ms(2_000),
            cool_down: ms(20_000),
        }),
        shared: onceway::protocol::digest::digest("onceway/test/1", &[]),
    }
}

fn route(name: &str, recovery: Recovery) -> Route {
    let escrow = if name.starts_with("strict") { Escrow::Claim(Alone::Refuse) } else { Escrow::Off };
    let policy = Policy {
        syntax: Syntax::Lenient,
        key_policy: KeyPolicy::default(),
        fingerprint: FingerprintRule::Whole,
        mismatch: Mismatch::Unprocessable,
        recovery,
        probe: Some(Uri::from_static("/status")),
        hold: HOLD,
        wait: ms(2_000),
        upstream_timeout: ms(3_000),
        settle_time: ms(2_000),
        escrow,
        retention: Retention::For(DAY),
        tombstone: DAY,
        body_limit: 1 << 16,
        stored_limit: 1 << 10,
        outcomes: OutcomeSets::default(),
        replay_headers: Vec::new(),
        mode: Mode::Sync,
        accept: Accept {
            request_retention: ms(60_000),
            max_runs: 5,
            backoff: Backoff { first: ms(400), most: ms(1_600) },
        },
        bind: Binding::Tenant,
    };
    Route {
        name: Arc::from(name),
        methods: vec![Method::POST],
        path: PathPattern::parse(&format!("/{name}")).unwrap(),
        protection: Protection::Required(Arc::new(policy)),
    }
}
