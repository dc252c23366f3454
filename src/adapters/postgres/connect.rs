//! Connections to Postgres: the one place that makes them and sets their time bounds.
//!
//! `provision` makes single ones. Each kind of work has a pool, which a new login (`login`)
//! replaces whole. A call takes its connection from the pool of that moment. A replaced pool goes
//! once its last waiter was served: its idle connections close then, and each busy one closes after
//! its call.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool::managed::Manager as _;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Config, Error, NoTls};

use super::address::{self, Address};
use super::errors;
use super::tls::Tls;
use crate::adapters::system::lock;
use crate::ports::store::StoreError;

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A peer that vanished without a word is noticed after idle + retries · interval.
const IDLE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(2);
const RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// Pause between two looks for an idle connection: the pool tells nobody when one comes back.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Pause between two tries of a refused login.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// `base` with our bounds: for connecting, dead connections, and statements at the server.
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

/// Protection of an address's connections. Reads its files, so a wrong one shows at once. Blocks.
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
        let mut said = lock(&self.said);
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

/// Makes a connection and its driver, whose error reaches the next call as "connection closed".
async fn open(tls: Option<Tls>, config: &Config) -> Result<(Client, JoinHandle<()>), Error> {
    Ok(match tls {
        None => driven(config.connect(NoTls).await?),
        Some(tls) => driven(config.connect(tls.ready().await).await?),
    })
}

fn driven((client, connection): (Client, impl Future + Send + 'static)) -> (Client, JoinHandle<()>) {
    (client, tokio::spawn(async move { drop(connection.await) }))
}

/// Connections with one login at a time. Cheap to clone: all clones share them.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    current: ArcSwap<Current>,
    /// Fair: calls wait for a standing connection in their order.
    turn: tokio::sync::Mutex<()>,
}

struct Current {
    pool: Pool,
    /// True once the server refused the pool's login for a new connection.
    refused: AtomicBool,
}

impl From<Pool> for Current {
    fn from(pool: Pool) -> Self {
        Self { pool, refused: AtomicBool::new(false) }
    }
}

impl From<Pool> for Connections {
    fn from(pool: Pool) -> Self {
        let (current, turn) = (ArcSwap::from_pointee(pool.into()), tokio::sync::Mutex::new(()));
        Self(Arc::new(Shared { current, turn }))
    }
}

impl Connections {
    /// Takes an idle connection, or makes one. The caller bounds the wait. While a password
    /// changes, the server refuses the old one for new connections. As long as others stand, the
    /// calls share them, each in its turn, or wait for the new password.
    pub(super) async fn get(&self) -> Result<Object, PoolError> {
        loop {
            let current = self.0.current.load_full();
            if !current.is_refused() {
                match current.pool.get().await {
                    Ok(connection) => return Ok(connection),
                    Err(_) if !self.uses(&current) => continue,
                    Err(failed) if !current.is_gap(&failed) => return Err(failed),
                    Err(_) => self.refused(&current),
                }
            }
            let _turn = self.0.turn.lock().await;
            if let Some(found) = self.standing(&current).await {
                return found;
            }
        }
    }

    /// Waits for a connection that stands. `None` if the pool was replaced meanwhile, or its login
    /// may be tried again.
    async fn standing(&self, current: &Arc<Current>) -> Option<Result<Object, PoolError>> {
        while self.uses(current) && current.is_refused() {
            // The pool's own count of them leaves out as many as wait for new ones.
            if current.pool.retain(|_, _| true).retained > 0 {
                match current.pool.get().await {
                    Err(failed) if current.is_gap(&failed) => {}
                    found => return self.uses(current).then_some(found),
                }
            }
            sleep(LOOK_EVERY).await;
        }
        None
    }

    /// Notes a refused login, and tries it beside the calls: a try must delay none of them.
    fn refused(&self, current: &Arc<Current>) {
        if !current.refused.swap(true, Ordering::Relaxed) {
            tokio::spawn(try_again(Arc::downgrade(&self.0), Arc::downgrade(current)));
        }
    }

    fn uses(&self, current: &Arc<Current>) -> bool {
        Arc::ptr_eq(current, &self.0.current.load())
    }

    pub(super) fn replace(&self, pool: Pool) {
        self.0.current.store(Arc::new(pool.into()));
    }
}

impl Current {
    /// True while calls share the connections that stand. If none does, each call tries the login:
    /// nothing then depends on [`try_again`].
    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) && self.pool.status().size > 0
    }

    /// True if the login was refused while others of its connections stand.
    fn is_gap(&self, failed: &PoolError) -> bool {
        errors::is_refused_login(failed) && self.pool.status().size > 0
    }
}

/// Tries a refused login until it is not refused any more, its pool is not used any more, or nobody
/// waits.
async fn try_again(shared: Weak<Shared>, current: Weak<Current>) {
    loop {
        sleep(TRY_EVERY).await;
        let (Some(shared), Some(current)) = (shared.upgrade(), current.upgrade()) else { return };
        let is_refused = async || {
            let Ok(tried) = timeout(CONNECT_WITHIN, current.pool.manager().create()).await else {
                return false;
            };
            tried.is_err_and(|why| current.is_gap(&PoolError::Backend(why)))
        };
        if shared.turn.try_lock().is_ok() || !is_refused().await {
            current.refused.store(false, Ordering::Relaxed);
            return;
        }
    }
}
