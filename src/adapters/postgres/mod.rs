//! The store of one region over its Postgres: [`PgStore`] implements nine ports.
//!
//! `keys` and `jobs` have one port each, `upkeep` two, `authority` five. Each call goes through
//! `run`. `statements` has the SQL, `params` and `rows` the columns.
//!
//! This room must not send anything twice. It must never let a key, a tenant, a parameter or a
//! server's DETAIL line into an error or a log: those lines may hold keys.

pub mod address;
mod answer;
mod authority;
mod batches;
mod breaker;
mod connect;
mod errors;
mod gather;
mod jobs;
mod keys;
pub mod login;
mod names;
mod params;
pub mod provision;
mod rows;
mod run;
pub mod sealing;
mod statements;
mod tls;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use crate::ports::store::{StoreError, Written};
use crate::protocol::region::Origin;

use address::Address;
use batches::{Claim, Settlement};
use breaker::{Guard, Probe};
use connect::Connections;
use errors::{Called, Effect};
use gather::Gather;
use login::Login;
use params::Params;
use run::Call;
use sealing::Sealer;
use statements::Statements;

/// Connections of each lane for control, upkeep and operators: statements of other lanes cannot
/// starve a heartbeat, and status is answered while everything else waits.
const BESIDE: usize = 2;

/// Settings of the region's store.
#[derive(Clone)]
pub struct StoreConfig {
    /// This region and the generation of its store. The store must have been made for it.
    pub origin: Origin,
    /// Address of the store and our role there: the gateway role. Time bounds and keep-alives are
    /// set here, even if the address has others.
    pub postgres: Address,
    /// Most connections for keys, at least 1. Further connections: half as many, at least two, for
    /// questions of other regions. Two each for batches of claims and of settlements, for
    /// heartbeats, acceptor and gate, for reaping and sweeping, and for operators.
    pub connections: usize,
    /// Longest time of a call: at most half of it to get a connection, at most half for the
    /// statement. The server itself ends a statement a little earlier, so that most late statements
    /// are known to have written nothing.
    pub statement_within: Duration,
    /// Seals stored requests. Without a sealer they are stored unsealed.
    pub sealer: Option<Sealer>,
}

impl StoreConfig {
    /// Default settings: 16 connections, 2 s per call.
    pub fn new(origin: Origin, postgres: Address) -> Self {
        Self { origin, postgres, connections: 16, statement_within: Duration::from_secs(2), sealer: None }
    }
}

/// The region's store. Connects when first used, and again after a connection was lost.
pub struct PgStore {
    origin: Origin,
    lanes: Lanes,
    reads: Arc<Guard>,
    writes: Arc<Guard>,
    claims: Arc<Gather<Claim>>,
    settlements: Arc<Gather<Settlement>>,
    within: Duration,
    sql: Statements,
    sealer: Option<Sealer>,
    login: Login,
}

/// Connections by the kind of work: no call waits behind statements of another lane.
struct Lanes {
    keys: Connections,
    control: Connections,
    upkeep: Connections,
    peers: Connections,
    admin: Connections,
}

#[derive(Clone, Copy, Debug)]
enum Lane {
    /// Requests of clients, for records: behind a breaker, over the connections for keys.
    Records,
    /// Workers of accepted requests, for their jobs: over the same connections.
    Jobs,
    /// Calls that fence: heartbeats, the acceptor, the gate.
    Control,
    Upkeep,
    /// Other regions: escrows, and rows of lost regions.
    Peers,
    Admin,
}

impl PgStore {
    /// Makes a store from its settings. Opens no connection yet, so it succeeds while Postgres is
    /// down. Reads the certificates that the address names; blocks. Fails if no connections are
    /// allowed, a bound is under 10 ms, or certificates cannot be used.
    pub fn new(config: &StoreConfig) -> Called<Self> {
        if config.connections == 0 || config.statement_within < Duration::from_millis(10) {
            return Err(StoreError::Definite(
                "a store needs at least 1 connection and 10 ms per call: raise the setting".to_owned(),
            ));
        }
        let (address, within) = (&config.postgres, config.statement_within);
        let tls = connect::protection(address)?;
        let mut lanes = Vec::new();
        let mut open = |most, planned| -> Called<Connections> {
            let connections = Connections::from(login::pool(address, tls.clone(), within, most, planned)?);
            lanes.push(login::Lane { connections: connections.clone(), most, planned });
            Ok(connections)
        };
        let keys = open(config.connections, false)?;
        let [for_claims, for_settlements] = [open(gather::AT_ONCE, true)?, open(gather::AT_ONCE, true)?];
        let (control, upkeep, admin) = (open(BESIDE, false)?, open(BESIDE, false)?, open(BESIDE, false)?);
        let peers = open((config.connections / 2).max(2), false)?;
        let sql = Statements::new(&config.origin);
        let guard = |calls, effect, sql: &String| {
            Guard::new(calls, Probe { connections: keys.clone(), within, effect, sql: sql.clone() })
        };
        let reads = guard("reads", Effect::Reads, &sql.look_up_one);
        let writes = guard("writes", Effect::Writes, &sql.release);
        let tries = [sql.gate.clone(), sql.release.clone()];
        let origin = config.origin.clone();
        Ok(Self {
            login: Login::new(origin.clone(), address.clone(), tls, within, tries, lanes),
            origin,
            claims: Gather::new(for_claims, within, sql.claim_many.clone(), writes.clone()),
            settlements: Gather::new(for_settlements, within, sql.settle_many.clone(), writes.clone()),
            lanes: Lanes { keys, control, upkeep, peers, admin },
            reads,
            writes,
            within,
            sql,
            sealer: config.sealer.clone(),
        })
    }

