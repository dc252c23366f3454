//! Reads, delays and breaks stores in SQL as the superuser, for drills and histories. It bypasses
//! the gateway, so that a fault of the product's audit shows. It acts on locks, slots and sessions,
//! and with one trigger that waits. It changes no row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio_postgres::Client;

use super::cluster::Cluster;
use super::files::DATABASE;
use super::region::Region;
use super::{lock, wait};

/// Advisory lock that each row of a copy waits for, after [`Cluster::hold_copy`].
const COPIES: i64 = 0x636f_7069_6573;

/// A subscription that applies nothing while this lives, as behind a large transaction.
pub struct HeldUp(Client);

impl HeldUp {
    pub async fn end(self) -> Result<()> {
        Ok(self.0.batch_execute("rollback").await?)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pid: i32,
    began: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Some row records that only the window allowed its claim.
    pub at_risk: bool,
    /// Some row was claimed over other rows, or by a second attempt.
    pub again: bool,
    pub journal: BTreeSet<String>,
}

impl Noted {
    /// True if the store lists the key for people: an attempt at risk, a double, or a late answer.
    pub fn is_listed(&self) -> bool {
        self.at_risk || self.journal.contains("double") || self.journal.contains("late")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub settled: BTreeSet<String>,
    /// No row is settled, and some row is claimed or in doubt.
    pub open: BTreeSet<String>,
}

/// Findings of all these regions' stores together, about the keys that begin with `mark`.
pub async fn noted(regions: &[Region], mark: &str) -> Result<BTreeMap<String, Noted>> {
    let mut all: BTreeMap<String, Noted> = BTreeMap::new();
    for region in regions {
        let client = region.cluster.connect(DATABASE).await?;
        let rows = "select convert_from(key, 'UTF8'), bool_or(cardinality(risk) > 0), bool_or(over <> '[]' or attempt > 1) \
                    from onceway.records where starts_with(convert_from(key, 'UTF8'), $1) group by key";
        for row in client.query(rows, &[&mark]).await? {
            let noted = all.entry(row.try_get(0)?).or_default();
            noted.at_risk |= row.try_get::<_, bool>(1)?;
            noted.again |= row.try_get::<_, bool>(2)?;
        }
        let journal = "select convert_from(key, 'UTF8'), kind from onceway.journal \
                       where key is not null and starts_with(convert_from(key, 'UTF8'), $1)";
        for row in client.query(journal, &[&mark]).await? {
            all.entry(row.try_get(0)?).or_default().journal.insert(row.try_get(1)?);
        }
    }
    all.retain(|_, noted| *noted != Noted::default());
    Ok(all)
}

impl Cluster {
    /// Name of the subscription that brings this region's rows, and of the slot there.
    pub async fn subscription_from(&self, region: &str) -> Result<String> {
        let client = self.connect(DATABASE).await?;
        let like = format!("%\\_from\\_{}", region.replace('-', "\\_"));
        let found =
            client.query("select subname::text from pg_subscription where subname like $1", &[&like]).await?;
        let [row] = &found[..] else { bail!("{} subscriptions from {region}, not one", found.len()) };
        Ok(row.try_get(0)?)
    }

    /// Stops this subscription from applying anything, after the transaction of now.
    pub async fn hold_up(&self, subscription: &str) -> Result<HeldUp> {
        let client = self.connect(DATABASE).await?;
        let tables = tables(&client, subscription).await?;
        ensure!(!tables.is_empty(), "{subscription} brings no table");
        // A lock that conflicts with every write, and with no read.
        let lock = "begin; set local lock_timeout = '30s'; lock table";
        client.batch_execute(&format!("{lock} {} in share row exclusive mode", tables.join(", "))).await?;
        Ok(HeldUp(client))
    }

    /// Makes a subscription anew with `reseed`. The copy of its records waits at its first row; the
    /// copy of its heartbeats does not wait. Returns the result of `reseed` and the hold on the
    /// copy.
    ///
    /// A lock of the table would also delay the worker that applies, and with it the heartbeats.
    /// That worker opens a table before it sees that the table is still being copied.
    pub async fn hold_copy<T>(
        &self,
        subscription: &str,
        reseed: impl Future<Output = Result<T>>,
    ) -> Result<(T, HeldUp)> {
        let client = self.connect(DATABASE).await?;
        let [_heartbeats, records] = &tables(&client, subscription).await?[..] else {
            bail!("{subscription} brings other tables than heartbeats and records");
        };
        let waits = "select from pg_trigger where tgrelid = $1::text::regclass and tgname = 'copy_waits'";
        if client.query_opt(waits, &[records]).await?.is_none() {
            client.batch_execute(&makes_copies_wait(records)).await?;
        }
        client.batch_execute(&format!("begin; select pg_advisory_xact_lock({COPIES})")).await?;
        Ok((reseed.await?, HeldUp(client)))
    }

    /// Waits until the subscriber of this name was sent every commit, applied or not.
    pub async fn sent_to(&self, subscription: &str, within: Duration) -> Result<()> {
        let client = self.connect(DATABASE).await?;
        let now = flushed(&client).await?;
        let sent = async || {
            let sent = "select from pg_stat_replication where application_name = $1 and sent_lsn >= $2::text::pg_lsn";
            Ok(client.query_opt(sent, &[&subscription, &now]).await?.map(drop))
        };
        wait::for_some("what is committed to be sent", within, sent).await
    }

