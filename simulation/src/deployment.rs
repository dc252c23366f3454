//! A whole deployment of real gateways over a simulated world: processes that start, die and come back, and requests as clients send them.
//!
//! Neighbours: [`crate::world`] has everything below the gateways, [`crate::play`] has clients and faults act on it. It must not look
//! into a gateway but as an operator does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, StatusCode};
use onceway::gateway::credentials::{Caller, Credentials, Voucher, digest};
use onceway::gateway::live::Reload;
use onceway::gateway::route::{Escrow, Policy, Protection, Route, Routes};
use onceway::gateway::{Gateway, Settings};
use onceway::ports::Body;
use onceway::ports::body::{self, Collected};
use onceway::protocol::lifetime::Retention;
use onceway::protocol::region::RegionName;
use onceway::protocol::view::View;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::SimClock;
use crate::cluster::StoreMode;
use crate::peers::{LinkMode, Region};
use crate::ports::SimPorts;
use crate::process::Process;
use crate::rivals::gateway::Rival;
use crate::rivals::{Design, Rivals};
use crate::scenario::Scenario;
use crate::scenario::workload::tenant;
use crate::upstream::UpstreamMode;
use crate::world::World;

/// One gateway process.
#[derive(Clone)]
pub struct Node {
    /// The gateway.
    pub gateway: Arc<Gateway<SimPorts>>,
    /// Its process: to be paused or killed.
    pub process: Process,
    /// Its clocks: to be made to drift.
    pub clock: SimClock,
    /// Who answers in the gateway's place, where another design is played. The gateway is never started then.
    rival: Option<Arc<Rival>>,
}

/// The largest answer that a client takes.
const ANSWER_LIMIT: usize = 1 << 20;
/// How long a deployment may take until all regions serve, and how long it runs after that before anything is asked: until a lag was measured.
const START_WITHIN: Duration = Duration::from_secs(60);
const MEASURED: Duration = Duration::from_secs(2);

/// How fast the clocks of clients run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How much they count in a second.
    pub per_second: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { per_second: Duration::from_secs(1) }
    }
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An answer or a problem.
    Told {
        /// Its status.
        status: StatusCode,
        /// The code of a problem; empty on an answer.
        code: String,
        /// Whether it is a replay.
        replayed: bool,
        /// The region that is said to have run it; empty if none is.
        by: String,
        /// When to come again.
        retry_after: Option<Duration>,
        /// The body.
        body: bytes::Bytes,
    },
    /// The connection broke, or could not be made.
    Broken,
    /// Nothing came in time.
    TimedOut,
}

/// The deployment.
pub struct Deployment {
    /// Everything below the gateways.
    pub world: Arc<World>,
    scenario: Arc<Scenario>,
    regions: Vec<RegionName>,
    credentials: Arc<Credentials>,
    nodes: Mutex<BTreeMap<RegionName, Node>>,
    /// Regions without links: a link to one of them stays cut when its other end is mended.
    cut_off: Mutex<BTreeSet<RegionName>>,
    /// Where the clocks of clients are off.
    paces: Mutex<BTreeMap<RegionName, Pace>>,
    /// Where keys are remembered for another time than the scenario says, from the next process on.
    retentions: Mutex<BTreeMap<RegionName, Duration>>,
    /// Regions whose routes have changed names.
    renamed: Mutex<BTreeSet<RegionName>>,
    /// Until when an attempt may have been dated years ahead: then its hold is of that date.
    dated_ahead: Mutex<Option<Duration>>,
    /// The shortest of those times that ever was.
    shortest_retention: Mutex<Option<Duration>>,
    /// Which region was lost when, since the world began.
    losses: Mutex<Vec<(RegionName, Duration)>>,
    design: Design,
    rivals: Arc<Rivals>,
}

