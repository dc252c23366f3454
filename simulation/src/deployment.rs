//! A whole deployment of real gateways over a simulated world. Processes start, die and come back;
//! clients send requests.
//!
//! Clients and faults of [`crate::play`] act on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, StatusCode};
use onceway::config::shared::Shared;
use onceway::gateway::authority::register::witness::Duty;
use onceway::gateway::credentials::caller::{Caller, Voucher};
use onceway::gateway::credentials::{Credentials, digest};
use onceway::gateway::instance::Gateway;
use onceway::gateway::policy::route::{Escrow, Policy, Route, Routes};
use onceway::gateway::reloadable::Reload;
use onceway::ports::Body;
use onceway::ports::body::{self, Collected};
use onceway::protocol::lifetime::Retention;
use onceway::protocol::region::RegionName;
use onceway::protocol::versions::Versions;
use onceway::protocol::view::View;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::SimClock;
use crate::cluster::StoreMode;
use crate::peers::LinkMode;
use crate::ports::SimPorts;
use crate::process::{Process, locked};
use crate::scenario::Scenario;
use crate::scenario::workload::tenant;
use crate::upstream::UpstreamMode;
use crate::words::joined;
use crate::world::World;

#[derive(Clone)]
pub struct Node {
    pub gateway: Arc<Gateway<SimPorts>>,
    pub process: Process,
    pub clock: SimClock,
}

const ANSWER_LIMIT: usize = 1 << 20;
/// The time limit until all regions serve, and the time after that in which a lag is measured.
const START_WITHIN: Duration = Duration::from_secs(60);
const MEASURED: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Answered {
        status: StatusCode,
        /// The code of a problem; empty on an answer.
        code: String,
        /// True if it was stored before.
        replayed: bool,
        /// The region that ran it, as the answer says; empty if it names none.
        by: String,
        retry_after: Option<Duration>,
        body: bytes::Bytes,
    },
    /// The connection broke, or could not be made.
    Broken,
    TimedOut,
}

impl Reply {
    /// True for an upstream's answer.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Answered { status, .. } if status.is_success() && *status != StatusCode::ACCEPTED)
    }

    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Answered { code, .. } => code,
            Self::Broken | Self::TimedOut => "",
        }
    }
}

pub struct Deployment {
    /// Everything below the gateways.
    pub world: Arc<World>,
    pub scenario: Arc<Scenario>,
    regions: Vec<RegionName>,
    credentials: Arc<Credentials>,
    nodes: Mutex<BTreeMap<RegionName, Node>>,
    /// Regions without links: a link to one of them stays cut when its other end is mended.
    cut_off: Mutex<BTreeSet<RegionName>>,
    /// The time that clients' clocks count in a second, by the region that they ask.
    paces: Mutex<BTreeMap<RegionName, Duration>>,
    /// The routes in the files of each region.
    files: Mutex<BTreeMap<RegionName, Files>>,
    /// The shortest time for which keys were ever to be remembered, if not as the scenario says.
    shortest_retention: Mutex<Option<Duration>>,
    /// The losses of regions, with their times since the world began.
    losses: Mutex<Vec<(RegionName, Duration)>>,
}

