//! Provisioning: makes a region's store, connects it to its peers, and reports missing parts
//! (`store init`, `store check`).
//!
//! [`init`] may run in any order of regions, repeatedly, on a live deployment: it adds missing
//! parts and changes nothing else. Nothing is made anew that may have lost rows (a slot, a leaf's
//! content), and no server's DETAIL lines get into a report.

mod columns;
mod leaving;
mod mesh;
mod plan;
mod promotion;
mod publisher;
mod roles;
mod schema;
mod script;
mod settings;

use std::time::Duration;

use tokio_postgres::Client;

use super::address::Address;
use super::{connect, errors, names};
use crate::protocol::region::RegionName;
use plan::{ALL_WITHIN, check_plan, execute, failed, get, holds, query};
use publisher::Way;

pub use plan::{Error, Hint, Line, Plan, Promotion, Report, Role, Status};
pub use schema::MIGRATIONS;
pub(super) use schema::SCHEMA;
pub use script::{Script, Whence, script, verifiers};

/// Lock for one init at a time in a store ("onceway1"). It must never change.
const LOCK: i64 = 0x6f6e_6365_7761_7931;
/// Longest time of one statement: creating a slot waits for the publisher's transactions.
const STATEMENT_WITHIN: Duration = Duration::from_secs(30);
const OLDEST_SERVER: i32 = 150_000;

/// Makes the store as the plan says. Safe to repeat. A peer that is not ready is reported as
/// pending, not as an error. Takes at most three minutes, normally well under a second.
pub async fn init(plan: &Plan) -> Result<Report, Error> {
    within(plan, whole(plan, true)).await
}

/// Reports what [`init`] would find. Changes nothing.
pub async fn check(plan: &Plan) -> Result<Report, Error> {
    within(plan, whole(plan, false)).await
}

/// Makes the whole store, or only looks, if nothing may change.
async fn whole(plan: &Plan, changes: bool) -> Result<Report, Error> {
    let (client, plan) = &begin(plan, changes).await?;
    let mut report = Report::default();
    server(client, plan, &mut report).await?;
    if changes {
        if plan.replication_role.is_none() {
            own_database(client).await?;
        }
        execute(client, "beginning", "begin").await?;
    }
    if !schema::look(client, plan, &mut report, changes).await? {
        return Ok(report);
    }
    roles::look(client, plan, &mut report, changes).await?;
    if !changes {
        connected(client, plan, &mut report, false).await?;
        promotion::check(client, plan, &mut report).await?;
        return Ok(report);
    }
    execute(client, "committing the schema", "commit").await?;
    // After the commit: looking at peers takes a while, and no other transaction may wait for
    // the schema meanwhile.
    connected(client, plan, &mut report, true).await?;
    tracing::info!(region = %plan.me, changes = report.changes(), complete = report.is_complete(), "store init");
    Ok(report)
}

/// Connects the store to its peers, or only looks, if nothing may change.
async fn connected(client: &Client, plan: &Plan, report: &mut Report, changes: bool) -> Result<(), Error> {
    if plan.replication_role.is_some() {
        let line = format!("publication {}", names::publication(&plan.me));
        report.add(line, mesh::publish(client, plan, changes).await?);
    }
    for (peer, conninfo) in &plan.subscribe {
        let way = Way::new(plan, peer, conninfo);
        let status = mesh::subscription(client, plan, &way, changes).await?;
        report.add(way.line(), status);
    }
    leaving::look(client, plan, report, changes).await
}

/// Follows a peer anew whose slot for this store is lost or missing. Rows were lost on the way, and
/// no repair in place is safe. The peer's rows in this store stay readable throughout. The region
/// counts as not covered until all rows have been copied again (docs/protocol.md#rule-36). Fails
/// (`Plan`) if the slot is intact, the region is no peer, or the peer is not ready.
pub async fn reseed(plan: &Plan, from: &RegionName) -> Result<Report, Error> {
    within(plan, anew(plan, from, true)).await
}