impl Deployment {
    /// Founds the deployment and waits until all its regions serve.
    ///
    /// # Errors
    /// Why they do not, as the regions say.
    pub async fn start(scenario: &Arc<Scenario>, seed: u64, design: Design) -> Result<Arc<Self>, String> {
        let shared = &scenario.shared;
        let regions: Vec<RegionName> =
            shared.ring.regions().iter().map(|region| region.name.clone()).collect();
        let world = Arc::new(World::new(seed, &regions, scenario.upstream.one_for_all));
        for witness in &shared.failover.witnesses {
            world.add_witness(witness, shared.drift);
        }
        let mut credentials = Credentials::default();
        let tenants = scenario.workloads.iter().map(|workload| workload.tenants).max().unwrap_or(0);
        for number in 0..tenants {
            let caller = Caller::new(tenant(number), Voucher::File, None);
            credentials.insert(digest(token(number).as_bytes()), caller);
        }
        let (scenario, credentials) = (scenario.clone(), Arc::new(credentials));
        let rivals = Rivals::new(world.cluster.clone(), &regions);
        let deployment = Self {
            world,
            scenario,
            regions,
            credentials,
            nodes: Mutex::default(),
            cut_off: Mutex::default(),
            paces: Mutex::default(),
            retentions: Mutex::default(),
            renamed: Mutex::default(),
            dated_ahead: Mutex::default(),
            shortest_retention: Mutex::default(),
            losses: Mutex::default(),
            design,
            rivals,
        };
        let deployment = Arc::new(deployment);
        deployment.all_links(false);
        for region in &deployment.regions {
            deployment.normal_store(region);
            deployment.normal_upstream(region);
        }
        deployment.world.found(shared.ring.clone(), shared.escrow(), &shared.routes);
        deployment.regions.iter().for_each(|region| deployment.begin_process(region));
        deployment.until(START_WITHIN, || deployment.is_home()).await.map_err(|()| deployment.shown())?;
        sleep(MEASURED).await;
        Ok(deployment)
    }

    /// All regions, in the ring's order.
    pub fn regions(&self) -> &[RegionName] {
        &self.regions
    }

    /// Who protects the upstreams.
    pub fn design(&self) -> Design {
        self.design
    }

    /// What is played on it.
    pub fn scenario(&self) -> &Arc<Scenario> {
        &self.scenario
    }

    /// Starts a new gateway process in a region's place. The one before lives on, if it does.
    pub fn begin_process(&self, region: &RegionName) {
        let ports = self.world.ports(region);
        let (process, clock) = (ports.process().clone(), onceway::ports::Ports::clock(&ports).clone());
        let rival = (self.design != Design::Onceway).then(|| ports.clone());
        let generation = self.world.cluster.origin(region).generation;
        let mut told: Settings =
            self.scenario.shared.settings(region.clone(), generation, self.credentials.clone());
        let retentions = self.retentions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(retention) = retentions.get(region) {
            told.routes = remembering(&told.routes, *retention);
        }
        drop(retentions);
        if self.renamed.lock().unwrap_or_else(PoisonError::into_inner).contains(region) {
            told.routes = renamed(&told.routes);
        }
        let view = View::unfounded(self.scenario.shared.ring.clone());
        let Ok(gateway) = Gateway::new(ports, told, view) else { panic!("a scenario that was checked") };
        let rival = rival
            .map(|ports| Rival::new(region.clone(), self.design, self.rivals.clone(), &self.scenario, ports));
        let answers: Arc<dyn Region> = match &rival {
            Some(rival) => {
                rival.start();
                Arc::new(rival.clone())
            }
            None => {
                gateway.start(None);
                Arc::new(gateway.clone())
            }
        };
        self.world.network.plug_process(region.clone(), answers, process.clone());
        self.nodes().insert(region.clone(), Node { gateway, process, clock, rival });
    }

    /// A region's newest process.
    pub fn node(&self, region: &RegionName) -> Node {
        let Some(node) = self.nodes().get(region).cloned() else {
            panic!("no region {region} in this deployment")
        };
        node
    }

    /// Whether a region runs keys.
    pub fn serves(&self, region: &RegionName) -> bool {
        let node = self.node(region);
        match self.design {
            Design::Onceway => !node.process.is_dead() && node.gateway.readiness().serves,
            Design::Local | Design::Sticky => !node.process.is_dead(),
        }
    }

    /// Whether every region that is to own keys serves in the eyes of all, has opened everything and holds its lease.
    pub fn is_home(&self) -> bool {
        if self.design != Design::Onceway {
            return self.regions.iter().all(|region| self.serves(region));
        }
        let owners = || self.regions.iter().filter(|region| self.is_owner(region));
        let gate = |region: &RegionName| self.world.cluster.gate(region);
        let seen =
            |by: &RegionName| gate(by).is_some_and(|gate| owners().all(|region| gate.view.serves(region)));
        let open = |region: &RegionName| gate(region).is_some_and(|gate| gate.is_open());
        self.regions.iter().all(seen) && owners().all(|region| self.serves(region) && open(region))
    }

    fn is_owner(&self, region: &RegionName) -> bool {
        self.scenario.shared.ring.weight(region).is_some_and(|weight| weight > 0)
    }

