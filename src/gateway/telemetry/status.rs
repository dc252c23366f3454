//! A gateway's report about itself: readiness, status, and the life of one key.
//!
//! Field names are a contract: add, never rename. Must not hold secrets: no token, no body, no
//! header of an answer.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use serde::Serialize;

use crate::gateway::authority::status::{AuthorityStatus, Live};
use crate::gateway::authority::upstream::UpstreamStatus;
use crate::gateway::instance::{Gateway, SHADOWED};
use crate::gateway::operator::acts::{self, JournalEntry};
use crate::gateway::reloadable::ConfigStatus;
use crate::gateway::request::finish::read;
use crate::gateway::upkeep::doubles::AuditStatus;
use crate::ports::audit::Told;
use crate::ports::store::StoreError;
use crate::ports::{Audit as _, Authority as _, Clock, KeyStore, Ports, Replica, Upkeep};
use crate::protocol::key::KeyId;
use crate::protocol::lease::Waits;
use crate::protocol::record::{Reading, State};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::majority;
use crate::protocol::snapshot::NOT_FOUNDED;
use crate::protocol::snapshot::StoreHealth;
use crate::protocol::time::{Date, Moment};
use crate::protocol::view::View;

/// Readiness: should global DNS send clients here?
#[derive(Clone, Debug, Serialize)]
pub struct Readiness {
    /// True if the gateway can serve or forward.
    pub ready: bool,
    /// True if keys homed here can be run.
    pub serves: bool,
    /// The peers that answer.
    pub forwards_to: Vec<String>,
    /// Reasons for missing parts, one line each.
    pub reasons: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub region: String,
    /// Moment of this report, milliseconds since 1970, by the gateway's clock.
    pub at_ms: i64,
    pub origin: String,
    pub epoch: u64,
    /// The protocol version that its view goes by.
    pub protocol: u16,
    /// The protocol versions that it speaks, such as `1-1`.
    pub speaks: String,
    /// Digest of its view.
    pub view: String,
    /// Digest of the shared settings.
    pub shared: String,
    /// The register, the lease and the gate.
    pub authority: AuthorityStatus,
    /// Its upstream, if that is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamStatus>,
    /// Comparison of the running settings with its files.
    pub config: ConfigStatus,
    pub readiness: Readiness,
    pub store: StoreStatus,
    /// Progress of the search for keys that ran twice.
    pub audit: AuditStatus,
    /// Keys on the region's list of doubts, as counted last; absent before.
    pub doubts: Option<u64>,
    pub in_flight: usize,
    /// Share of the ring per region, between 0 and 1.
    pub shares: BTreeMap<String, f64>,
    pub peers: BTreeMap<String, PeerStatus>,
    /// Incoming replications; absent while the store does not answer.
    pub subscriptions: Option<Vec<SubscriptionStatus>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StoreStatus {
    /// True if claims pass.
    pub open: bool,
    /// The reason why claims do not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Kinds of calls that are not made for now, since the store did not answer; absent while all
    /// are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spared: Option<String>,
    /// The gate's version, if it is open.
    pub gate_version: Option<u64>,
    pub heartbeat: Option<u64>,
}

/// This gateway's knowledge of one peer.
#[derive(Clone, Debug, Serialize)]
pub struct PeerStatus {
    /// True if it answers pings.
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

/// One incoming replication.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionStatus {
    /// The region whose rows it brings.
    pub from: String,
    /// True if the initial copy is done.
    pub ready: bool,
    pub streaming: bool,
}

/// The life of one key, as this region's store shows it.
#[derive(Clone, Debug, Serialize)]
pub struct KeyStatus {
    pub tenant: String,
    /// The key's digest, as in the logs.
    pub digest: String,
    pub arc: u16,
    /// Its regions, in order of preference.
    pub order: Vec<String>,
    /// Its owner in the view.
    pub owner: Option<String>,
    /// Meaning of its rows together: absent, released, in-progress, in-doubt, settled or expired.
    pub state: &'static str,
    /// Its rows, one per origin.
    pub rows: Vec<RowStatus>,
    /// The beginning of what the upstream said when it left the key in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<String>,
    /// The journal's entries about it, newest first.
    pub journal: Vec<JournalEntry>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RowStatus {
    pub origin: String,
    /// claimed, in-doubt, released, settled or expired.
    pub state: &'static str,
    /// Its token, epoch and attempt.
    pub token: String,
    pub request_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_left_ms: Option<u64>,
    /// The status that was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// End of the key's promised retention, milliseconds since 1970.
    pub expires_ms: i64,
    /// Digest of the raw request.
    pub fingerprint: String,
    /// More of it, where one key is asked about.
    #[serde(flatten)]
    pub more: Option<MoreOfRow>,
}

/// Times and origin of a row, for people.
#[derive(Clone, Debug, Serialize)]
pub struct MoreOfRow {
    pub route: String,
    pub path: String,
    /// Moment of its last attempt's claim, milliseconds since 1970, by its origin's clock.
    pub claimed_ms: Option<i64>,
    /// Moment of its settlement, likewise.
    pub settled_ms: Option<i64>,
    /// Source of the row here: `own`, `replicated` or `imported`.
    pub source: &'static str,
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
                let spares = self.ports.store().spares();
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
        reasons.extend(down.iter().map(|name| self.why_silent(name)));
        if self.is_stopping() {
            reasons.push("stopping".to_owned());
        }
        let outgrown = self.outgrown();
        let serves = serves && outgrown.is_none();
        // An outgrown process does not know owners either.
        let ready = !self.is_stopping() && outgrown.is_none() && (serves || !up.is_empty() && !alone);
        reasons.extend(outgrown);
        Readiness { ready, serves, forwards_to: up.iter().map(ToString::to_string).collect(), reasons }
    }

