//! A peer's store as its replication role sees it: readiness, our slot, the store's generation.
//!
//! The author of a plan may not know that a store was replaced. The register decides, as this store
//! has adopted it; a store that follows no view yet asks its peers. For a silent peer the plan's
//! generation stays, and its part waits. Nothing is changed at a peer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSql, Json};

use super::super::super::views::from_value;
use super::super::address::{Address, BadAddress};
use super::super::params::Params;
use super::super::{connect, errors, names};
use super::plan::{Error, Plan, get, holds, query};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::view::View;

const LOOK_WITHIN: Duration = Duration::from_secs(10);
/// Settings of a connection string that has none of its own.
pub(super) const KEPT_ALIVE: &str =
    " connect_timeout=5 keepalives_idle=5 keepalives_interval=2 keepalives_count=3";

/// The way by which this store follows a peer.
pub(super) struct Way<'a> {
    pub(super) peer: &'a Origin,
    pub(super) conninfo: String,
    /// The subscription, and its slot.
    pub(super) name: String,
}

impl<'a> Way<'a> {
    /// Adds keep-alives to a connection string of keywords that has none. A URL stays as it is.
    pub(super) fn new(plan: &Plan, peer: &'a Origin, conninfo: &str) -> Self {
        let given = conninfo.contains("://") || conninfo.contains("keepalives");
        let conninfo = if given { conninfo.to_owned() } else { format!("{conninfo}{KEPT_ALIVE}") };
        Self { peer, conninfo, name: names::subscription(&plan.me.region, &peer.region) }
    }

    pub(super) fn line(&self) -> String {
        format!("subscription from {}", self.peer)
    }
}

/// A peer that is ready.
pub(super) struct Publisher {
    /// A connection as its replication role.
    pub(super) client: Client,
    pub(super) slot: Option<Slot>,
}

pub(super) struct Slot {
    pub(super) active: bool,
    /// State of its WAL: reserved, extended, unreserved or lost.
    pub(super) wal_status: Option<String>,
}

/// Looks at a peer, for at most ten seconds. The error says in words what the peer lacks.
pub(super) async fn look(plan: &Plan, way: &Way<'_>) -> Result<Publisher, String> {
    let looked = timeout(LOOK_WITHIN, look_within(plan, way)).await;
    looked.unwrap_or_else(|_late| Err(format!("{} does not answer", way.peer)))
}

async fn look_within(plan: &Plan, Way { peer, conninfo, name }: &Way<'_>) -> Result<Publisher, String> {
    let reach = |error: tokio_postgres::Error| format!("cannot look at {peer}: {}", errors::describe(&error));
    let address = address(plan, conninfo).map_err(|why| format!("the connection string of {peer}: {why}"))?;
    let client = connected(&address).await.map_err(|error| {
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
    if !value::<bool>(&client, sql, &[]).await.map_err(reach)? {
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
        if value::<i64>(&client, sql, &[&leaves(origin)]).await.map_err(reach)? != 2 {
            return Err(format!("{peer} has no leaves for {origin} yet: run `onceway store init` there"));
        }
    }
    let published = published(&client, &names::publication(peer)).await.map_err(reach)?;
    if published.is_none_or(|tables| tables != leaves(peer)) {
        return Err(format!("the store at {peer}'s address does not publish the leaves of {peer}"));
    }
    let sql = "select active, wal_status from pg_replication_slots where slot_name = $1";
    let row = client.query_opt(sql, &[name]).await.map_err(reach)?;
    let slot = row.map(|row| Ok(Slot { active: row.try_get(0)?, wal_status: row.try_get(1)? }));
    Ok(Publisher { client, slot: slot.transpose().map_err(reach)? })
}

fn address(plan: &Plan, conninfo: &str) -> Result<Address, BadAddress> {
    Address::of_libpq(conninfo, plan.publishers_ca.as_deref())
}

async fn connected(address: &Address) -> Result<Client, tokio_postgres::Error> {
    connect::single(&connect::tuned(address, LOOK_WITHIN)).await
}

async fn value<T: for<'a> FromSql<'a>>(
    client: &Client,
    sql: &str,
    params: Params<'_>,
) -> Result<T, tokio_postgres::Error> {
    client.query_one(sql, params).await?.try_get(0)
}

/// The generation of its store that a peer publishes; `None` while it has none or does not answer.
/// Takes at most ten seconds.
async fn generation(plan: &Plan, peer: &RegionName, conninfo: &str) -> Option<u32> {
    let client = connected(&address(plan, conninfo).ok()?).await.ok()?;
    let sql = "select max(substr(p.pubname, length($1) + 1)::bigint) from pg_publication p, onceway.meta m \
               where m.deployment = $2 and starts_with(p.pubname, $1) \
                 and substr(p.pubname, length($1) + 1) ~ '^[0-9]{1,9}$'";
    let params: Params<'_> = &[&names::publication_prefix(peer), &plan.deployment];
    value::<Option<i64>>(&client, sql, params).await.ok()??.try_into().ok()
}

/// The columns of a table, oldest first; none if the table does not exist.
pub(super) const COLUMNS: &str = "select a.attname::text from pg_attribute a join pg_class c on c.oid = a.attrelid \
      join pg_namespace n on n.oid = c.relnamespace \
      where n.nspname || '.' || c.relname = $1 and a.attnum > 0 and not a.attisdropped order by a.attnum";

/// The columns of a table at a peer; none while it has no such table. Takes at most ten seconds.
pub(super) async fn columns(plan: &Plan, conninfo: &str, table: &str) -> Result<Vec<String>, String> {
    let looked = timeout(LOOK_WITHIN, async {
        let address = address(plan, conninfo).map_err(|why| format!("its connection string: {why}"))?;
        let text = |error: tokio_postgres::Error| errors::describe(&error);
        let client = connected(&address).await.map_err(text)?;
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

const VIEW: &str = "reading the view";

/// The plan with the present generations of the other stores. Its own generation stays.
pub(super) async fn present(client: &Client, plan: &Plan) -> Result<Plan, Error> {
    let view = view(client).await?;
    let mut published = BTreeMap::new();
    for (peer, conninfo) in plan.subscribe.iter().filter(|_| view.is_none()) {
        if let Some(generation) = generation(plan, &peer.region, conninfo).await {
            published.insert(peer.region.clone(), generation);
        }
    }
    let of = |region: &RegionName| match &view {
        Some(view) => view.members().get(region).map(|member| member.generation),
        None => published.get(region).copied(),
    };
    let known = |origin: &Origin| {
        if origin.region == plan.me.region {
            return plan.me.clone();
        }
        let generation = of(&origin.region).unwrap_or(origin.generation);
        Origin { region: origin.region.clone(), generation }
    };
    Ok(Plan {
        all: plan.all.iter().map(known).collect(),
        subscribe: plan.subscribe.iter().map(|(peer, conninfo)| (known(peer), conninfo.clone())).collect(),
        ..plan.clone()
    })
}

/// The view that this store follows; `None` if there is no store or no view.
pub(super) async fn view(client: &Client) -> Result<Option<Arc<View>>, Error> {
    if !holds(client, VIEW, "select to_regclass('onceway.gate') is not null", &[]).await? {
        return Ok(None);
    }
    let rows = query(client, VIEW, "select view from onceway.gate", &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(Json(doc)) = get::<Option<Json<Value>>>(row, VIEW, 0)? else { return Ok(None) };
    from_value(&doc)
        .map(Some)
        .map_err(|why| Error::Foreign(format!("the view in its gate cannot be read: {why}")))
}
