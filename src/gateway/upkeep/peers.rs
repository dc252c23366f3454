//! Peers: the words that one may say here, the word that this region gives them, and theirs.
//!
//! The pings of [`super::pings`] bring their words, [`super::hearing`] has the table. This file
//! must not decide who owns a key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::lag_history::TrailPoint;
use crate::gateway::telemetry::metrics;
use crate::ports::peers::{Beat, PeerError, PeerMessage, Pong};
use crate::ports::store::Gate;
use crate::ports::{Clock, Ports};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::majority;
use crate::protocol::speakers::{self, Kind, Sender};
use crate::protocol::time::Moment;
use crate::protocol::view::View;

/// The peers' memory of this region's heartbeats.
pub(super) struct Answers {
    /// Peers that were asked since and know.
    pub(super) knowing: usize,
    /// Peers that did not answer, or do not know yet.
    pub(super) silent: usize,
    /// The highest heartbeat of this region that any process has seen, this one included.
    pub(super) highest: u64,
}

impl<P: Ports> Gateway<P> {
    /// Reports this region's state to a peer.
    pub async fn pong(&self) -> Pong {
        let now = self.ports.clock().now();
        let health = self.health();
        let applied: BTreeMap<Origin, u64> =
            health.peers.values().filter_map(|peer| Some((peer.origin.clone()?, peer.applied?))).collect();
        let heard =
            health.peers.values().filter_map(|peer| Some((peer.origin.clone()?, peer.announced?))).collect();
        Pong {
            epoch: self.view().epoch(),
            view: self.view().digest(),
            shared: self.live().shared,
            serving: self.store_is_open() && !self.is_stopping(),
            upstream_failing: self.upstream_fails(),
            beat: health.beat.map(|(seq, committed)| Beat { seq, age: now.since(committed) }),
            origin: Some(self.origin.clone()),
            applied,
            heard,
            speaks: self.settings.speaks,
            protocol: self.view().protocol(),
        }
    }

    /// Accepts a ping's reply only from a peer that speaks a common version.
    pub(super) fn spoken(&self, answered: Result<Pong, PeerError>) -> Result<Pong, PeerError> {
        let pong = answered?;
        let (theirs, ours) = (pong.speaks, self.settings.speaks);
        match ours.common(theirs) {
            Some(_) => Ok(pong),
            None => Err(PeerError::Versions { theirs, ours }),
        }
    }

    /// The version, not spoken here, by which a majority of the ring's regions say to go in newer
    /// views: those may say more than this process can read. The word of fewer is their own affair.
    pub(super) fn told_version(&self) -> Option<u16> {
        let (view, health) = (self.view(), self.health());
        let regions = view.ring().regions();
        let pongs = regions.iter().filter_map(|region| health.peers.get(&region.name)?.pong.as_ref());
        let newer = pongs.filter(|pong| pong.epoch > view.epoch());
        let versions = newer.map(|pong| pong.protocol).filter(|version| !self.settings.speaks.has(*version));
        let versions: Vec<u16> = versions.collect();
        let most = versions.len() >= majority(regions.len());
        versions.into_iter().min().filter(|_| most)
    }

    /// True if a peer has answered no ping for longer than it may.
    pub(in crate::gateway) fn is_silent(&self, name: &RegionName) -> bool {
        let now = self.ports.clock().now();
        let health = self.health();
        health.peers.get(name).is_none_or(|peer| peer.is_silent(now, &self.settings.timings))
    }

    /// The highest heartbeat of this region that this process wrote or heard of.
    pub(in crate::gateway) fn highest_heard(&self) -> u64 {
        self.answers_of(&|_| true, Moment::default()).highest
    }

    /// The highest heartbeat of this region that this process wrote, or that a region of the ring
    /// heard of. What follows from it is for the life of the process. So a region that left does
    /// not count: it could close every store by one number.
    pub(super) fn highest_in_ring(&self) -> u64 {
        let view = self.view();
        self.answers_of(&|name| speakers::tells_of_others(name, &view), Moment::default()).highest
    }

