//! What runs beside requests: heartbeats, pings, observed lag, and the approval of the store's boot.
//!
//! Neighbours: `protocol::lag` measures, `ports::store` and `ports::peers` carry; [`super::status`]
//! shows. Heartbeats are the clock of replication (docs/protocol.md#rule-29). No claim passes after
//! a restart of the store until its boot was approved here, and it is approved only when no peer
//! has seen a later heartbeat of this region than its own store holds: a store that was restored
//! from an old copy has forgotten claims (docs/protocol.md#rule-8). It must not decide who owns a
//! key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::applied::{Applied, applied};
use super::{Gateway, StoreHealth, authority, metrics, trust};
use crate::ports::peers::{Beat, PeerError, Pong};
use crate::ports::store::{Boot, Gate, PeerMemory, StoreError, Written};
use crate::ports::{Clock, KeyStore, Peers, Ports, Replica};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::speakers::Sender;
use crate::protocol::time::Moment;
use crate::protocol::versions::HEARD;

/// How long a ping may take.
const PING_WITHIN: Duration = Duration::from_secs(2);
/// How long the approval waits for peers that do not answer, once one has.
const ASK_AT_MOST: Duration = Duration::from_secs(2);
/// Between two writes of what is remembered of the peers.
const REMEMBER_EVERY: Duration = Duration::from_secs(5);

/// Starts the loops. Each ends when the gateway is dropped.
pub(super) fn start<P: Ports>(gateway: &Arc<Gateway<P>>) {
    tokio::spawn(beat_loop(Arc::downgrade(gateway)));
    tokio::spawn(poll_loop(Arc::downgrade(gateway)));
    for peer in gateway.view().members().keys().filter(|name| **name != gateway.settings.me) {
        tokio::spawn(ping_loop(Arc::downgrade(gateway), peer.clone()));
    }
}

