//! Three private Postgres servers that replicate from one another, without gateways.
//!
//! They are called as gateways would call them, while links are cut, servers killed, replies lost,
//! rows delayed and slots dropped. `ports::contract` draws the calls and records their results. It
//! must not judge a store's behaviour.

use crate::support::*;
use anyhow::{Context, Result, anyhow, ensure};
use onceway::adapters::postgres::provision::{self, MIGRATIONS, Plan, Role};
use onceway::adapters::postgres::{PgStore, StoreConfig};
use onceway::ports::store::{ClaimAsk, ClaimReply, GateVersion, StoreError};
use onceway::protocol::record::Basis;
use onceway_lab::cluster::Cluster;
use onceway_lab::cluster_sql::HeldUp;
use onceway_lab::contract::replication::{self, REGIONS, ReplicationBench};
use onceway_lab::janitor::Janitor;
use onceway_lab::ports::{FleetPorts, free_run};
use onceway_lab::{lock, scratch};

const ORIGINS: [&str; REGIONS] = ["eu#1", "us-east#1", "ap#1"];
const WITHIN: Duration = Duration::from_secs(30);

/// Plays the histories on three new servers. Returns the results, a line each. Takes about a
/// minute.
pub async fn play() -> Result<String> {
    let three = Three::start().await?;
    let played = replication::all(&three, &|_| {}).await.map_err(|why| anyhow!(why));
    let ended = three.shut_down().await;
    played.and_then(|played| ended.map(|()| played))
}

/// Plays the contract of first copies on three new servers.
pub async fn copies() -> Result<()> {
    let three = Three::start().await?;
    let kept = replication::copying(&three).await.map_err(|why| anyhow!(why));
    let ended = three.shut_down().await;
    kept.and(ended)
}

/// One of the servers, and the store in it.
struct Region {
    origin: Origin,
    cluster: Cluster,
    store: PgStore,
    /// A way to the server on which replies get lost.
    unheard: Relay,
}

/// The three servers, and the network between them.
struct Three {
    regions: Vec<Region>,
    /// Relays by publisher and subscriber.
    relays: BTreeMap<(usize, usize), Relay>,
    held_up: Mutex<BTreeMap<(usize, usize), HeldUp>>,
    lost: Mutex<u128>,
    dir: PathBuf,
    janitor: Janitor,
}

