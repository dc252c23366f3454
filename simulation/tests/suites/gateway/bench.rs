//! Three regions of real gateways in one simulated world, and clients that ask them.
//!
//! Every part of the suite uses it. It must not look into a gateway: it asks as a client or as an
//! operator does.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use onceway::gateway::authority::failover::{Failover, Mode as Failing};
use onceway::gateway::credentials::caller::{Caller, Voucher};
use onceway::gateway::credentials::{Credentials, digest};
use onceway::gateway::instance::Gateway;
use onceway::gateway::policy::route::{Binding, Mismatch, Mode, Policy, Protection, Route};
use onceway::gateway::policy::signature::{FingerprintRule, Pointer, Selection};
use onceway::gateway::reloadable::Reload;
use onceway::gateway::settings::Settings;
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::key_policy::KeyPolicy;
use onceway::protocol::record::Recovery;
use onceway::protocol::region::RegionName;
use onceway::protocol::versions::{NEWEST, NEXT, Versions};
use onceway::protocol::view::View;
use simulation::cluster::StoreMode;
use simulation::peers::LinkMode;
use simulation::ports::SimPorts;
use simulation::upstream::{Happening, UpstreamMode};
use simulation::world::World;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::shared::{self, ring, route, world};
pub use crate::shared::{
    ACCEPT, ClientAnswer, LATE, ONE_WAY, SETTLE_TIME, SETTLE_WITHIN, SWEEP, UPSTREAM, forward, id, ms, play,
    question, read_answer, region, request, request_with,
};

/// The longest time of a claim without an outcome.
pub const HOLD: Duration = Duration::from_secs(10);
/// The upstream's time limit on the route `unkeyed`, which looks at no key.
pub const UNKEYED: Duration = Duration::from_secs(1);
const UNKEYED_ROUTE: Protection = Protection::Off { upstream_timeout: UNKEYED, upstream: None };
pub const RETENTION: Duration = Duration::from_secs(120);
/// The time for which it is refused after that.
pub const TOMBSTONE: Duration = Duration::from_secs(60);
pub const DAY: Duration = Duration::from_secs(86_400);
/// The tokens of the tenant acme, with their principals; the first one has none.
pub const TOKENS: [(&str, Option<&str>); 4] =
    [("sk", None), ("sk_ann", Some("ann")), ("sk_ann_next", Some("ann")), ("sk_bob", Some("bob"))];

pub fn regions() -> [RegionName; 3] {
    [region("eu"), region("us"), region("ap")]
}

/// The first view of every bench, without its voters, for the owners of keys.
pub fn view() -> View {
    static VIEW: LazyLock<View> = LazyLock::new(|| {
        let ring = ring(&regions().map(|name| (name, 100)));
        View::founding(1, ring, BTreeMap::new(), BTreeMap::new())
    });
    VIEW.clone()
}

/// The view that a gateway starts with: it finds the founded register in its store.
pub fn unfounded() -> View {
    View::unfounded(view().ring().clone())
}

/// The versions of a process that speaks the next one, too.
pub fn upgraded() -> Versions {
    Versions::new(NEWEST, NEXT).unwrap()
}

pub struct Bench {
    pub world: Arc<World>,
    gateways: Mutex<BTreeMap<RegionName, Arc<Gateway<SimPorts>>>>,
}

/// Plays a test on three regions, and tells it their names: eu, us and ap.
pub fn served(start: impl Future<Output = Arc<Bench>>, test: impl AsyncFnOnce(Arc<Bench>, [RegionName; 3])) {
    play(async { test(start.await, regions()).await });
}

impl Bench {
    /// Starts three regions and waits until all serve and see one another.
    pub async fn start(seed: u64) -> Arc<Self> {
        Self::started(seed, &[], Versions::OURS).await
    }

    /// Starts three regions whose claims on these routes are lodged with another one.
    pub async fn under_escrow(seed: u64, routes: &[&str]) -> Arc<Self> {
        Self::started(seed, routes, Versions::OURS).await
    }

    /// Starts three regions that speak the next protocol version, too, under a view of this one.
    pub async fn upgraded(seed: u64) -> Arc<Self> {
        Self::started(seed, &[], upgraded()).await
    }

