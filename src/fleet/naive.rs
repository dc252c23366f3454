//! The naive design that onceway is compared with: every region keeps its own idempotency table, replicated to the others without waiting.
//!
//! It is what is usually built first: look the key up in the local Postgres, insert it, call the upstream, store the answer; native logical
//! replication carries the rows around. It does everything right that one region can do right. Neighbours: the demo's tour and the drills set
//! its doubles beside onceway's. It runs in databases of its own in the deployment's clusters, with a ledger and doors of its own. It must not
//! be made worse than it is: no step is left out that a careful engineer would take within one region.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_postgres::Client;

use super::client::Ask;
use super::deployment::Deployment;
use super::ledger::Ledger;
use super::links::LinkKind;
use super::region::{Action, Part, Region};
use super::upstream::Upstream;
use super::wait;

const DATABASE: &str = "naive";
const TENANT: &str = "acme";
const PATH: &str = "/v1/charges";
const BODY: &str = r#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#;
/// A key without an answer is taken over after this long: its worker must be dead.
const LOCK_SECONDS: f64 = 5.0;
/// What a client, and a worker, wait for one answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a client retries.
const RETRIES: Duration = Duration::from_secs(20);
const BETWEEN_RETRIES: Duration = Duration::from_millis(300);
const REPLICATES_WITHIN: Duration = Duration::from_secs(30);
const UPSTREAM_ENDS_WITHIN: Duration = Duration::from_millis(200);

/// What clients do, and what happens to them.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Keys per second, in all regions together.
    pub rate: f64,
    /// How long keys are started.
    pub span: Duration,
    /// The region that is killed, by number.
    pub victim: usize,
    /// When, from the beginning.
    pub killed_after: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Keys that clients used.
    pub keys: u64,
    /// Effects in the ledger.
    pub effects: u64,
    /// Keys with more than one effect.
    pub doubles: u64,
    /// Keys whose clients gave up without an answer.
    pub unanswered: u64,
}

/// Runs the workload through the naive design on the deployment's machines, with a kill of one region (its gateway and Postgres, which
/// takes the deployment's own region with it), starts the region again and counts. The databases are dropped at the end.
pub async fn run(deployment: &Deployment, workload: &Workload) -> Result<Counts> {
    let path = deployment.dir().join(format!("ledger-naive-{}.jsonl", std::process::id()));
    drop(std::fs::remove_file(&path));
    let ledger = Ledger::create(&path)?;
    let (mut doors, mut regions) = (Vec::new(), Vec::new());
    for region in &deployment.regions {
        let door = Upstream::start(region.name.as_str(), ([127, 0, 0, 1], 0).into(), ledger.clone()).await?;
        region.cluster.create_database(DATABASE).await?;
        let store = region.cluster.connect(DATABASE).await?;
        regions.push(Arc::new(Naive { store, upstream: door.address().to_string(), own: table(region) }));
        doors.push(door);
    }
    replicate(deployment, &regions).await?;
    let counts = under_load(deployment, &regions, workload).await;
    let victim = &deployment.regions[workload.victim];
    victim.act(Action::Start, Part::Both).await?;
    drop(regions);
    take_down(deployment).await?;
    for door in doors {
        door.stop(UPSTREAM_ENDS_WITHIN).await;
    }
    let (keys, unanswered) = counts?;
    let totals = ledger.totals(None);
    Ok(Counts {
        keys,
        effects: totals.iter().map(|total| total.effects).sum(),
        doubles: totals.iter().filter(|total| total.effects > 1).count() as u64,
        unanswered,
    })
}

/// One region of the naive design.
struct Naive {
    store: Client,
    upstream: String,
    /// Its own table: each region writes only its own, so that nothing conflicts.
    own: String,
}

/// What a client is told.
enum Told {
    Answered,
    /// Another request works on it: come again.
    Busy,
    Failed,
}

impl Naive {
    async fn serve(&self, key: &str) -> Result<Told> {
        let known = self
            .store
            .query_opt(
                "select answer is not null, extract(epoch from clock_timestamp() - at)::float8 from answers \
                 where tenant = $1 and key = $2 order by answer is not null desc, at desc limit 1",
                &[&TENANT, &key],
            )
            .await?;
        let own = &self.own;
        let claimed = match known {
            Some(row) if row.try_get(0)? => return Ok(Told::Answered),
            Some(row) if row.try_get::<_, f64>(1)? < LOCK_SECONDS => return Ok(Told::Busy),
            Some(_stale) => {
                let take = format!(
                    "insert into {own} (tenant, key) values ($1, $2) on conflict (tenant, key) do update \
                     set at = clock_timestamp() where {own}.answer is null and {own}.at < clock_timestamp() - interval '5 s'"
                );
                self.store.execute(&take, &[&TENANT, &key]).await?
            }
            None => {
                let claim = format!("insert into {own} (tenant, key) values ($1, $2) on conflict do nothing");
                self.store.execute(&claim, &[&TENANT, &key]).await?
            }
        };
        if claimed == 0 {
            return Ok(Told::Busy);
        }
        let call = Ask::post(format!("http://{}{PATH}", self.upstream), BODY)
            .with("Idempotency-Key", format!("\"{key}\""))
            .with("Onceway-Tenant", TENANT);
        let answer = call.send(PATIENCE).await?;
        let settle = format!("update {own} set answer = $3 where tenant = $1 and key = $2");
        self.store.execute(&settle, &[&TENANT, &key, &answer.text()]).await?;
        Ok(Told::Answered)
    }
}

fn table(region: &Region) -> String {
    format!("answers_{}", region.name.as_str().replace('-', "_"))
}

