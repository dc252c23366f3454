//! The start of all loops beside requests, and the two smallest: the reaper, and the one that wakes
//! duplicates of attempts in other gateways.
//!
//! A gateway whose loop ended would look alive and leave its work undone. So it gives its lease up,
//! refuses keyed requests and is told to leave.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::authority::register::voters;
use super::authority::{failback, gate_loop, renew, takeover};
use super::instance::Gateway;
use super::operator::audit;
use super::telemetry::metrics::{self, LOOPS, observe};
use super::telemetry::trace;
use super::upkeep::{doubles, heartbeat, jobs, peers, sweep};
use crate::ports::{Escrows, Imports, KeyStore, Ports, Upkeep};
use crate::protocol::lease::Lease;
use crate::protocol::record::Reading;

impl<P: Ports> Gateway<P> {
    /// Starts the loops, which end when `stop` has returned and the gateway is dropped; none in
    /// shadow mode. If spans are exported, `job` begins the span of each run of a job.
    pub fn start(self: &Arc<Self>, job: Option<trace::Begin>) {
        if self.shadow.is_some() {
            return;
        }
        supervise(self, "heartbeat", heartbeat::beat_loop);
        supervise(self, "poll", peers::poll_loop);
        for peer in self.view().members().keys().filter(|name| **name != self.settings.me) {
            supervise(self, "ping", |gateway| peers::ping_loop(gateway, peer.clone()));
        }
        supervise(self, "gate", gate_loop::gate_loop);
        supervise(self, "renew", renew::renew_loop);
        supervise(self, "takeover", takeover::watch_loop);
        supervise(self, "return", failback::home_loop);
        supervise(self, "voters", voters::voters_loop);
        if let Some(check) = self.settings.upstream_health.clone() {
            supervise(self, "upstream", |gateway| failback::check_loop(gateway, check));
        }
        supervise(self, "waiters", wake_loop);
        supervise(self, "jobs", |gateway| jobs::take_loop(gateway, job));
        supervise(self, "job-load", jobs::load_loop);
        supervise(self, "reaper", reap_loop);
        supervise(self, "audit", audit::audit_loop);
        supervise(self, "doubles", doubles::comb_loop);
        supervise(self, "sweep", sweep::sweep_loop);
    }

    /// Notes the death of a loop. The lease goes first: nothing is sent from now on.
    fn lost(&self, name: &'static str, why: &str) {
        self.stopping.store(true, Ordering::SeqCst);
        self.authority.with_lease(Lease::lay_down);
        metrics::count_by(observe::LOOP_DIED, "loop", name);
        tracing::error!(loop = name, why, "a loop died: this gateway has given its lease up and leaves");
        self.died.send_replace(Some(name));
    }

    /// The loop that died, if one did.
    pub fn dead_loop(&self) -> Option<&'static str> {
        *self.died.borrow()
    }

    /// Waits until a loop has died, and names it. Whoever runs the gateway must end it then.
    pub async fn loop_died(&self) -> &'static str {
        let mut died = self.died.subscribe();
        let found = died.wait_for(Option::is_some).await;
        // The sender is this gateway's own: it cannot be gone.
        found.ok().and_then(|name| *name).unwrap_or("unknown")
    }
}

/// Runs a loop of the gateway in the background, under its name in [`LOOPS`], and notices its end.
fn supervise<P: Ports, Running>(
    gateway: &Arc<Gateway<P>>,
    name: &'static str,
    begin: impl FnOnce(Weak<Gateway<P>>) -> Running,
) where
    Running: Future<Output = ()> + Send + 'static,
{
    debug_assert!(LOOPS.contains(&name), "{name}");
    let weak = Arc::downgrade(gateway);
    let running = tokio::spawn(begin(weak.clone()));
    tokio::spawn(async move {
        // The runtime's own end cancels tasks, and is no death.
        let why = match running.await {
            Ok(()) => "it returned".to_owned(),
            Err(error) if error.is_panic() => error.to_string(),
            Err(_) => return,
        };
        if let Some(gateway) = weak.upgrade().filter(|gateway| !gateway.is_stopping()) {
            gateway.lost(name, &why);
        }
    });
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