    /// The login of its connections, which may be replaced.
    pub fn login(&self) -> Login {
        self.login.clone()
    }

    async fn on(&self, lane: Lane, call: Call<'_>, params: Params<'_>) -> Called<Vec<Row>> {
        let connections = match lane {
            Lane::Records => return self.on_records(self.within, call, params).await,
            Lane::Jobs => &self.lanes.keys,
            Lane::Control => &self.lanes.control,
            Lane::Upkeep => &self.lanes.upkeep,
            Lane::Peers => &self.lanes.peers,
            Lane::Admin => &self.lanes.admin,
        };
        Ok(run::run(connections, self.within, call, params).await?)
    }

    /// Runs a call and reads its rows together.
    async fn read<T>(
        &self,
        lane: Lane,
        call: Call<'_>,
        params: Params<'_>,
        read: impl FnOnce(&[Row]) -> Result<T, rows::Unreadable> + Send,
    ) -> Called<T> {
        read(&self.on(lane, call, params).await?).map_err(|why| call.unreadable(why))
    }

    /// Runs a call and reads each of its rows.
    async fn list<T>(
        &self,
        lane: Lane,
        call: Call<'_>,
        params: Params<'_>,
        read: impl Fn(&Row) -> Result<T, rows::Unreadable> + Send,
    ) -> Called<Vec<T>> {
        self.read(lane, call, params, |found| found.iter().map(read).collect()).await
    }

    /// Runs a call about so many keys, and reads each of its rows to the key that it is about.
    async fn of_keys<T>(
        &self,
        lane: Lane,
        call: Call<'_>,
        keys: usize,
        params: Params<'_>,
        read: impl Fn(&Row) -> Result<T, rows::Unreadable> + Send,
    ) -> Called<Vec<Vec<T>>> {
        self.read(lane, call, params, move |found| {
            let mut all: Vec<Vec<T>> = (0..keys).map(|_| Vec::new()).collect();
            for row in found {
                all.get_mut(rows::place(row)?).ok_or("ord")?.push(read(row)?);
            }
            Ok(all)
        })
        .await
    }

    /// Runs a call and reads its first row.
    async fn one<T>(
        &self,
        lane: Lane,
        call: Call<'_>,
        params: Params<'_>,
        read: impl FnOnce(&Row) -> Result<T, rows::Unreadable> + Send,
    ) -> Called<T> {
        self.read(lane, call, params, |found| found.first().ok_or("no row").and_then(read)).await
    }

    /// Runs a call and returns the number of its rows.
    async fn number(&self, lane: Lane, call: Call<'_>, params: Params<'_>) -> Called<u64> {
        Ok(self.on(lane, call, params).await?.len() as u64)
    }

    /// Runs a write. It is lost if it changed nothing.
    async fn write(&self, lane: Lane, call: Call<'_>, params: Params<'_>) -> Called<Written> {
        Ok(if self.on(lane, call, params).await?.is_empty() { Written::Lost } else { Written::Done })
    }

    /// Asks in a second statement why a write changed nothing.
    async fn explain_loss(&self, lane: Lane, call: Call<'_>, params: Params<'_>) -> Called<Written> {
        let open = self.one(lane, call, params, |row| rows::get::<bool>(row, "open")).await?;
        Ok(if open { Written::Lost } else { Written::GateMoved })
    }

    /// Runs a call about records. Refused at once while the store does not answer such calls.
    async fn on_records(&self, within: Duration, call: Call<'_>, params: Params<'_>) -> Called<Vec<Row>> {
        let guard = match call.effect {
            Effect::Reads => &self.reads,
            Effect::Writes => &self.writes,
        };
        let pass = guard.breaker.pass(call.what)?;
        let ended = run::run(&self.lanes.keys, within, call, params).await;
        guard.ended(pass, ended.as_ref().map_or_else(|failed| failed.answered, |_| true));
        Ok(ended?)
    }
}