impl Three {
    async fn start() -> Result<Three> {
        let ports = FleetPorts::lay_out(free_run(40)?, REGIONS)?;
        let binaries = tokio::task::spawn_blocking(Binaries::find_or_install).await??;
        let dir = scratch::create("onceway-histories")?;
        let janitor = Janitor::spawn(&program(), &dir, true)?;
        let mut regions = Vec::new();
        for (origin, ports) in ORIGINS.iter().zip(&ports.regions) {
            let (origin, port) = (Origin::parse(origin).context("an origin")?, ports.postgres);
            let cluster = Cluster::create(&binaries, &dir.join(origin.region.as_str()), port, &[]).await?;
            cluster.start().await?;
            cluster.create_database(files::DATABASE).await?;
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let (store, unheard) = (store(&origin, port)?, Relay::start(at).await?);
            regions.push(Region { origin, cluster, store, unheard });
        }
        let mut relays = BTreeMap::new();
        for (from, region) in regions.iter().enumerate() {
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, region.cluster.port()));
            for to in (0..REGIONS).filter(|to| *to != from) {
                relays.insert((from, to), Relay::start(at).await?);
            }
        }
        let three =
            Three { regions, relays, held_up: Mutex::default(), lost: Mutex::default(), dir, janitor };
        let provisioned = async |region: usize| {
            let plan = three.plan(region)?;
            let complete = async || Ok(provision::init(&plan).await?.is_complete().then_some(()));
            wait::for_some("the stores to follow one another", WITHIN, complete).await
        };
        tokio::try_join!(provisioned(0), provisioned(1), provisioned(2))?;
        Ok(three)
    }

    async fn shut_down(self) -> Result<()> {
        let Three { regions, relays: _, held_up: _, lost: _, dir, janitor } = self;
        for region in &regions {
            region.cluster.kill().await?;
        }
        // They release their shared memory by the files in their folders.
        drop(regions);
        tokio::task::spawn_blocking(move || scratch::delete(&dir)).await??;
        janitor.dismiss().await
    }

    fn relay(&self, from: usize, to: usize) -> Result<&Relay> {
        self.relays.get(&(from, to)).context("no link of a region to itself")
    }

    fn plan(&self, to: usize) -> Result<Plan> {
        let mut subscribe = Vec::new();
        for from in (0..REGIONS).filter(|from| *from != to) {
            let at = self.relay(from, to)?.local_addr();
            subscribe.push((self.regions[from].origin.clone(), files::conninfo(at)));
        }
        let all = self.regions.iter().map(|region| region.origin.clone()).collect();
        let role = |name: &str| Role { name: name.to_owned(), password: None };
        Ok(Plan {
            me: self.regions[to].origin.clone(),
            all,
            deployment: files::DEPLOYMENT.to_owned(),
            gateway_role: role(files::GATEWAY_ROLE),
            replication_role: Some(role(files::REPLICATION_ROLE)),
            admin: self.regions[to].cluster.url(files::DATABASE).parse()?,
            subscribe,
            publishers_ca: None,
            migrations: MIGRATIONS,
        })
    }

    async fn subscription(&self, from: usize, to: usize) -> Result<String> {
        let publisher = self.regions[from].origin.region.as_str();
        self.regions[to].cluster.subscription_from(publisher).await
    }

    async fn stalled(&self, from: usize, to: usize) -> Result<()> {
        let name = self.subscription(from, to).await?;
        let held = self.regions[to].cluster.hold_up(&name).await?;
        lock(&self.held_up).insert((from, to), held);
        Ok(())
    }

    async fn flows(&self, from: usize, to: usize) -> Result<()> {
        let held = lock(&self.held_up).remove(&(from, to));
        held.context("nothing is held up there")?.end().await
    }

    async fn killed(&self, region: usize) -> Result<()> {
        let Region { cluster, store, .. } = &self.regions[region];
        cluster.kill().await?;
        cluster.start().await?;
        // A separate task notices each lost connection, so the first call may still use one.
        let id = key("any")?;
        let answers = async || {
            let (keys, control) = (store.look_up(std::slice::from_ref(&id)).await, store.heartbeats().await);
            Ok((keys.is_ok() && control.is_ok()).then_some(()))
        };
        wait::for_some("the store to answer again", WITHIN, answers).await
    }

    async fn shown(&self, to: usize, from: usize, beat: u64) -> Result<()> {
        let origin = &self.regions[from].origin;
        let arrived = async || {
            let beats = self.regions[to].store.heartbeats().await.unwrap_or_default();
            Ok(beats.into_iter().find(|one| one.origin == *origin && one.seq >= beat).map(drop))
        };
        wait::for_some("a heartbeat to arrive", WITHIN, arrived).await
    }

    async fn reseeded(&self, from: usize, to: usize) -> Result<()> {
        let publisher = &self.regions[from].origin.region;
        let report = provision::reseed(&self.plan(to)?, publisher).await?;
        ensure!(!report.is_broken(), "{report}");
        self.follows(from, to).await.with_context(|| report.to_string())
    }

    async fn begins_reseed(&self, from: usize, to: usize) -> Result<()> {
        // Releases a copy that is held up: without its slot it does not end either.
        let held = lock(&self.held_up).remove(&(from, to));
        if let Some(held) = held {
            held.end().await?;
        }
        let name = self.subscription(from, to).await?;
        let (plan, publisher) = (self.plan(to)?, &self.regions[from].origin.region);
        let reseed = async { Ok(provision::reseed(&plan, publisher).await?) };
        let (report, held) = self.regions[to].cluster.hold_copy(&name, reseed).await?;
        ensure!(!report.is_broken(), "{report}");
        lock(&self.held_up).insert((from, to), held);
        Ok(())
    }

    async fn follows(&self, from: usize, to: usize) -> Result<()> {
        let publisher = &self.regions[from].origin.region;
        let copied = async || {
            let all = self.regions[to].store.subscriptions().await.unwrap_or_default();
            let one = all.into_iter().find(|one| one.from == publisher.as_str());
            Ok(one.filter(|one| one.ready && one.streaming).map(drop))
        };
        wait::for_some("everything to be copied", WITHIN, copied).await
    }

    /// Claims through a store of its own, whose one connection has both statements prepared. So
    /// only the claim itself is sent.
    async fn claimed_unheard(&self, region: usize, ask: &ClaimAsk) -> Result<Result<ClaimReply, StoreError>> {
        let Region { origin, cluster, unheard, .. } = &self.regions[region];
        let nonce = {
            let mut lost = lock(&self.lost);
            *lost += 1;
            Nonce(*lost)
        };
        let before = cluster.sessions().await?;
        let store = store(origin, unheard.local_addr().port())?;
        // A gate that never existed: nothing is written.
        let nowhere = ClaimAsk { id: key("nowhere")?, nonce, gate: GateVersion(0), ..ask.clone() };
        let known = Basis::Known { own: None, over: Vec::new(), attempt: 1 };
        for basis in [Basis::Absent, known] {
            let reply = store.claim(&ClaimAsk { basis, ..nowhere.clone() }).await?;
            ensure!(reply == ClaimReply::GateMoved, "a claim under no gate: {reply:?}");
        }
        let after = cluster.sessions().await?;
        let [own] = after.difference(&before).copied().collect::<Vec<_>>()[..] else {
            anyhow::bail!("the claim's connection is not the only new one");
        };
        let session = cluster.session(own).await?;
        unheard.freeze(Direction::Backward);
        let cut = async {
            let worked = cluster.has_worked(&session, WITHIN / 2).await;
            unheard.cut();
            worked
        };
        let (heard, worked) = tokio::join!(store.claim(ask), cut);
        unheard.thaw(Direction::Backward);
        unheard.mend();
        worked.map(|()| heard)
    }
}

