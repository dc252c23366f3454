//! The required state of a region's store, the statements that compare it with the present one, and
//! the report of what was found or changed.
//!
//! No password, no connection string and no DETAIL line of a server, which may quote rows, gets
//! into a report.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, Row};

use super::super::address::Address;
use super::super::params::Params;
use super::super::{errors, names};
use crate::protocol::region::Origin;

/// A database role. All databases of a cluster share its roles.
#[derive(Clone)]
pub struct Role {
    /// Name of the role: a-z, 0-9 and '_', at most 63.
    pub name: String,
    /// Password for a role that has to be created. An existing role keeps its own.
    pub password: Option<String>,
}

/// Required state of a region's store.
#[derive(Clone)]
pub struct Plan {
    /// The region, and the generation of its store.
    pub me: Origin,
    /// All origins of the deployment, `me` included: each gets its leaves in every store. The
    /// present generation of another region comes from the view of this store. If it follows no
    /// view yet, it comes from that region itself.
    pub all: Vec<Origin>,
    /// The deployment's id. A store of another deployment is left alone.
    pub deployment: String,
    /// The role of this region's gateways: reads everything, writes only the own leaves.
    pub gateway_role: Role,
    /// The role by which peers' subscriptions read this region's leaves. `None` leaves it out, and
    /// the publication, too: the deployment has one region.
    pub replication_role: Option<Role>,
    /// Address of the region's Postgres, as the owner of the store. The database must exist.
    pub admin: Address,
    /// For each peer, the libpq connection string by which the region's Postgres reaches the
    /// peer's, as the peer's replication role.
    pub subscribe: Vec<(Origin, String)>,
    /// The authorities of the peers' Postgres on this machine, PEM. `sslrootcert` in `subscribe` is
    /// a file of the region's Postgres. It is looked for on this machine only if this field is
    /// empty.
    pub publishers_ca: Option<PathBuf>,
    /// The schema, as migrations from the first on: [`super::MIGRATIONS`].
    pub migrations: &'static [&'static str],
}

pub(super) fn check_plan(plan: &Plan) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::Plan(why));
    if plan.deployment.is_empty() {
        return wrong("the deployment has no id".to_owned());
    }
    if !plan.all.contains(&plan.me) {
        return wrong(format!("{} is not among all origins", plan.me));
    }
    let replication = plan.replication_role.as_ref().map(|role| &role.name);
    for role in std::iter::once(&plan.gateway_role.name).chain(replication) {
        if !names::is_plain_role(role) {
            return wrong("a role's name must be 1 to 63 of a-z, 0-9 and '_', not first a digit".to_owned());
        }
    }
    if replication.is_none() && plan.all.len() > 1 {
        return wrong("peers need a replication role".to_owned());
    }
    if Some(&plan.gateway_role.name) == replication {
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

pub(super) const ALL_WITHIN: Duration = Duration::from_secs(180);

/// Reason why provisioning stopped. Nothing is half done: the schema is made in one transaction.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan itself is wrong. No server was asked.
    #[error("the plan is wrong: {0}")]
    Plan(String),
    /// The region's own Postgres cannot be reached.
    #[error("cannot reach the store of {region}: {why}")]
    Unreachable {
        /// The region.
        region: String,
        /// Cause.
        why: String,
    },
    /// The store is not the one of the plan, or is newer than this program. Nothing was touched.
    #[error("this is not the store of the plan: {0}")]
    Foreign(String),
    /// A statement failed: the step, and SQLSTATE and the server's first line, never its DETAIL.
    #[error("{0} failed: {1}")]
    Sql(&'static str, String),
    /// The time was over.
    #[error("provisioning took longer than {} s: look for locks in the store", ALL_WITHIN.as_secs())]
    Late,
}

pub(super) async fn query(
    client: &Client,
    what: &'static str,
    sql: &str,
    params: Params<'_>,
) -> Result<Vec<Row>, Error> {
    client.query(sql, params).await.map_err(|error| failed(what, &error))
}

/// True if a statement with one boolean result returns true.
pub(super) async fn holds(
    client: &Client,
    what: &'static str,
    sql: &str,
    params: Params<'_>,
) -> Result<bool, Error> {
    match query(client, what, sql, params).await?.first() {
        Some(row) => Ok(get::<Option<bool>>(row, what, 0)?.unwrap_or(false)),
        None => Ok(false),
    }
}

pub(super) async fn execute(client: &Client, what: &'static str, sql: &str) -> Result<(), Error> {
    client.batch_execute(sql).await.map_err(|error| failed(what, &error))
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, what: &'static str, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(|_type| Error::Sql(what, format!("column {at} cannot be read")))
}

/// Makes the error of an administrative statement. Such statements hold no keys, so the server's
/// first line may be shown. Its DETAIL may quote rows, and is not.
pub(super) fn failed(what: &'static str, error: &tokio_postgres::Error) -> Error {
    let why = error.as_db_error().map(|db| {
        let line = db.message().lines().next().unwrap_or("");
        format!("{line} ({})", errors::with_meaning(db.code().code()))
    });
    Error::Sql(what, why.unwrap_or_else(|| errors::describe(error)))
}

/// State of one part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it has to be.
    Fine,
    /// Was missing or different, and was repaired now.
    Changed,
    /// Missing, with the reason. Running init (again) is all that it needs.
    Pending(String),
    /// Wrong, with the step for a person: init will not repair it.
    Broken(String),
}

