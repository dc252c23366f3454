//! What holds up or breaks what a Postgres sends to another one, and how far it got: for the drill that records histories.
//!
//! Neighbours: `cluster` connects, `drill::histories` calls. It acts as the superuser, on locks,
//! slots and sessions, and with one trigger that waits. It must not change a row.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::Client;

use super::cluster::Cluster;
use super::wait;

/// The lock that every row of records waits for that a copy brings, once a copy was held up.
const COPIES: i64 = 0x636f_7069_6573;

/// A subscription that applies nothing for as long as this lives: what a large transaction before it would do, for a span that the holder chooses.
pub struct HeldUp(Client);

impl HeldUp {
    /// Lets it go on.
    pub async fn end(self) -> Result<()> {
        Ok(self.0.batch_execute("rollback").await?)
    }
}

/// A session that is looked at from beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pid: i32,
    /// When its last statement began, as text.
    began: String,
}

impl Cluster {
    /// The name of the subscription here, and so of its slot there, that brings the rows of this region.
    pub async fn subscription_from(&self, database: &str, region: &str) -> Result<String> {
        let client = self.connect(database).await?;
        let like = format!("%\\_from\\_{}", region.replace('-', "\\_"));
        let found =
            client.query("select subname::text from pg_subscription where subname like $1", &[&like]).await?;
        let [row] = &found[..] else {
            anyhow::bail!("{} subscriptions from {region}, not one", found.len());
        };
        Ok(row.try_get(0)?)
    }

    /// Lets this subscription apply nothing, while whatever it brought can be read. Waits for what it is applying just now.
    pub async fn hold_up(&self, database: &str, subscription: &str) -> Result<HeldUp> {
        let client = self.connect(database).await?;
        let tables = tables(&client, subscription).await?;
        ensure!(!tables.is_empty(), "{subscription} brings no table");
        client.batch_execute(&locks(&tables.join(", "))).await?;
        Ok(HeldUp(client))
    }

    /// Has a subscription made anew by `reseed`, with the copy of its records held up at its first
    /// row; that of its heartbeats is not. Returns what came of `reseed`, and what holds the copy.
    ///
    /// A lock of the table would hold up the worker that applies, too, and with it the heartbeats:
    /// it opens a table before it sees that the table is still copied.
    pub async fn hold_copy<T>(
        &self,
        database: &str,
        subscription: &str,
        reseed: impl Future<Output = Result<T>>,
    ) -> Result<(T, HeldUp)> {
        let client = self.connect(database).await?;
        let [_heartbeats, records] = &tables(&client, subscription).await?[..] else {
            anyhow::bail!("{subscription} brings other tables than heartbeats and records");
        };
        let waits = "select from pg_trigger where tgrelid = $1::text::regclass and tgname = 'copy_waits'";
        if client.query_opt(waits, &[records]).await?.is_none() {
            client.batch_execute(&makes_copies_wait(records)).await?;
        }
        client.batch_execute(&format!("begin; select pg_advisory_xact_lock({COPIES})")).await?;
        Ok((reseed.await?, HeldUp(client)))
    }

    /// Waits until the subscriber of this name is there and was sent what is committed here by now, which is not to say that it was applied.
    pub async fn sent_to(&self, database: &str, subscription: &str, within: Duration) -> Result<()> {
        let client = self.connect(database).await?;
        let now: String =
            client.query_one("select pg_current_wal_flush_lsn()::text", &[]).await?.try_get(0)?;
        let sent = async || {
            let sent = "select from pg_stat_replication where application_name = $1 and sent_lsn >= $2::text::pg_lsn";
            Ok(client.query_opt(sent, &[&subscription, &now]).await?.map(drop))
        };
        wait::for_some("what is committed to be sent", within, sent).await
    }

    /// Drops a slot, whoever reads from it.
    pub async fn drop_slot(&self, database: &str, slot: &str, within: Duration) -> Result<()> {
        let client = self.connect(database).await?;
        let refused = Mutex::new(String::new());
        let dropped = async || {
            let ends = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1 and active";
            client.query(ends, &[&slot]).await?;
            // One that is still in use refuses.
            let drops = client.query("select pg_drop_replication_slot($1::text::name)", &[&slot]).await;
            Ok(drops.map(drop).map_err(|why| lock(&refused).push_str(&format!("{why}\n"))).ok())
        };
        let waited = wait::for_some("the slot to be dropped", within, dropped).await;
        waited.with_context(|| std::mem::take(&mut *lock(&refused)))
    }

    /// The sessions of gateways in this database, by the name that they give themselves.
    pub async fn sessions(&self, database: &str) -> Result<BTreeSet<i32>> {
        let client = self.connect(database).await?;
        let pids = "select pid from pg_stat_activity \
                    where datname = $1 and application_name = 'onceway'";
        client.query(pids, &[&database]).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// That session, at rest.
    pub async fn session(&self, database: &str, pid: i32) -> Result<Session> {
        self.rested(database, pid).await?.context("the session is gone, or at work")
    }

    /// Waits until the session has begun and ended a statement since it was looked at: what that wrote is committed.
    pub async fn has_worked(&self, database: &str, before: &Session, within: Duration) -> Result<()> {
        let worked = async || {
            let now = self.rested(database, before.pid).await?;
            Ok(now.filter(|now| now != before).map(drop))
        };
        wait::for_some("the statement to end", within, worked).await
    }

    async fn rested(&self, database: &str, pid: i32) -> Result<Option<Session>> {
        let client = self.connect(database).await?;
        let began = "select query_start::text from pg_stat_activity where pid = $1 and state = 'idle'";
        let row = client.query_opt(began, &[&pid]).await?;
        row.map(|row| Ok(Session { pid, began: row.try_get(0)? })).transpose()
    }
}

/// The tables that a subscription brings, in the order of their names.
async fn tables(client: &Client, subscription: &str) -> Result<Vec<String>> {
    let sql = "select srrelid::regclass::text from pg_subscription_rel join pg_subscription s on s.oid = srsubid \
               where subname = $1 order by 1";
    let found = client.query(sql, &[&subscription]).await?;
    found.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// A lock that conflicts with every write, and with no read.
fn locks(tables: &str) -> String {
    format!("begin; set local lock_timeout = '30s'; lock table {tables} in share row exclusive mode")
}

/// Has each row that replication brings into a table wait for whoever holds [`COPIES`].
fn makes_copies_wait(table: &str) -> String {
    format!(
        "create or replace function onceway.copy_waits() returns trigger language plpgsql as \
         $$begin perform pg_advisory_xact_lock_shared({COPIES}); return new; end$$; \
         create trigger copy_waits before insert on {table} for each row execute function onceway.copy_waits(); \
         alter table {table} enable replica trigger copy_waits"
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