    async fn started(seed: u64, lodging: &[&str], speaks: Versions) -> Arc<Self> {
        let world = world(seed, &regions());
        let escrow = lodging.iter().map(|route| Arc::from(*route)).collect();
        let Settings { live: Reload { routes, .. }, skew, .. } = settings(&regions()[0]);
        world.found(view().ring().clone(), escrow, &routes, failover().lease, skew);
        let bench = Arc::new(Self { world, gateways: Mutex::default() });
        for name in regions() {
            bench.replace_speaking(&name, speaks);
        }
        bench.all_serve().await;
        bench
    }

    /// Starts one more gateway process of a region over its store.
    pub fn process(&self, name: &RegionName) -> Arc<Gateway<SimPorts>> {
        self.process_with(name, settings(name))
    }

    /// Like [`Self::process`], with these settings.
    pub fn process_with(&self, name: &RegionName, settings: Settings) -> Arc<Gateway<SimPorts>> {
        let gateway = Gateway::new(self.world.ports(name), settings, unfounded()).unwrap();
        gateway.start(None);
        gateway
    }

    /// Starts one more gateway process of a region over its store, which speaks these versions.
    pub fn process_speaking(&self, name: &RegionName, speaks: Versions) -> Arc<Gateway<SimPorts>> {
        self.process_with(name, Settings { speaks, ..settings(name) })
    }

    /// Starts a new gateway process in a region's place, which speaks these versions.
    pub fn replace_speaking(&self, name: &RegionName, speaks: Versions) {
        self.put(name, self.process_speaking(name, speaks));
    }

    /// Starts a new gateway process in a region's place; the old one ends with its last request.
    pub fn replace(&self, name: &RegionName) {
        self.put(name, self.process(name));
    }

    fn put(&self, name: &RegionName, gateway: Arc<Gateway<SimPorts>>) {
        self.world.network.plug(name.clone(), Arc::new(gateway.clone()));
        self.gateways.lock().unwrap().insert(name.clone(), gateway);
    }

    pub fn gateway(&self, name: &RegionName) -> Arc<Gateway<SimPorts>> {
        self.gateways.lock().unwrap()[name].clone()
    }

    pub fn serves(&self, name: &RegionName) -> bool {
        self.gateway(name).readiness().serves
    }

    /// Waits until all regions serve and see one another.
    pub async fn all_serve(&self) {
        let whole = |name: &RegionName| {
            let ready = self.gateway(name).readiness();
            ready.serves && ready.forwards_to.len() == 2
        };
        until("all regions serve", ms(20_000), async || regions().iter().all(whole)).await;
    }

    pub fn links(&self, name: &RegionName, mode: LinkMode) {
        for other in regions().iter().filter(|other| *other != name) {
            self.world.network.set_link(name, other, mode, ONE_WAY);
            self.world.network.set_link(other, name, mode, ONE_WAY);
        }
    }

    pub fn hold_rows(&self, from: &RegionName) {
        for other in regions().iter().filter(|other| *other != from) {
            self.world.cluster.hold(from, other, true);
        }
    }

    pub async fn send(&self, to: &RegionName, path: &str, key: &str) -> ClientAnswer {
        ask(&self.gateway(to), path, key, "{}").await
    }

    pub fn begin(self: &Arc<Self>, to: &RegionName, path: &str, key: &str) -> JoinHandle<ClientAnswer> {
        let (bench, to, path, key) = (self.clone(), to.clone(), path.to_owned(), key.to_owned());
        tokio::spawn(async move { bench.send(&to, &path, &key).await })
    }

    /// The state of a key in a region's store, as an operator sees it.
    pub async fn state(&self, at: &RegionName, key: &str) -> &'static str {
        self.gateway(at).key_status(&id(key)).await.unwrap().state
    }

    pub fn effects(&self, key: &str) -> Vec<Happening> {
        self.world.upstreams.effects(&id(key))
    }

    pub fn arrived(&self, at: &RegionName) -> usize {
        self.world.upstreams.arrivals(at).len()
    }

    /// Sets the behaviour of a region's store for statements.
    pub fn store(&self, at: &RegionName, mode: StoreMode) {
        self.world.cluster.set_mode(at, mode);
    }

    /// Sets the behaviour of a region's upstream.
    pub fn upstream(&self, at: &RegionName, mode: UpstreamMode) {
        self.world.upstreams.set_mode(at, mode);
    }
}

pub async fn ask(gateway: &Arc<Gateway<SimPorts>>, path: &str, key: &str, text: &str) -> ClientAnswer {
    read_answer(gateway.handle(request(path, key, text)).await).await
}

