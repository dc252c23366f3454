//! Makes a region's store, connects it to its peers, and says what is missing: `onceway store init` and `store check`.
//!
//! `generations` (which stores), `schema` (migrations, leaves, routines, the gate), `roles` (least rights), `mesh` (publication and subscriptions), `columns` (what is published),
//! `leaving` (regions that left the ring), `publisher` (a peer), `reseed` (a subscription whose slot was lost), `script` (all of it for psql), `settings` (hints), `report`.
//! [`init`] may run in any order of regions, again and again, on a live deployment: it adds what is missing and changes nothing else.
//! Neighbours: `cli` and `fleet` call it with a [`Plan`]. It must not re-create what may have lost rows (a slot, a leaf's content), must not
//! touch another region's store, and must not copy a server's DETAIL lines into its report.

mod columns;
mod generations;
mod leaving;
mod mesh;
mod publisher;
mod report;
mod reseed;
mod roles;
mod schema;
mod script;
mod settings;

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Client;

use super::address::Address;
use super::run::Params;
use super::{connect, errors, names};
use crate::protocol::region::{Origin, RegionName};

pub use report::{Hint, Line, Report, Status};
pub(super) use schema::SCHEMA;
pub use script::{Script, Whence, script};

/// One after the other: two inits of one store. Any number will do, as long as it stays the same ("onceway1").
const LOCK: i64 = 0x6f6e_6365_7761_7931;
/// For one administrative statement; creating a slot waits for the transactions that run on the publisher.
const STATEMENT_WITHIN: Duration = Duration::from_secs(30);
const ALL_WITHIN: Duration = Duration::from_secs(180);
const OLDEST_SERVER: i32 = 150_000;

/// A database role. Roles are shared by all databases of a cluster.
#[derive(Clone)]
pub struct Role {
    /// Its name: a-z, 0-9 and '_', at most 63.
    pub name: String,
    /// Its password when it has to be created; an existing role keeps its own.
    pub password: Option<String>,
}

/// What a region's store has to be.
#[derive(Clone)]
pub struct Plan {
    /// The region, and which build of its store.
    pub me: Origin,
    /// All origins of the deployment, `me` included: each gets its leaves in every store. Of another region the view of this store says which
    /// build is present, or, where it follows none yet, that region itself.
    pub all: Vec<Origin>,
    /// The deployment's id; a store of another deployment is left alone.
    pub deployment: String,
    /// The role of this region's gateways: reads everything, writes only the own leaves.
    pub gateway_role: Role,
    /// The role by which peers' subscriptions read this region's leaves.
    pub replication_role: Role,
    /// How to reach the region's Postgres as the owner of the store; the database must exist.
    pub admin: Address,
    /// For each peer: how the region's Postgres reaches the peer's, as the peer's replication role (libpq connection string).
    pub subscribe: Vec<(Origin, String)>,
    /// The authorities of the peers' Postgres on this machine, PEM; `sslrootcert` in `subscribe` is a file of the region's Postgres, and is looked for
    /// here only if this is none.
    pub publishers_ca: Option<PathBuf>,
}

/// Why provisioning stopped. Nothing is left half done: the schema is made in one transaction.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan itself is wrong; nothing was asked of any server.
    #[error("the plan is wrong: {0}")]
    Plan(String),
    /// The region's own Postgres cannot be reached.
    #[error("cannot reach the store of {region}: {why}")]
    Unreachable {
        /// The region.
        region: String,
        /// Why.
        why: String,
    },
    /// The store is not the one of the plan, or is newer than this program; nothing was touched.
    #[error("this is not the store of the plan: {0}")]
    Foreign(String),
    /// A statement failed.
    #[error("{what} failed: {why}")]
    Sql {
        /// What was being done.
        what: &'static str,
        /// SQLSTATE and the server's first line, never its DETAIL.
        why: String,
    },
    /// It took too long.
    #[error("provisioning took longer than {} s: look for locks in the store", ALL_WITHIN.as_secs())]
    Late,
}

