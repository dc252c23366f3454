//! Takes in chosen views and gates that were read, for all decisions from then on.
//!
//! `protocol::snapshot` says what follows from them. This file must not judge whether a view is
//! chosen: [`super::learn`] and [`super::propose`] know.

use std::sync::Arc;

use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::store::Gate;
use crate::ports::{Clock, Ports};
use crate::protocol::region::RegionName;
use crate::protocol::ring::Arc16;
use crate::protocol::view::View;

/// Takes in a chosen view. From now on requests are placed by it; the gate follows. If the view
/// takes keys from this region, the tenure ends in the same step.
pub(in crate::gateway) fn install_view<P: Ports>(gateway: &Gateway<P>, view: &Arc<View>) {
    if !gateway.settings.speaks.has(view.protocol()) {
        return gateway.goes_by(view.protocol());
    }
    // No request waits until the ring's table is made.
    view.ring().arc_order(Arc16(0));
    let now = gateway.ports.clock().now();
    let learned = gateway.authority.change(|known, lease| {
        let loses = known.view.loses(view, &gateway.settings.me);
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
    gateway.authority.wakes.gate.notify_one();
}

/// Takes in a gate that was read. If the store is open, requests go by it from now on.
pub(in crate::gateway) fn install_gate<P: Ports>(gateway: &Gateway<P>, gate: Gate) {
    if let Some(state) = &gate.state {
        install_view(gateway, &state.view);
    }
    gateway.authority.change(|known, _| known.renew_gate(gate));
}
