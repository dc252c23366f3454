//! The start of all loops beside requests.
//!
//! Each runs under [`super::upkeep::supervise`]. A loop that is not started here must not exist.

use std::sync::Arc;

use super::instance::Gateway;
use super::telemetry::spans;
use super::upkeep::{doubles, heartbeat, jobs, reaper, sweep, waiters};
use super::{authority, operator};
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
        authority::start(self);
        waiters::start(self);
        jobs::start(self, job);
        reaper::start(self);
        operator::audit::start(self);
        doubles::start(self);
        sweep::start(self);
    }
}