/// Writes heartbeats; after a restart of the store, sees to its approval.
async fn beat_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut asking = None;
    let mut went_back = false;
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.ports.clock().now();
        // What anybody saw before this beat was committed before it, so the new number must be greater.
        let seen = gateway.answers_since(Moment::from_nanos(0)).highest;
        match gateway.ports.store().beat().await {
            Ok(Some(beat)) if went_back || beat.seq <= seen => {
                // For as long as this process lives: the count runs on from the old copy and would catch up.
                went_back = true;
                refuse(
                    &gateway,
                    "the store went back while it ran: it is an old copy, has forgotten claims and must be rebuilt from its peers".to_owned(),
                );
            }
            Ok(Some(beat)) => {
                gateway.health().beat = Some((beat.seq, begun));
                metrics::heartbeat(beat.seq);
                trust::heard(&gateway, beat.date, begun).await;
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

/// The store answers again and its boot is approved: read the gate and let claims pass.
async fn reopen<P: Ports>(gateway: &Arc<Gateway<P>>) {
    if !gateway.health().peers.values().all(|peer| peer.tried) {
        // Whoever just started cannot know yet whether a peer goes by another view.
        return close(gateway, "starting: not every peer has been asked yet".to_owned());
    }
    if !gateway.clock_watch().is_fed() {
        // Nor whether the database's clock steps: that takes a first heartbeat to compare with, and what was seen before.
        return close(gateway, "starting: the first heartbeat is not committed yet".to_owned());
    }
    if !gateway.has_observed() && !trust::observe(gateway, &gateway.promised_lives()).await {
        // What is promised from now on is durable first.
        return close(gateway, "starting: how time passed at the store is not known yet".to_owned());
    }
    match gateway.ports.store().gate().await {
        Ok(gate) if gate.is_open() => open(gateway, gate),
        Ok(_) => close(gateway, "the store restarted and is not approved yet".to_owned()),
        Err(error) => close(gateway, error.to_string()),
    }
}

/// Since when peers are asked about a boot. What they were asked before it was seen to run does not count: this region may have
/// written, and they may have seen, more since then.
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
    let answers = gateway.answers_since(since);
    if answers.highest > own {
        // Not which: the next peer may have seen a later one still, and that would be told as another reason.
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
    if answers.hearing < needed {
        let mut why = format!(
            "the store restarted, or is new, restored or promoted: {needed} peers must say what they saw and heard of this region, {} did",
            answers.hearing
        );
        if answers.knowing > answers.hearing {
            why += "; one that runs an older onceway cannot: upgrade another region first";
        }
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

/// How many of so many peers must be heard before a boot is approved (docs/protocol.md#rule-8). The
/// same server that only restarted has lost nothing it confirmed, and one peer is enough. A store
/// without an approved boot, or of another system or timeline, may be an old copy, and the one peer
/// that answers may be behind as well: then so many that each majority that ever acted has a member
/// among them.
fn answers_needed(gate: &Gate, peers: usize) -> usize {
    if only_restarted(gate) {
        return peers.min(1);
    }
    let members = peers + 1;
    let majority = members / 2 + 1;
    (members - majority + 1).min(peers)
}

/// Whether the server that runs is the one that was approved, started anew over the same timeline.
pub(super) fn only_restarted(gate: &Gate) -> bool {
    let same = |approved: &Boot| {
        (approved.system, approved.timeline) == (gate.running.system, gate.running.timeline)
    };
    gate.approved.as_ref().is_some_and(same)
}

pub(super) async fn own_state<P: Ports>(gateway: &Gateway<P>) -> Result<(Gate, u64), StoreError> {
    let gate = gateway.ports.store().gate().await?;
    Ok((gate, applied(gateway).await?.written(&gateway.origin)))
}

/// What is remembered elsewhere of this region's heartbeats.
struct Answers {
    /// Peers that were asked since and know.
    knowing: usize,
    /// Of these, those that also say what they heard of. A process of the version before does not, and what it applied may be late: a copy could
    /// not be told from the store itself. One that speaks no other version cannot ask for more.
    hearing: usize,
    /// Peers that did not answer, or do not know yet.
    silent: usize,
    /// The highest heartbeat of this region that anybody has seen, this process included.
    highest: u64,
}

/// Asks one peer after the other, over and over, and keeps what it says.
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
    if pong.epoch > gateway.view().epoch() && gateway.sender(name) == Sender::Region {
        // Its view may say more than can be read here.
        gateway.goes_by(pong.protocol);
    }
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

/// Looks at the copies of other regions' heartbeats, and keeps what is remembered of them over restarts; now and then at what the own
/// server keeps for whoever reads it.
async fn poll_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut recalled = false;
    let mut remembered: Option<Moment> = None;
    let mut slots = BTreeSet::new();
    let mut observed: Option<Moment> = None;
    while let Some(gateway) = gateway.upgrade() {
        let clock = gateway.ports.clock();
        let begun = clock.now();
        if !recalled {
            recalled = recall(&gateway).await;
        }
        if let Ok(applied) = applied(&gateway).await
            && recalled
        {
            gateway.authority.saw(&applied);
            seen(&gateway, &applied, clock.now());
        }
        metrics::lags(&gateway, clock.now());
        if recalled && remembered.is_none_or(|at| begun.since(at) >= REMEMBER_EVERY) {
            let memory = memory(&gateway, begun);
            if gateway.ports.store().remember(&memory).await.is_ok() {
                remembered = Some(begun);
                if let Ok(found) = gateway.ports.store().slots().await {
                    metrics::slots(&mut slots, &found);
                }
            }
        }
        let due = observed.is_none_or(|at| begun.since(at) >= REMEMBER_EVERY) || !gateway.has_observed();
        if due && gateway.store_is_open() && trust::observe(&gateway, &gateway.promised_lives()).await {
            observed = Some(begun);
        }
        let next = begun + gateway.settings.timings.poll;
        gateway.rest(next).await;
    }
}

async fn recall<P: Ports>(gateway: &Gateway<P>) -> bool {
    let Ok(memory) = gateway.ports.store().recall().await else { return false };
    let now = gateway.ports.clock().now();
    let mut health = gateway.health();
    for past in memory {
        let known = gateway.view().origin(&past.origin.region) == Some(past.origin.clone());
        if known && !health.peers.contains_key(&past.origin.region) {
            // It left the ring, and the files do not name it any more.
            health.gone.extend(past.lag.map(|lag| (past.origin.clone(), lag)));
        }
        if let Some(peer) = health.peers.get_mut(&past.origin.region).filter(|_| known) {
            peer.follow(Some(past.origin));
            // It was seen once; how far its rows are here now the store says.
            peer.told = peer.told.max(Some(past.applied));
            if let Some(lag) = past.lag {
                peer.lag.restore(lag, now);
            }
        }
    }
    true
}

fn seen<P: Ports>(gateway: &Gateway<P>, applied: &Applied, now: Moment) {
    let timings = &gateway.settings.timings;
    let mut health = gateway.health();
    for (name, peer) in &mut health.peers {
        let origin = authority::origin_of(&gateway.view(), name);
        let (rows, written) = (applied.rows(&origin), applied.written(&origin));
        peer.follow(Some(origin));
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
    let of = |peer: &super::Peer| {
        Some(PeerMemory {
            origin: peer.origin.clone()?,
            imported: 0,
            applied: peer.applied?,
            lag: peer.lag.maximum(peer.heard.unwrap_or(now)),
        })
    };
    health.peers.values().filter_map(of).collect()
}

fn open<P: Ports>(gateway: &Gateway<P>, gate: Gate) {
    let (version, epoch) = (gate.version.0, gate.epoch);
    let was = gateway.store.swap(Arc::new(StoreHealth::Open(gate.clone())));
    authority::took(gateway, gate);
    if let StoreHealth::Closed { why: was, .. } = &*was {
        tracing::info!(was, version, epoch, "the store is open");
    }
    metrics::store_up(true);
}

/// Closes the store for now; heartbeats come by again and say it once.
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

/// Closes the store; whether that is news: it was open, or closed for another reason.
pub(super) fn shut<P: Ports>(gateway: &Gateway<P>, why: &str) -> bool {
    let before = gateway.store.load_full();
    let (is_news, since) = match &*before {
        StoreHealth::Open(_) => (true, gateway.ports.clock().now()),
        StoreHealth::Closed { why: before, since } => (before != why, *since),
    };
    gateway.store.store(Arc::new(StoreHealth::Closed { why: why.to_owned(), since }));
    metrics::store_up(false);
    is_news
}

impl<P: Ports> Gateway<P> {
    /// Tells a peer how this region is.
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
            heard: self.settings.speaks.has(HEARD).then_some(heard),
            speaks: self.settings.speaks,
            protocol: self.view().protocol(),
        }
    }

    /// A ping's reply counts only from a peer that speaks what is spoken here.
    fn spoken(&self, answered: Result<Pong, PeerError>) -> Result<Pong, PeerError> {
        let pong = answered?;
        let (theirs, ours) = (pong.speaks, self.settings.speaks);
        match ours.common(theirs) {
            Some(_) => Ok(pong),
            None => Err(PeerError::Versions { theirs, ours }),
        }
    }

    /// Whether a peer has answered no ping for longer than it may.
    pub(super) fn is_silent(&self, name: &RegionName) -> bool {
        let now = self.ports.clock().now();
        let health = self.health();
        health.peers.get(name).is_none_or(|peer| peer.is_silent(now, &self.settings.timings))
    }

    /// The highest heartbeat of this region that this process wrote or was ever told of.
    pub(super) fn highest_heard(&self) -> u64 {
        self.answers_since(Moment::default()).highest
    }

    /// What the peers that were asked since `moment` remember of this region.
    fn answers_since(&self, moment: Moment) -> Answers {
        let health = self.health();
        let own = health.beat.map_or(0, |(seq, _)| seq);
        let mut answers = Answers { knowing: 0, hearing: 0, silent: 0, highest: own };
        for peer in health.peers.values() {
            let pong = peer.pong.as_ref().filter(|_| peer.asked.is_some_and(|asked| asked >= moment));
            let heard = pong.and_then(|pong| pong.heard.as_ref());
            answers.highest =
                answers.highest.max(heard.and_then(|all| all.get(&self.origin).copied()).unwrap_or(0));
            match pong.and_then(|pong| pong.applied.get(&self.origin)) {
                Some(seen) => {
                    answers.knowing += 1;
                    answers.hearing += usize::from(heard.is_some() || !self.settings.speaks.has(HEARD));
                    answers.highest = answers.highest.max(*seen);
                }
                None => answers.silent += 1,
            }
        }
        answers
    }

    pub(super) fn store_is_open(&self) -> bool {
        matches!(**self.store.load(), StoreHealth::Open(_))
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
