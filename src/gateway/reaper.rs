//! The reaper: forgets keys of this region whose time is over, in small batches with pauses, so that requests do not notice.
//!
//! Neighbours: `ports::upkeep` says what one batch may do; [`super::trust`] says until when the database's clock is believed. It runs in every
//! gateway of the region while the store is open; batches of two gateways skip each other's rows. It must not reap by a suspect
//! clock, and never asks for rows of another origin.

use std::sync::{Arc, Weak};

use super::{Gateway, metrics};
use crate::ports::{Clock, Ports, Upkeep};

/// Rows in one batch: some milliseconds of work.
const BATCH: u32 = 500;

/// Starts the reaper. It ends when the gateway is dropped.
pub(super) fn start<P: Ports>(gateway: &Arc<Gateway<P>>) {
    tokio::spawn(reap_loop(Arc::downgrade(gateway)));
}

async fn reap_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.ports.clock().now();
        let full = batch(&gateway).await;
        let timings = &gateway.settings.timings;
        let ended = gateway.ports.clock().now();
        // At most a fifth of the time while there is work, whatever a batch costs here.
        let pause = if full { timings.reap_pause.max(ended.since(begun) * 4) } else { timings.reap };
        gateway.rest(ended + pause).await;
    }
}

/// Reaps one batch; whether there is more at once.
async fn batch<P: Ports>(gateway: &Gateway<P>) -> bool {
    if !gateway.store_is_open() || gateway.is_stopping() {
        return false;
    }
    let Some(until) = gateway.forgets_until() else { return false };
    match metrics::upkeep("reap", gateway.ports.store().reap(until, BATCH)).await {
        Ok(reaped) => {
            metrics::reaped(&reaped);
            reaped.seen() >= u64::from(BATCH)
        }
        Err(_) => false,
    }
}
