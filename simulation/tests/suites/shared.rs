//! The parts of both suites of gateways: settings, a fleet of gateways over one simulated world,
//! and a client's request and its answer.
//!
//! Everything here is short, so that a test takes seconds of simulated time.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::sync::{Arc, Mutex};
pub use std::time::Duration;

pub use bytes::Bytes;
pub use http::{Method, Request, Response, Uri};
pub use onceway::gateway::authority::failover::{Failover, Mode as Failing};
use onceway::gateway::credentials::Credentials;
pub use onceway::gateway::instance::Gateway;
use onceway::gateway::limits::concurrency::MostAtOnce;
use onceway::gateway::policy::route::{
    Accept, Binding, Dialect, Escrow, KeyHeaders, Mismatch, Mode, PathPattern, Policy, Protection, Route,
    Routes,
};
pub use onceway::gateway::reloadable::Reload;
pub use onceway::gateway::settings::{Settings, Timings};
use onceway::ports::body::{self, Collected};
pub use onceway::ports::peers::{Forward, ForwardReply, PeerReply, Pong, Question};
pub use onceway::ports::store::{Attempt, ClaimAsk, ClaimReply, Written};
pub use onceway::ports::{Acceptors, Audit, Body, Jobs, KeyStore, Ports, Replica, Upkeep};
pub use onceway::protocol::change::Change;
pub use onceway::protocol::fingerprint::{Fingerprint, raw};
use onceway::protocol::job::Backoff;
pub use onceway::protocol::key::{Key, KeyId, Syntax, Tenant};
use onceway::protocol::key_policy::KeyPolicy;
pub use onceway::protocol::lifetime::{Lifetime, Retention};
use onceway::protocol::outcome::OutcomeSets;
pub use onceway::protocol::record::{
    Answer, AnswerBody, Basis, Nonce, Recovery, RequestId, Row, State, Token,
};
pub use onceway::protocol::region::{Origin, RegionName};
pub use onceway::protocol::register::{Accepted, Acceptor, Ballot, Message};
pub use onceway::protocol::ring::Ring;
pub use onceway::protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use onceway::protocol::time::Drift;
pub use onceway::protocol::versions::{NEWEST, NEXT, Versions};
pub use onceway::protocol::view::{AcceptorId, Standing, View};
use onceway::protocol::window::WindowRule;
pub use simulation::Node;
pub use simulation::cluster::StoreMode;
pub use simulation::letters::{Letter, Post};
pub use simulation::peers::{Answering, LinkMode, Region};
pub use simulation::points::Point;
pub use simulation::ports::SimPorts;
pub use simulation::store::SimStore;
pub use simulation::upstream::{Happening, ProbeMode, UpstreamMode};
pub use simulation::world::World;
use tokio::runtime::Builder;
pub use tokio::task::JoinHandle;
pub use tokio::time::{Instant, sleep};

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const LEASE: Duration = ms(3_000);
pub const FLOOR: Duration = ms(1_000);
pub const DRIFT: Drift = Drift { ppm: 1_000, margin: ms(50) };
pub const UPSTREAM: Duration = ms(3_000);
/// The most by which observed time ends something later than the boot clock: a heartbeat, and what
/// it may add.
pub const LATE: Duration = ms(300);
/// The time for which a request may still be inside the upstream after its hold.
pub const SETTLE_TIME: Duration = ms(2_000);
/// The time for which an answer waits to be stored, before its client gets "unknown".
pub const SETTLE_WITHIN: Duration = ms(2_000);
pub const SWEEP: Duration = ms(1_000);
pub const ACCEPT: Accept = Accept {
    request_retention: ms(60_000),
    max_runs: 5,
    backoff: Backoff { first: ms(400), most: ms(1_600) },
};
pub const ONE_WAY: Duration = ms(20);
/// The time of a commit from one region to another.
pub const LAG: Duration = ms(40);

/// Plays a test on a paused clock: time moves only when every task waits.
pub fn play<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

pub fn region(name: &str) -> RegionName {
    RegionName::parse(name).unwrap()
}

pub fn id(key: &str) -> KeyId {
    KeyId::new(Tenant::parse("acme").unwrap(), Key::parse(key).unwrap())
}

pub fn ring(weights: &[(RegionName, u32)]) -> Arc<Ring> {
    let regions = weights.iter().map(|(name, weight)| RegionSpec { name: name.clone(), weight: *weight });
    let spec = RingSpec { seed: 7, place_by: PlaceBy::Key, regions: regions.collect(), pins: Vec::new() };
    Arc::new(Ring::build(&spec).unwrap())
}

/// The first view of this ring, without its voters, for the owners of keys.
pub fn founding(ring: Arc<Ring>) -> View {
    View::founding(1, ring, BTreeMap::new(), BTreeMap::new())
}