/// Asks one gateway as another tenant: globex or initech.
pub async fn ask_as(
    tenant: &str,
    gateway: &Arc<Gateway<SimPorts>>,
    path: &str,
    key: &str,
    text: &str,
) -> ClientAnswer {
    let request = request_with(path, key, text, ("authorization", &format!("Bearer sk-{tenant}")));
    read_answer(gateway.handle(request).await).await
}

/// A key of another tenant that this region owns, and its id.
pub fn key_of_tenant(tenant: &str, owner: &RegionName, word: &str) -> (String, KeyId) {
    let view = view();
    let id = |key: &str| KeyId::new(Tenant::parse(tenant).unwrap(), Key::parse(key).unwrap());
    let keys = (0_u32..).map(|number| format!("{word}-{number}"));
    let mut keys = keys.map(|key| (key.clone(), id(&key)));
    keys.find(|(_, id)| view.owner(id) == Some(owner)).unwrap()
}

/// A key that this region owns, the `count`th of its word.
pub fn key_of(owner: &RegionName, word: &str) -> String {
    let view = view();
    let mut keys = (0_u32..).map(|number| format!("{word}-{number}"));
    keys.find(|key| view.owner(&id(key)) == Some(owner)).unwrap()
}

/// Waits until the condition holds, in virtual time.
pub async fn until(what: &str, within: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + within;
    while !condition().await {
        assert!(Instant::now() < end, "{what}: not within {within:?}");
        sleep(ms(10)).await;
    }
}

/// The settings for takeovers: manual, so that a region that is refused or cut off stays as its
/// test needs it. The suite `takeover` tests the rest.
fn failover() -> Failover {
    shared::failover(Failing::Manual, ms(5_000))
}

fn credentials() -> Credentials {
    let mut credentials = Credentials::default();
    for (token, principal) in TOKENS {
        let caller = Caller::new(Tenant::parse("acme").unwrap(), Voucher::File, principal);
        credentials.insert(digest(token.as_bytes()), caller);
    }
    for tenant in ["globex", "initech"] {
        let caller = Caller::new(Tenant::parse(tenant).unwrap(), Voucher::File, None);
        credentials.insert(digest(format!("sk-{tenant}").as_bytes()), caller);
    }
    credentials
}

pub fn settings(me: &RegionName) -> Settings {
    let rerun = Recovery::Rerun { max_attempts: 3 };
    let plain = |name: &str, recovery| route(name, policy(recovery));
    let moded = |name: &str, recovery, mode| route(name, Policy { mode, ..policy(recovery) });
    let signed = |name: &str, selection: fn(Vec<Pointer>) -> Selection, fields: [&str; 2], mismatch| {
        let fields = fields.map(|field| Pointer::parse(field).unwrap()).to_vec();
        let fingerprint = FingerprintRule::Signature(selection(fields));
        route(name, Policy { fingerprint, mismatch, body_limit: 16 << 20, ..policy(Recovery::Park) })
    };
    let key_policy = KeyPolicy { min_length: 8, max_length: 64, entropy_bits: 32, ..KeyPolicy::default() };
    let routes = vec![
        plain("probe", Recovery::Probe),
        plain("park", Recovery::Park),
        plain("rerun", rerun),
        moded("later", Recovery::Probe, Mode::Accept),
        moded("later-park", Recovery::Park, Mode::Accept),
        moded("later-rerun", rerun, Mode::Accept),
        moded("prefer", Recovery::Probe, Mode::Prefer),
        route("bound", Policy { bind: Binding::Principal, ..policy(rerun) }),
        signed("include", Selection::Include, ["/amount", "/lines/*/price"], Mismatch::Conflict),
        signed("exclude", Selection::Exclude, ["/metadata", "/lines/*/note"], Mismatch::Unprocessable),
        route("picky", Policy { key_policy, ..policy(Recovery::Park) }),
        Route { protection: UNKEYED_ROUTE, ..plain("unkeyed", Recovery::Park) },
    ];
    shared::settings(me, failover(), routes, credentials())
}

/// The settings that the bench's gateways read again, with nothing changed.
pub fn reload() -> Reload {
    settings(&regions()[0]).live
}

fn policy(recovery: Recovery) -> Policy {
    match recovery {
        Recovery::Park => Policy { tombstone: TOMBSTONE, ..shared::policy(recovery, HOLD, RETENTION) },
        _ => shared::policy(recovery, HOLD, DAY),
    }
}
