//! The connections of one kind of work: a pool, which a new login replaces whole.
//!
//! A call takes its connection from the pool of that moment. A replaced pool goes once its last
//! waiter was served: its idle connections close then, and each busy one closes after its call.
//! `login` replaces pools. This file must not send a statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_postgres::{Object, Pool, PoolError};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::errors;

/// Pause between two looks for an idle connection: the pool tells nobody when one comes back.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Pause between two tries of a refused login.
const TRY_EVERY: Duration = Duration::from_millis(160);

/// Connections with one login at a time. Cheap to clone: all clones share them.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    pool: ArcSwap<Pool>,
    /// True while the server refuses the pool's login for new connections.
    refused: AtomicBool,
    /// Fair: calls wait for a standing connection in their order.
    turn: Mutex<()>,
}

impl From<Pool> for Connections {
    fn from(pool: Pool) -> Self {
        let (pool, refused, turn) = (ArcSwap::from_pointee(pool), AtomicBool::new(false), Mutex::new(()));
        Self(Arc::new(Shared { pool, refused, turn }))
    }
}

impl Connections {
    /// Takes an idle connection, or makes one. The caller bounds the wait.
    ///
    /// While a password changes, the server refuses the old one for new connections. As long as
    /// others stand, the calls share them, each in its turn, or wait for the new password.
    pub(super) async fn get(&self) -> Result<Object, PoolError> {
        loop {
            let pool = self.0.pool.load_full();
            if !self.0.refused.load(Ordering::Relaxed) {
                match pool.get().await {
                    Ok(connection) => return Ok(connection),
                    Err(_) if !self.uses(&pool) => continue,
                    Err(failed) if !is_gap(&pool, &failed) => return Err(failed),
                    Err(_) => self.0.refused.store(true, Ordering::Relaxed),
                }
            }
            let _turn = self.0.turn.lock().await;
            if let Some(found) = self.standing(&pool).await {
                return found;
            }
        }
    }

    /// Waits for a connection that stands, or for the login to be taken. `None` if the pool was
    /// replaced meanwhile, or the login is taken again.
    async fn standing(&self, pool: &Arc<Pool>) -> Option<Result<Object, PoolError>> {
        let mut tried = Instant::now();
        while self.uses(pool) && self.0.refused.load(Ordering::Relaxed) {
            let is_idle = pool.status().available > 0;
            if is_idle || tried.elapsed() >= TRY_EVERY {
                match pool.get().await {
                    Err(failed) if is_gap(pool, &failed) => tried = Instant::now(),
                    found => {
                        if !is_idle {
                            self.0.refused.store(false, Ordering::Relaxed);
                        }
                        return self.uses(pool).then_some(found);
                    }
                }
            }
            sleep(LOOK_EVERY).await;
        }
        None
    }

    fn uses(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(pool, &self.0.pool.load())
    }

    /// Lets all calls from now on use this pool.
    pub(super) fn replace(&self, pool: Pool) {
        self.0.pool.store(Arc::new(pool));
        self.0.refused.store(false, Ordering::Relaxed);
    }
}

/// True if the login was refused while others of its connections stand.
fn is_gap(pool: &Pool, failed: &PoolError) -> bool {
    errors::is_refused_login(failed) && pool.status().size > 0
}
