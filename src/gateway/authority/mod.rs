//! Authority: this gateway's knowledge of views, of its lease and of its region's gate, and the
//! consequences for a key.
//!
//! `protocol::{authority, lease, opening, window, escrow}` decide.
//! [`crate::gateway::request::follow`] asks before a claim, and again with no await before the
//! send. Peers' questions, operators' acts and the loops ([`start`]) are files of their own. This
//! folder must not know statuses, and must not make a request wait for a loop.

mod acceptor;
pub mod admin_ops;
mod answers;
mod asking;
mod break_glass;
pub mod dry_run;
mod evidence;
mod failback;
mod gate_loop;
mod learn;
mod lives;
mod members;
mod moves;
mod poisoned;
mod propose;
mod protocol_version;
mod rebuild;
mod renew;
mod running;
pub mod status;
mod takeover;
pub mod upstream;
mod voters;
pub mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::gateway::health::StoreHealth;
use crate::gateway::instance::Gateway;
use crate::gateway::upkeep::applied::Applied;
use crate::gateway::upkeep::supervise::supervise;
use crate::ports::store::{Boot, Gate, GateVersion, StoreError};
use crate::ports::{Clock, Dice, Ports};
use crate::protocol::authority::{self, Closed, GateState, Loss, Right};
use crate::protocol::escrow::{self, Meanings};
use crate::protocol::grants::{Admission, GrantWatch};
use crate::protocol::health::Health;
use crate::protocol::key::KeyId;
use crate::protocol::lease::{self, Held, Lease, Tenure};
use crate::protocol::lifetime::Retention;
use crate::protocol::opening::Hindrance;
use crate::protocol::plant::{Plant, removed};
use crate::protocol::record::Reader;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::{Drift, Moment};
use crate::protocol::view::View;
use crate::protocol::window::WindowRule;
pub(super) use learn::took;
pub(super) use members::origin_of;
pub(super) use running::Run;

/// Right to declare a region lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Survivors, when the region's lease has run out at a majority.
    Automatic,
    /// Operators only.
    Manual,
}

/// Failover settings; the same in all regions.
#[derive(Clone, Debug)]
pub struct Failover {
    /// Right to declare a region lost.
    pub mode: Mode,
    /// Length of a lease.
    pub lease: Duration,
    /// The longest life that any route may promise, if `ring.toml` says so: hold, settle time,
    /// retention and tombstone together.
    pub max_life: Option<Retention>,
    /// Rule for a successor's window.
    pub window: WindowRule,
    /// Time that a region which gives keys up waits for running attempts, at most.
    pub drain_limit: Duration,
    /// Time after which a change is ended that no majority agreed on although keys were given up
    /// for it.
    pub kill_after: Duration,
    /// Time that a returning region must have been well before it takes its arcs back.
    pub stable_for: Duration,
    /// Regions that must stay serving after a drain, at least.
    pub min_serving: usize,
    /// Acceptors without a store, asked like peers.
    pub witnesses: Vec<RegionName>,
}

/// Reason why the gateway of a replaced store runs nothing.
const REPLACED: &str = "this store was replaced: by the view the region has another generation of it";
/// Reason why a deployment runs no keys before its register is founded.
pub(super) const NOT_FOUNDED: &str =
    "the register is not founded: run `onceway init` once, when all regions are up";

/// Period for reading again the views that the store keeps: their age ends the risk of stores that
/// were replaced long ago.
const RECALL_EVERY: Duration = Duration::from_secs(60);

