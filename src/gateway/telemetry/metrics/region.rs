//! Figures of the region: its settings, lease, view, clock and upstream, and its peers.
//!
//! This file must not decide anything.

use std::time::Duration;

use metrics::{counter, gauge};

use crate::ports::observe;
use crate::protocol::lag::LagMeter;
use crate::protocol::opening::Hindrance;
use crate::protocol::region::RegionName;
use crate::protocol::speakers::Sender;
use crate::protocol::time::{Date, Moment};
use crate::protocol::view::View;

pub(in crate::gateway) fn loop_died(name: &'static str) {
    counter!(observe::LOOP_DIED, "loop" => name).increment(1);
}

pub(in crate::gateway) fn upstream_sick(sick: bool) {
    gauge!(observe::UPSTREAM_SICK).set(f64::from(u8::from(sick)));
}

/// Counts a drain of this region for its upstream.
pub(in crate::gateway) fn drained_by_health() {
    counter!(observe::DRAINED_BY_HEALTH).increment(1);
}

pub(in crate::gateway) fn config_reload(ok: bool) {
    let result = if ok { "ok" } else { "failed" };
    counter!(observe::CONFIG_RELOADS, "result" => result).increment(1);
}

pub(in crate::gateway) fn config_loaded(at: Date) {
    gauge!(observe::CONFIG_LOADED).set(at.as_millis() as f64 / 1_000.0);
}

pub(in crate::gateway) fn config_current(current: bool) {
    gauge!(observe::CONFIG_CURRENT).set(f64::from(u8::from(current)));
}

/// Shows by how much the database's clock moved ahead of the boot clock between two heartbeats.
pub(in crate::gateway) fn clock_ahead((then, at): (Date, Moment), (date, now): (Date, Moment)) {
    let moved = date.as_millis().saturating_sub(then.as_millis()) as f64 / 1_000.0;
    gauge!(observe::CLOCK_AHEAD).set(moved - now.since(at).as_secs_f64());
}

/// Shows the time that the lease is left.
pub(in crate::gateway) fn lease(left: Duration) {
    gauge!(observe::LEASE_HELD).set(f64::from(u8::from(!left.is_zero())));
    gauge!(observe::LEASE_SECONDS).set(left.as_secs_f64());
}

/// Shows the hindrances that keep gained keys from starting.
pub(in crate::gateway) fn hindrances(missing: &[Hindrance]) {
    gauge!(observe::HINDRANCES).set(missing.len() as f64);
    let for_operator = missing.iter().filter(|missing| missing.needs_operator()).count();
    gauge!(observe::HINDRANCES_OPERATOR).set(for_operator as f64);
    let windows = missing.iter().filter_map(Hindrance::left);
    gauge!(observe::WINDOW_LEFT_SECONDS).set(windows.max().unwrap_or_default().as_secs_f64());
}

/// A view that this gateway goes by from now on.
pub(in crate::gateway) fn view(view: &View) {
    gauge!(observe::EPOCH).set(view.epoch() as f64);
    gauge!(observe::PROTOCOL).set(f64::from(view.protocol()));
    for (name, member) in view.members() {
        let serving = f64::from(u8::from(member.standing.is_serving()));
        gauge!(observe::REGION_STANDING, "member" => name.to_string()).set(serving);
    }
}

pub(in crate::gateway) fn heartbeat(seq: u64) {
    gauge!(observe::HEARTBEAT).set(seq as f64);
}

pub(in crate::gateway) fn peer_up(peer: &RegionName, up: bool) {
    gauge!(observe::PEER_UP, "peer" => peer.to_string()).set(f64::from(u8::from(up)));
}

/// Shows if a peer speaks no version that this process speaks.
pub(in crate::gateway) fn peer_foreign(peer: &RegionName, foreign: bool) {
    gauge!(observe::PEER_FOREIGN, "peer" => peer.to_string()).set(f64::from(u8::from(foreign)));
}

/// Shows if a peer's settings disagree with this region's.
pub(in crate::gateway) fn peer_disagrees(peer: &RegionName, disagrees: bool) {
    gauge!(observe::PEER_DISAGREES, "peer" => peer.to_string()).set(f64::from(u8::from(disagrees)));
}

pub(in crate::gateway) fn round_trip(peer: &RegionName, took: Duration) {
    gauge!(observe::PEER_RTT_SECONDS, "peer" => peer.to_string()).set(took.as_secs_f64());
}

/// Counts a message that was refused for its sender or its content.
pub(in crate::gateway) fn peer_refused(sender: Sender) {
    counter!(observe::PEER_REFUSED, "sender" => sender.word()).increment(1);
}

/// Shows the lag behind a peer, now and at most.
pub(in crate::gateway) fn lag(peer: &RegionName, lag: &LagMeter, now: Moment) {
    if let Some(lag) = lag.current(now) {
        gauge!(observe::LAG_SECONDS, "origin" => peer.to_string()).set(lag.as_secs_f64());
    }
    if let Some(lag) = lag.maximum(now) {
        gauge!(observe::LAG_MAX_SECONDS, "origin" => peer.to_string()).set(lag.as_secs_f64());
    }
}
