//! Connections to Postgres: the one place that knows how they are made (no TLS so far) and what keeps them honest.
//!
//! Neighbours: `mod` makes pools here, `provision` single connections. It must not run statements.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::{Client, Config, NoTls};

use crate::ports::store::StoreError;

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A peer that vanished without a word is noticed after idle + retries · interval.
const IDLE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(2);
const RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// `base` with our bounds: for connecting, for dead connections, and for each statement on the server's side.
pub(super) fn tuned(base: &Config, statement: Duration) -> Config {
    let mut config = base.clone();
    let bound = format!("-c statement_timeout={}", statement.as_millis().max(1));
    let options = match base.get_options() {
        Some(given) => format!("{given} {bound}"),
        None => bound,
    };
    config
        .options(options)
        .application_name("onceway")
        .connect_timeout(CONNECT_WITHIN)
        .keepalives(true)
        .keepalives_idle(IDLE)
        .keepalives_interval(INTERVAL)
        .keepalives_retries(RETRIES)
        .tcp_user_timeout(UNACKNOWLEDGED);
    config
}

/// A pool of at most `most` connections. Its waits are bounded by the caller.
pub(super) fn pool(config: &Config, most: usize) -> Result<Pool, StoreError> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_config(config.clone(), NoTls, recycling))
        .max_size(most)
        .build()
        .map_err(|_no_runtime| StoreError::Definite("a connection pool cannot be made".to_owned()))
}

/// One connection. It is driven by a task that ends when the client is dropped.
pub(super) async fn single(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        // Its error reaches the client's next call as "connection closed".
        let _ = connection.await;
    });
    Ok(client)
}
