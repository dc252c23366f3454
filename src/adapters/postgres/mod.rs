//! The key store of one region over its Postgres: [`PgStore`] is the ports `KeyStore`, `Replica`, `Upkeep` and `Jobs`.
//!
//! One concern per file: [`address`] and `tls` (where to, how protected), `connect` (the only connector), `run` (one call: connection, bound, classification), `errors`
//! (definite or unknown), `statements` (SQL with the region's own leaf in it), `rows`, `answer` and `packed` (columns to values and back),
//! `keys`, `replica`, `upkeep` and `jobs` (the four ports), [`sealing`] (requests at rest), [`provision`] (makes and checks a store).
//! Neighbours: `protocol` says what rows mean.
//!
//! It must not decide, must not send anything twice, and must never let a key, a tenant, a parameter or a server's DETAIL line into an
//! error or a log: those lines may hold keys.

pub mod address;
mod answer;
mod audit;
mod authority;
mod connect;
mod errors;
mod escrows;
mod imports;
mod jobs;
mod keys;
mod names;
mod packed;
pub mod provision;
mod replica;
mod rows;
mod run;
pub mod sealing;
mod statements;
mod tls;
mod upkeep;

use std::time::Duration;

use deadpool_postgres::Pool;

use crate::ports::store::StoreError;
use crate::protocol::region::Origin;

use address::Address;
use run::{Call, Params};
use sealing::Sealer;
use statements::Statements;

/// Connections for heartbeats, the gate and replication beside those for keys: a full key pool cannot starve them.
const CONTROL_CONNECTIONS: usize = 2;
/// Connections for what runs beside requests: a batch of reaping holds back neither keys nor heartbeats.
const UPKEEP_CONNECTIONS: usize = 2;

/// How to reach and use the region's store.
#[derive(Clone)]
pub struct StoreConfig {
    /// This region and the generation of its store; it must be the one that the store was made for.
    pub origin: Origin,
    /// Where the store is and who we are there: the gateway role. Time bounds and keep-alives are set here, whatever it says.
    pub postgres: Address,
    /// The most connections for keys, at least 1; two more are used for heartbeats and the gate, and two for reaping and sweeping.
    pub connections: usize,
    /// The most that any one call may take: up to half of it to get a connection, up to half for the statement. The server itself
    /// gives a statement up a little earlier, so that most late statements are known to have written nothing.
    pub statement_within: Duration,
    /// Seals stored requests; without one they are stored as they are.
    pub sealer: Option<Sealer>,
}

impl StoreConfig {
    /// 16 connections, 2 s per call.
    pub fn new(origin: Origin, postgres: Address) -> Self {
        Self { origin, postgres, connections: 16, statement_within: Duration::from_secs(2), sealer: None }
    }
}

/// The region's store. Connects when first used and again whenever a connection was lost; cheap to share by reference.
pub struct PgStore {
    origin: Origin,
    keys: Pool,
    control: Pool,
    upkeep: Pool,
    within: Duration,
    sql: Statements,
    sealer: Option<Sealer>,
}

impl PgStore {
    /// A store by its settings. Opens no connection yet, so it succeeds while Postgres is down. Reads the certificates that the address names;
    /// blocks.
    ///
    /// # Errors
    /// No connections allowed, a bound under 10 ms, or certificates that cannot be used.
    pub fn new(config: &StoreConfig) -> Result<Self, StoreError> {
        if config.connections == 0 || config.statement_within < Duration::from_millis(10) {
            return Err(StoreError::Definite(
                "a store needs at least 1 connection and 10 ms per call: raise the setting".to_owned(),
            ));
        }
        let tuned = connect::tuned(&config.postgres, config.statement_within.mul_f64(0.4));
        let tls = connect::protection(&tuned)?;
        Ok(Self {
            origin: config.origin.clone(),
            keys: connect::pool(&tuned, tls.clone(), config.connections)?,
            control: connect::pool(&tuned, tls.clone(), CONTROL_CONNECTIONS)?,
            upkeep: connect::pool(&tuned, tls, UPKEEP_CONNECTIONS)?,
            within: config.statement_within,
            sql: Statements::new(&config.origin),
            sealer: config.sealer.clone(),
        })
    }

    async fn on_keys(
        &self,
        call: Call<'_>,
        params: Params<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        run::run(&self.keys, self.within, call, params).await
    }

    async fn on_control(
        &self,
        call: Call<'_>,
        params: Params<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        run::run(&self.control, self.within, call, params).await
    }

    async fn on_upkeep(
        &self,
        call: Call<'_>,
        params: Params<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        run::run(&self.upkeep, self.within, call, params).await
    }
}
