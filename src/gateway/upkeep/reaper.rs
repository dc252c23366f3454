//! The reaper: forgets keys whose time is over by the store's own clock, in small batches with
//! pauses.
//!
//! Every gateway of the region runs it. What ran since a region is away is not forgotten before its
//! rows are here (docs/protocol.md#rule-44).

use std::sync::Weak;

use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::{Escrows, Imports, Ports, Upkeep};

/// Rows in one batch: some milliseconds of work.
const BATCH: u32 = 500;

pub(in crate::gateway) async fn reap_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.now();
        let full = batch(&gateway).await;
        let timings = &gateway.settings.timings;
        let ended = gateway.now();
        // At most a fifth of the time while there is work, whatever a batch costs here.
        let pause = if full { timings.reap_pause.max(ended.since(begun) * 4) } else { timings.reap };
        gateway.rest(ended + pause).await;
    }
}

/// Reaps one batch. True if there is more at once.
async fn batch<P: Ports>(gateway: &Gateway<P>) -> bool {
    if !gateway.store_is_open() || gateway.is_stopping() {
        return false;
    }
    let store = gateway.store();
    let full = |gone: u64| gone >= u64::from(BATCH);
    let (remembered_from, is_away) = gateway.snapshot().remembered_from();
    let own = metrics::upkeep("reap", store.reap(BATCH, Some(remembered_from))).await;
    if let Ok(reaped) = &own {
        metrics::reaped(reaped);
    }
    // Failures are counted; the next batch tries again.
    let lodged = metrics::upkeep("reap_escrows", store.reap_escrows(BATCH)).await;
    let imported = match is_away {
        true => Ok(0),
        false => metrics::upkeep("reap_imports", store.reap_imports(BATCH)).await,
    };
    own.is_ok_and(|reaped| full(reaped.seen())) || lodged.is_ok_and(full) || imported.is_ok_and(full)
}
