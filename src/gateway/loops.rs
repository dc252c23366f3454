//! The start of all loops beside requests, each under [`crate::gateway::upkeep::supervise`].
//!
//! A loop that is not started here must not exist.

use std::sync::{Arc, Weak};

use super::authority::register::voters;
use super::authority::{failback, gate_loop, renew, takeover};
use super::instance::Gateway;
use super::operator::audit;
use super::telemetry::spans;
use super::upkeep::supervise::supervise;
use super::upkeep::{doubles, heartbeat, jobs, reaper, sweep};
use crate::ports::{KeyStore, Ports};
use crate::protocol::record::Reading;

impl<P: Ports> Gateway<P> {
    /// Starts the loops, which end when `stop` has returned and the gateway is dropped; none in
    /// shadow mode. If spans are exported, `job` begins the span of each run of a job.
    pub fn start(self: &Arc<Self>, job: Option<spans::Begin>) {
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
        supervise(self, "reaper", reaper::reap_loop);
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
