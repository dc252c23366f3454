//! The poller of duplicates that wait for an attempt of another gateway.
//!
//! `request::attach` has those that wait.

use std::sync::Weak;

use crate::gateway::instance::Gateway;
use crate::ports::{Clock, KeyStore, Ports};
use crate::protocol::record::Reading;

/// Looks for all duplicates of this process at once: have their attempts ended elsewhere?
pub(in crate::gateway) async fn poll_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(gateway) = gateway.upgrade() {
        let ids = gateway.attached.keys();
        if ids.is_empty() {
            let attached = gateway.attached.clone();
            drop(gateway);
            attached.somebody_joined().await;
            continue;
        }
        if let Ok(found) = gateway.ports.store().look_up(&ids).await {
            for (id, rows) in ids.iter().zip(found) {
                if !matches!(gateway.read(rows.clone()), Reading::InProgress(_)) {
                    gateway.attached.wake(id, rows);
                }
            }
        }
        let next = gateway.ports.clock().now() + gateway.settings.timings.attach_poll;
        gateway.rest(next).await;
    }
}