    /// Drops a slot, and ends any session that reads from it.
    pub async fn drop_slot(&self, slot: &str, within: Duration) -> Result<()> {
        let client = self.connect(DATABASE).await?;
        let refused = Mutex::new(String::new());
        let dropped = async || {
            let ends = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1 and active";
            client.query(ends, &[&slot]).await?;
            // Postgres refuses to drop a slot that is still in use.
            let drops = client.query("select pg_drop_replication_slot($1::text::name)", &[&slot]).await;
            Ok(drops.map(drop).map_err(|why| lock(&refused).push_str(&format!("{why}\n"))).ok())
        };
        let waited = wait::for_some("the slot to be dropped", within, dropped).await;
        waited.with_context(|| std::mem::take(&mut *lock(&refused)))
    }

    /// Process ids of the gateways' sessions, found by their application name.
    pub async fn sessions(&self) -> Result<BTreeSet<i32>> {
        let client = self.connect(DATABASE).await?;
        let pids = "select pid from pg_stat_activity \
                    where datname = $1 and application_name = 'onceway'";
        client.query(pids, &[&DATABASE]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    pub async fn session(&self, pid: i32) -> Result<Session> {
        self.rested(pid).await?.context("the session is gone, or at work")
    }

    /// Waits until the session has ended a statement, and committed it, since `before`.
    pub async fn has_worked(&self, before: &Session, within: Duration) -> Result<()> {
        let worked = async || {
            let now = self.rested(before.pid).await?;
            Ok(now.filter(|now| now != before).map(drop))
        };
        wait::for_some("the statement to end", within, worked).await
    }

    /// Final states of the keys that begin with `mark`.
    pub async fn ends(&self, mark: &str) -> Result<Ends> {
        let client = self.connect(DATABASE).await?;
        let rows = "select convert_from(key, 'UTF8'), bool_or(state = 4), bool_or(state in (1, 2)) \
                    from onceway.records where starts_with(convert_from(key, 'UTF8'), $1) group by key";
        let mut ends = Ends::default();
        for row in client.query(rows, &[&mark]).await? {
            if row.try_get(1)? {
                ends.settled.insert(row.try_get(0)?);
            } else if row.try_get(2)? {
                ends.open.insert(row.try_get(0)?);
            }
        }
        Ok(ends)
    }

    /// Keys that begin with `mark` and of which this store holds a row written by `region`.
    pub async fn written_by(&self, region: &str, mark: &str) -> Result<BTreeSet<String>> {
        let client = self.connect(DATABASE).await?;
        let rows = "select distinct convert_from(key, 'UTF8') from onceway.records \
                    where starts_with(convert_from(key, 'UTF8'), $1) and starts_with(origin, $2)";
        client.query(rows, &[&mark, &region]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Waits until every commit was sent to every subscriber; it may still be on its way.
    pub async fn sent(&self, within: Duration) -> Result<()> {
        let client = self.connect(DATABASE).await?;
        let now = flushed(&client).await?;
        let sent = async || {
            let behind = "select from pg_stat_replication where sent_lsn < $1::text::pg_lsn limit 1";
            Ok(client.query_opt(behind, &[&now]).await?.is_none().then_some(()))
        };
        wait::for_some("what is committed to be sent", within, sent).await
    }

    /// Number of subscriptions and slots here that name that region.
    pub async fn ties_to(&self, database: &str, region: &str) -> Result<i64> {
        let client = self.connect(database).await?;
        let like = format!("%{}%", region.replace('-', "\\_"));
        let sql = "select (select count(*) from pg_subscription where subname like $1) + \
                          (select count(*) from pg_replication_slots where slot_name like $1)";
        Ok(client.query_one(sql, &[&like]).await?.try_get(0)?)
    }

    async fn rested(&self, pid: i32) -> Result<Option<Session>> {
        let client = self.connect(DATABASE).await?;
        let began = "select query_start::text from pg_stat_activity where pid = $1 and state = 'idle'";
        let row = client.query_opt(began, &[&pid]).await?;
        row.map(|row| Ok(Session { pid, began: row.try_get(0)? })).transpose()
    }
}

async fn tables(client: &Client, subscription: &str) -> Result<Vec<String>> {
    let sql = "select srrelid::regclass::text from pg_subscription_rel join pg_subscription s on s.oid = srsubid \
               where subname = $1 order by 1";
    client.query(sql, &[&subscription]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Makes each row that replication brings into a table wait for the holder of [`COPIES`].
fn makes_copies_wait(table: &str) -> String {
    format!(
        "create or replace function onceway.copy_waits() returns trigger language plpgsql as \
         $$begin perform pg_advisory_xact_lock_shared({COPIES}); return new; end$$; \
         create trigger copy_waits before insert on {table} for each row execute function onceway.copy_waits(); \
         alter table {table} enable replica trigger copy_waits"
    )
}

/// The position of the last commit.
async fn flushed(client: &Client) -> Result<String> {
    Ok(client.query_one("select pg_current_wal_flush_lsn()::text", &[]).await?.try_get(0)?)
}