impl Deployment {
    /// Founds the deployment and waits until all its regions serve, or says why they do not.
    pub async fn start(scenario: &Arc<Scenario>, seed: u64) -> Result<Arc<Self>, String> {
        let shared = &scenario.shared;
        let regions: Vec<RegionName> =
            shared.ring.regions().iter().map(|region| region.name.clone()).collect();
        let world = Arc::new(World::new(seed, &regions, scenario.upstream.one_for_all));
        for witness in &shared.failover.witnesses {
            world.add_witness(Duty {
                me: witness.clone(),
                ring: shared.ring.clone(),
                drift: shared.drift,
                speaks: Versions::OURS,
            });
        }
        let mut credentials = Credentials::default();
        let tenants = scenario.workloads.iter().map(|workload| workload.tenants).max().unwrap_or(0);
        for number in 0..tenants {
            let caller = Caller::new(tenant(number), Voucher::File, None);
            credentials.insert(digest(token(number).as_bytes()), caller);
        }
        let (scenario, credentials) = (scenario.clone(), Arc::new(credentials));
        let deployment = Self {
            world,
            scenario,
            regions,
            credentials,
            nodes: Mutex::default(),
            cut_off: Mutex::default(),
            paces: Mutex::default(),
            files: Mutex::default(),
            shortest_retention: Mutex::default(),
            losses: Mutex::default(),
        };
        let deployment = Arc::new(deployment);
        deployment.regions.iter().for_each(|region| deployment.cut_off(region, false));
        for region in &deployment.regions {
            let others = deployment.regions.iter().filter(|other| *other != region);
            others.for_each(|other| deployment.normal_replication(region, other));
            deployment.normal_store(region);
            deployment.normal_upstream(region);
        }
        deployment.world.upstreams.promise(deployment.world.cluster.clone());
        let Shared { ring, routes, failover, skew, .. } = shared;
        deployment.world.found(ring.clone(), shared.escrow(), routes, failover.lease, *skew);
        deployment.regions.iter().for_each(|region| deployment.begin_process(region));
        let end = Instant::now() + START_WITHIN;
        while !deployment.is_home() {
            if Instant::now() >= end {
                return Err(deployment.shown());
            }
            sleep(Duration::from_millis(50)).await;
        }
        sleep(MEASURED).await;
        Ok(deployment)
    }

    /// All regions, in the ring's order.
    pub fn regions(&self) -> &[RegionName] {
        &self.regions
    }

    /// Starts a new gateway process in a region's place. The one before lives on, if it does.
    pub fn begin_process(&self, region: &RegionName) {
        let ports = self.world.ports(region);
        let (process, clock) = (ports.process().clone(), onceway::ports::Ports::clock(&ports).clone());
        let generation = self.world.cluster.origin(region).generation;
        let mut settings =
            self.scenario.shared.settings(region.clone(), generation, self.credentials.clone());
        let files = self.files(region);
        settings.live.routes = files.routes(&settings.live.routes);
        settings.failover.lease = files.lease.unwrap_or(settings.failover.lease);
        let view = View::unfounded(self.scenario.shared.ring.clone());
        let Ok(gateway) = Gateway::new(ports, settings, view) else { panic!("a scenario that was checked") };
        gateway.start(None);
        self.world.network.plug_process(region.clone(), Arc::new(gateway.clone()), process.clone());
        locked(&self.nodes).insert(region.clone(), Node { gateway, process, clock });
    }

    /// The newest gateway process of a region.
    pub fn node(&self, region: &RegionName) -> Node {
        let node = locked(&self.nodes).get(region).cloned();
        node.unwrap_or_else(|| panic!("no region {region} in this deployment"))
    }

    /// True if a region's newest gateway lives and serves.
    pub fn serves(&self, region: &RegionName) -> bool {
        let node = self.node(region);
        !node.process.is_dead() && node.gateway.readiness().serves
    }

    /// True if every owner serves in all regions' views, has opened everything and holds its lease.
    pub fn is_home(&self) -> bool {
        let ring = &self.scenario.shared.ring;
        let is_owner = |region: &&RegionName| ring.weight(region).is_some_and(|weight| weight > 0);
        let owners = || self.regions.iter().filter(is_owner);
        let gate = |region: &RegionName| self.world.cluster.gate(region);
        let seen =
            |by: &RegionName| gate(by).is_some_and(|gate| owners().all(|region| gate.view.serves(region)));
        let open = |region: &RegionName| gate(region).is_some_and(|gate| gate.is_open());
        self.regions.iter().all(seen) && owners().all(|region| self.serves(region) && open(region))
    }

    pub fn shown(&self) -> String {
        let of = |region: &RegionName| {
            let gateway = self.node(region).gateway;
            format!("{region}: {:?} {:?}", gateway.readiness().reasons, gateway.authority_status())
        };
        joined(self.regions.iter().map(of), "; ")
    }

    /// Sends a request to a region's gateway, which breaks with its process, or gives up.
    pub async fn send(&self, to: &RegionName, request: Request<Body>, within: Duration) -> Reply {
        let node = self.node(to);
        if node.process.is_dead() {
            return Reply::Broken;
        }
        let asking = async {
            node.process.runs().await;
            let reply = read_reply(node.gateway.handle(request).await).await;
            node.process.runs().await;
            reply
        };
        match timeout(within, node.process.while_alive(asking)).await {
            Ok(Some(reply)) => reply,
            Ok(None) => Reply::Broken,
            Err(_) => Reply::TimedOut,
        }
    }

