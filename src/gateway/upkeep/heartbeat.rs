//! Heartbeats, pings, observed lag, and the approval of the store's boot.
//!
//! Heartbeats are the clock of replication (docs/protocol.md#rule-29). After a restart of the store
//! no claim passes until its boot is approved here. It is approved only if no peer has seen a later
//! heartbeat of this region than the store holds. A store restored from an old copy has forgotten
//! claims (docs/protocol.md#rule-8). This file must not decide who owns a key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::applied::applied;
use super::regain::regain;
use super::supervise::supervise;
use crate::gateway::authority::learn::install_gate;
use crate::gateway::authority::members::origin_of;
use crate::gateway::health::{Health, LAG_PERIOD};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::peers::{Beat, PeerError, Pong};
use crate::ports::store::{Boot, Gate, PeerMemory, StoreError, Written};
use crate::ports::{Clock, KeyStore, Peers, Ports, Replica};
use crate::protocol::observed::Watch;
use crate::protocol::plant::{Plant, removed};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::majority;
use crate::protocol::snapshot::{Applied, StoreHealth};
use crate::protocol::speakers;
use crate::protocol::time::Moment;
use crate::protocol::view::View;

/// Heartbeats in whose time the store's counter may move on at once, and no further.
const STEP: u32 = 2;
/// Time limit for a ping.
const PING_WITHIN: Duration = Duration::from_secs(2);
/// Time that the approval waits for silent peers, once one has answered.
const ASK_AT_MOST: Duration = Duration::from_secs(2);
/// Pause between two writes of the memory about peers.
const REMEMBER_EVERY: Duration = Duration::from_secs(5);

/// Starts the loops. Each ends when the gateway is dropped.
pub(in crate::gateway) fn start<P: Ports>(gateway: &Arc<Gateway<P>>) {
    supervise(gateway, "heartbeat", beat_loop);
    supervise(gateway, "poll", poll_loop);
    for peer in gateway.view().members().keys().filter(|name| **name != gateway.settings.me) {
        supervise(gateway, "ping", |gateway| ping_loop(gateway, peer.clone()));
    }
}

/// Writes heartbeats; after a restart of the store, works for its approval.
async fn beat_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let (mut asking, mut watch) = (None, Watch::default());
    let mut first = None;
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.ports.clock().now();
        // A heartbeat that any peer saw was committed before this one, so the new number must be
        // greater.
        let seen = gateway.highest_in_ring();
        let passed = watch.passed(begun, gateway.settings.timings.heartbeat * STEP);
        let beat = gateway.ports.store().beat(Some(passed)).await;
        if !matches!(beat, Ok(Some(_))) {
            watch.lost();
        }
        match beat {
            Ok(Some(beat)) if beat.seq <= seen || gateway.health().went_back => {
                watch.lost();
                went_back(&gateway);
            }
            Ok(Some(beat)) => {
                let answered = gateway.ports.clock().now();
                watch.heard(passed, beat.counted, beat.observed, begun, answered);
                gateway.health().beat = Some((beat.seq, begun));
                metrics::heartbeat(beat.seq);
                metrics::clock_ahead(*first.get_or_insert((beat.date, begun)), (beat.date, begun));
                if !gateway.store_is_open() {
                    reopen(&gateway).await;
                }
            }
            Ok(None) => approve(&gateway, &mut asking).await,
            Err(error) => close(&gateway, error.to_string()),
        }
        let next = begun + gateway.settings.timings.heartbeat;
        gateway.rest(next).await;
    }
}

/// Reads the gate and lets claims pass: the store answers again and its boot is approved.
async fn reopen<P: Ports>(gateway: &Arc<Gateway<P>>) {
    if !gateway.health().peers.values().all(|peer| peer.tried) {
        // A process that just started cannot know yet if a peer goes by another view.
        return close(gateway, "starting: not every peer has been asked yet".to_owned());
    }
    if gateway.health().beat.is_none() {
        // Claims count from what the next heartbeat may add at most, which one writes first.
        return close(gateway, "starting: the first heartbeat is not committed yet".to_owned());
    }
    match gateway.ports.store().gate().await {
        Ok(gate) if gate.is_open() => open(gateway, gate),
        Ok(_) => close(gateway, "the store restarted and is not approved yet".to_owned()),
        Err(error) => close(gateway, error.to_string()),
    }
}

/// Moment since which peers are asked about a boot. Earlier answers do not count: this region may
/// have written more since then, and peers may have seen it.
struct Asking {
    boot: Boot,
    since: Moment,
}

