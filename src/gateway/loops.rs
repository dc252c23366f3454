//! The start of all loops beside requests.
//!
//! Each runs under [`crate::gateway::upkeep::supervise`]. A loop that is not started here must not
//! exist.

use std::sync::Arc;

use crate::gateway::authority::register::voters;
use crate::gateway::authority::{failback, gate_loop, renew, takeover, upstream};
use crate::gateway::instance::Gateway;
use crate::gateway::operator::audit;
use crate::gateway::telemetry::spans;
use crate::gateway::upkeep::supervise::supervise;
use crate::gateway::upkeep::{doubles, heartbeat, jobs, reaper, sweep, waiters};
use crate::ports::Ports;

impl<P: Ports> Gateway<P> {
    /// Starts the loops beside requests. They end when `stop` has returned and the gateway is
    /// dropped. In shadow mode none is started. If spans are exported, `job` begins the span of
    /// each run of a job.
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
            supervise(self, "upstream", |gateway| upstream::check_loop(gateway, check));
        }
        supervise(self, "waiters", waiters::poll_loop);
        jobs::start(self, job);
        supervise(self, "reaper", reaper::reap_loop);
        supervise(self, "audit", audit::audit_loop);
        supervise(self, "doubles", doubles::comb_loop);
        supervise(self, "sweep", sweep::sweep_loop);
    }
}