/// Everything below the gateways of these regions, with nothing broken.
pub fn world(seed: u64, names: &[RegionName]) -> Arc<World> {
    let world = World::new(seed, names, false);
    for from in names {
        world.cluster.set_latency(from, ms(2));
        world.upstreams.set_mode(from, receipt(50));
        for to in names.iter().filter(|to| *to != from) {
            world.network.set_link(from, to, LinkMode::Up, ONE_WAY);
            world.cluster.set_delay(from, to, LAG);
        }
    }
    Arc::new(world)
}

pub fn failover(mode: Failing, stable_for: Duration) -> Failover {
    Failover {
        mode,
        lease: LEASE,
        window: WindowRule { percent: 200, floor: FLOOR, beyond: ms(60_000) },
        drain_limit: ms(300),
        kill_after: ms(5_000),
        stable_for,
        min_serving: 1,
        max_life: None,
        witnesses: Vec::new(),
    }
}

pub fn settings(
    me: &RegionName,
    failover: Failover,
    routes: Vec<Route>,
    credentials: Credentials,
) -> Settings {
    Settings {
        failover,
        me: me.clone(),
        generation: 1,
        live: Reload {
            routes: Routes(routes),
            credentials: Arc::new(credentials),
            quota: None,
            most_at_once: MostAtOnce::default(),
            shared: onceway::protocol::digest::digest("onceway/test/1", &[]),
            restart: Vec::new(),
        },
        drift: DRIFT,
        skew: ms(100),
        seals_requests: false,
        speaks: Versions::OURS,
        timings: Timings {
            heartbeat: ms(100),
            ping: ms(100),
            silent_after: ms(1_000),
            poll: ms(100),
            attach_poll: ms(50),
            body_within: ms(5_000),
            claim_within: ms(2_000),
            settle_within: SETTLE_WITHIN,
            probe_within: ms(1_000),
            jobs_poll: ms(200),
            sweep: SWEEP,
            reap: ms(1_000),
            reap_pause: ms(20),
        },
        shadow: false,
        upstream_health: None,
    }
}

/// A route of this name, which is its path, too.
pub fn route(name: &str, policy: Policy) -> Route {
    Route {
        name: Arc::from(name),
        methods: vec![Method::POST],
        path: PathPattern::parse(&format!("/{name}")).unwrap(),
        protection: Protection::Required,
        terms: Arc::new(policy),
        allow_overrides: false,
    }
}

/// The policy of a route that waits, whose keys live for so long, and are refused for as long.
pub fn policy(recovery: Recovery, hold: Duration, life: Duration) -> Policy {
    Policy {
        key_headers: KeyHeaders::default(),
        upstream: None,
        syntax: Syntax::Lenient,
        key_policy: KeyPolicy::default(),
        fingerprint: None,
        fingerprint_headers: Vec::new(),
        mismatch: Mismatch::Unprocessable,
        dialect: Dialect::Plain,
        recovery,
        probe: Some(Uri::from_static("/status")),
        hold,
        wait: ms(2_000),
        upstream_timeout: UPSTREAM,
        settle_time: SETTLE_TIME,
        status_ends_attempt: false,
        escrow: Escrow::Off,
        retention: Retention::For(life),
        tombstone: life,
        body_limit: 1 << 16,
        stored_limit: 1 << 10,
        outcomes: OutcomeSets::default(),
        replay_headers: Vec::new(),
        keep_headers: Vec::new(),
        mode: Mode::Sync,
        accept: ACCEPT,
        bind: Binding::Tenant,
    }
}

/// An upstream that performs a request and answers 201 so many milliseconds later.
pub const fn receipt(after: u64) -> UpstreamMode {
    UpstreamMode::Receipt { after: ms(after) }
}

/// An upstream that answers this status so many milliseconds later.
pub fn says(after: u64, status: u16, effect: bool) -> UpstreamMode {
    UpstreamMode::Answer { after: ms(after), status, body: Bytes::new(), effect }
}

pub fn request(path: &str, key: &str, text: &str) -> Request<Body> {
    Request::post(path)
        .header("authorization", "Bearer sk")
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body::full(text.to_owned()))
        .unwrap()
}