impl Status {
    pub(super) fn changed_if(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Fine }
    }
}

/// One part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The part.
    pub what: String,
    /// State of the part.
    pub status: Status,
}

/// A setting of the server that differs from the recommendation of `deploy/postgres/onceway.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Name of the setting.
    pub setting: String,
    /// Present value.
    pub is: String,
    /// Recommended value.
    pub recommended: &'static str,
}

/// Fate of a slot of this store if a standby of its server is promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// Name of the slot.
    pub slot: String,
    /// True if its reader goes on afterwards and misses no row.
    pub survives: bool,
    /// Condition, or the step for a person.
    pub why: String,
}

/// All parts of a store, in the order in which they were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The parts.
    pub lines: Vec<Line>,
    /// Possible improvements. Nothing waits for them.
    pub hints: Vec<Hint>,
    /// Peers' slots, if the server has a standby. Nothing waits for them.
    pub promotion: Vec<Promotion>,
}

impl Report {
    /// True if nothing is pending or broken.
    pub fn is_complete(&self) -> bool {
        self.lines.iter().all(|line| matches!(line.status, Status::Fine | Status::Changed))
    }

    /// True if something is broken, so that repeating init is useless.
    pub fn is_broken(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.status, Status::Broken(_)))
    }

    /// Number of parts that were changed.
    pub fn changes(&self) -> usize {
        self.lines.iter().filter(|line| line.status == Status::Changed).count()
    }

    pub(super) fn of(what: String, status: Status) -> Self {
        Self { lines: vec![Line { what, status }], ..Self::default() }
    }

    pub(super) fn add(&mut self, what: impl Into<String>, status: Status) {
        self.lines.push(Line { what: what.into(), status });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match &line.status {
                Status::Fine => writeln!(out, "ok       {}", line.what)?,
                Status::Changed => writeln!(out, "changed  {}", line.what)?,
                Status::Pending(why) => writeln!(out, "pending  {}: {why}", line.what)?,
                Status::Broken(why) => writeln!(out, "broken   {}: {why}", line.what)?,
            }
        }
        for Hint { setting, is, recommended } in &self.hints {
            writeln!(
                out,
                "hint     {setting} = {is}: deploy/postgres/onceway.conf recommends {recommended}, and says why"
            )?;
        }
        for Promotion { slot, survives, why } in &self.promotion {
            let fate = if *survives { "would survive" } else { "would be lost" };
            writeln!(out, "standby  a promotion: {slot} {fate}: {why}")?;
        }
        Ok(())
    }
}
