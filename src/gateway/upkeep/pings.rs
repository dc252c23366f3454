//! Pings, and looks at the copies of other regions' heartbeats: the observed lag, and the memory of
//! it over restarts.
//!
//! Heartbeats are the clock of replication (docs/protocol.md#rule-29). This file must not open or
//! close the store.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::applied::applied;
use crate::gateway::authority::members::origin_of;
use crate::gateway::instance::{Gateway, Health, LAG_PERIOD, Peer};
use crate::gateway::telemetry::metrics;
use crate::ports::peers::{PeerError, Pong};
use crate::ports::store::PeerMemory;
use crate::ports::{Clock, Peers, Ports, Replica};
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Applied;
use crate::protocol::time::Moment;

/// Time limit for a ping.
const PING_WITHIN: Duration = Duration::from_secs(2);

/// Pause between two writes of the memory about peers.
const REMEMBER_EVERY: Duration = Duration::from_secs(5);

/// Pings one peer again and again, and keeps its answers.
pub(super) async fn ping_loop<P: Ports>(gateway: Weak<Gateway<P>>, peer: RegionName) {
    while let Some(gateway) = gateway.upgrade() {
        let clock = gateway.ports.clock();
        let asked = clock.now();
        let answered = gateway.ports.peers().ping(&peer, PING_WITHIN).await;
        let arrived = clock.now();
        match gateway.spoken(answered) {
            Ok(pong) => heard(&gateway, &peer, pong, asked, arrived),
            Err(error) => not_heard(&gateway, &peer, &error),
        }
        metrics::peer_up(&peer, !gateway.is_silent(&peer));
        let next = asked + gateway.settings.timings.ping;
        gateway.rest(next).await;
    }
}

fn heard<P: Ports>(gateway: &Gateway<P>, name: &RegionName, pong: Pong, asked: Moment, arrived: Moment) {
    let round_trip = arrived.since(asked);
    metrics::round_trip(name, round_trip);
    let trouble = gateway.disagreement(&pong);
    metrics::peer_disagrees(name, trouble.is_some());
    let mut health = gateway.health();
    let Some(peer) = health.peers.get_mut(name) else { return };
    if peer.heard.is_none() || peer.trouble != trouble {
        match &trouble {
            Some(trouble) => tracing::error!(peer = %name, trouble, "a peer does not agree with this region"),
            None => tracing::info!(peer = %name, "a peer answers"),
        }
    }
    if let Some(beat) = pong.beat
        && peer.origin == pong.origin
    {
        peer.lag.announced(beat.seq, beat.age, round_trip, arrived);
        peer.announced = peer.announced.max(Some(beat.seq));
    }
    peer.trouble = trouble;
    peer.tried = true;
    peer.foreign = false;
    metrics::peer_foreign(name, false);
    peer.heard = Some(arrived);
    peer.asked = Some(asked);
    peer.round_trip = Some(round_trip);
    peer.pong = Some(pong);
    drop(health);
    if let Some(version) = gateway.told_version() {
        gateway.goes_by(version);
    }
}

fn not_heard<P: Ports>(gateway: &Gateway<P>, name: &RegionName, error: &PeerError) {
    let why = error.to_string();
    let mut health = gateway.health();
    let Some(peer) = health.peers.get_mut(name) else { return };
    peer.tried = true;
    peer.foreign = matches!(error, PeerError::Versions { .. });
    metrics::peer_foreign(name, peer.foreign);
    if peer.trouble.as_ref() != Some(&why) {
        tracing::warn!(peer = %name, why, "a peer does not answer");
        peer.trouble = Some(why);
    }
}

/// Looks at the copies of other regions' heartbeats, and keeps the memory of them over restarts.
/// Now and then reads the replication slots of the own server.
pub(super) async fn poll_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut recalled = false;
    let mut remembered: Option<Moment> = None;
    let mut began: Option<Moment> = None;
    let mut slots = BTreeSet::new();
    while let Some(gateway) = gateway.upgrade() {
        let clock = gateway.ports.clock();
        let begun = clock.now();
        if !recalled {
            recalled = recall(&gateway).await;
        }
        if let Ok(applied) = applied(gateway.ports.store()).await
            && recalled
        {
            gateway.authority.change(|known, _| known.applied = Arc::new(applied.clone()));
            seen(&gateway, &applied, clock.now());
        }
        let now = clock.now();
        gateway.health().peers.iter().for_each(|(name, peer)| metrics::lag(name, &peer.lag, now));
        if recalled && remembered.is_none_or(|at| begun.since(at) >= REMEMBER_EVERY) {
            if begun.since(*began.get_or_insert(begun)) <= LAG_PERIOD {
                take_over_lags(&gateway).await;
            }
            let memory = memory(&gateway, begun);
            if gateway.ports.store().remember(&memory).await.is_ok() {
                remembered = Some(begun);
                if let Ok(found) = gateway.ports.store().slots().await {
                    metrics::slots(&mut slots, &found);
                }
            }
        }
        let next = begun + gateway.settings.timings.poll;
        gateway.rest(next).await;
    }
}

/// Reads what this store remembers of others. The view may not be known yet, so nothing is dropped.
async fn recall<P: Ports>(gateway: &Gateway<P>) -> bool {
    let Ok(memory) = gateway.ports.store().recall().await else { return false };
    let now = gateway.ports.clock().now();
    let memory = memory.into_iter().map(|past| (past.origin.clone(), past)).collect();
    gateway.health().remembered = Some((memory, now));
    true
}

/// Takes over larger lags that another gateway of the region has seen: it may have watched for
/// longer, and is about to end. Whoever has watched for a whole trailing period needs no other: two
/// that always did this would keep a lag for ever.
async fn take_over_lags<P: Ports>(gateway: &Gateway<P>) {
    let Ok(memory) = gateway.ports.store().recall().await else { return };
    let now = gateway.ports.clock().now();
    let mut health = gateway.health();
    for PeerMemory { origin, lag, .. } in memory {
        let peer = health.peers.get_mut(&origin.region).filter(|peer| peer.origin.as_ref() == Some(&origin));
        if let (Some(peer), Some(lag)) = (peer, lag.filter(|_| !is_disabled(Check::LagRemembered)))
            && peer.lag.maximum(now).is_none_or(|own| own < lag)
        {
            peer.lag.restore(lag, now);
        }
    }
}

fn seen<P: Ports>(gateway: &Gateway<P>, applied: &Applied, now: Moment) {
    let timings = &gateway.settings.timings;
    let view = gateway.view();
    let mut health = gateway.health();
    let Health { peers, remembered, .. } = &mut *health;
    for (name, peer) in peers {
        let origin = origin_of(&view, name);
        let (rows, written) = (applied.rows(&origin), applied.written(&origin));
        peer.follow(origin, remembered.as_ref());
        peer.lag.seen(rows, now);
        peer.applied = Some(rows);
        peer.announced = peer.announced.max(Some(written));
        let lag = peer.lag.current(now).filter(|_| !peer.is_silent(now, timings));
        peer.trail.sample(now, lag);
    }
}

fn memory<P: Ports>(gateway: &Gateway<P>, now: Moment) -> Vec<PeerMemory> {
    let health = gateway.health();
    // Lag as it was at the last contact: an outage is no lag, and must not make a window endless
    // after a restart (docs/protocol.md#rule-31).
    let of = |peer: &Peer| {
        Some(PeerMemory {
            origin: peer.origin.clone()?,
            imported: 0,
            applied: peer.applied?,
            lag: peer.lag.maximum(peer.heard.unwrap_or(now)),
        })
    };
    health.peers.values().filter_map(of).collect()
}