/// The same with another value of one header.
pub fn request_with(path: &str, key: &str, text: &str, (name, value): (&'static str, &str)) -> Request<Body> {
    let mut request = request(path, key, text);
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// A forward as a peer would send it.
pub fn forward(path: &str, key: &str) -> Forward {
    let (head, _) = request(path, key, "").into_parts();
    Forward {
        id: id(key),
        principal: None,
        method: Method::POST,
        target: Uri::try_from(path).unwrap(),
        headers: head.headers,
        body: Bytes::from_static(b"{}"),
        request_id: RequestId(1),
        epoch: 1,
        deadline: ms(10_000),
    }
}

pub fn question(key: &str, token: &str) -> Request<Body> {
    let question = Request::get(format!("/.well-known/onceway/requests/{key}"));
    question.header("authorization", format!("Bearer {token}")).body(body::empty()).unwrap()
}

/// The result of a request for its client; status 0 if its connection broke.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAnswer {
    pub status: u16,
    /// The code of a problem; empty on an answer.
    pub code: String,
    pub replayed: bool,
    /// The region that ran it, as the answer says.
    pub by: String,
    /// The time to wait before the next try, in seconds.
    pub retry_after: Option<u64>,
    pub body: Bytes,
}

impl ClientAnswer {
    pub fn said(&self) -> (u16, &str) {
        (self.status, &self.code)
    }
}

pub async fn read_answer(response: Response<Body>) -> ClientAnswer {
    let (head, rest) = response.into_parts();
    let Collected::Whole(bytes) = body::collect(rest, 1 << 20).await.unwrap() else {
        panic!("an answer of more than a megabyte")
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let code = text.split_once("\"code\":\"").and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
    let header = |name: &str| head.headers.get(name).map(|text| text.to_str().unwrap()).unwrap_or_default();
    ClientAnswer {
        status: head.status.as_u16(),
        code: code.unwrap_or_default(),
        replayed: header("idempotent-replayed") == "true",
        by: header("onceway-region").to_owned(),
        retry_after: header("retry-after").parse().ok(),
        body: bytes,
    }
}

pub type Gate = Arc<Gateway<SimPorts>>;

/// The gateways of one simulated world, and clients that ask them.
pub struct Fleet {
    pub world: Arc<World>,
    nodes: Mutex<BTreeMap<RegionName, Node>>,
}

impl Fleet {
    pub fn new(world: Arc<World>) -> Arc<Self> {
        Arc::new(Self { world, nodes: Mutex::default() })
    }

    pub fn launch(&self, settings: Settings, ring: &Arc<Ring>) -> Node {
        let ports = self.world.ports(&settings.me);
        let (process, clock) = (ports.process().clone(), ports.clock().clone());
        let gateway = Gateway::new(ports, settings, View::unfounded(ring.clone())).unwrap();
        gateway.start(None);
        Node { gateway, process, clock }
    }

    /// Puts a process in its region's place. The one before lives on, if somebody has it.
    pub fn put(&self, name: &RegionName, node: Node) {
        self.world.network.plug_process(name.clone(), Arc::new(node.gateway.clone()), node.process.clone());
        self.nodes.lock().unwrap().insert(name.clone(), node);
    }

    pub fn node(&self, name: &RegionName) -> Node {
        self.nodes.lock().unwrap()[name].clone()
    }

    pub fn gateway(&self, name: &RegionName) -> Gate {
        self.node(name).gateway
    }

    pub fn serves(&self, name: &RegionName) -> bool {
        self.gateway(name).readiness().serves
    }

    /// Sends a request to a region's gateway; its connection breaks with the process.
    pub async fn send(&self, to: &RegionName, path: &str, key: &str) -> ClientAnswer {
        let node = self.node(to);
        if node.process.is_dead() {
            return ClientAnswer::default();
        }
        let asking = async {
            node.process.runs().await;
            let answer = ask(&node.gateway, path, key, "{}").await;
            node.process.runs().await;
            answer
        };
        node.process.while_alive(asking).await.unwrap_or_default()
    }

    /// Sends a request beside the test.
    pub fn begin(self: &Arc<Self>, to: &RegionName, path: &str, key: &str) -> JoinHandle<ClientAnswer> {
        let (fleet, to, path, key) = (self.clone(), to.clone(), path.to_owned(), key.to_owned());
        tokio::spawn(async move { fleet.send(&to, &path, &key).await })
    }

    /// The same, so long after it was sent.
    pub async fn begun(
        self: &Arc<Self>,
        to: &RegionName,
        path: &str,
        key: &str,
        after: Duration,
    ) -> JoinHandle<ClientAnswer> {
        let begun = self.begin(to, path, key);
        sleep(after).await;
        begun
    }

    /// The state of a key in a region's store, as an operator sees it.
    pub async fn state(&self, at: &RegionName, key: &str) -> &'static str {
        self.gateway(at).key_status(&id(key)).await.unwrap().state
    }

    pub fn effects(&self, key: &str) -> Vec<Happening> {
        self.world.upstreams.effects(&id(key))
    }

    pub fn store(&self, at: &RegionName, mode: StoreMode) {
        self.world.cluster.set_mode(at, mode);
    }

    pub fn upstream(&self, at: &RegionName, mode: UpstreamMode) {
        self.world.upstreams.set_mode(at, mode);
    }
}

pub async fn ask(gateway: &Gate, path: &str, key: &str, text: &str) -> ClientAnswer {
    read_answer(gateway.handle(request(path, key, text)).await).await
}