/// Reports the step of [`reseed`] as one pending line, or refuses as it would. Changes nothing.
pub async fn rehearse_reseed(plan: &Plan, from: &RegionName) -> Result<Report, Error> {
    within(plan, anew(plan, from, false)).await
}

async fn anew(plan: &Plan, from: &RegionName, changes: bool) -> Result<Report, Error> {
    let (client, plan) = &begin(plan, changes).await?;
    mesh::reseed(client, plan, from, changes).await
}

async fn within(plan: &Plan, work: impl Future<Output = Result<Report, Error>>) -> Result<Report, Error> {
    check_plan(plan)?;
    tokio::time::timeout(ALL_WITHIN, work).await.map_err(|_late| Error::Late)?
}

/// Connects to the store, to change it or only to look, and finds the present generations.
async fn begin(plan: &Plan, changes: bool) -> Result<(Client, Plan), Error> {
    let tuned = connect::tuned(&plan.admin, STATEMENT_WITHIN);
    let client = connect::single(&tuned).await.map_err(|error| Error::Unreachable {
        region: plan.me.region.to_string(),
        why: format!("{} ({})", errors::describe(&error), plan.admin.place()),
    })?;
    if changes {
        // Other provisioning of this store ends first.
        const WHAT: &str = "waiting for another init";
        execute(&client, WHAT, "set lock_timeout = '10s'").await?;
        query(&client, WHAT, "select pg_advisory_lock($1)", &[&LOCK]).await?;
    } else {
        execute(&client, "beginning", "set default_transaction_read_only = on").await?;
    }
    let plan = publisher::present(&client, plan).await?;
    Ok((client, plan))
}

/// Checks that the database holds nothing else: where the gateway's role makes its own store, that
/// role's settings in this database change.
async fn own_database(client: &Client) -> Result<(), Error> {
    const WHAT: &str = "looking for other tables";
    let sql = "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                where c.relkind in ('r', 'p') and n.nspname <> 'onceway' and n.nspname <> 'information_schema' \
                  and n.nspname not like 'pg\\_%')";
    match holds(client, WHAT, sql, &[]).await? {
        true => Err(Error::Foreign(
            "the database has tables of others, and onceway changes settings of its role there: make one of its own, such as `createdb onceway`".to_owned(),
        )),
        false => Ok(()),
    }
}

/// True if the role of this address is a superuser, which could write any table. Fails if the
/// Postgres cannot be reached, as a SQLSTATE or the network says it.
pub async fn is_superuser(address: &Address) -> Result<bool, Error> {
    let tuned = connect::tuned(address, STATEMENT_WITHIN);
    let client = connect::single(&tuned).await.map_err(|error| failed("connecting", &error))?;
    holds(&client, "looking at the role", "select rolsuper from pg_roles where rolname = current_user", &[])
        .await
}

async fn server(client: &Client, plan: &Plan, report: &mut Report) -> Result<(), Error> {
    const WHAT: &str = "reading the server's settings";
    let sql = "select current_setting('server_version_num')::int, current_setting('wal_level')";
    let rows = query(client, WHAT, sql, &[]).await?;
    for row in &rows {
        let (version, wal_level): (i32, &str) = (get(row, WHAT, 0)?, get(row, WHAT, 1)?);
        let what = format!("server version {}, wal_level {wal_level}", version / 10_000);
        let wrong = if version < OLDEST_SERVER {
            Some("Postgres 15 or newer is needed")
        } else {
            (wal_level != "logical" && plan.all.len() > 1)
                .then_some("peers cannot subscribe: set wal_level = logical and restart Postgres")
        };
        report.add(what, wrong.map_or(Status::Fine, |wrong| Status::Broken(wrong.to_owned())));
    }
    report.hints = settings::hints(client).await?;
    Ok(())
}