/// Approves the running boot, once the peers' memory shows no regression.
async fn approve<P: Ports>(gateway: &Arc<Gateway<P>>, asking: &mut Option<Asking>) {
    let (gate, own) = match own_state(gateway).await {
        Ok(found) => found,
        Err(error) => return close(gateway, error.to_string()),
    };
    if gate.is_open() {
        return reopen(gateway).await;
    }
    let now = gateway.ports.clock().now();
    let since = match asking {
        Some(asking) if asking.boot == gate.running => asking.since,
        Some(_) | None => {
            *asking = Some(Asking { boot: gate.running.clone(), since: now });
            now
        }
    };
    let view = gateway.newest_view(&gate);
    let peers = gateway.health().peers.keys().cloned().collect();
    let vouchers = speakers::vouchers(&peers, &view);
    let answers = gateway.answers_since(since, &vouchers);
    if answers.highest > own {
        // Without the number: the next peer may have seen a later one, and the text would count as
        // another reason.
        let why = format!(
            "the store went back: it holds heartbeat {own} of this region, and a later one was seen; it was restored from an old copy, has forgotten claims and must be rebuilt from its peers"
        );
        return refuse(gateway, why);
    }
    if answers.knowing == 0 && answers.silent > 0 {
        return close(
            gateway,
            "the store restarted; waiting for a peer that remembers this region".to_owned(),
        );
    }
    if answers.silent > 0 && now.since(since) < ASK_AT_MOST {
        return close(
            gateway,
            format!("the store restarted; {} peers have not answered yet", answers.silent),
        );
    }
    let needed = answers_needed(&gate, answers.knowing + answers.silent);
    if answers.knowing < needed {
        let why = format!(
            "the store restarted, or is new, restored or promoted: {needed} peers must say what they saw and heard of this region, {} did",
            answers.knowing
        );
        return close(gateway, why);
    }
    let is_lost = |name: &RegionName| view.lost().any(|(lost, _)| lost == name);
    if gate.approved.is_some()
        && !only_restarted(&gate)
        && let Err(why) = regain(gateway, vouchers.iter().filter(|name| !is_lost(name))).await
    {
        return close(gateway, why);
    }
    match gateway.ports.store().approve(gate.version, &gate.running).await {
        Ok(Written::Done) => {
            tracing::info!(heartbeat = own, knowing = answers.knowing, "approved the store's boot");
            reopen(gateway).await;
        }
        Ok(Written::Lost | Written::GateMoved) => reopen(gateway).await,
        Err(error) => close(gateway, error.to_string()),
    }
}

/// Number of peers that must answer before a boot is approved (docs/protocol.md#rule-8). If the
/// same server only restarted, it has lost nothing that it confirmed, and one peer is enough. A
/// store without an approved boot, or of another system or timeline, may be an old copy. The one
/// peer that answers may be behind as well. Then each majority that ever acted must have a member
/// among the peers that answer.
fn answers_needed(gate: &Gate, peers: usize) -> usize {
    if only_restarted(gate) {
        return peers.min(1);
    }
    let members = peers + 1;
    let majority = members / 2 + 1;
    (members - majority + 1).min(peers)
}

/// True if the running server is the approved one, restarted over the same timeline.
pub(in crate::gateway) fn only_restarted(gate: &Gate) -> bool {
    let same = |approved: &Boot| {
        (approved.system, approved.timeline) == (gate.running.system, gate.running.timeline)
    };
    gate.approved.as_ref().is_some_and(same)
}

pub(in crate::gateway) async fn own_state<P: Ports>(gateway: &Gateway<P>) -> Result<(Gate, u64), StoreError> {
    let gate = gateway.ports.store().gate().await?;
    Ok((gate, applied(gateway).await?.written(&gateway.origin)))
}

/// The peers' memory of this region's heartbeats.
struct Answers {
    /// Peers that were asked since and know.
    knowing: usize,
    /// Peers that did not answer, or do not know yet.
    silent: usize,
    /// The highest heartbeat of this region that any process has seen, this one included.
    highest: u64,
}

/// Pings one peer again and again, and keeps its answers.
async fn ping_loop<P: Ports>(gateway: Weak<Gateway<P>>, peer: RegionName) {
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
        peer.told = peer.told.max(Some(beat.seq));
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
async fn poll_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
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
        if let Ok(applied) = applied(&gateway).await
            && recalled
        {
            gateway.authority.change(|known, _| known.applied = Arc::new(applied.clone()));
            seen(&gateway, &applied, clock.now());
        }
        metrics::lags(&gateway, clock.now());
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
        if let (Some(peer), Some(lag)) = (peer, lag.filter(|_| !removed(Plant::LagRemembered)))
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
        peer.told = peer.told.max(Some(written));
        let lag = peer.lag.current(now).filter(|_| !peer.is_silent(now, timings));
        peer.trail.sample(now, lag);
    }
}

