//! Peers: their pings, the copies of their heartbeats, and their words and this region's.
//!
//! The observed lag comes from the copies (docs/protocol.md#rule-29), and is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::applied::applied;
use crate::gateway::authority::moves::origin_of;
use crate::gateway::instance::{Gateway, Health, Peer};
use crate::gateway::telemetry::lag_history::TrailPoint;
use crate::gateway::telemetry::metrics;
use crate::ports::observe;
use crate::ports::peers::{Beat, PeerError, PeerMessage, Pong};
use crate::ports::store::{Gate, PeerMemory};
use crate::ports::{Clock, Peers, Ports, Replica};
use crate::protocol::lag::PERIOD;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::majority;
use crate::protocol::snapshot::Applied;
use crate::protocol::speakers::{self, Kind, Sender};
use crate::protocol::time::Moment;
use crate::protocol::view::View;

const PING_WITHIN: Duration = Duration::from_secs(2);

/// Pause between two writes of the memory about peers.
const REMEMBER_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Answers {
    /// Peers that were asked since and know.
    pub(super) knowing: usize,
    /// Peers that did not answer, or do not know yet.
    pub(super) silent: usize,
    /// The highest heartbeat of this region that any process has seen, this one included.
    pub(super) highest: u64,
}

pub async fn ping_loop<P: Ports>(gateway: Weak<Gateway<P>>, peer: RegionName) {
    while let Some(gateway) = gateway.upgrade() {
        let clock = gateway.ports.clock();
        let asked = clock.now();
        let answered = gateway.ports.peers().ping(&peer, PING_WITHIN).await;
        let arrived = clock.now();
        match gateway.spoken(answered) {
            Ok(pong) => heard(&gateway, &peer, pong, asked, arrived),
            Err(error) => not_heard(&gateway, &peer, &error),
        }
        metrics::peer(observe::PEER_UP, &peer, !gateway.is_silent(&peer));
        let next = asked + gateway.settings.timings.ping;
        gateway.rest(next).await;
    }
}

fn heard<P: Ports>(gateway: &Gateway<P>, name: &RegionName, pong: Pong, asked: Moment, arrived: Moment) {
    let round_trip = arrived.since(asked);
    metrics::round_trip(name, round_trip);
    let trouble = gateway.disagreement(&pong);
    metrics::peer(observe::PEER_DISAGREES, name, trouble.is_some());
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
    (peer.trouble, peer.foreign) = (trouble, false);
    metrics::peer(observe::PEER_FOREIGN, name, false);
    (peer.heard, peer.asked, peer.round_trip) = (Some(arrived), Some(asked), Some(round_trip));
    peer.pong = Some(pong);
    drop(health);
    if let Some(version) = gateway.announced_version() {
        gateway.goes_by(version);
    }
}

fn not_heard<P: Ports>(gateway: &Gateway<P>, name: &RegionName, error: &PeerError) {
    let why = error.to_string();
    let mut health = gateway.health();
    let Some(peer) = health.peers.get_mut(name) else { return };
    peer.foreign = matches!(error, PeerError::Versions { .. });
    metrics::peer(observe::PEER_FOREIGN, name, peer.foreign);
    if peer.trouble.as_ref() != Some(&why) {
        tracing::warn!(peer = %name, why, "a peer does not answer");
        peer.trouble = Some(why);
    }
}

