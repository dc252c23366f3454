//! The connections of one kind of work: a pool, which a new login replaces whole.
//!
//! A call takes its connection from the pool of that moment. A replaced pool goes once its last
//! waiter was served: its idle connections close then, and each busy one closes after its call.
//! `login` replaces pools. This file must not send a statement.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_postgres::{Object, Pool, PoolError};
use tokio::time::sleep;

use super::errors;

/// First and longest pause before a refused login is tried again.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(160)];

/// Connections with one login at a time. Cheap to clone: all clones share them.
#[derive(Clone)]
pub(super) struct Connections(Arc<ArcSwap<Pool>>);

impl From<Pool> for Connections {
    fn from(pool: Pool) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(pool)))
    }
}

impl Connections {
    /// Takes an idle connection, or makes one. The caller bounds the wait.
    ///
    /// While a password changes, the server refuses the old one for new connections. As long as
    /// others stand, the call waits for one of them, or for the new password.
    pub(super) async fn get(&self) -> Result<Object, PoolError> {
        let [mut pause, longest] = PAUSES;
        loop {
            let pool = self.0.load_full();
            let failed = match pool.get().await {
                Ok(connection) => return Ok(connection),
                Err(failed) => failed,
            };
            if !Arc::ptr_eq(&pool, &self.0.load()) {
                continue;
            }
            if !errors::is_refused_login(&failed) || pool.status().size == 0 {
                return Err(failed);
            }
            drop(pool);
            sleep(pause).await;
            pause = longest.min(pause * 2);
        }
    }

    /// Lets all calls from now on use this pool.
    pub(super) fn replace(&self, pool: Pool) {
        self.0.store(Arc::new(pool));
    }
}