impl ReplicationBench for Three {
    type Store = PgStore;

    fn store(&self, region: usize) -> &PgStore {
        &self.regions[region].store
    }

    fn origin(&self, region: usize) -> Origin {
        self.regions[region].origin.clone()
    }

    async fn cut(&self, from: usize, to: usize) -> Result<(), String> {
        self.relay(from, to).map(Relay::cut).map_err(words)
    }

    async fn mend(&self, from: usize, to: usize) -> Result<(), String> {
        self.relay(from, to).map(Relay::mend).map_err(words)
    }

    async fn shows(&self, to: usize, from: usize, beat: u64) -> Result<(), String> {
        self.shown(to, from, beat).await.map_err(words)
    }

    async fn crash(&self, region: usize) -> Result<(), String> {
        self.killed(region).await.map_err(words)
    }

    async fn stall(&self, from: usize, to: usize) -> Result<(), String> {
        self.stalled(from, to).await.map_err(words)
    }

    async fn sent(&self, from: usize, to: usize) -> Result<(), String> {
        let sent = async {
            let name = self.subscription(from, to).await?;
            self.regions[from].cluster.sent_to(&name, WITHIN).await
        };
        sent.await.map_err(words)
    }

    async fn flow(&self, from: usize, to: usize) -> Result<(), String> {
        self.flows(from, to).await.map_err(words)
    }

    async fn lose_slot(&self, from: usize, to: usize) -> Result<(), String> {
        let lost = async {
            let name = self.subscription(from, to).await?;
            self.regions[from].cluster.drop_slot(&name, WITHIN).await
        };
        lost.await.map_err(words)
    }

    async fn reseed(&self, from: usize, to: usize) -> Result<(), String> {
        self.reseeded(from, to).await.map_err(words)
    }

    async fn begin_reseed(&self, from: usize, to: usize) -> Result<(), String> {
        self.begins_reseed(from, to).await.map_err(words)
    }

    async fn copied(&self, from: usize, to: usize) -> Result<(), String> {
        let copied = async {
            self.flows(from, to).await?;
            self.follows(from, to).await
        };
        copied.await.map_err(words)
    }

    async fn claim_unheard(
        &self,
        region: usize,
        ask: &ClaimAsk,
    ) -> Result<Result<ClaimReply, StoreError>, String> {
        self.claimed_unheard(region, ask).await.map_err(words)
    }
}

/// The store at that port of this machine, as a gateway of the region uses it.
fn store(origin: &Origin, port: u16) -> Result<PgStore> {
    let (user, database) = (files::GATEWAY_ROLE, files::DATABASE);
    let address = format!("host=127.0.0.1 port={port} user={user} dbname={database}").parse()?;
    let config =
        StoreConfig { connections: 2, statement_within: WITHIN, ..StoreConfig::new(origin.clone(), address) };
    Ok(PgStore::new(&config)?)
}

fn key(name: &str) -> Result<KeyId> {
    let tenant = Tenant::parse("histories").context("a tenant")?;
    Ok(KeyId::new(tenant, Key::parse(name).context("a key")?))
}

fn words(error: anyhow::Error) -> String {
    format!("{error:#}")
}