/// One gateway's knowledge about authority. Requests read it without a lock; the loops replace
/// whole values.
pub(super) struct Authority {
    view: ArcSwap<View>,
    views: ArcSwap<BTreeMap<u64, Arc<View>>>,
    leased: ArcSwap<Leased>,
    lease: Mutex<Lease>,
    hindrances: ArcSwap<Vec<Hindrance>>,
    /// The epoch of the view that the hindrances were judged under, or 0 if never. Stored after
    /// them.
    judged: AtomicU64,
    /// The rows of each origin that are here.
    applied: ArcSwap<Applied>,
    /// Moments since which each other origin surely starts nothing more under keys that this region
    /// owns (docs/protocol.md#rule-12). The number is the epoch of the view that they hold under.
    ended: ArcSwap<(u64, BTreeMap<Origin, Moment>)>,
    /// Observations of this process about the grants of the region's acceptor.
    watch: Mutex<GrantWatch>,
    admission: Mutex<Admission>,
    gathered: Mutex<gate_loop::Gathered>,
    /// Attempts of this process that may still be sent or settled.
    pub(super) running: running::Running,
    /// 64 random bits: no other process proposes under the same ballot.
    proposer: u64,
    counter: AtomicU64,
    /// The highest counter of a ballot that a majority was read to have promised.
    reached: AtomicU64,
    /// Peers that reported views which no majority showed, and the moments until which they are not
    /// asked again.
    doubted: Mutex<BTreeMap<RegionName, Moment>>,
    proposing: tokio::sync::Mutex<()>,
    finishing: AtomicBool,
    learning: Mutex<()>,
    /// The moment that `Authority::given` returns, in nanoseconds of the boot clock; 0 if none.
    given: AtomicU64,
    /// Moment of the last read of the views that the store keeps, by the boot clock; 0 if never.
    recalled: AtomicU64,
    /// The highest epoch of a kept view so old that every key of then is forgotten; 0 if none.
    outlived: AtomicU64,
    /// The version that the regions go by, if this process does not speak it; else 0.
    beyond: AtomicU16,
    /// Error of the last try to read the gate.
    unread: Mutex<Option<StoreError>>,
    pub(super) renew_now: Notify,
    mind_now: Notify,
    /// Results of the checks of this region's upstream.
    upstream: Mutex<Health>,
}

/// The lease, as requests look at it.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    tenure: Tenure,
    held: Option<Held>,
    /// End of the last grant, if any.
    last: Moment,
}

/// Basis of a claim: exactly this version of the gate. The claimed request may be sent as long as
/// the tenure stays.
#[derive(Clone, Debug)]
pub(super) struct Permit {
    pub(super) gate: GateVersion,
    /// The tenure, remembered from before the claim.
    pub(super) tenure: Tenure,
    /// The view of the gate in that version: its epoch is the one of the claim's token.
    pub(super) view: Arc<View>,
}

pub(super) enum Here {
    /// Claim and send under this permit.
    Run(Permit),
    /// The key is this region's, but cannot run now.
    Closed(Closed),
    /// Another region owns the key.
    Elsewhere(RegionName),
    /// No region of the key's order serves.
    Nobody,
    /// This gateway runs no key at all.
    Unfit(Unfit),
}

/// Reason why a gateway runs no key, whichever it is.
pub(super) enum Unfit {
    /// The register has no view yet.
    NotFounded,
    /// The regions go by a protocol version that this process does not speak.
    Outgrown(String),
    /// The region's store does not answer, or cannot be relied on.
    Store(String),
}

impl Unfit {
    /// The reason in words, for logs and operators.
    pub(super) fn told(&self) -> &str {
        match self {
            Unfit::NotFounded => NOT_FOUNDED,
            Unfit::Outgrown(why) | Unfit::Store(why) => why,
        }
    }
}

impl Authority {
    pub(super) fn new(view: Arc<View>, lease: Lease, drift: Drift, proposer: u64) -> Self {
        let leased = Leased { tenure: lease.tenure(), held: None, last: Moment::default() };
        Self {
            view: ArcSwap::new(view),
            views: ArcSwap::default(),
            leased: ArcSwap::from_pointee(leased),
            lease: Mutex::new(lease),
            hindrances: ArcSwap::default(),
            judged: AtomicU64::new(0),
            applied: ArcSwap::default(),
            ended: ArcSwap::default(),
            watch: Mutex::new(GrantWatch::new(drift)),
            admission: Mutex::new(Admission::new(drift)),
            gathered: Mutex::default(),
            running: running::Running::default(),
            proposer,
            counter: AtomicU64::new(1),
            reached: AtomicU64::new(0),
            doubted: Mutex::default(),
            proposing: tokio::sync::Mutex::new(()),
            finishing: AtomicBool::new(false),
            learning: Mutex::default(),
            given: AtomicU64::new(0),
            recalled: AtomicU64::new(0),
            outlived: AtomicU64::new(0),
            beyond: AtomicU16::new(0),
            unread: Mutex::new(None),
            renew_now: Notify::new(),
            mind_now: Notify::new(),
            upstream: Mutex::default(),
        }
    }

    fn gathered(&self) -> MutexGuard<'_, gate_loop::Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the views that the store keeps were read a short while ago.
    fn recalled(&self, now: Moment) -> bool {
        let at = self.recalled.load(Ordering::SeqCst);
        at > 0 && now.since(Moment::from_nanos(at)) < RECALL_EVERY
    }

