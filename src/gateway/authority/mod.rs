//! Authority: what this gateway knows of views, of its lease and of its region's gate, and what follows for a key.
//!
//! Neighbours: `protocol::{authority, lease, opening, window, escrow}` decide; [`super::request`] asks before a claim and in the same
//! breath as the send. Its loops: [`acceptor`] answers for the region's acceptor, [`renew`] holds the lease, [`learn`] finds and adopts
//! chosen views, [`opening`] opens what was gained, [`propose`] runs rounds, [`moves`] and [`takeover`] want changes. It must not know statuses,
//! and no request waits for any of this.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::{Gateway, StoreHealth};
use crate::ports::store::GateVersion;
use crate::ports::{Clock, Ports};
use crate::protocol::authority::{self, Closed, GateState, Right};
use crate::protocol::escrow;
use crate::protocol::key::KeyId;
use crate::protocol::lease::{Held, Lease, Tenure};
use crate::protocol::opening::Hindrance;
use crate::protocol::record::Reader;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::Moment;
use crate::protocol::view::View;
use crate::protocol::window::WindowRule;

/// Who may declare a region lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its survivors, when its lease has run out at a majority.
    Automatic,
    /// An operator only.
    Manual,
}

/// How regions take over from one another; the same in all of them.
#[derive(Clone, Debug)]
pub struct Failover {
    /// Who may declare a region lost.
    pub mode: Mode,
    /// How long a lease runs.
    pub lease: Duration,
    /// How long a successor waits.
    pub window: WindowRule,
    /// How long a region that gives keys up lets running attempts finish, at most.
    pub drain_limit: Duration,
    /// After how long a change that keys were given up for, and that nobody agreed on, is ended.
    pub kill_after: Duration,
    /// How long a region that came back must have been well before it takes its arcs back.
    pub stable_for: Duration,
    /// How many regions must stay serving after a drain, at least.
    pub min_serving: usize,
    /// Acceptors without a store, asked like peers.
    pub witnesses: Vec<RegionName>,
}

/// What one gateway holds about authority. Read by every request without a lock, replaced whole by the loops.
pub(super) struct Authority {
    view: ArcSwap<View>,
    views: ArcSwap<BTreeMap<u64, Arc<View>>>,
    leased: ArcSwap<Leased>,
    lease: Mutex<Lease>,
    hindrances: ArcSwap<Vec<Hindrance>>,
    /// The epoch in the newest heartbeat of each origin that is applied here.
    heartbeat_epochs: ArcSwap<BTreeMap<Origin, u64>>,
    /// Since when each other origin surely starts nothing more under keys that are owned here (protocol reference, 3.3).
    ended: ArcSwap<BTreeMap<Origin, Moment>>,
}

/// The lease, as requests look at it.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    tenure: Tenure,
    held: Option<Held>,
}

/// What this gateway may do about a key.
pub(super) enum Here {
    /// Claim under this version of the gate, and send as long as the tenure stays.
    Run {
        /// The gate's version.
        gate: GateVersion,
        /// The tenure, remembered from before the claim.
        tenure: Tenure,
    },
    /// It is ours, but not now.
    Closed(Closed),
    /// Another region's.
    Elsewhere(RegionName),
    /// Nobody's: no region of its order serves.
    Nobody,
    /// The region's store cannot be relied on.
    Store(String),
}

impl Authority {
    pub(super) fn new(view: Arc<View>, lease: Lease) -> Self {
        let leased = Leased { tenure: lease.tenure(), held: None };
        Self {
            view: ArcSwap::new(view),
            views: ArcSwap::default(),
            leased: ArcSwap::from_pointee(leased),
            lease: Mutex::new(lease),
            hindrances: ArcSwap::default(),
            heartbeat_epochs: ArcSwap::default(),
            ended: ArcSwap::default(),
        }
    }

    /// Changes the lease, and shows requests what it is then.
    fn with_lease<T>(&self, change: impl FnOnce(&mut Lease) -> T) -> T {
        let mut lease: MutexGuard<'_, Lease> = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let value = change(&mut lease);
        let leased = Leased { tenure: lease.tenure(), held: lease.current().cloned() };
        self.leased.store(Arc::new(leased));
        value
    }
}

impl<P: Ports> Gateway<P> {
    /// The adopted view.
    pub(super) fn view(&self) -> Arc<View> {
        self.authority.view.load_full()
    }

    /// The origin under which this region writes, as its store was made.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What may be done about a key here and now.
    pub(super) fn here(&self, id: &KeyId) -> Here {
        let view = self.authority.view.load();
        match view.owner(id) {
            None => return Here::Nobody,
            Some(owner) if *owner != self.settings.me => return Here::Elsewhere(owner.clone()),
            Some(_) => {}
        }
        let store = self.store.load();
        let gate = match &**store {
            StoreHealth::Open(gate) => gate,
            StoreHealth::Closed(why) => return Here::Store(why.clone()),
        };
        let Some(state) = &gate.state else { return Here::Store("the register is not founded".to_owned()) };
        let leased = self.authority.leased.load();
        let now = self.ports.clock().now();
        let right = authority::right(state, leased.held.as_ref(), leased.tenure, id, &self.settings.me, now);
        match right {
            Right::Run(tenure) => Here::Run { gate: gate.version, tenure },
            Right::Closed(closed) => Here::Closed(closed),
            Right::Elsewhere(owner) => Here::Elsewhere(owner),
            Right::Nobody => Here::Nobody,
        }
    }

    /// Whether what was claimed in this tenure may be sent at `now`: the lease holds and never lapsed since, and no arc was lost.
    pub(super) fn may_send(&self, tenure: Tenure, now: Moment) -> bool {
        let leased = self.authority.leased.load();
        leased.tenure == tenure && leased.held.as_ref().is_some_and(|held| now < held.until)
    }

    /// What keeps the keys that were gained from starting.
    pub(super) fn hindrances(&self) -> Arc<Vec<Hindrance>> {
        self.authority.hindrances.load_full()
    }

    /// Lost regions that may have run this key without a trace here.
    pub(super) fn at_risk(&self, id: &KeyId) -> Vec<RegionName> {
        let epochs = self.authority.heartbeat_epochs.load();
        let views = self.authority.views.load();
        authority::at_risk(&authority::losses(&self.view(), &views, &epochs, &self.settings.me), id)
    }

    /// Whether the absence of the key here proves that no lost region has ever sent it.
    pub(super) fn absence_is_proven(&self, id: &KeyId, route: &str) -> bool {
        let (view, views) = (self.view(), self.authority.views.load());
        let epochs = self.authority.heartbeat_epochs.load();
        self.at_risk(id).iter().all(|lost| {
            let epoch = view.origin(lost).and_then(|origin| epochs.get(&origin).copied()).unwrap_or(0);
            escrow::proves_absence(
                &escrow::Facts {
                    views: &views,
                    view: &view,
                    me: &self.settings.me,
                    lost,
                    heartbeat_epoch: epoch,
                    route,
                },
                id,
            )
        })
    }

    /// What a reader of rows knows beside them.
    pub(super) fn reader(&self) -> Reader {
        Reader { me: self.origin.clone(), over: Default::default() }
    }

    /// The gate's state as known, where the store is open.
    fn gate_state(&self) -> Option<(GateVersion, GateState)> {
        match &**self.store.load() {
            StoreHealth::Open(gate) => gate.state.clone().map(|state| (gate.version, state)),
            StoreHealth::Closed(_) => None,
        }
    }
}
