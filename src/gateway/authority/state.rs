//! The state of authority in one process: the snapshot that decisions read, and what the loops keep
//! beside it.
//!
//! [`Authority::change`] is the only way from one snapshot to the next: under one lock, in one
//! swap. This file must not decide anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::gathered::Gathered;
use super::proposals::Proposals;
use super::running::Running;
use crate::ports::Dice;
use crate::protocol::grants::GrantWatch;
use crate::protocol::health::Health;
use crate::protocol::lease::Lease;
use crate::protocol::snapshot::{Site, Snapshot, StoreHealth};
use crate::protocol::view::View;

/// One gateway's knowledge about authority.
pub(in crate::gateway) struct Authority {
    snapshot: ArcSwap<Snapshot>,
    /// The holder's side of the lease. Its lock is held while a snapshot is made.
    lease: Mutex<Lease>,
    /// Observations of this process about the grants of the region's acceptor.
    watch: Mutex<GrantWatch>,
    gathered: Mutex<Gathered>,
    /// Attempts of this process that may still be sent or settled.
    pub(in crate::gateway) running: Running,
    pub(in crate::gateway) proposals: Proposals,
    /// Results of the checks of this region's upstream.
    upstream: Mutex<Health>,
    pub(in crate::gateway) wakes: Wakes,
}

/// Loops that do not wait for their period if something happens.
#[derive(Default)]
pub(in crate::gateway) struct Wakes {
    /// Wakes the loop that renews the lease.
    pub(in crate::gateway) renewal: Notify,
    /// Wakes the gate's loop.
    pub(in crate::gateway) gate: Notify,
}

impl Authority {
    pub(in crate::gateway) fn new(site: Site, view: Arc<View>, store: StoreHealth, dice: &impl Dice) -> Self {
        let (lease, drift) = (Lease::new(site.lease, site.drift), site.drift);
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::first(site, view, store, &lease)),
            lease: Mutex::new(lease),
            watch: Mutex::new(GrantWatch::new(drift)),
            gathered: Mutex::new(Gathered::new(drift)),
            running: Running::default(),
            proposals: Proposals::new(dice),
            upstream: Mutex::default(),
            wakes: Wakes::default(),
        }
    }

    /// The knowledge of this moment. A decision reads it once.
    pub(in crate::gateway) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Changes the snapshot, the lease or both, and publishes them together.
    pub(in crate::gateway) fn change<T>(&self, change: impl FnOnce(&mut Snapshot, &mut Lease) -> T) -> T {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = (**self.snapshot.load()).clone();
        let value = change(&mut next, &mut lease);
        next.take_lease(&lease);
        self.snapshot.store(Arc::new(next));
        value
    }

    /// Changes the lease, and publishes it.
    pub(in crate::gateway) fn with_lease<T>(&self, change: impl FnOnce(&mut Lease) -> T) -> T {
        self.change(|_, lease| change(lease))
    }

    pub(in crate::gateway) fn watch(&self) -> MutexGuard<'_, GrantWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::gateway) fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::gateway) fn upstream(&self) -> MutexGuard<'_, Health> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
