//! Three private Postgres servers that replicate from one another, while links are cut, servers
//! killed, replies lost, rows delayed and slots dropped. They reply as recorded: random histories
//! of 60 steps, drawn by the contract, which the simulation plays too.

use crate::support::documents::as_recorded;
use crate::support::*;
use anyhow::{Context, Result, anyhow, ensure};
use onceway::adapters::postgres::provision::{self, MIGRATIONS, Plan, Role};
use onceway::adapters::postgres::{PgStore, StoreConfig};
use onceway::ports::store::{ClaimAsk, ClaimReply, GateVersion, StoreError};
use onceway::protocol::record::Basis;
use onceway_lab::cluster_sql::HeldUp;
use onceway_lab::contract::replication::{self, REGIONS, ReplicationBench};
use onceway_lab::{lock, scratch};

const ORIGINS: [&str; REGIONS] = ["eu#1", "us-east#1", "ap#1"];
const WITHIN: Duration = Duration::from_secs(30);

/// Plays on three new servers, alone: their ports are chosen before they are taken.
async fn on_three<T>(play: impl AsyncFnOnce(&Three) -> Result<T, String>) -> Result<T> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let (_beside, _alone) = (beside().await, ALONE.lock().await);
    let three = Three::start().await?;
    let played = play(&three).await;
    three.shut_down().await?;
    played.map_err(|why| anyhow!(why))
}

struct Region {
    origin: Origin,
    cluster: Cluster,
    store: PgStore,
    /// A way to the server on which replies get lost.
    unheard: Relay,
}

struct Three {
    regions: Vec<Region>,
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

    async fn flows(&self, from: usize, to: usize) -> Result<()> {
        let held = lock(&self.held_up).remove(&(from, to));
        held.context("nothing is held up there")?.end().await
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

    /// Its own store has both statements prepared: only the claim itself is sent.
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
        let mut nowhere = ClaimAsk { id: key("nowhere")?, gate: GateVersion(0), ..ask.clone() };
        nowhere.terms.nonce = nonce;
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
        in_words(async { self.relay(from, to).map(Relay::cut) }).await
    }

    async fn mend(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(async { self.relay(from, to).map(Relay::mend) }).await
    }

    async fn shows(&self, to: usize, from: usize, beat: u64) -> Result<(), String> {
        in_words(async {
            let origin = &self.regions[from].origin;
            let arrived = async || {
                let beats = self.regions[to].store.heartbeats().await.unwrap_or_default();
                Ok(beats.into_iter().find(|one| one.origin == *origin && one.seq >= beat).map(drop))
            };
            wait::for_some("a heartbeat to arrive", WITHIN, arrived).await
        })
        .await
    }

    async fn crash(&self, region: usize) -> Result<(), String> {
        in_words(async {
            let Region { cluster, store, .. } = &self.regions[region];
            cluster.kill().await?;
            cluster.start().await?;
            // A separate task notices each lost connection, so the first call may still use one.
            let id = key("any")?;
            let answers = async || {
                let (keys, control) =
                    (store.look_up(std::slice::from_ref(&id)).await, store.heartbeats().await);
                Ok((keys.is_ok() && control.is_ok()).then_some(()))
            };
            wait::for_some("the store to answer again", WITHIN, answers).await
        })
        .await
    }

    async fn stall(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(async {
            let name = self.subscription(from, to).await?;
            let held = self.regions[to].cluster.hold_up(&name).await?;
            lock(&self.held_up).insert((from, to), held);
            Ok(())
        })
        .await
    }

    async fn sent(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(async {
            let name = self.subscription(from, to).await?;
            self.regions[from].cluster.sent_to(&name, WITHIN).await
        })
        .await
    }

    async fn flow(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(self.flows(from, to)).await
    }

    async fn lose_slot(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(async {
            let name = self.subscription(from, to).await?;
            self.regions[from].cluster.drop_slot(&name, WITHIN).await
        })
        .await
    }

    async fn reseed(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(async {
            let publisher = &self.regions[from].origin.region;
            let report = provision::reseed(&self.plan(to)?, publisher).await?;
            ensure!(!report.is_broken(), "{report}");
            self.follows(from, to).await.with_context(|| report.to_string())
        })
        .await
    }

    async fn begin_reseed(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(async {
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
        })
        .await
    }

    async fn copied(&self, from: usize, to: usize) -> Result<(), String> {
        in_words(async {
            self.flows(from, to).await?;
            self.follows(from, to).await
        })
        .await
    }

    async fn claim_unheard(
        &self,
        region: usize,
        ask: &ClaimAsk,
    ) -> Result<Result<ClaimReply, StoreError>, String> {
        in_words(self.claimed_unheard(region, ask)).await
    }
}

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

async fn in_words<T>(done: impl Future<Output = Result<T>>) -> Result<T, String> {
    done.await.map_err(|error| format!("{error:#}"))
}

/// `ONCEWAY_RECORD=1` records them anew.
#[tokio::test(flavor = "multi_thread")]
async fn replicating_stores_repeat_the_recorded_history() {
    let played = on_three(async |three| replication::all(three, &|_| {}).await).await.unwrap();
    as_recorded(&played, "replication.txt");
}

/// Two real stores of which one copies the other's records while its heartbeats arrive.
#[tokio::test(flavor = "multi_thread")]
async fn stores_that_copy_one_another_keep_their_contract() {
    on_three(async |three| replication::copying(three).await).await.unwrap();
}