/// Looks at the copies of other regions' heartbeats, keeps the memory of them over restarts, and
/// now and then reads the replication slots.
pub async fn poll_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
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
        if let Ok(applied) = applied(gateway.store()).await
            && recalled
        {
            gateway.authority.change(|known, _| known.applied = Arc::new(applied.clone()));
            seen(&gateway, &applied, clock.now());
        }
        let now = clock.now();
        gateway.health().peers.iter().for_each(|(name, peer)| metrics::lag(name, &peer.lag, now));
        if recalled && remembered.is_none_or(|at| begun.since(at) >= REMEMBER_EVERY) {
            if begun.since(*began.get_or_insert(begun)) <= PERIOD {
                take_over_lags(&gateway).await;
            }
            let memory = memory(&gateway, begun);
            if gateway.store().remember(&memory).await.is_ok() {
                remembered = Some(begun);
                if let Ok(found) = gateway.store().slots().await {
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
    let Ok(memory) = gateway.store().recall().await else { return false };
    let now = gateway.now();
    let memory = memory.into_iter().map(|past| (past.origin.clone(), past)).collect();
    gateway.health().remembered = Some((memory, now));
    true
}

/// Takes over larger lags that another gateway of the region saw, which may have watched for
/// longer. Not after a whole trailing period: two that always did this would keep a lag for ever.
async fn take_over_lags<P: Ports>(gateway: &Gateway<P>) {
    let Ok(memory) = gateway.store().recall().await else { return };
    let now = gateway.now();
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

impl<P: Ports> Gateway<P> {
    /// Reports this region's state to a peer.
    pub async fn pong(&self) -> Pong {
        let now = self.now();
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
        ours.common(theirs).map(|_| pong).ok_or(PeerError::Versions { theirs, ours })
    }

    /// The version, not spoken here, by which a majority of the ring's regions say to go in newer
    /// views, which this process may be unable to read.
    pub(super) fn announced_version(&self) -> Option<u16> {
        let (view, health) = (self.view(), self.health());
        let regions = view.ring().regions();
        let pongs = regions.iter().filter_map(|region| health.peers.get(&region.name)?.pong.as_ref());
        let newer = pongs.filter(|pong| pong.epoch > view.epoch());
        let versions = newer.map(|pong| pong.protocol).filter(|version| !self.settings.speaks.has(*version));
        let versions: Vec<u16> = versions.collect();
        let most = versions.len() >= majority(regions.len());
        versions.into_iter().min().filter(|_| most)
    }

    pub(in crate::gateway) fn is_silent(&self, name: &RegionName) -> bool {
        let now = self.now();
        let health = self.health();
        health.peers.get(name).is_none_or(|peer| peer.is_silent(now, &self.settings.timings))
    }

    /// The highest heartbeat of this region that this process wrote or heard of.
    pub(in crate::gateway) fn highest_heard(&self) -> u64 {
        self.answers_of(&|_| true, Moment::default()).highest
    }

    /// The same, heard of in regions of the ring only. What follows from it is for the life of the
    /// process: a region that left could close every store by one number.
    pub(super) fn highest_in_ring(&self) -> u64 {
        let view = self.view();
        self.answers_of(&|name| speakers::tells_of_others(name, &view), Moment::default()).highest
    }

    /// The newest view that is known or adopted: a new process may know of the gate's only.
    pub(super) fn newest_view(&self, gate: &Gate) -> Arc<View> {
        let known = self.view();
        let adopted = gate.state.as_ref().map(|state| &state.view);
        adopted.filter(|view| view.epoch() > known.epoch()).unwrap_or(&known).clone()
    }

    /// The memory of this region at peers that were asked since `moment`. All may name the highest
    /// heartbeat, but vouchers alone are counted.
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

    /// Checks that a peer may say this here, before the message has any effect. An error is one
    /// line for the peer: it was counted and logged.
    pub fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        let sender = self.sender(from);
        let heard = self.hearing.hears(from, sender, said, self.now());
        heard.inspect_err(|_| metrics::count_by(observe::PEER_REFUSED, "sender", sender.word()))
    }

    /// Counts and logs a message that is refused for its content, not for its sender.
    pub(in crate::gateway) fn out_of_bounds(&self, from: &RegionName, kind: Kind, why: &str) {
        let sender = self.sender(from);
        metrics::count_by(observe::PEER_REFUSED, "sender", sender.word());
        self.hearing.tell(from, sender, kind, why, self.now());
    }

    /// The role of a peer under the view that this gateway goes by.
    pub(in crate::gateway) fn sender(&self, name: &RegionName) -> Sender {
        let named = self.health().peers.contains_key(name);
        let witness = self.settings.failover.witnesses.contains(name);
        Sender::of(name, &self.view(), named, witness)
    }

    /// The observed lag behind each peer, oldest first, at most a quarter of an hour back.
    pub fn lag_trails(&self) -> BTreeMap<String, Vec<TrailPoint>> {
        let now = self.now();
        let health = self.health();
        health.peers.iter().map(|(name, peer)| (name.to_string(), peer.trail.points(now))).collect()
    }
}
