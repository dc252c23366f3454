//! Readiness of a gateway, and its knowledge of its peers, for people and machines.
//!
//! Field names are a contract: add, never rename. Nothing may be decided by it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::gateway::instance::{Gateway, Peer, SHADOWED};
use crate::ports::{KeyStore, Ports};
use crate::protocol::lease::Waits;
use crate::protocol::region::RegionName;
use crate::protocol::register::majority;
use crate::protocol::snapshot::{NOT_FOUNDED, StoreHealth};
use crate::protocol::time::Moment;
use crate::protocol::view::View;

/// Readiness: should global DNS send clients here?
#[derive(Clone, Debug, Serialize)]
pub struct Readiness {
    /// True if the gateway can serve or forward.
    pub ready: bool,
    /// True if keys homed here can be run.
    pub serves: bool,
    pub forwards_to: Vec<String>,
    /// Reasons for missing parts, one line each.
    pub reasons: Vec<String>,
}

/// This gateway's knowledge of one peer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PeerStatus {
    pub up: bool,
    /// True if it answers, and says that it runs keys.
    pub serving: bool,
    pub epoch: Option<u64>,
    /// The versions that it speaks, as it said last.
    pub speaks: Option<String>,
    pub heard_ms_ago: Option<u64>,
    pub rtt_ms: Option<f64>,
    /// Its highest heartbeat seen in this region's store.
    pub applied: Option<u64>,
    /// Observed lag behind it in milliseconds, an upper bound.
    pub lag_ms: Option<f64>,
    /// The largest of the trailing ten minutes, kept over restarts.
    pub lag_max_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl<P: Ports> Gateway<P> {
    /// Reports if this gateway can serve or forward.
    pub fn readiness(&self) -> Readiness {
        if self.shadow.is_some() {
            let (ready, reasons) = (!self.is_stopping(), vec![SHADOWED.to_owned()]);
            return Readiness { ready, serves: false, forwards_to: Vec::new(), reasons };
        }
        let peers: Vec<RegionName> = self.health().peers.keys().cloned().collect();
        let (up, down): (Vec<_>, Vec<_>) = peers.into_iter().partition(|name| !self.is_silent(name));
        let mut reasons = Vec::new();
        let (serves, alone) = match &*self.snapshot().store {
            StoreHealth::Open(_) => {
                let held = self.has_authority(&mut reasons);
                let spares = self.store().breaker_status();
                reasons.extend(spares.as_ref().map(|why| format!("store: {why}")));
                let founded = self.view().epoch() > 0;
                let alone = founded && !held && self.is_alone_since(self.unleased_since());
                (held && spares.is_none(), alone)
            }
            StoreHealth::Closed { why, since } => {
                reasons.push(format!("store: {why}"));
                (false, self.is_alone_since(*since))
            }
        };
        if alone {
            reasons.push("this region owns keys, which this gateway cannot run".to_owned());
        }
        reasons.extend(down.iter().map(|name| self.explain_silence(name)));
        if self.is_stopping() {
            reasons.push("stopping".to_owned());
        }
        let outgrown = self.snapshot().outgrown();
        let serves = serves && outgrown.is_none();
        // An outgrown process does not know owners either.
        let ready = !self.is_stopping() && outgrown.is_none() && (serves || !up.is_empty() && !alone);
        reasons.extend(outgrown);
        Readiness { ready, serves, forwards_to: up.iter().map(ToString::to_string).collect(), reasons }
    }

    /// True if this gateway has lacked its store, or its lease, for longer than its region could
    /// have kept its keys by it alone. Others run the keys then, and clients are better served
    /// elsewhere. Before that it is ready: a region that is lost as a whole still forwards.
    fn is_alone_since(&self, since: Moment) -> bool {
        let owns = self.view().serves(&self.settings.me);
        owns && self.now().since(since) > self.snapshot().lease_length() * 2
    }

    fn explain_silence(&self, name: &RegionName) -> String {
        let health = self.health();
        let foreign = health.peers.get(name).filter(|peer| peer.foreign);
        match foreign.and_then(|peer| peer.trouble.as_ref()) {
            Some(why) => format!("peer {name} is refused: {why}"),
            None => format!("peer {name} does not answer"),
        }
    }

    /// True if keys homed here can be run, apart from the store.
    fn has_authority(&self, reasons: &mut Vec<String>) -> bool {
        let view = self.view();
        let me = &self.settings.me;
        if view.epoch() == 0 {
            reasons.push(NOT_FOUNDED.to_owned());
            return false;
        }
        if !view.serves(me) {
            reasons.push("this region owns no keys now: it forwards them".to_owned());
            reasons.extend(self.no_majority(&view));
            return false;
        }
        let now = self.now();
        let held = self.holds_lease(now);
        if !held {
            let why = match self.authority.with_lease(|lease| lease.waits(now)) {
                Waits::Replies => "no majority of the acceptors grants it".to_owned(),
                Waits::Earlier => {
                    "the acceptors wait until nobody relies on an earlier grant, a lease at most".to_owned()
                }
                Waits::Quiet(left) => {
                    format!("it could not be renewed, and is asked for again in {:.1} s", left.as_secs_f64())
                }
            };
            reasons.push(format!("the region's lease is not held: {why}"));
            reasons.extend(self.no_majority(&view));
        }
        held
    }

    /// Advice if no majority of the voters can be left. Witnesses count as if they answered.
    fn no_majority(&self, view: &View) -> Option<String> {
        let (now, health) = (self.now(), self.health());
        let is_silent = |name: &RegionName| {
            health.peers.get(name).is_some_and(|peer| peer.is_silent(now, &self.settings.timings))
        };
        let silent: Vec<&str> =
            view.voters().keys().filter(|name| is_silent(name)).map(RegionName::as_str).collect();
        let answering = view.voters().len() - silent.len();
        let silent = silent.join(", ");
        (answering < majority(view.voters().len())).then(|| {
            format!("no majority of the voters answers ({silent} are silent): nobody can take keys over; if they are stopped for good, `onceway break-glass` goes on without them")
        })
    }

    pub(in crate::gateway) fn peers_status(&self) -> BTreeMap<String, PeerStatus> {
        let now = self.now();
        let ms = |span: std::time::Duration| span.as_secs_f64() * 1_000.0;
        let health = self.health();
        let of = |(name, peer): (&RegionName, &Peer)| {
            let up = !peer.is_silent(now, &self.settings.timings);
            let status = PeerStatus {
                up,
                // Its last word counts only while it speaks.
                serving: up && peer.pong.as_ref().is_some_and(|pong| pong.serving),
                epoch: peer.pong.as_ref().map(|pong| pong.epoch),
                speaks: peer.pong.as_ref().map(|pong| pong.speaks.to_string()),
                heard_ms_ago: peer.heard.map(|heard| now.since(heard).as_millis() as u64),
                rtt_ms: peer.round_trip.map(ms),
                applied: peer.applied,
                lag_ms: peer.lag.current(now).map(ms),
                lag_max_ms: peer.lag.maximum(now).map(ms),
                trouble: peer.trouble.clone(),
            };
            (name.to_string(), status)
        };
        health.peers.iter().map(of).collect()
    }
}