    /// Adds views that the store keeps, each with the time that it has been there. `is_over` says
    /// if every key of so long ago has been forgotten.
    fn recall(&self, kept: Vec<(Arc<View>, Duration)>, is_over: impl Fn(Duration) -> bool, now: Moment) {
        let old = kept.iter().filter(|(_, stored)| is_over(*stored));
        let outlived = old.map(|(view, _)| view.epoch()).max().unwrap_or(0);
        let mut views: BTreeMap<u64, Arc<View>> =
            kept.into_iter().map(|(view, _)| (view.epoch(), view)).collect();
        views.extend(self.views.load().iter().map(|(epoch, view)| (*epoch, view.clone())));
        self.views.store(Arc::new(views));
        self.outlived.store(outlived, Ordering::SeqCst);
        self.recalled.store(now.as_nanos().max(1), Ordering::SeqCst);
    }

    /// Notes that everything this region owns may start: from now on other origins' claims are
    /// counted out. The count begins anew under each view. Another process of this region may have
    /// adopted a view and opened its keys before this one looked, and gained keys may still run
    /// elsewhere.
    fn opened(&self, now: Moment, view: &View) {
        if self.ended.load().0 != view.epoch() {
            let origins = view.members().keys().filter_map(|name| view.origin(name));
            let all = origins.chain(view.retired().keys().cloned()).map(|origin| (origin, now));
            self.ended.store(Arc::new((view.epoch(), all.collect())));
        }
    }

    /// Notes that gained keys may not start. Until they may, nothing can be said of other origins'
    /// claims.
    fn closed(&self) {
        if self.ended.load().0 != 0 {
            self.ended.store(Arc::default());
        }
    }

    /// Takes in what is applied here.
    pub(super) fn saw(&self, applied: &Applied) {
        self.applied.store(Arc::new(applied.clone()));
    }

    /// Moment of the newest view that let this region serve after one that did not; 0 if never.
    fn given(&self) -> Moment {
        Moment::from_nanos(self.given.load(Ordering::SeqCst))
    }
}

/// Starts the loops. They end when the gateway is dropped.
pub(super) fn start<P: Ports>(gateway: &Arc<Gateway<P>>) {
    supervise(gateway, "gate", gate_loop::mind_loop);
    supervise(gateway, "renew", renew::renew_loop);
    supervise(gateway, "takeover", takeover::watch_loop);
    supervise(gateway, "return", failback::home_loop);
    supervise(gateway, "voters", voters::voters_loop);
    if let Some(check) = gateway.settings.upstream_health.clone() {
        supervise(gateway, "upstream", |gateway| upstream::check_loop(gateway, check));
    }
}

/// A number that no other process proposes under.
pub(super) fn proposer(dice: &impl Dice) -> u64 {
    (dice.nonce().0 >> 64) as u64
}