fn memory<P: Ports>(gateway: &Gateway<P>, now: Moment) -> Vec<PeerMemory> {
    let health = gateway.health();
    // Lag as it was at the last contact: an outage is no lag, and must not make a window endless
    // after a restart (docs/protocol.md#rule-31).
    let of = |peer: &crate::gateway::health::Peer| {
        Some(PeerMemory {
            origin: peer.origin.clone()?,
            imported: 0,
            applied: peer.applied?,
            lag: peer.lag.maximum(peer.heard.unwrap_or(now)),
        })
    };
    health.peers.values().filter_map(of).collect()
}

/// Lets claims pass. The only place that opens a store, so it asks whether that went back.
fn open<P: Ports>(gateway: &Gateway<P>, gate: Gate) {
    if gateway.health().went_back {
        return went_back(gateway);
    }
    let (version, epoch) = (gate.version.0, gate.epoch);
    let opened = Arc::new(StoreHealth::Open(gate.clone()));
    let was = gateway.authority.change(|known, _| std::mem::replace(&mut known.store, opened));
    install_gate(gateway, gate);
    if let StoreHealth::Closed { why: was, .. } = &*was {
        tracing::info!(was, version, epoch, "the store is open");
        // The acceptors hear of a new start at once: while this process lives, it can say that
        // nothing of the one before is relied on.
        if gateway.holds_lease(gateway.ports.clock().now()) {
            gateway.authority.wakes.renewal.notify_one();
        }
    }
    metrics::store_up(true);
}

/// Closes the store for now. Each heartbeat calls this; it is logged once.
fn close<P: Ports>(gateway: &Gateway<P>, why: String) {
    if shut(gateway, &why) {
        tracing::warn!(why, "the store is closed: no key is run here");
    }
}

/// Closes a store that only a rebuild opens again.
fn refuse<P: Ports>(gateway: &Gateway<P>, why: String) {
    if shut(gateway, &why) {
        tracing::error!(why, "the store is refused: no key is run here");
    }
}

/// Refuses the store from now on: it is an old copy.
pub(in crate::gateway) fn went_back<P: Ports>(gateway: &Gateway<P>) {
    gateway.health().went_back = true;
    let why = "the store went back while it ran: it is an old copy, has forgotten claims and must be rebuilt from its peers";
    refuse(gateway, why.to_owned());
}

/// Closes the store. True if that is news: it was open, or closed for another reason.
pub(in crate::gateway) fn shut<P: Ports>(gateway: &Gateway<P>, why: &str) -> bool {
    let now = gateway.ports.clock().now();
    let is_news = gateway.authority.change(|known, _| known.close(why, now));
    metrics::store_up(false);
    is_news
}

impl<P: Ports> Gateway<P> {
    /// Reports this region's state to a peer.
    pub async fn pong(&self) -> Pong {
        let now = self.ports.clock().now();
        let health = self.health();
        let applied: BTreeMap<Origin, u64> =
            health.peers.values().filter_map(|peer| Some((peer.origin.clone()?, peer.applied?))).collect();
        let heard =
            health.peers.values().filter_map(|peer| Some((peer.origin.clone()?, peer.told?))).collect();
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
    fn spoken(&self, answered: Result<Pong, PeerError>) -> Result<Pong, PeerError> {
        let pong = answered?;
        let (theirs, ours) = (pong.speaks, self.settings.speaks);
        match ours.common(theirs) {
            Some(_) => Ok(pong),
            None => Err(PeerError::Versions { theirs, ours }),
        }
    }

    /// The version, not spoken here, by which a majority of the ring's regions say to go in newer
    /// views: those may say more than this process can read. The word of fewer is their own affair.
    fn told_version(&self) -> Option<u16> {
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
    fn highest_in_ring(&self) -> u64 {
        let view = self.view();
        self.answers_of(&|name| speakers::tells_of_others(name, &view), Moment::default()).highest
    }

    /// The newest view that is known or adopted: a process that just started may know of no other
    /// than the gate's.
    fn newest_view(&self, gate: &Gate) -> Arc<View> {
        let known = self.view();
        let adopted = gate.state.as_ref().map(|state| &state.view);
        adopted.filter(|view| view.epoch() > known.epoch()).unwrap_or(&known).clone()
    }

    /// The memory of this region at the peers that were asked since `moment`. The highest heartbeat
    /// is that of any peer, but vouchers alone are counted.
    fn answers_since(&self, moment: Moment, vouchers: &BTreeSet<RegionName>) -> Answers {
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

    fn disagreement(&self, pong: &Pong) -> Option<String> {
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
}
