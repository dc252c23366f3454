//! The naive design that onceway is compared with, which teams usually build first: every region
//! has its own idempotency table. Native logical replication carries the rows to the other regions.
//! It runs in databases of its own in the deployment's clusters, with its own ledger and sample
//! upstreams. It takes every step that a careful engineer would take within one region.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::deployment::Deployment;
use super::files;
use super::ledger::{Ledger, Totals};
use super::links::LinkKind;
use super::region::Region;
use super::upstream::Upstream;
use super::wait;
use onceway_client::Ask;

pub(super) const TENANT: &str = files::TENANTS[0].0;
pub(super) const PATH: &str = "/v1/payouts";
pub(super) const BODY: &str = r#"{"amount":2000,"currency":"usd","destination":"acct_1"}"#;
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// The upstream's answer.
    Answered,
    /// Another request works on the key: the client comes again.
    Busy,
    InDoubt,
    Failed,
}

pub(super) trait Design: Send + Sync + 'static {
    /// Asks region number `via` to perform the effect of `key`.
    fn serve(&self, via: usize, key: &str) -> impl Future<Output = Served> + Send;
}

const DATABASE: &str = "naive";
/// Seconds after which a key without an answer is taken over: its worker must be dead.
const LOCK_SECONDS: f64 = 5.0;
const REPLICATES_WITHIN: Duration = Duration::from_secs(30);
const UPSTREAM_ENDS_WITHIN: Duration = Duration::from_millis(200);

pub(super) struct Naive {
    ledger: Arc<Ledger>,
    doors: Vec<Upstream>,
    regions: Arc<Vec<Copy>>,
}

impl Naive {
    /// Sets it up: tables, replication, and a sample upstream per region with a ledger of its own.
    pub(super) async fn start(deployment: &Deployment) -> Result<Naive> {
        let path = deployment.dir().join(format!("ledger-naive-{}.jsonl", std::process::id()));
        drop(std::fs::remove_file(&path));
        let ledger = Ledger::create(&path)?;
        let (mut doors, mut regions) = (Vec::new(), Vec::new());
        for region in &deployment.regions {
            let own = ([127, 0, 0, 1], 0).into();
            let door = Upstream::start(region.name.as_str(), own, ledger.clone()).await?;
            region.cluster.create_database(DATABASE).await?;
            let store = region.cluster.connect(DATABASE).await?;
            regions.push(Copy { store, upstream: door.address().to_string(), own: table(region) });
            doors.push(door);
        }
        replicate(deployment, &regions).await?;
        Ok(Naive { ledger, doors, regions: Arc::new(regions) })
    }

    /// Returns the design for its clients. Region number `victim` is gone once `died` is true: its
    /// process, and the requests that the process worked on.
    pub(super) fn design(&self, victim: usize, died: watch::Receiver<bool>) -> NaiveDesign {
        NaiveDesign { regions: self.regions.clone(), victim, died }
    }

    /// Leaves the deployment as it was, all regions up. Returns the upstreams' effects.
    pub(super) async fn end(self, deployment: &Deployment) -> Result<Vec<Totals>> {
        drop(self.regions);
        take_down(deployment).await?;
        for door in self.doors {
            door.stop(UPSTREAM_ENDS_WITHIN).await;
        }
        Ok(self.ledger.totals(None))
    }
}

pub(super) struct NaiveDesign {
    regions: Arc<Vec<Copy>>,
    victim: usize,
    died: watch::Receiver<bool>,
}

impl Design for NaiveDesign {
    async fn serve(&self, via: usize, key: &str) -> Served {
        let (mut died, own_death) = (self.died.clone(), via == self.victim);
        if own_death && *died.borrow() {
            return Served::Failed;
        }
        tokio::select! {
            biased;
            _ = died.wait_for(|died| *died), if own_death => Served::Failed,
            served = timeout(PATIENCE, self.regions[via].serve(key)) => {
                served.unwrap_or_else(|late| Err(late.into())).unwrap_or(Served::Failed)
            }
        }
    }
}

struct Copy {
    store: Client,
    upstream: String,
    /// The region's own table. Each region writes only its own, so that nothing conflicts.
    own: String,
}

impl Copy {
    async fn serve(&self, key: &str) -> Result<Served> {
        let look = "select answer is not null, extract(epoch from clock_timestamp() - at)::float8 from answers \
                    where tenant = $1 and key = $2 order by answer is not null desc, at desc limit 1";
        let known = self.store.query_opt(look, &[&TENANT, &key]).await?;
        let own = &self.own;
        let claimed = match known {
            Some(row) if row.try_get(0)? => return Ok(Served::Answered),
            Some(row) if row.try_get::<_, f64>(1)? < LOCK_SECONDS => return Ok(Served::Busy),
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
            return Ok(Served::Busy);
        }
        let call = Ask::post(format!("http://{}{PATH}", self.upstream), BODY)
            .with("Idempotency-Key", format!("\"{key}\""))
            .with("Onceway-Tenant", TENANT);
        let answer = call.send(PATIENCE).await?;
        let settle = format!("update {own} set answer = $3 where tenant = $1 and key = $2");
        self.store.execute(&settle, &[&TENANT, &key, &answer.text()]).await?;
        Ok(Served::Answered)
    }
}

fn table(region: &Region) -> String {
    format!("answers_{}", region.name.as_str().replace('-', "_"))
}

/// Makes a table per region in every region, publishes its own and subscribes to the others.
async fn replicate(deployment: &Deployment, regions: &[Copy]) -> Result<()> {
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

/// Takes subscriptions and slots down first: a database with either cannot be dropped.
async fn take_down(deployment: &Deployment) -> Result<()> {
    for (here, region) in deployment.regions.iter().enumerate() {
        let store = region.cluster.connect(DATABASE).await?;
        for there in (0..deployment.regions.len()).filter(|there| *there != here) {
            let subscription = format!("subscription naive_{here}_{there}");
            for act in ["alter X disable", "alter X set (slot_name = none)", "drop X"] {
                store.batch_execute(&act.replace('X', &subscription)).await?;
            }
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
