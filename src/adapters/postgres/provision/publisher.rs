//! A peer's store as its replication role sees it: its readiness for a subscription, and the state
//! of our slot.
//!
//! `mesh` decides what to do about it. Every fault here is a reason to wait, given in words. This
//! file must not change anything at the peer.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;

use super::super::address::Address;
use super::super::{connect, errors, names};
use super::plan::Plan;
use crate::protocol::region::{Origin, RegionName};

const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// A peer that is ready.
pub(super) struct Publisher {
    /// A connection as its replication role.
    pub(super) client: Client,
    /// The slot of our subscription.
    pub(super) slot: Option<Slot>,
}

/// A replication slot.
pub(super) struct Slot {
    /// True if a subscription reads from it now.
    pub(super) active: bool,
    /// State of its WAL: reserved, extended, unreserved or lost.
    pub(super) wal_status: Option<String>,
}

/// Looks at a peer, for at most ten seconds. The error says in words what the peer lacks.
pub(super) async fn look(
    plan: &Plan,
    peer: &Origin,
    conninfo: &str,
    slot: &str,
) -> Result<Publisher, String> {
    let looked = timeout(LOOK_WITHIN, look_within(plan, peer, conninfo, slot)).await;
    looked.unwrap_or_else(|_late| Err(format!("{peer} does not answer")))
}

/// The generation of its store that a peer publishes; `None` while it has none. Takes at most ten
/// seconds.
pub(super) async fn generation(
    plan: &Plan,
    peer: &RegionName,
    conninfo: &str,
) -> Result<Option<u32>, tokio_postgres::Error> {
    let Ok(address) = Address::of_libpq(conninfo, plan.publishers_ca.as_deref()) else { return Ok(None) };
    let client = connect::single(&connect::tuned(&address, LOOK_WITHIN)).await?;
    let sql = "select max(substr(p.pubname, length($1) + 1)::bigint) from pg_publication p, onceway.meta m \
               where m.deployment = $2 and starts_with(p.pubname, $1) \
                 and substr(p.pubname, length($1) + 1) ~ '^[0-9]{1,9}$'";
    let row = client.query_one(sql, &[&names::publication_prefix(peer), &plan.deployment]).await?;
    Ok(row.try_get::<_, Option<i64>>(0)?.and_then(|generation| u32::try_from(generation).ok()))
}

async fn look_within(plan: &Plan, peer: &Origin, conninfo: &str, slot: &str) -> Result<Publisher, String> {
    let reach = |error: tokio_postgres::Error| format!("cannot look at {peer}: {}", errors::describe(&error));
    let address = Address::of_libpq(conninfo, plan.publishers_ca.as_deref())
        .map_err(|why| format!("the connection string of {peer}: {why}"))?;
    let client = connect::single(&connect::tuned(&address, LOOK_WITHIN)).await.map_err(|error| {
        let refused = error.code().is_some_and(|code| code.code().starts_with("28"));
        // The peer's own init makes the role. Before that the role does not exist.
        let hint = if refused {
            ": run `onceway store init` there, then check the role and its password"
        } else {
            ""
        };
        format!("{}{hint}", reach(error))
    })?;
    let not_made = || format!("{peer} has no store yet: run `onceway store init` there");

    let sql = "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace \
               where n.nspname = 'onceway' and c.relname = 'meta')";
    let made: bool = client.query_one(sql, &[]).await.and_then(|row| row.try_get(0)).map_err(reach)?;
    if !made {
        return Err(not_made());
    }
    let row = client.query_opt("select deployment from onceway.meta", &[]).await.map_err(reach)?;
    let deployment: String = row.ok_or_else(not_made)?.try_get(0).map_err(reach)?;
    if deployment != plan.deployment {
        return Err(format!("the store at {peer}'s address belongs to deployment {deployment}"));
    }
    for origin in &plan.all {
        let sql = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                   where 'onceway.' || c.relname = any($1) and n.nspname = 'onceway'";
        let there: i64 =
            client.query_one(sql, &[&leaves(origin)]).await.and_then(|row| row.try_get(0)).map_err(reach)?;
        if there != 2 {
            return Err(format!("{peer} has no leaves for {origin} yet: run `onceway store init` there"));
        }
    }
    match published(&client, &names::publication(peer)).await.map_err(reach)? {
        Some(tables) if tables == leaves(peer) => {}
        Some(_) | None => {
            return Err(format!("the store at {peer}'s address does not publish the leaves of {peer}"));
        }
    }
    let sql = "select active, wal_status from pg_replication_slots where slot_name = $1";
    let slot = match client.query_opt(sql, &[&slot]).await.map_err(reach)? {
        None => None,
        Some(row) => {
            Some(Slot { active: row.try_get(0).map_err(reach)?, wal_status: row.try_get(1).map_err(reach)? })
        }
    };
    Ok(Publisher { client, slot })
}

/// The columns of a table, oldest first; none if the table does not exist.
pub(super) const COLUMNS: &str = "select a.attname::text from pg_attribute a join pg_class c on c.oid = a.attrelid \
      join pg_namespace n on n.oid = c.relnamespace \
      where n.nspname || '.' || c.relname = $1 and a.attnum > 0 and not a.attisdropped order by a.attnum";

/// The columns of a table at a peer; none while it has no such table. Takes at most ten seconds.
pub(super) async fn columns(plan: &Plan, conninfo: &str, table: &str) -> Result<Vec<String>, String> {
    let looked = timeout(LOOK_WITHIN, async {
        let address = Address::of_libpq(conninfo, plan.publishers_ca.as_deref())
            .map_err(|why| format!("its connection string: {why}"))?;
        let text = |error: tokio_postgres::Error| errors::describe(&error);
        let client = connect::single(&connect::tuned(&address, LOOK_WITHIN)).await.map_err(text)?;
        let rows = client.query(COLUMNS, &[&table]).await.map_err(text)?;
        rows.iter().map(|row| row.try_get(0).map_err(text)).collect()
    });
    looked.await.unwrap_or_else(|_late| Err("it does not answer".to_owned()))
}

/// Tables of a publication, by name; `None` if there is no publication of that name.
pub(super) async fn published(
    client: &Client,
    publication: &str,
) -> Result<Option<Vec<String>>, tokio_postgres::Error> {
    let sql = "select array(select schemaname || '.' || tablename from pg_publication_tables t \
                            where t.pubname = p.pubname order by 1) \
               from pg_publication p where p.pubname = $1";
    client.query_opt(sql, &[&publication]).await?.map(|row| row.try_get(0)).transpose()
}

/// The leaves of an origin, sorted by name.
pub(super) fn leaves(origin: &Origin) -> Vec<String> {
    vec![names::heartbeats(origin), names::records(origin)]
}