impl<P: Ports> Gateway<P> {
    /// The newest view that is known to be chosen; the gate follows it.
    pub(super) fn view(&self) -> Arc<View> {
        self.authority.view.load_full()
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn here(&self, id: &KeyId) -> Here {
        if let Some(why) = self.outgrown() {
            return Here::Unfit(Unfit::Outgrown(why));
        }
        let view = self.authority.view.load();
        let store = self.store.load();
        if view.epoch() == 0 {
            // The view is read from the store: a closed one says nothing about the register.
            return Here::Unfit(match &**store {
                StoreHealth::Open(_) => Unfit::NotFounded,
                StoreHealth::Closed { why, .. } => Unfit::Store(why.clone()),
            });
        }
        match view.owner(id) {
            None => return Here::Nobody,
            Some(owner) if *owner != self.settings.me => return Here::Elsewhere(owner.clone()),
            Some(_) => {}
        }
        if !view.is_present(&self.origin) {
            return Here::Unfit(Unfit::Store(REPLACED.to_owned()));
        }
        let gate = match &**store {
            StoreHealth::Open(gate) => gate,
            StoreHealth::Closed { why, .. } => return Here::Unfit(Unfit::Store(why.clone())),
        };
        // The gate may be one view behind. Keys that are this region's in both views go on under
        // the older one until the newer is adopted.
        let Some(state) = &gate.state else { return Here::Closed(Closed::Moving) };
        let leased = self.authority.leased.load();
        let now = self.ports.clock().now();
        let right = authority::right(state, leased.held.as_ref(), leased.tenure, id, &self.settings.me, now);
        match right {
            Right::Run(tenure) => Here::Run(Permit { gate: gate.version, tenure, view: state.view.clone() }),
            // The region has just begun to serve: its first renewal is on its way.
            Right::Closed(Closed::NoLease) if self.was_just_given(now) => Here::Closed(Closed::Moving),
            Right::Closed(closed) => Here::Closed(closed),
            Right::Elsewhere(_) | Right::Nobody => Here::Closed(Closed::Moving),
        }
    }

    /// True if this region began to serve less than a third of a lease ago.
    fn was_just_given(&self, now: Moment) -> bool {
        let given = self.authority.given();
        given.as_nanos() > 0 && now.since(given) < self.lease() / 3
    }

    /// The permit for a key that this region was given and has not caught up with. `None` unless it
    /// is proven that no lost region ever sent the key (docs/protocol.md#rule-38). The proof does
    /// not cover rows that other regions handed on. Their marks must be applied here, and every
    /// claim that was lodged here must be a record.
    pub(super) fn early(&self, id: &KeyId, route: &str, mine: &Meanings) -> Option<Permit> {
        let (version, state) = self.gate_state()?;
        // The epoch is read first: hindrances that are read later were judged under that view, or a
        // newer one.
        if self.authority.judged.load(Ordering::SeqCst) != state.view.epoch()
            || self.view().epoch() != state.view.epoch()
        {
            return None;
        }
        let losses = self.losses(id);
        let in_the_way = |hindrance: &Hindrance| match hindrance {
            Hindrance::NotCovered { origin, .. } | Hindrance::Forgotten { origin, .. } => {
                losses.iter().all(|loss| loss.origin != *origin)
            }
            Hindrance::Escrow { .. } | Hindrance::Gap { .. } => true,
            Hindrance::Window { .. }
            | Hindrance::Beyond { .. }
            | Hindrance::Unmeasured { .. }
            | Hindrance::NotTold { .. }
            | Hindrance::LeftRing { .. }
            | Hindrance::Import { .. } => false,
        };
        let proven = || losses.iter().all(|loss| self.absence_proves(loss, id, route, mine));
        if losses.is_empty() || self.hindrances().iter().any(in_the_way) || !proven() {
            return None;
        }
        let leased = self.authority.leased.load();
        let (me, now) = (&self.settings.me, self.ports.clock().now());
        let held = leased.held.as_ref();
        match authority::right_if_never_sent(&state, held, leased.tenure, id, me, now) {
            Right::Run(tenure) => Some(Permit { gate: version, tenure, view: state.view.clone() }),
            Right::Closed(_) | Right::Elsewhere(_) | Right::Nobody => None,
        }
    }

    /// True if a claim of this tenure may be sent at `now`. The lease holds and never lapsed since,
    /// and no arc was lost.
    pub(super) fn may_send(&self, tenure: Tenure, now: Moment) -> bool {
        let leased = self.authority.leased.load();
        let holds = leased.tenure == tenure && leased.held.as_ref().is_some_and(|held| now < held.until);
        holds || removed(Plant::LeaseAtSend)
    }

    /// Hindrances that keep gained keys from starting.
    pub(super) fn hindrances(&self) -> Arc<Vec<Hindrance>> {
        self.authority.hindrances.load_full()
    }

    /// The time that a lease of this region runs now.
    pub(super) fn lease(&self) -> Duration {
        lease::ttl(self.settings.failover.lease, &self.view())
    }

    /// Lost regions that may have run this key without a trace here.
    pub(super) fn at_risk(&self, id: &KeyId) -> Vec<RegionName> {
        regions_of(self.losses(id))
    }

    /// Those of [`Gateway::at_risk`] of which the absence of the key here does not prove that they
    /// never sent it.
    pub(super) fn at_risk_unproven(&self, id: &KeyId, route: &str, mine: &Meanings) -> Vec<RegionName> {
        let mut losses = self.losses(id);
        losses.retain(|loss| !self.absence_proves(loss, id, route, mine));
        regions_of(losses)
    }

    /// The losses that may hide a run of this key.
    fn losses(&self, id: &KeyId) -> Vec<Loss> {
        let (view, views) = (self.view(), self.authority.views.load());
        let applied = self.authority.applied.load();
        let outlived = self.authority.outlived.load(Ordering::SeqCst);
        let store = self.store.load();
        let waived = match &**store {
            StoreHealth::Open(gate) => gate.state.as_ref().map(|state| &state.waived),
            StoreHealth::Closed { .. } => None,
        };
        let mut losses = authority::losses(&authority::Facts {
            view: &view,
            views: &views,
            epochs: &applied.epochs,
            rows: &applied.rows,
            waived,
            me: &self.settings.me,
            outlived,
        });
        losses.retain(|loss| loss.may_hide(id));
        losses
    }

    /// True if the absence of the key here proves that the lost store's region never sent it.
    fn absence_proves(&self, loss: &Loss, id: &KeyId, route: &str, mine: &Meanings) -> bool {
        let (view, views) = (self.view(), self.authority.views.load());
        let heartbeat_epoch = self.authority.applied.load().epochs.get(&loss.origin).copied().unwrap_or(0);
        let (me, lost) = (&self.settings.me, &loss.origin);
        let facts = escrow::Facts { views: &views, view: &view, me, lost, heartbeat_epoch, route, mine };
        escrow::proves_absence(&facts, id)
    }

    /// A reader of rows, with the facts that it needs beside them. Before all gained keys may
    /// start, no other origin's claim is over: its outcome may be on the way here.
    pub(super) fn reader(&self) -> Reader {
        let mut reader = Reader::new(self.origin.clone(), self.settings.drift);
        let now = self.ports.clock().now();
        let ended = self.authority.ended.load();
        reader.ended.extend(ended.1.iter().map(|(origin, since)| (origin.clone(), now.since(*since))));
        if let StoreHealth::Open(Gate { state: Some(state), .. }) = &**self.store.load()
            && state.is_open()
        {
            let lost = state.view.lost().filter_map(|(region, _)| state.view.origin(region));
            reader.over.extend(lost.chain(state.view.retired().keys().cloned()));
        }
        reader
    }

    /// All chosen views that are kept here, by epoch.
    pub(super) fn known_views(&self) -> Arc<BTreeMap<u64, Arc<View>>> {
        self.authority.views.load_full()
    }

    /// The chosen view of that epoch, if it is kept here.
    pub(super) fn known_view(&self, epoch: u64) -> Option<Arc<View>> {
        self.authority.views.load().get(&epoch).cloned()
    }

    /// Asks a peer for views that it knows and this region does not.
    pub(super) async fn learn_now(self: &Arc<Self>, from: &RegionName) {
        learn::from_peer(self, from).await;
    }

    /// The gate's known state, if the store is open. `None` if the regions go by a version that is
    /// not spoken here: then this process must not act on it.
    pub(super) fn gate_state(&self) -> Option<(GateVersion, GateState)> {
        self.gate_as_known().map(|(version, state, _)| (version, state))
    }

    fn gate_as_known(&self) -> Option<(GateVersion, GateState, Boot)> {
        if self.outgrown().is_some() {
            return None;
        }
        match &**self.store.load() {
            StoreHealth::Open(gate) => {
                gate.state.clone().map(|state| (gate.version, state, gate.running.clone()))
            }
            StoreHealth::Closed { .. } => None,
        }
    }
}

/// The regions of these losses, each once.
fn regions_of(losses: Vec<Loss>) -> Vec<RegionName> {
    let regions: BTreeSet<RegionName> = losses.into_iter().map(|loss| loss.origin.region).collect();
    regions.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::change::Change;
    use crate::protocol::ring::Ring;
    use crate::protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
    use crate::protocol::view::AcceptorId;

    /// Process one adopts a view that gives this region keys, and opens them; process two looks
    /// only then. Its earlier knowledge of other origins does not cover those keys: their former
    /// owner may be running one.
    #[test]
    fn claims_of_others_are_counted_out_anew_under_each_view() {
        let name = |text: &str| RegionName::parse(text).unwrap();
        let regions = ["a", "b"].map(|text| RegionSpec { name: name(text), weight: 1 }).to_vec();
        let ring = Ring::build(&RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() });
        let voters = [(name("a"), AcceptorId(1))].into();
        let first = View::founding(1, Arc::new(ring.unwrap()), Default::default(), voters);
        let drift = Drift { ppm: 500, margin: Duration::from_millis(50) };
        let lease = Lease::new(Duration::from_secs(3), drift);
        let authority = Authority::new(Arc::new(first.clone()), lease, drift, 7);
        let (before, later) = (Moment::from_nanos(1_000), Moment::from_nanos(9_000));
        let since =
            |authority: &Authority| authority.ended.load().1.get(&first.origin(&name("b")).unwrap()).copied();
        authority.opened(before, &first);
        authority.opened(later, &first);
        assert_eq!(since(&authority), Some(before));
        authority.opened(later, &first.next(&Change::Kill).unwrap());
        assert_eq!(since(&authority), Some(later));
        authority.closed();
        assert_eq!(since(&authority), None);
    }
}