    /// Loses a whole region: process, store and links.
    pub fn lose(&self, region: &RegionName) {
        locked(&self.losses).push((region.clone(), self.world.elapsed()));
        self.node(region).process.kill();
        self.world.cluster.kill(region);
        self.cut_off(region, true);
        for other in self.regions.iter().filter(|other| *other != region) {
            self.world.cluster.sever(region, other, self.on_its_way(region, other));
        }
    }

    /// True if a region's write at this time, since the world began, had not left it when lost.
    pub fn never_left(&self, region: &RegionName, written: Duration) -> bool {
        let others = self.regions.iter().filter(|other| *other != region);
        let way = others.map(|other| self.on_its_way(region, other)).min().unwrap_or_default();
        let losses = locked(&self.losses);
        losses.iter().any(|(lost, at)| lost == region && written <= *at && *at < written + way)
    }

    /// The travel time of a row. After it the row waits there, and outlives the loss of its region.
    pub fn on_its_way(&self, from: &RegionName, to: &RegionName) -> Duration {
        let network = &self.scenario.network;
        network.one_way(from, to) + network.replication
    }

    /// Brings a region back with its store as it is: Postgres starts anew, and so does a gateway.
    pub fn bring_back(&self, region: &RegionName) {
        self.normal_store(region);
        self.world.cluster.restart(region);
        self.cut_off(region, false);
        self.begin_process(region);
    }