/// Makes the store as the plan says. Safe to repeat; a peer that is not ready is reported as pending, not as an error.
///
/// # Errors
/// See [`Error`]. Takes at most three minutes, normally well under a second.
pub async fn init(plan: &Plan) -> Result<Report, Error> {
    check_plan(plan)?;
    tokio::time::timeout(ALL_WITHIN, init_within(plan)).await.map_err(|_late| Error::Late)?
}

/// Reports what [`init`] would find, changing nothing.
///
/// # Errors
/// See [`Error`].
pub async fn check(plan: &Plan) -> Result<Report, Error> {
    check_plan(plan)?;
    tokio::time::timeout(ALL_WITHIN, check_within(plan)).await.map_err(|_late| Error::Late)?
}

/// Follows a peer anew whose slot for this store was lost or is missing: rows were lost on the way,
/// and no repair in place is safe. What is here of it stays readable throughout, and the region
/// counts as not covered until all has been copied again (docs/protocol.md#rule-36).
///
/// # Errors
/// The slot is well, or the peer is none or not ready (`Plan`); see [`Error`].
pub async fn reseed(plan: &Plan, from: &RegionName) -> Result<Report, Error> {
    check_plan(plan)?;
    tokio::time::timeout(ALL_WITHIN, reseed_within(plan, from)).await.map_err(|_late| Error::Late)?
}

/// What [`reseed`] would do: one line that is pending. Changes nothing.
///
/// # Errors
/// What [`reseed`] would be refused for.
pub async fn rehearse_reseed(plan: &Plan, from: &RegionName) -> Result<Report, Error> {
    check_plan(plan)?;
    let within = async {
        let client = connect(plan).await?;
        execute(&client, "beginning", "set default_transaction_read_only = on").await?;
        let plan = &generations::present(&client, plan).await?;
        let mut report = Report::default();
        reseed::rehearse(&client, plan, from, &mut report).await?;
        Ok(report)
    };
    tokio::time::timeout(ALL_WITHIN, within).await.map_err(|_late| Error::Late)?
}

async fn init_within(plan: &Plan) -> Result<Report, Error> {
    let client = connect(plan).await?;
    alone(&client).await?;
    let plan = &generations::present(&client, plan).await?;
    let mut report = Report::default();
    server(&client, &mut report).await?;
    execute(&client, "beginning", "begin").await?;
    schema::init(&client, plan, &mut report).await?;
    roles::init(&client, plan, &mut report).await?;
    execute(&client, "committing the schema", "commit").await?;
    // Behind it: looking at peers takes a while, and nothing may wait for the schema meanwhile.
    mesh::init_publication(&client, plan, &mut report).await?;
    for (peer, conninfo) in &plan.subscribe {
        mesh::init_subscription(&client, plan, peer, conninfo, &mut report).await?;
    }
    leaving::init(&client, plan, &mut report).await?;
    tracing::info!(region = %plan.me, changes = report.changes(), complete = report.is_complete(), "store init");
    Ok(report)
}

async fn check_within(plan: &Plan) -> Result<Report, Error> {
    let client = connect(plan).await?;
    execute(&client, "beginning", "set default_transaction_read_only = on").await?;
    let plan = &generations::present(&client, plan).await?;
    let mut report = Report::default();
    server(&client, &mut report).await?;
    if !schema::check(&client, plan, &mut report).await? {
        return Ok(report);
    }
    roles::check(&client, plan, &mut report).await?;
    mesh::check_publication(&client, plan, &mut report).await?;
    for (peer, conninfo) in &plan.subscribe {
        mesh::check_subscription(&client, plan, peer, conninfo, &mut report).await?;
    }
    leaving::check(&client, plan, &mut report).await?;
    Ok(report)
}

async fn reseed_within(plan: &Plan, from: &RegionName) -> Result<Report, Error> {
    let client = connect(plan).await?;
    alone(&client).await?;
    let plan = &generations::present(&client, plan).await?;
    let mut report = Report::default();
    reseed::reseed(&client, plan, from, &mut report).await?;
    Ok(report)
}

