//! Three regions of real gateways in one simulated world, and clients that ask them.
//!
//! It must not look into a gateway: it asks as a client or as an operator does.

use std::sync::LazyLock;

use onceway::gateway::credentials::caller::{Caller, Voucher};
use onceway::gateway::credentials::{Credentials, digest};
use onceway::gateway::policy::route::{Binding, Mismatch, Mode, Policy, Protection, Route};
use onceway::gateway::policy::signature::{Pointer, Selection};
use onceway::protocol::key_policy::KeyPolicy;

use crate::shared;
pub use crate::shared::*;

pub const HOLD: Duration = Duration::from_secs(10);
/// The upstream's time limit on the route `unkeyed`, which looks at no key.
pub const UNKEYED: Duration = Duration::from_secs(1);
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
    static VIEW: LazyLock<View> = LazyLock::new(|| founding(ring(&regions().map(|name| (name, 100)))));
    VIEW.clone()
}

pub fn upgraded() -> Versions {
    Versions::new(NEWEST, NEXT).unwrap()
}

pub fn speaking(me: &RegionName, speaks: Versions) -> Settings {
    Settings { speaks, ..settings(me) }
}

pub type Bench = Fleet;

/// Plays a test on three regions, and tells it their names: eu, us and ap.
pub fn served(start: impl Future<Output = Arc<Bench>>, test: impl AsyncFnOnce(Arc<Bench>, [RegionName; 3])) {
    play(async { test(start.await, regions()).await });
}

pub fn keyed(
    start: impl Future<Output = Arc<Bench>>,
    test: impl AsyncFnOnce(Arc<Bench>, [RegionName; 3], String),
) {
    served(start, async |bench, names| {
        let key = key_of(&names[0], "key");
        test(bench, names, key).await
    });
}

impl Bench {
    /// Starts three regions and waits until all serve and see one another.
    pub async fn start(seed: u64) -> Arc<Self> {
        Self::started(seed, &[], Versions::OURS).await
    }

    /// Starts three regions whose claims on the route `park` are lodged with another one.
    pub async fn under_escrow(seed: u64) -> Arc<Self> {
        Self::started(seed, &["park"], Versions::OURS).await
    }

    pub async fn upgraded(seed: u64) -> Arc<Self> {
        Self::started(seed, &[], upgraded()).await
    }

    async fn started(seed: u64, lodging: &[&str], speaks: Versions) -> Arc<Self> {
        let world = world(seed, &regions());
        let escrow = lodging.iter().map(|route| Arc::from(*route)).collect();
        let Settings { live: Reload { routes, .. }, skew, .. } = settings(&regions()[0]);
        world.found(view().ring().clone(), escrow, &routes, failover().lease, skew);
        let bench = Fleet::new(world);
        for name in regions() {
            bench.replace_with(&name, speaking(&name, speaks));
        }
        bench.all_serve().await;
        bench
    }

    pub fn process(&self, settings: Settings) -> Gate {
        self.launch(settings, view().ring()).gateway
    }

    /// Like [`Self::process`]; until another one is plugged in, peers ask this one.
    pub async fn plugged(&self, settings: Settings) -> Gate {
        let (name, shadow) = (settings.me.clone(), settings.shadow);
        let gateway = self.process(settings);
        self.world.network.plug(name, Arc::new(gateway.clone()));
        until("the gateway to be ready", ms(20_000), async || shadow || gateway.readiness().serves).await;
        gateway
    }

    /// Starts a new gateway process in a region's place; the old one ends with its last request.
    pub fn replace_with(&self, name: &RegionName, settings: Settings) {
        self.put(name, self.launch(settings, view().ring()));
    }

    pub fn replace(&self, name: &RegionName) {
        self.replace_with(name, settings(name));
    }

    pub async fn all_serve(&self) {
        let whole = |name: &RegionName| {
            let ready = self.gateway(name).readiness();
            ready.serves && ready.forwards_to.len() == 2
        };
        until("all regions serve", ms(20_000), async || regions().iter().all(whole)).await;
    }

    pub async fn until_state(&self, at: &RegionName, key: &str, wanted: &str, within: Duration) {
        until(wanted, within, async || self.state(at, key).await == wanted).await;
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

    pub fn arrived(&self, at: &RegionName) -> usize {
        self.world.upstreams.arrivals(at).len()
    }
}

/// Asks one gateway as another tenant: globex or initech.
pub async fn ask_as(tenant: &str, gateway: &Gate, path: &str, key: &str, text: &str) -> ClientAnswer {
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

pub fn key_of(owner: &RegionName, word: &str) -> String {
    key_of_tenant("acme", owner, word).0
}

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
        let fingerprint = Some(selection(fields));
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
        Route {
            protection: Protection::Off,
            ..route("unkeyed", Policy { upstream_timeout: UNKEYED, ..policy(Recovery::Park) })
        },
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