    /// Cuts all links of a region, or mends them: calls are swallowed, replication stands still.
    pub fn cut_off(&self, region: &RegionName, cut: bool) {
        let others_cut = {
            let mut off = locked(&self.cut_off);
            let _changed = if cut { off.insert(region.clone()) } else { off.remove(region) };
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

    pub fn normal_replication(&self, from: &RegionName, to: &RegionName) {
        self.world.cluster.set_delay(from, to, self.on_its_way(from, to));
    }

    pub fn normal_store(&self, region: &RegionName) {
        self.world.cluster.set_mode(region, StoreMode::Up);
        self.world.cluster.set_latency(region, self.scenario.statement);
    }

    /// Lets a region's upstream answer 201, with a receipt that no other attempt gets.
    pub fn normal_upstream(&self, region: &RegionName) {
        let after = self.scenario.upstream.answers_after;
        self.world.upstreams.set_mode(region, UpstreamMode::Receipt { after });
    }

    /// Lets the clocks of clients that ask a region count so much in a second.
    pub fn set_client_pace(&self, region: &RegionName, per_second: Duration) {
        locked(&self.paces).insert(region.clone(), per_second);
    }

    /// The true time until a client of this region believes that the span is over.
    pub fn by_client(&self, region: &RegionName, span: Duration) -> Duration {
        let per_second = locked(&self.paces).get(region).copied().unwrap_or(Duration::from_secs(1));
        span.mul_f64(1.0 / per_second.as_secs_f64())
    }

    pub fn files(&self, region: &RegionName) -> Files {
        locked(&self.files).get(region).copied().unwrap_or_default()
    }

    /// Writes a region's files: processes go by them once they start or read them again.
    pub fn write_files(&self, region: &RegionName, change: impl FnOnce(&mut Files)) {
        let mut files = locked(&self.files);
        let written = files.entry(region.clone()).or_default();
        change(written);
        let mut shortest = locked(&self.shortest_retention);
        *shortest = shortest.into_iter().chain(written.retention).min();
    }

    pub async fn read_again(&self, region: &RegionName) {
        let answer = self.scenario.shared.settings(region.clone(), 1, self.credentials.clone()).live;
        let node = self.node(region);
        let routes = self.files(region).routes(&answer.routes);
        // If the process ends meanwhile, the next one reads them when it begins.
        let Some(()) = node.process.while_alive(node.gateway.agree_on_lives(&routes)).await else { return };
        node.gateway.reload(Reload { routes, ..answer });
    }

    /// The shortest retention that any region ever had; `None`: always as the scenario says.
    pub fn shortest_retention(&self) -> Option<Duration> {
        *locked(&self.shortest_retention)
    }
}

/// The differences of a region's files from the scenario's routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// For how long keys are remembered, and their tombstones for as long again.
    pub retention: Option<Duration>,
    /// The first route under escrow and the first without have changed names.
    pub renamed: bool,
    /// The first route under escrow is not, and the first without is.
    pub escrow_moved: bool,
    /// Holds and settle times are twice as long.
    pub patient: bool,
    /// Duration of a lease, if not as the scenario says.
    pub lease: Option<Duration>,
}

impl Files {
    fn routes(self, routes: &Routes) -> Routes {
        let all = if self.renamed { renamed(routes) } else { routes.clone() };
        let all = if self.escrow_moved { with_escrow_moved(&all) } else { all };
        let times = if self.patient { 2 } else { 1 };
        let changed = |policy: Policy| Policy {
            retention: self.retention.map_or(policy.retention, Retention::For),
            tombstone: self.retention.unwrap_or(policy.tombstone),
            hold: policy.hold * times,
            settle_time: policy.settle_time * times,
            ..policy
        };
        Routes(all.0.iter().map(|route| with_policy(route, changed)).collect())
    }
}

/// The places of the first route under escrow and the first without, each with the other.
fn exchanged(routes: &Routes) -> Vec<(usize, usize)> {
    let at = |lodged: bool| routes.0.iter().position(|route| (escrow(route) != Escrow::Off) == lodged);
    at(true).zip(at(false)).map_or(Vec::new(), |(one, other)| vec![(one, other), (other, one)])
}

fn escrow(route: &Route) -> Escrow {
    route.policy().map_or(Escrow::Off, |policy| policy.escrow)
}

/// The same routes, of which the first under escrow and the first without have each other's escrow.
fn with_escrow_moved(routes: &Routes) -> Routes {
    let mut moved = routes.clone();
    for (at, from) in exchanged(routes) {
        let escrow = escrow(&routes.0[from]);
        moved.0[at] = with_policy(&moved.0[at], |policy| Policy { escrow, ..policy });
    }
    moved
}

/// The same routes, of which the first under escrow and the first without change names: each path
/// keeps its policy, but the one under the other's name is under escrow now.
fn renamed(routes: &Routes) -> Routes {
    let mut renamed = with_escrow_moved(routes);
    for (at, from) in exchanged(routes) {
        renamed.0[at].name = routes.0[from].name.clone();
    }
    renamed
}

fn with_policy(route: &Route, change: impl Fn(Policy) -> Policy) -> Route {
    Route { terms: Arc::new(change(Policy::clone(&route.terms))), ..route.clone() }
}

pub fn token(number: u32) -> String {
    format!("sk_{number}")
}

pub fn request(path: &str, tenant: u32, key: &str, wanted: &'static str) -> Request<Body> {
    Request::post(path)
        .header("authorization", format!("Bearer {}", token(tenant)))
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body::full(wanted))
        .unwrap_or_else(|_| panic!("a path of a scenario that was checked"))
}

async fn read_reply(response: http::Response<Body>) -> Reply {
    let (head, rest) = response.into_parts();
    let body = match body::collect(rest, ANSWER_LIMIT).await {
        Ok(Collected::Whole(body)) => body,
        Ok(Collected::Over(..)) | Err(_) => return Reply::Broken,
    };
    let header = |name: &str| head.headers.get(name).and_then(|text| text.to_str().ok()).unwrap_or_default();
    let problem = header("content-type").starts_with("application/problem+json");
    let text = String::from_utf8_lossy(&body);
    let code = text.split_once("\"code\":\"").and_then(|(_, rest)| rest.split_once('"'));
    Reply::Answered {
        status: head.status,
        code: code.filter(|_| problem).map(|(code, _)| code.to_owned()).unwrap_or_default(),
        replayed: header("idempotent-replayed") == "true",
        by: header("onceway-region").to_owned(),
        retry_after: header("retry-after").parse().ok().map(Duration::from_secs),
        body: body.clone(),
    }
}