    /// The newest view that is known or adopted: a process that just started may know of no other
    /// than the gate's.
    pub(super) fn newest_view(&self, gate: &Gate) -> Arc<View> {
        let known = self.view();
        let adopted = gate.state.as_ref().map(|state| &state.view);
        adopted.filter(|view| view.epoch() > known.epoch()).unwrap_or(&known).clone()
    }

    /// The memory of this region at the peers that were asked since `moment`. The highest heartbeat
    /// is that of any peer, but vouchers alone are counted.
    pub(super) fn answers_since(&self, moment: Moment, vouchers: &BTreeSet<RegionName>) -> Answers {
        let highest = self.answers_of(&|_| true, moment).highest;
        Answers { highest, ..self.answers_of(&|name| vouchers.contains(name), moment) }
    }

    fn answers_of(&self, counts: &dyn Fn(&RegionName) -> bool, moment: Moment) -> Answers {
        let health = self.health();
        let own = health.beat.map_or(0, |(seq, _)| seq);
        let mut answers = Answers { knowing: 0, silent: 0, highest: own };
        for (_, peer) in health.peers.iter().filter(|(name, _)| counts(name)) {
            let pong = peer.pong.as_ref().filter(|_| peer.asked.is_some_and(|asked| asked >= moment));
            let heard = pong.and_then(|pong| pong.heard.get(&self.origin).copied());
            answers.highest = answers.highest.max(heard.unwrap_or(0));
            match pong.and_then(|pong| pong.applied.get(&self.origin)) {
                Some(seen) => {
                    answers.knowing += 1;
                    answers.highest = answers.highest.max(*seen);
                }
                None => answers.silent += 1,
            }
        }
        answers
    }

    pub(super) fn disagreement(&self, pong: &Pong) -> Option<String> {
        let view = self.view();
        if let Some(origin) = &pong.origin
            && pong.epoch == view.epoch()
            && let Some(should) = view.origin(&origin.region).filter(|should| should != origin)
        {
            return Some(format!(
                "it writes as {origin}, but by the view its store is {should}: it was replaced, or `generation` in its region file is wrong"
            ));
        }
        if pong.epoch == view.epoch() && pong.view != view.digest() {
            return Some(match view.epoch() {
                0 => "its ring differs: compare ring.toml in both regions before the founding".to_owned(),
                _founded => "it goes by another view of the same epoch: this must not be".to_owned(),
            });
        }
        if pong.shared != self.live().shared {
            return Some("its shared settings differ: compare routes.toml in both regions".to_owned());
        }
        None
    }

    /// Checks that a peer may say this here. Called before the message has any effect.
    ///
    /// # Errors
    /// The reason, in one line for the peer. It was counted and logged.
    pub fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        let sender = self.sender(from);
        let heard = self.hearing.hears(from, sender, said, self.ports.clock().now());
        heard.inspect_err(|_| metrics::peer_refused(sender))
    }

    /// Counts and logs a message that is refused for its content. [`Gateway::hears`] does so for
    /// its sender.
    pub(in crate::gateway) fn out_of_bounds(&self, from: &RegionName, kind: Kind, why: &str) {
        let sender = self.sender(from);
        metrics::peer_refused(sender);
        self.hearing.tell(from, sender, kind, why, self.ports.clock().now());
    }

    /// The role of a peer under the view that this gateway goes by.
    pub(in crate::gateway) fn sender(&self, name: &RegionName) -> Sender {
        let named = self.health().peers.contains_key(name);
        let witness = self.settings.failover.witnesses.contains(name);
        Sender::of(name, &self.view(), named, witness)
    }

    /// The observed lag behind each peer, oldest first, at most a quarter of an hour back.
    pub fn lag_trails(&self) -> BTreeMap<String, Vec<TrailPoint>> {
        let now = self.ports.clock().now();
        let health = self.health();
        health.peers.iter().map(|(name, peer)| (name.to_string(), peer.trail.points(now))).collect()
    }
}
