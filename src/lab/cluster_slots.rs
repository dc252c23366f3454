//! Delays and breaks replication between two Postgres, and reads its progress, for the drill that
//! records histories. It acts as the superuser, on locks, slots and sessions, and with one trigger
//! that waits. It changes no row.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio_postgres::Client;

use super::cluster::Cluster;
use super::cluster_audit::flushed;
use super::files::DATABASE;
use super::{lock, wait};

/// Advisory lock that each row waits for when replication brings it into the records, after
/// [`Cluster::hold_copy`].
const COPIES: i64 = 0x636f_7069_6573;

/// A subscription that applies nothing while this value lives. It has the effect of a large
/// transaction ahead, for a span that the holder chooses.
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

impl Cluster {
    /// Name of the subscription here that brings the rows of this region. The slot on the other
    /// side has the same name.
    pub async fn subscription_from(&self, region: &str) -> Result<String> {
        let client = self.connect(DATABASE).await?;
        let like = format!("%\\_from\\_{}", region.replace('-', "\\_"));
        let found =
            client.query("select subname::text from pg_subscription where subname like $1", &[&like]).await?;
        let [row] = &found[..] else { bail!("{} subscriptions from {region}, not one", found.len()) };
        Ok(row.try_get(0)?)
    }

    /// Stops this subscription from applying anything; readers still see every row that it has
    /// brought. Waits for the transaction that it applies now.
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

    /// Waits until the subscriber of this name exists and has been sent every commit up to now. A
    /// sent commit may not be applied yet.
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

    /// Snapshot of that session, at rest.
    pub async fn session(&self, pid: i32) -> Result<Session> {
        self.rested(pid).await?.context("the session is gone, or at work")
    }

    /// Waits until the session has begun and ended a statement after the snapshot `before`. The
    /// writes of that statement are then committed.
    pub async fn has_worked(&self, before: &Session, within: Duration) -> Result<()> {
        let worked = async || {
            let now = self.rested(before.pid).await?;
            Ok(now.filter(|now| now != before).map(drop))
        };
        wait::for_some("the statement to end", within, worked).await
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
    let found = client.query(sql, &[&subscription]).await?;
    found.iter().map(|row| Ok(row.try_get(0)?)).collect()
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
