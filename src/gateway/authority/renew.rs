//! Holds the region's lease: renews it at all voters, and gives it up when it is not reliable.
//!
//! A region that cannot write its own store does not renew. A stalled loop gives the lease up by
//! itself, as validity counts from before the renewal was sent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::register::{learn, propose};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::Ports;
use crate::ports::store::Boot;
use crate::protocol::digest::{Digest32, digest};
use crate::protocol::lease::Renewal;
use crate::protocol::register::Message;
use crate::protocol::time::Moment;
use crate::protocol::view::View;

/// Pause before another try, if a renewal could not be sent or too few voters answered.
const AGAIN: Duration = Duration::from_millis(100);

pub async fn renew_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(strong) = gateway.upgrade() {
        let begun = strong.now();
        let renewed = renew(&strong, begun).await;
        let pause = if renewed { strong.snapshot().lease_length() / 3 } else { AGAIN };
        // A gateway that adopts a view needs the lease under it at once.
        strong.rest_or(|wakes| &wakes.renewal, begun + pause).await;
    }
}

/// One renewal. True if a majority granted it.
async fn renew<P: Ports>(gateway: &Arc<Gateway<P>>, now: Moment) -> bool {
    let Some((view, boot)) = may_hold(gateway, now) else {
        let serves = gateway.view().serves(&gateway.settings.me);
        gateway.authority.with_lease(|lease| match serves {
            true => drop(lease.held(now)),
            false => lease.lay_down(),
        });
        metrics::lease(gateway.snapshot().lease_left(now));
        return false;
    };
    let (may, reads_first) = gateway.authority.with_lease(|lease| (lease.may_ask(now), lease.reads_first()));
    if may && reads_first && learn::newer(gateway).await {
        return false;
    }
    let asked = gateway.authority.with_lease(|lease| {
        let may = lease.may_ask(now);
        may.then(|| (lease.asks(view.clone(), boot, now), lease.ttl(&view)))
    });
    let Some((starts, ttl)) = asked else {
        metrics::lease(gateway.snapshot().lease_left(now));
        return false;
    };
    let (region, holder) = (gateway.settings.me.clone(), gateway.authority.proposals.proposer);
    let message = Message::Renew { region, boot, holder, starts, view: view.clone(), ttl };
    let mut replies = propose::send(gateway, &view, &message, ttl / 3);
    let mut renewed = false;
    while let Some((voter, _, reply)) = replies.recv().await {
        let heard = gateway.now();
        match gateway.authority.with_lease(|lease| lease.heard(&voter, &reply, now, heard)) {
            Renewal::Open => tracing::trace!(%voter, ?reply, "a renewal is not decided yet"),
            Renewal::Renewed => {
                renewed = true;
                break;
            }
            // A voter that is gone says nothing for long: nothing waits for it.
            Renewal::Refused => break,
            Renewal::Newer => {
                learn::newer(gateway).await;
                break;
            }
        }
    }
    metrics::lease(gateway.snapshot().lease_left(gateway.now()));
    renewed
}

/// The view and the boot to renew under, if it may hold a lease at all (docs/protocol.md#rule-23).
fn may_hold<P: Ports>(gateway: &Gateway<P>, now: Moment) -> Option<(Arc<View>, Digest32)> {
    let known = gateway.snapshot();
    let (gate, state) = known.gate()?;
    let beat = gateway.health().beat;
    let fresh = beat.is_some_and(|(_, at)| now.since(at) <= known.lease_length() / 3);
    let newest = known.view.epoch() <= state.view.epoch();
    let may = fresh && newest && state.view.serves(&gateway.settings.me) && !gateway.is_stopping();
    may.then(|| (state.view.clone(), boot_digest(&gate.running)))
}

/// Digest of a boot: two primaries of a region never share a lease (docs/protocol.md#rule-24).
fn boot_digest(boot: &Boot) -> Digest32 {
    let Boot { system, timeline, started } = boot;
    let parts: [&[u8]; 3] = [&system.to_be_bytes(), &timeline.to_be_bytes(), &started.to_be_bytes()];
    digest("onceway/boot/1", &parts)
}