/// A table per region in every region, its own published, the others' subscribed to through the links between the regions.
async fn replicate(deployment: &Deployment, regions: &[Arc<Naive>]) -> Result<()> {
    let tables: Vec<&str> = regions.iter().map(|region| region.own.as_str()).collect();
    for region in regions {
        for table in &tables {
            let table = format!(
                "create table {table} (tenant text, key text, at timestamptz not null default clock_timestamp(), answer text, \
                 primary key (tenant, key))"
            );
            region.store.batch_execute(&table).await?;
        }
        let all: Vec<String> = tables.iter().map(|table| format!("select * from {table}")).collect();
        region.store.batch_execute(&format!("create view answers as {}", all.join(" union all "))).await?;
        region.store.batch_execute(&format!("create publication own for table {}", region.own)).await?;
    }
    for (here, region) in regions.iter().enumerate() {
        for (there, other) in regions.iter().enumerate().filter(|(there, _)| *there != here) {
            let at = deployment.links.address(here, there, LinkKind::Replication)?;
            let subscription = format!(
                "create subscription naive_{here}_{there} connection 'host={} port={} user=postgres dbname={DATABASE}' publication own",
                at.ip(),
                at.port()
            );
            region.store.batch_execute(&subscription).await?;
            let ready = async || {
                let missing = "select 1 from pg_subscription_rel where srsubstate <> 'r'";
                Ok(region.store.query_opt(missing, &[]).await?.is_none().then_some(()))
            };
            wait::for_some(&format!("the copy of {}", other.own), REPLICATES_WITHIN, ready).await?;
        }
    }
    Ok(())
}

/// Subscriptions and slots first: a database with either cannot be dropped.
async fn take_down(deployment: &Deployment) -> Result<()> {
    for (here, region) in deployment.regions.iter().enumerate() {
        let store = region.cluster.connect(DATABASE).await?;
        for there in (0..deployment.regions.len()).filter(|there| *there != here) {
            store.batch_execute(&format!("alter subscription naive_{here}_{there} disable")).await?;
            store
                .batch_execute(&format!("alter subscription naive_{here}_{there} set (slot_name = none)"))
                .await?;
            store.batch_execute(&format!("drop subscription naive_{here}_{there}")).await?;
        }
    }
    for region in &deployment.regions {
        let store = region.cluster.connect("postgres").await?;
        let idle = async || {
            let drop_slots = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = $1 and not active";
            store.query(drop_slots, &[&DATABASE]).await?;
            let left =
                store.query("select 1 from pg_replication_slots where database = $1", &[&DATABASE]).await?;
            Ok(left.is_empty().then_some(()))
        };
        wait::for_some("the naive design's slots to be idle", REPLICATES_WITHIN, idle).await?;
        store.batch_execute(&format!("drop database {DATABASE} with (force)")).await?;
    }
    Ok(())
}

/// The clients: as in the drills, some send twice at once, some lose their answer and ask again elsewhere, and all retry through the next
/// region. Keys and how many of them were never answered.
async fn under_load(
    deployment: &Deployment,
    regions: &[Arc<Naive>],
    workload: &Workload,
) -> Result<(u64, u64)> {
    let (death, died) = watch::channel(false);
    let dead = Dead { victim: workload.victim, died };
    let period = Duration::from_secs_f64(1.0 / workload.rate);
    let (begun, mut clients, mut keys) = (Instant::now(), JoinSet::new(), 0_usize);
    let mut killed = false;
    loop {
        let due = begun + period * u32::try_from(keys)?;
        if due > begun + workload.span {
            break;
        }
        wait::pause_until(due).await;
        if !killed && due >= begun + workload.killed_after {
            killed = true;
            // Its process and what it was working on are gone with it.
            death.send_replace(true);
            deployment.regions[workload.victim].act(Action::Kill, Part::Both).await?;
        }
        clients.spawn(client(regions.to_vec(), dead.clone(), keys));
        keys += 1;
    }
    let mut unanswered = 0;
    while let Some(answered) = clients.join_next().await {
        unanswered += u64::from(!answered.context("a client")?);
    }
    Ok((keys as u64, unanswered))
}

/// Which region dies, and whether it has.
#[derive(Clone)]
struct Dead {
    victim: usize,
    died: watch::Receiver<bool>,
}

impl Dead {
    /// Works at a region, unless it is dead, until it dies.
    async fn serve(&mut self, regions: &[Arc<Naive>], via: usize, key: &str) -> Told {
        let (region, own_death) = (regions[via].clone(), via == self.victim);
        if own_death && *self.died.borrow() {
            return Told::Failed;
        }
        tokio::select! {
            biased;
            _ = self.died.wait_for(|died| *died), if own_death => Told::Failed,
            served = timeout(PATIENCE, region.serve(key)) => match served {
                Ok(Ok(told)) => told,
                Ok(Err(_)) | Err(_) => Told::Failed,
            },
        }
    }
}

async fn client(regions: Vec<Arc<Naive>>, mut dead: Dead, number: usize) -> bool {
    let (key, until) = (format!("naive-{number}"), Instant::now() + RETRIES);
    let mut via = number % regions.len();
    if number.is_multiple_of(7) {
        let (mut other, elsewhere) = (dead.clone(), (via + 1) % regions.len());
        tokio::join!(dead.serve(&regions, via, &key), other.serve(&regions, elsewhere, &key));
    }
    let mut answers = 0;
    while Instant::now() < until {
        match dead.serve(&regions, via, &key).await {
            Told::Answered => answers += 1,
            Told::Busy | Told::Failed => wait::pause(BETWEEN_RETRIES).await,
        }
        // One in three loses its answer, and asks once more elsewhere.
        if answers > usize::from(number.is_multiple_of(3)) {
            return true;
        }
        via = (via + 1) % regions.len();
    }
    answers > 0
}
