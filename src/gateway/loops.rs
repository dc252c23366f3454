//! The start of all loops beside requests, and the two smallest: the reaper, and the one that wakes
//! duplicates of attempts in other gateways.
//!
//! A loop that is not started here must not exist.

use std::sync::{Arc, Weak};

use super::authority::register::voters;
use super::authority::{failback, gate_loop, renew, takeover};
use super::instance::Gateway;
use super::operator::audit;
use super::telemetry::{metrics, trace};
use super::upkeep::supervise::supervise;
use super::upkeep::{doubles, heartbeat, jobs, sweep};
use crate::ports::{Escrows, Imports, KeyStore, Ports, Upkeep};
use crate::protocol::record::Reading;

impl<P: Ports> Gateway<P> {
    /// Starts the loops, which end when `stop` has returned and the gateway is dropped; none in
    /// shadow mode. If spans are exported, `job` begins the span of each run of a job.
    pub fn start(self: &Arc<Self>, job: Option<trace::Begin>) {
        if self.shadow.is_some() {
            return;
        }
        heartbeat::start(self);
        supervise(self, "gate", gate_loop::gate_loop);
        supervise(self, "renew", renew::renew_loop);
        supervise(self, "takeover", takeover::watch_loop);
        supervise(self, "return", failback::home_loop);
        supervise(self, "voters", voters::voters_loop);
        if let Some(check) = self.settings.upstream_health.clone() {
            supervise(self, "upstream", |gateway| failback::check_loop(gateway, check));
        }
        supervise(self, "waiters", wake_loop);
        jobs::start(self, job);
        supervise(self, "reaper", reap_loop);
        supervise(self, "audit", audit::audit_loop);
        supervise(self, "doubles", doubles::comb_loop);
        supervise(self, "sweep", sweep::sweep_loop);
    }
}

/// Looks for all duplicates of this process at once: have their attempts ended elsewhere?
async fn wake_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(gateway) = gateway.upgrade() {
        let ids = gateway.attached.keys();
        if ids.is_empty() {
            let attached = gateway.attached.clone();
            drop(gateway);
            attached.somebody_joined().await;
            continue;
        }
        if let Ok(found) = gateway.store().look_up(&ids).await {
            for (id, rows) in ids.iter().zip(found) {
                if !matches!(gateway.read(rows.clone()), Reading::InProgress(_)) {
                    gateway.attached.wake(id, rows);
                }
            }
        }
        let next = gateway.now() + gateway.settings.timings.attach_poll;
        gateway.rest(next).await;
    }
}

/// Rows in one batch: some milliseconds of work.
const BATCH: u32 = 500;

async fn reap_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
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
