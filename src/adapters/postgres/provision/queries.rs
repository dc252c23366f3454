//! Administrative statements, and the reason why provisioning stopped.
//!
//! This file must not copy a server's DETAIL lines: they may quote rows.

use std::time::Duration;

use tokio_postgres::Client;

use super::super::errors;
use super::super::run::Params;

pub(super) const ALL_WITHIN: Duration = Duration::from_secs(180);

/// Reason why provisioning stopped. Nothing is left half done: the schema is made in one
/// transaction.
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
    /// A statement failed.
    #[error("{what} failed: {why}")]
    Sql {
        /// The failed step.
        what: &'static str,
        /// SQLSTATE and the server's first line, never its DETAIL.
        why: String,
    },
    /// The time was over.
    #[error("provisioning took longer than {} s: look for locks in the store", ALL_WITHIN.as_secs())]
    Late,
}

/// Rows of an administrative statement.
pub(super) async fn query(
    client: &Client,
    what: &'static str,
    sql: &str,
    params: Params<'_>,
) -> Result<Vec<tokio_postgres::Row>, Error> {
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

/// Runs statements without parameters.
pub(super) async fn execute(client: &Client, what: &'static str, sql: &str) -> Result<(), Error> {
    client.batch_execute(sql).await.map_err(|error| failed(what, &error))
}

pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a tokio_postgres::Row,
    what: &'static str,
    at: usize,
) -> Result<T, Error> {
    row.try_get(at).map_err(|_type| Error::Sql { what, why: format!("column {at} cannot be read") })
}

/// Makes the error of an administrative statement. Such statements hold no keys, so the server's
/// first line may be shown. Its DETAIL may quote rows, and is not.
pub(super) fn failed(what: &'static str, error: &tokio_postgres::Error) -> Error {
    let why = match error.as_db_error() {
        Some(db) => {
            format!(
                "{} ({})",
                db.message().lines().next().unwrap_or(""),
                errors::with_meaning(db.code().code())
            )
        }
        None => errors::describe(error),
    };
    Error::Sql { what, why }
}