    /// True if this gateway has lacked its store, or its lease, for longer than its region could
    /// have kept its keys by this gateway alone. Then another gateway renews the lease and runs the
    /// keys, or other regions may take them. Clients are better served elsewhere, even for keys
    /// that this gateway could forward. Before that it is ready: a region that is lost as a whole
    /// still forwards, and is taken over meanwhile.
    fn is_alone_since(&self, since: Moment) -> bool {
        let owns = self.view().serves(&self.settings.me);
        owns && self.ports.clock().now().since(since) > self.lease() * 2
    }

    fn why_silent(&self, name: &RegionName) -> String {
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
        let now = self.ports.clock().now();
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

    /// Advice if so many regions are silent that no majority of the voters can be left. Witnesses
    /// count as if they answered: no gateway pings them.
    fn no_majority(&self, view: &View) -> Option<String> {
        let health = self.health();
        let peers: Vec<&RegionName> =
            view.voters().keys().filter(|name| health.peers.contains_key(*name)).collect();
        drop(health);
        let silent: Vec<&str> =
            peers.into_iter().filter(|name| self.is_silent(name)).map(RegionName::as_str).collect();
        let answering = view.voters().len() - silent.len();
        (answering < majority(view.voters().len())).then(|| {
            format!(
                "no majority of the voters answers ({} are silent): nobody can take keys over; if they are stopped for good, `onceway break-glass` goes on without them",
                silent.join(", ")
            )
        })
    }

    /// The date on this gateway's clock, for people and for texts to people. No key is decided by
    /// it.
    pub fn date(&self) -> Date {
        self.ports.clock().date()
    }

    /// The state of this gateway.
    pub async fn status(&self) -> Status {
        let store = self.ports.store();
        let (found, views) = match &self.shadow {
            Some(_) => (None, Vec::new()),
            None => {
                let (found, views) = tokio::join!(store.subscriptions(), store.views());
                (found.ok(), views.unwrap_or_default())
            }
        };
        let subscriptions = found.map(|all| {
            let one = |found: crate::ports::store::Subscription| SubscriptionStatus {
                from: found.from,
                ready: found.ready,
                streaming: found.streaming,
            };
            all.into_iter().map(one).collect()
        });
        let (readiness, peers) = (self.readiness(), self.peers_status());
        let mut authority = self.authority_status();
        for region in &mut authority.regions {
            let known = views.iter().find(|(view, _)| view.epoch() == region.since_epoch);
            region.since_ms = known.map(|(_, ago)| ago.as_millis() as u64);
            let live = match peers.get(&region.name) {
                _ if region.name == self.settings.me.as_str() => Live::Own(&readiness),
                Some(peer) => Live::Peer(peer),
                None => Live::NotAsked,
            };
            region.describe(&live, authority.mode);
        }
        let view = self.view();
        let ring = view.ring();
        let shares = ring.regions().iter().map(|region| (region.name.to_string(), ring.share(&region.name)));
        Status {
            region: self.settings.me.to_string(),
            at_ms: self.date().as_millis(),
            origin: self.origin.to_string(),
            epoch: self.view().epoch(),
            protocol: self.view().protocol(),
            speaks: self.settings.speaks.to_string(),
            view: self.view().digest().to_string(),
            shared: self.live().shared.to_string(),
            authority,
            upstream: self.upstream_status(),
            config: (**self.config.load()).clone(),
            readiness,
            store: self.store_status(),
            audit: self.audit_status(),
            doubts: *self.doubted.lock().unwrap_or_else(PoisonError::into_inner),
            in_flight: self.requests.load(std::sync::atomic::Ordering::SeqCst),
            shares: shares.collect(),
            peers,
            subscriptions,
        }
    }

    fn store_status(&self) -> StoreStatus {
        let health = self.health();
        let (gate, reason) = match &*self.snapshot().store {
            StoreHealth::Open(gate) => (Some(gate.version.0), None),
            StoreHealth::Closed { why, .. } => (None, Some(why.clone())),
        };
        let heartbeat = health.beat.map(|(seq, _)| seq);
        drop(health);
        let spared = self.ports.store().spares();
        StoreStatus { open: gate.is_some(), reason, spared, gate_version: gate, heartbeat }
    }

    pub(in crate::gateway) fn peers_status(&self) -> BTreeMap<String, PeerStatus> {
        let now = self.ports.clock().now();
        let names: Vec<RegionName> = self.health().peers.keys().cloned().collect();
        let up: BTreeMap<RegionName, bool> =
            names.into_iter().map(|name| (name.clone(), !self.is_silent(&name))).collect();
        let ms = |span: std::time::Duration| span.as_secs_f64() * 1_000.0;
        let health = self.health();
        let of = |(name, peer): (&RegionName, &crate::gateway::health::Peer)| {
            let status = PeerStatus {
                up: up.get(name).copied().unwrap_or(false),
                // Its last word counts only while it speaks.
                serving: up.get(name) == Some(&true) && peer.pong.as_ref().is_some_and(|pong| pong.serving),
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

    /// This region's copy of a key.
    pub async fn key_status(&self, id: &KeyId) -> Result<KeyStatus, StoreError> {
        let told = self.ports.store().rows_of_key(id).await?;
        let described = told.iter().map(|told| told_status(told, &self.origin)).collect();
        let journal = self.ports.store().journal(id).await?;
        let journal = journal.into_iter().map(acts::journal_entry).collect();
        let reading = read(self, told.into_iter().map(|told| told.row).collect());
        let excerpt = match &reading {
            Reading::InDoubt(..) => self.ports.store().excerpt(id).await?,
            _known => None,
        };
        let state = crate::gateway::operator::export::reading(&reading);
        let view = self.view();
        let ring = view.ring();
        Ok(KeyStatus {
            tenant: id.tenant().to_string(),
            digest: id.digest().to_string(),
            arc: ring.arc(id).0,
            order: ring.order(id).names().map(ToString::to_string).collect(),
            owner: self.view().owner(id).map(ToString::to_string),
            state,
            rows: described,
            excerpt,
            journal,
        })
    }
}

fn told_status(told: &Told, me: &Origin) -> RowStatus {
    let more = MoreOfRow {
        route: told.route.to_string(),
        path: told.path.clone(),
        claimed_ms: told.claimed.map(|at| at.as_millis()),
        settled_ms: told.settled.map(|at| at.as_millis()),
        source: source(told, me),
    };
    RowStatus { more: Some(more), ..row_status(&told.row) }
}

/// Source of a row in this region's store.
pub(in crate::gateway) fn source(told: &Told, me: &Origin) -> &'static str {
    match (told.row.origin == *me, told.imported) {
        (true, _) => "own",
        (false, false) => "replicated",
        (false, true) => "imported",
    }
}

pub(in crate::gateway) fn row_status(row: &crate::protocol::record::Row) -> RowStatus {
    let (state, left, status) = match &row.state {
        State::Claimed { left, past: _ } => ("claimed", Some(left), None),
        State::InDoubt { status, left, past: _ } => ("in-doubt", Some(left), *status),
        State::Released => ("released", None, None),
        State::Settled { answer, expired: false, .. } => ("settled", None, Some(answer.status)),
        State::Settled { expired: true, .. } | State::Tombstone => ("expired", None, None),
    };
    RowStatus {
        origin: row.origin.to_string(),
        state,
        token: row.token.to_string(),
        request_id: row.request_id.to_string(),
        hold_left_ms: left.map(|left| left.as_millis() as u64),
        status,
        expires_ms: row.expires.as_millis(),
        fingerprint: row.fingerprint.raw.to_string(),
        more: None,
    }
}