/// One provisioning at a time.
async fn alone(client: &Client) -> Result<(), Error> {
    const WHAT: &str = "waiting for another init";
    execute(client, WHAT, "set lock_timeout = '10s'").await?;
    query(client, WHAT, "select pg_advisory_lock($1)", &[&LOCK]).await.map(|_| ())
}

fn check_plan(plan: &Plan) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::Plan(why));
    if plan.deployment.is_empty() {
        return wrong("the deployment has no id".to_owned());
    }
    if !plan.all.contains(&plan.me) {
        return wrong(format!("{} is not among all origins", plan.me));
    }
    for role in [&plan.gateway_role.name, &plan.replication_role.name] {
        if !names::is_plain_role(role) {
            return wrong("a role's name must be 1 to 63 of a-z, 0-9 and '_', not first a digit".to_owned());
        }
    }
    if plan.gateway_role.name == plan.replication_role.name {
        return wrong("the gateway and the replication role must be two roles".to_owned());
    }
    for (peer, conninfo) in &plan.subscribe {
        if peer.region == plan.me.region || !plan.all.contains(peer) {
            return wrong(format!("{peer} is not a peer of {}", plan.me));
        }
        let name = names::subscription(&plan.me.region, &peer.region);
        if name.len() > names::MAX_IDENTIFIER {
            return wrong(format!(
                "the names of {} and {} are too long together: at most 53 characters fit into a slot's name",
                plan.me.region, peer.region
            ));
        }
        if let Err(why) = Address::of_libpq(conninfo, plan.publishers_ca.as_deref()) {
            return wrong(format!("the connection string of {peer}: {why}"));
        }
    }
    Ok(())
}

async fn connect(plan: &Plan) -> Result<Client, Error> {
    connect::single(&connect::tuned(&plan.admin, STATEMENT_WITHIN))
        .await
        .map_err(|error| Error::Unreachable { region: plan.me.region.to_string(), why: errors::told(&error) })
}

async fn server(client: &Client, report: &mut Report) -> Result<(), Error> {
    const WHAT: &str = "reading the server's settings";
    let sql = "select current_setting('server_version_num')::int, current_setting('wal_level')";
    let rows = query(client, WHAT, sql, &[]).await?;
    for row in &rows {
        let (version, wal_level): (i32, &str) = (get(row, WHAT, 0)?, get(row, WHAT, 1)?);
        let what = format!("server version {}, wal_level {wal_level}", version / 10_000);
        report.add(
            what,
            if version < OLDEST_SERVER {
                Status::Broken("Postgres 15 or newer is needed".to_owned())
            } else if wal_level != "logical" {
                Status::Broken(
                    "peers cannot subscribe: set wal_level = logical and restart Postgres".to_owned(),
                )
            } else {
                Status::Fine
            },
        );
    }
    report.hints = settings::hints(client).await?;
    Ok(())
}

/// Rows of an administrative statement.
async fn query(
    client: &Client,
    what: &'static str,
    sql: &str,
    params: Params<'_>,
) -> Result<Vec<tokio_postgres::Row>, Error> {
    client.query(sql, params).await.map_err(|error| failed(what, &error))
}

/// Whether a statement that gives one boolean gives true.
async fn holds(client: &Client, what: &'static str, sql: &str, params: Params<'_>) -> Result<bool, Error> {
    match query(client, what, sql, params).await?.first() {
        Some(row) => Ok(get::<Option<bool>>(row, what, 0)?.unwrap_or(false)),
        None => Ok(false),
    }
}

/// Statements without parameters.
async fn execute(client: &Client, what: &'static str, sql: &str) -> Result<(), Error> {
    client.batch_execute(sql).await.map_err(|error| failed(what, &error))
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a tokio_postgres::Row,
    what: &'static str,
    at: usize,
) -> Result<T, Error> {
    row.try_get(at).map_err(|_type| Error::Sql { what, why: format!("column {at} cannot be read") })
}

/// Administrative statements hold no keys, so the server's first line may be shown; its DETAIL may quote rows and is not.
fn failed(what: &'static str, error: &tokio_postgres::Error) -> Error {
    let why = match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message().lines().next().unwrap_or(""), db.code().code()),
        None => errors::told(error),
    };
    Error::Sql { what, why }
}
