//! The loops beside requests: each is started here, and the death of one is noticed.
//!
//! A gateway whose loop ended would look alive and leave its work undone. So it gives its lease up,
//! refuses keyed requests and is told to leave.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics::LOOPS;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::Ports;
use crate::protocol::lease::Lease;

/// Runs a loop of the gateway in the background, under its name in [`LOOPS`].
pub fn supervise<P: Ports, Running>(
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
        let ended = running.await;
        // The runtime's own end cancels tasks, and is no death.
        let why = match ended {
            Ok(()) => "it returned".to_owned(),
            Err(error) if error.is_panic() => error.to_string(),
            Err(_) => return,
        };
        if let Some(gateway) = weak.upgrade().filter(|gateway| !gateway.is_stopping()) {
            gateway.lost(name, &why);
        }
    });
}

impl<P: Ports> Gateway<P> {
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
        loop {
            if let Some(name) = *died.borrow_and_update() {
                return name;
            }
            // The sender is this gateway's own.
            drop(died.changed().await);
        }
    }
}
