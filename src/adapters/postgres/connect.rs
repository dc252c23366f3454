//! Connections to Postgres: the one place that makes them and sets their time bounds.
//!
//! `mod` makes pools here, `provision` single connections. This file must not run statements.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error, NoTls};

use super::address::{self, Address};
use super::errors;
use super::tls::Tls;
use crate::ports::store::StoreError;

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A peer that vanished without a word is noticed after idle + retries · interval.
const IDLE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(2);
const RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// `base` with our bounds: for connecting, for dead connections, and for each statement on the
/// server's side.
pub(super) fn tuned(base: &Address, statement: Duration) -> Address {
    let bound = format!("-c statement_timeout={}", statement.as_millis().max(1));
    base.tuned(|config| {
        let options = match config.get_options() {
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
    })
}

/// `tuned`, with plans that suit batches: rows are found by their keys, whatever the statistics
/// say, and one plan is good for batches of every size.
pub(super) fn planned(tuned: &Address) -> Address {
    const PLANS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off \
        -c plan_cache_mode=force_generic_plan";
    tuned.tuned(|config| {
        let given = config.get_options().unwrap_or_default();
        let options = format!("{given} {PLANS}");
        config.options(options);
    })
}

/// Protection of an address's connections. The files that it names are read now, so that a wrong
/// one is found at the start. Blocks.
pub(super) fn protection(address: &Address) -> Result<Option<Tls>, StoreError> {
    let tls = Tls::new(&address.protection);
    if let Some(tls) = &tls {
        tls.read().map_err(|why| StoreError::Definite(format!("TLS to the store: {why}")))?;
    }
    Ok(tls)
}

/// Makes a pool of at most `most` connections. The caller bounds its waits.
pub(super) fn pool(address: &Address, tls: Option<Tls>, most: usize) -> Result<Pool, StoreError> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_connect(
        address.config.clone(),
        Connector { tls, said: Mutex::default() },
        recycling,
    ))
    .max_size(most)
    .build()
    .map_err(|_no_runtime| StoreError::Definite("a connection pool cannot be made".to_owned()))
}

/// Makes one connection. Its task ends when the client is dropped.
pub(super) async fn single(address: &Address) -> Result<Client, Error> {
    let (client, _driver) = open(Tls::new(&address.protection), &address.config).await?;
    Ok(client)
}

struct Connector {
    tls: Option<Tls>,
    /// The last failure that was logged: each is logged once.
    said: Mutex<Option<String>>,
}

impl Connector {
    fn said(&self, failed: Option<&Error>, config: &Config) {
        let why = failed.map(errors::describe);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != why {
            if let Some(why) = &why {
                tracing::warn!(why, at = address::place(config), "cannot connect to the store");
            }
            *said = why;
        }
    }
}

impl deadpool_postgres::Connect for Connector {
    fn connect(
        &self,
        config: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        let (tls, config) = (self.tls.clone(), config.clone());
        Box::pin(async move {
            let opened = open(tls, &config).await;
            self.said(opened.as_ref().err(), &config);
            opened
        })
    }
}

/// Makes a connection and the task that drives it. An error of the task reaches the client's next
/// call as "connection closed".
async fn open(tls: Option<Tls>, config: &Config) -> Result<(Client, JoinHandle<()>), Error> {
    Ok(match tls {
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            (client, tokio::spawn(async move { drop(connection.await) }))
        }
        Some(tls) => {
            let (client, connection) = config.connect(tls.ready().await).await?;
            (client, tokio::spawn(async move { drop(connection.await) }))
        }
    })
}
