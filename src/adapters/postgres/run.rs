//! One call: a connection, the prepared statement, its rows, all within a bound.
//!
//! A connection goes back to its pool only when its call has ended. After a timeout, a broken call
//! or a caller that went away, the connection is dropped, since an answer may still arrive on it.
//! `errors` classifies failures. Nothing is repeated.

use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, PoolError};
use tokio::time::timeout;
use tokio_postgres::{Error, Row, Statement};

use super::connect::Connections;
use super::errors::{self, Effect};
use super::params::Params;
use super::rows::Unreadable;
use crate::ports::store::StoreError;

#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// Name for error texts: "a claim".
    pub(super) what: &'static str,
    pub(super) effect: Effect,
    pub(super) sql: &'a str,
}

impl<'a> Call<'a> {
    pub(super) const fn reads(what: &'static str, sql: &'a str) -> Self {
        Self { what, effect: Effect::Reads, sql }
    }

    pub(super) const fn writes(what: &'static str, sql: &'a str) -> Self {
        Self { what, effect: Effect::Writes, sql }
    }

    pub(super) fn unreadable(self, why: Unreadable) -> StoreError {
        errors::unreadable(self.what, self.effect, why)
    }

    pub(super) fn not_sent(self, why: &str) -> StoreError {
        errors::not_sent(self.what, why)
    }
}

pub(super) struct Failed {
    pub(super) error: StoreError,
    /// True if the server answered, even with an error: then it is reachable.
    pub(super) answered: bool,
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// Runs the call once. At most half of `within` passes before it is sent, and half after.
pub(super) async fn run(
    connections: &Connections,
    within: Duration,
    call: Call<'_>,
    params: Params<'_>,
) -> Result<Vec<Row>, Failed> {
    let half = within / 2;
    let silent = |error| Failed { error, answered: false };
    let Ok(prepared) = timeout(half, prepare(connections, call)).await else {
        return Err(silent(call.not_sent("no connection in time")));
    };
    let (mut connection, statement) = prepared?;
    let client = connection.client().map_err(silent)?;
    match timeout(half, client.query(&statement, params)).await {
        Ok(Ok(rows)) => {
            connection.keep();
            Ok(rows)
        }
        Ok(Err(error)) => Err(connection.failed(&error, errors::failed(call.what, call.effect, &error))),
        Err(_late) => Err(silent(errors::silent(call.what, call.effect, half.as_millis()))),
    }
}

async fn prepare(connections: &Connections, call: Call<'_>) -> Result<(Connection, Statement), Failed> {
    let object = connections.get().await.map_err(|error| Failed {
        error: errors::no_connection(call.what, &error),
        answered: matches!(&error, PoolError::Backend(error) if errors::is_answer(error)),
    })?;
    let mut connection = Connection(Some(object));
    let client = connection.client().map_err(|error| Failed { error, answered: false })?;
    match client.prepare_cached(call.sql).await {
        Ok(statement) => Ok((connection, statement)),
        Err(error) => Err(connection.failed(&error, call.not_sent(&errors::describe(&error)))),
    }
}

/// A borrowed connection that is thrown away unless its call has ended.
struct Connection(Option<Object>);

impl Connection {
    fn client(&self) -> Result<&ClientWrapper, StoreError> {
        self.0
            .as_deref()
            .ok_or_else(|| StoreError::Definite("the connection was given back already".to_owned()))
    }

    fn keep(&mut self) {
        drop(self.0.take());
    }

    /// The failure of its call. It is kept if the failure says nothing about it.
    fn failed(&mut self, why: &Error, error: StoreError) -> Failed {
        if errors::reusable(why) {
            self.keep();
        }
        Failed { error, answered: errors::is_answer(why) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            tracing::debug!("a connection to the store is dropped: its last call did not come to an end");
            drop(Object::take(object));
        }
    }
}
