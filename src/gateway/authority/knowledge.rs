//! Questions about authority, as requests and loops ask them: `protocol::snapshot` answers.
//!
//! Chosen views, and gates that were read, come in here for all decisions from then on. A decision
//! that needs several answers takes one snapshot and asks that.

use std::sync::Arc;

use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::Ports;
use crate::ports::store::{Gate, GateVersion};
use crate::protocol::authority::GateState;
use crate::protocol::key::KeyId;
use crate::protocol::region::RegionName;
use crate::protocol::ring::Arc16;
use crate::protocol::snapshot::{Here, Snapshot, StoreHealth};
use crate::protocol::time::Moment;
use crate::protocol::view::View;

impl<P: Ports> Gateway<P> {
    pub(in crate::gateway) fn snapshot(&self) -> Arc<Snapshot> {
        self.authority.snapshot()
    }

    /// The newest view that is known to be chosen; the gate follows it.
    pub(in crate::gateway) fn view(&self) -> Arc<View> {
        self.snapshot().view.clone()
    }

    /// The right of this region to a key, now.
    pub(in crate::gateway) fn here(&self, id: &KeyId) -> Here {
        self.snapshot().here(id, self.now())
    }

    /// True if this gateway may rely on its region's lease.
    pub(in crate::gateway) fn holds_lease(&self, now: Moment) -> bool {
        self.snapshot().holds_lease(now)
    }

    /// Moment since which this gateway lacks the lease although it is to serve, or when that ends.
    pub(in crate::gateway) fn unleased_since(&self) -> Moment {
        let snapshot = self.snapshot();
        self.begun.max(snapshot.given.unwrap_or_default()).max(snapshot.lease.last)
    }

    pub(in crate::gateway) fn known_view(&self, epoch: u64) -> Option<Arc<View>> {
        self.snapshot().views.get(&epoch).cloned()
    }

    /// The gate's known state, if the store is open and the regions' version is spoken here.
    pub(in crate::gateway) fn gate_state(&self) -> Option<(GateVersion, GateState)> {
        self.snapshot().gate().map(|(gate, state)| (gate.version, state.clone()))
    }

    pub(in crate::gateway) fn store_is_open(&self) -> bool {
        matches!(*self.snapshot().store, StoreHealth::Open(_))
    }

    /// Takes in a chosen view: requests are placed by it, and the gate follows. If it takes keys
    /// from this region, the tenure ends in the same step.
    pub(super) fn install_view(&self, view: &Arc<View>) {
        if !self.settings.speaks.has(view.protocol()) {
            return self.goes_by(view.protocol());
        }
        // No request waits until the ring's table is made.
        view.ring().arc_order(Arc16(0));
        let now = self.now();
        let learned = self.authority.change(|known, lease| {
            let loses = known.view.loses(view, &self.settings.me);
            let is_new = known.learn(view, now);
            if is_new && loses {
                lease.lost_keys();
            }
            is_new.then_some(loses)
        });
        let Some(loses) = learned else { return };
        metrics::view(view);
        let lost: Vec<&RegionName> = view.lost().map(|(region, _)| region).collect();
        tracing::info!(epoch = view.epoch(), serving = ?view.serving().collect::<Vec<_>>(), ?lost, loses, "a new view");
        self.authority.wakes.gate.notify_one();
    }

    /// Takes in a gate that was read. If the store is open, requests go by it from now on.
    pub(in crate::gateway) fn install_gate(&self, gate: Gate) {
        if let Some(state) = &gate.state {
            self.install_view(&state.view);
        }
        self.authority.change(|known, _| known.renew_gate(gate));
    }
}