    /// Waits until the condition holds.
    ///
    /// # Errors
    /// If it does not within this time.
    pub async fn until(&self, within: Duration, mut condition: impl FnMut() -> bool) -> Result<(), ()> {
        let end = Instant::now() + within;
        while !condition() {
            if Instant::now() >= end {
                return Err(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// What each region says of itself.
    pub fn shown(&self) -> String {
        let of = |region: &RegionName| {
            let gateway = self.node(region).gateway;
            format!("{region}: {:?} {:?}", gateway.readiness().reasons, gateway.authority_status())
        };
        self.regions.iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Sends a request to a region's gateway, which breaks with its process. Gives up after `within`, as a client does.
    pub async fn send(&self, to: &RegionName, request: Request<Body>, within: Duration) -> Reply {
        let node = self.node(to);
        if node.process.is_dead() {
            return Reply::Broken;
        }
        let asking = async {
            node.process.runs().await;
            let response = match &node.rival {
                Some(rival) => rival.handle(request).await,
                None => node.gateway.handle(request).await,
            };
            let reply = told(response).await;
            node.process.runs().await;
            reply
        };
        match timeout(within, node.process.while_alive(asking)).await {
            Ok(Some(reply)) => reply,
            Ok(None) => Reply::Broken,
            Err(_) => Reply::TimedOut,
        }
    }

    /// The whole region is gone: process, store and links.
    pub fn lose(&self, region: &RegionName) {
        self.losses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((region.clone(), self.world.elapsed()));
        self.node(region).process.kill();
        self.world.cluster.kill(region);
        self.cut_off(region, true);
        for other in self.regions.iter().filter(|other| *other != region) {
            self.world.cluster.sever(region, other, self.on_its_way(region, other));
        }
    }

    /// Whether what a region wrote at this time, since the world began, had not left it when it was lost.
    pub fn never_left(&self, region: &RegionName, written: Duration) -> bool {
        let others = self.regions.iter().filter(|other| *other != region);
        let way = others.map(|other| self.on_its_way(region, other)).min().unwrap_or_default();
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.iter().any(|(lost, at)| lost == region && written <= *at && *at < written + way)
    }

    /// For how long a row is on its way from one region to another. From then on it waits there, and outlives the region that it is from.
    pub fn on_its_way(&self, from: &RegionName, to: &RegionName) -> Duration {
        let network = &self.scenario.network;
        network.one_way(from, to) + network.replication
    }

    /// It is back, with its store as it is then: Postgres starts anew, and so does a gateway.
    pub fn bring_back(&self, region: &RegionName) {
        self.normal_store(region);
        self.world.cluster.restart(region);
        self.cut_off(region, false);
        self.begin_process(region);
    }

    /// Cuts all links of a region, or mends them: calls are swallowed, replication stands still.
    pub fn cut_off(&self, region: &RegionName, cut: bool) {
        let others_cut = {
            let mut off = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
            if cut {
                off.insert(region.clone());
            } else {
                off.remove(region);
            }
            off.clone()
        };
        for other in self.regions.iter().filter(|other| *other != region) {
            self.cut(region, other, cut || others_cut.contains(other));
        }
        for witness in &self.scenario.shared.failover.witnesses {
            let mode = if cut { LinkMode::Silent } else { LinkMode::Up };
            let one_way = self.scenario.network.one_way(region, witness);
            self.world.network.set_link(region, witness, mode, one_way);
        }
    }

    /// Cuts one link both ways, or mends it.
    pub fn cut(&self, one: &RegionName, other: &RegionName, cut: bool) {
        self.world.cut(one, other, cut, self.scenario.network.one_way(one, other));
    }

    fn all_links(&self, cut: bool) {
        self.regions.iter().for_each(|region| self.cut_off(region, cut));
        for from in &self.regions {
            for to in self.regions.iter().filter(|to| *to != from) {
                self.normal_replication(from, to);
            }
        }
    }

    /// Lets rows of the one flow to the other at the pace that the scenario gives.
    pub fn normal_replication(&self, from: &RegionName, to: &RegionName) {
        self.world.cluster.set_delay(from, to, self.on_its_way(from, to));
    }

    /// Lets a region's store execute statements at the pace that the scenario gives.
    pub fn normal_store(&self, region: &RegionName) {
        self.world.cluster.set_mode(region, StoreMode::Up);
        self.world.cluster.set_latency(region, self.scenario.statement);
    }

    /// Lets a region's upstream answer as the scenario says: 201 with a receipt that no other attempt gets.
    pub fn normal_upstream(&self, region: &RegionName) {
        let after = self.scenario.upstream.answers_after;
        self.world.upstreams.set_mode(region, UpstreamMode::Receipt { after });
    }

    /// Lets the clocks of clients that ask a region run so fast.
    pub fn set_client_pace(&self, region: &RegionName, pace: Pace) {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner).insert(region.clone(), pace);
    }

    /// How long it takes until a client that asks this region takes that time to be over.
    pub fn by_client(&self, region: &RegionName, span: Duration) -> Duration {
        let paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = paces.get(region).copied().unwrap_or_default();
        span.mul_f64(1.0 / pace.per_second.as_secs_f64())
    }

    /// Lets the next processes of a region remember keys for this long only; `None`: as the
    /// scenario says.
    pub fn set_retention(&self, region: &RegionName, retention: Option<Duration>) {
        let mut retentions = self.retentions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shortest = self.shortest_retention.lock().unwrap_or_else(PoisonError::into_inner);
        *shortest = shortest.into_iter().chain(retention).min();
        match retention {
            Some(retention) => retentions.insert(region.clone(), retention),
            None => retentions.remove(region),
        };
    }

    /// Lets a region read routes whose names have changed, or those of the scenario again: its
    /// gateway now, and those that start later.
    pub fn set_renamed(&self, region: &RegionName, changed: bool) {
        let mut all = self.renamed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed {
            all.insert(region.clone())
        } else {
            all.remove(region)
        };
        drop(all);
        let shared = &self.scenario.shared;
        let told: Settings = shared.settings(region.clone(), 1, self.credentials.clone());
        self.node(region).gateway.reload(Reload {
            routes: if changed { renamed(&told.routes) } else { told.routes },
            credentials: told.credentials,
            quota: told.quota,
            most_at_once: told.most_at_once,
            shared: told.shared,
            restart: Vec::new(),
        });
    }

    /// The clock of a database was years ahead until now.
    pub fn note_dated_ahead(&self) {
        *self.dated_ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.world.elapsed());
    }

    /// Until when an attempt may have been dated years ahead; `None`: never.
    pub fn dated_ahead_until(&self) -> Option<Duration> {
        *self.dated_ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shortest time for which any region was ever told to remember keys; `None`: always as the
    /// scenario says.
    pub fn shortest_retention(&self) -> Option<Duration> {
        *self.shortest_retention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<RegionName, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same routes, of which the first under escrow and the first without change names: each path
/// keeps its policy, but the one under the other's name is under escrow now.
fn renamed(routes: &Routes) -> Routes {
    let escrow = |route: &Route| route.policy().map_or(Escrow::Off, |policy| policy.escrow);
    let at = |lodged: bool| routes.0.iter().position(|route| (escrow(route) != Escrow::Off) == lodged);
    let mut renamed = routes.clone();
    if let (Some(one), Some(other)) = (at(true), at(false)) {
        for (at, from) in [(one, other), (other, one)] {
            let (name, escrow) = (routes.0[from].name.clone(), escrow(&routes.0[from]));
            renamed.0[at] = with_policy(&renamed.0[at], |policy| Policy { escrow, ..policy });
            renamed.0[at].name = name;
        }
    }
    renamed
}

/// The same route under another policy, if it looks at keys.
fn with_policy(route: &Route, change: impl Fn(Policy) -> Policy) -> Route {
    let changed = |policy: &Arc<Policy>| Arc::new(change(Policy::clone(policy)));
    let protection = match &route.protection {
        off @ Protection::Off { .. } => off.clone(),
        Protection::Optional(policy) => Protection::Optional(changed(policy)),
        Protection::Required(policy) => Protection::Required(changed(policy)),
    };
    Route { protection, ..route.clone() }
}

/// The same routes, whose keys are remembered for this long, and their tombstones for as long
/// again.
fn remembering(routes: &Routes, retention: Duration) -> Routes {
    let lowered = |policy| Policy { retention: Retention::For(retention), tombstone: retention, ..policy };
    Routes(routes.0.iter().map(|route| with_policy(route, lowered)).collect())
}

/// The API token of a tenant by its number.
pub fn token(number: u32) -> String {
    format!("sk_{number}")
}

/// A request as a client sends it.
pub fn request(path: &str, tenant: u32, key: &str, wanted: &'static str) -> Request<Body> {
    let request = Request::post(path)
        .header("authorization", format!("Bearer {}", token(tenant)))
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body::full(wanted));
    let Ok(request) = request else { panic!("a path of a scenario that was checked") };
    request
}

async fn told(response: http::Response<Body>) -> Reply {
    let (head, rest) = response.into_parts();
    let body = match body::collect(rest, ANSWER_LIMIT).await {
        Ok(Collected::Whole(body)) => body,
        Ok(Collected::Over(..)) | Err(_) => return Reply::Broken,
    };
    let header = |name: &str| head.headers.get(name).and_then(|text| text.to_str().ok()).unwrap_or_default();
    let problem = header("content-type").starts_with("application/problem+json");
    let text = String::from_utf8_lossy(&body);
    let code = text
        .split_once("\"code\":\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(code, _)| code.to_owned());
    Reply::Told {
        status: head.status,
        code: code.filter(|_| problem).unwrap_or_default(),
        replayed: header("idempotent-replayed") == "true",
        by: header("onceway-region").to_owned(),
        retry_after: header("retry-after").parse().ok().map(Duration::from_secs),
        body: body.clone(),
    }
}
