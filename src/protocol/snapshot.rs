//! One gateway's knowledge about authority, as one value, and the decisions over it.
//!
//! A gateway replaces the whole value and reads it once per decision, so no decision mixes the
//! facts of two moments. Knowledge may be old, never torn: a claim is compared with the gate's
//! version where it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::authority::{self, Closed, Gate, GateState, GateVersion, Loss};
use super::escrow::{self, Meanings};
use super::key::KeyId;
use super::lease::{self, Held, Lease, Tenure};
use super::opening::{self, Hindrance};
use super::plant::{Check, is_disabled};
use super::record::Reader;
use super::region::{Origin, RegionName};
use super::time::{Date, Drift, Moment};
use super::versions::Versions;
use super::view::View;

/// Reason why the gateway of a replaced store runs nothing.
const REPLACED: &str = "this store was replaced: by the view the region has another generation of it";
/// Reason why a deployment runs no keys before its register is founded.
pub const NOT_FOUNDED: &str = "the register is not founded: run `onceway init` once, when all regions are up";

/// The facts about a gateway that stay for the life of its process.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Site {
    pub me: Origin,
    /// The length of a lease, as the configuration says.
    pub lease: Duration,
    pub drift: Drift,
    pub speaks: Versions,
}

/// State of the store: can keys be run here?
#[derive(Clone, Debug)]
pub enum StoreHealth {
    /// Claims pass, as far as is known.
    Open(Gate),
    /// No claim passes.
    Closed {
        /// The reason, for status and logs.
        why: String,
        /// Moment since which no claim passes, for any reason.
        since: Moment,
    },
}

impl StoreHealth {
    fn state(&self) -> Option<&GateState> {
        match self {
            Self::Open(gate) => gate.state.as_ref(),
            Self::Closed { .. } => None,
        }
    }
}

/// The rows that are here of each origin, this region's own included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// All rows from before this heartbeat are here, by replication or import.
    pub rows: BTreeMap<Origin, u64>,
    /// The epoch in the newest heartbeat that counts. Imported rows come without one.
    pub epochs: BTreeMap<Origin, u64>,
    /// The newest heartbeat that is here, even if it does not count: its region has written it.
    pub written: BTreeMap<Origin, u64>,
    /// The date of the newest heartbeat that counts, by its writer's clock.
    pub dates: BTreeMap<Origin, Date>,
}

impl Applied {
    /// The heartbeat up to which an origin's rows are here; 0 if none counts.
    pub fn rows(&self, origin: &Origin) -> u64 {
        self.rows.get(origin).copied().unwrap_or(0)
    }

    /// The newest heartbeat of an origin that is here; 0 if there is none.
    pub fn written(&self, origin: &Origin) -> u64 {
        self.written.get(origin).copied().unwrap_or(0)
    }
}

/// The lease, as decisions see it.
#[derive(Clone, Debug, Default)]
pub struct Leased {
    /// The tenure, compared again before each send.
    pub tenure: Tenure,
    /// The lease that was granted last and not given up, even if its time is over.
    pub held: Option<Held>,
    /// End of the last grant, if any.
    pub last: Moment,
}

/// Everything that a gateway's decision about a key relies on.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Snapshot {
    pub site: Arc<Site>,
    /// The newest view that is known to be chosen; the gate follows it.
    pub view: Arc<View>,
    /// All chosen views that are known here, by epoch.
    pub views: Arc<BTreeMap<u64, Arc<View>>>,
    /// The highest epoch of a kept view so old that every key of then is forgotten; 0 if none.
    pub outlived: u64,
    /// The version that the regions go by, if this process does not speak it.
    pub beyond: Option<u16>,
    pub store: Arc<StoreHealth>,
    pub lease: Leased,
    /// Moment of the newest view that let this region serve after one that did not.
    pub given: Option<Moment>,
    /// Hindrances that keep gained keys from starting.
    pub hindrances: Arc<Vec<Hindrance>>,
    /// The epoch of the view that they were judged under; 0 if never.
    pub judged: u64,
    pub applied: Arc<Applied>,
    /// The epoch of the view under which, and the moments since which, each other origin surely
    /// starts nothing more under keys that this region owns (docs/protocol.md#rule-12).
    pub ended: Arc<(u64, BTreeMap<Origin, Moment>)>,
}

/// Basis of a claim: exactly this version of the gate. It may be sent as long as the tenure stays.
#[derive(Clone, Debug)]
pub struct Permit {
    /// The version that the claim is compared with.
    pub gate: GateVersion,
    /// The tenure, remembered from before the claim.
    pub tenure: Tenure,
    /// The view of the gate in that version: its epoch is the one of the claim's token.
    pub view: Arc<View>,
    /// The knowledge that gave it, and that names the claim's risks.
    pub known: Arc<Snapshot>,
}

/// The answer to the question whether a key runs here.
#[derive(Clone, Debug)]
pub enum Here {
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The register has no view yet.
    NotFounded,
    /// The regions go by a protocol version that this process does not speak.
    Outgrown(String),
    /// The region's store does not answer, or cannot be relied on.
    Store(String),
}

impl Unfit {
    /// The reason in words, for logs and operators.
    pub fn reason(&self) -> &str {
        match self {
            Unfit::NotFounded => NOT_FOUNDED,
            Unfit::Outgrown(why) | Unfit::Store(why) => why,
        }
    }
}

impl Snapshot {
    /// The knowledge of a process that has just begun.
    pub fn first(site: Site, view: Arc<View>, store: StoreHealth, lease: &Lease) -> Self {
        Self {
            site: Arc::new(site),
            view,
            views: Arc::default(),
            outlived: 0,
            beyond: None,
            store: Arc::new(store),
            lease: Leased { tenure: lease.tenure(), ..Leased::default() },
            given: None,
            hindrances: Arc::default(),
            judged: 0,
            applied: Arc::default(),
            ended: Arc::default(),
        }
    }

    fn me(&self) -> &RegionName {
        &self.site.me.region
    }

    /// The right of this region to a key at `now`.
    pub fn here(self: &Arc<Self>, id: &KeyId, now: Moment) -> Here {
        if let Some(why) = self.outgrown() {
            return Here::Unfit(Unfit::Outgrown(why));
        }
        if self.view.epoch() == 0 {
            // The view is read from the store: a closed one says nothing about the register.
            return Here::Unfit(match &*self.store {
                StoreHealth::Open(_) => Unfit::NotFounded,
                StoreHealth::Closed { why, .. } => Unfit::Store(why.clone()),
            });
        }
        match self.view.owner(id) {
            None => return Here::Nobody,
            Some(owner) if owner != self.me() => return Here::Elsewhere(owner.clone()),
            Some(_) => {}
        }
        if !self.view.is_present(&self.site.me) {
            return Here::Unfit(Unfit::Store(REPLACED.to_owned()));
        }
        let gate = match &*self.store {
            StoreHealth::Open(gate) => gate,
            StoreHealth::Closed { why, .. } => return Here::Unfit(Unfit::Store(why.clone())),
        };
        // The gate may be one view behind. Keys that are this region's in both views go on under
        // the older one until the newer is adopted.
        let Some(state) = &gate.state else { return Here::Closed(Closed::Moving) };
        let was_just_given = self.given.is_some_and(|given| now.since(given) < self.lease_length() / 3);
        match authority::right(state, self.lease.held.as_ref(), id, self.me(), now) {
            Ok(()) => Here::Run(self.permit(gate.version, state)),
            // The region has just begun to serve: its first renewal is on its way.
            Err(Closed::NoLease) if was_just_given => Here::Closed(Closed::Moving),
            Err(closed) => Here::Closed(closed),
        }
    }

    fn permit(self: &Arc<Self>, gate: GateVersion, state: &GateState) -> Permit {
        Permit { gate, tenure: self.lease.tenure, view: state.view.clone(), known: self.clone() }
    }

    /// The permit for a key that this region was given and has not caught up with. `None` unless it
    /// is proven that no lost region ever sent the key (docs/protocol.md#rule-38). Rows that other
    /// regions handed on must be here, too, and every claim that was lodged here be a record.
    pub fn early(self: &Arc<Self>, id: &KeyId, route: &str, mine: &Meanings, now: Moment) -> Option<Permit> {
        let (gate, state) = self.gate()?;
        let epoch = state.view.epoch();
        // The hindrances must be those of the view that the gate and the losses go by.
        if self.judged != epoch || self.view.epoch() != epoch {
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
        if losses.is_empty() || self.hindrances.iter().any(in_the_way) || !proven() {
            return None;
        }
        // Keys that are still to be caught up with do not matter for one that surely was never
        // sent. The lease does, and so does a key that is being given up.
        let right = authority::right(&state.open(), self.lease.held.as_ref(), id, self.me(), now);
        right.is_ok().then(|| self.permit(gate.version, state))
    }

    /// True if a claim of this tenure may be sent: the lease holds, and never lapsed since.
    pub fn may_send(&self, tenure: Tenure, now: Moment) -> bool {
        let holds = self.lease.tenure == tenure && self.holds_lease(now);
        holds || is_disabled(Check::LeaseAtSend)
    }

    /// Lost regions that may have run this key without a trace here.
    pub fn at_risk(&self, id: &KeyId) -> Vec<RegionName> {
        regions_of(self.losses(id))
    }

    /// Those of [`Snapshot::at_risk`] that may have sent the key though it is not here.
    pub fn at_risk_unproven(&self, id: &KeyId, route: &str, mine: &Meanings) -> Vec<RegionName> {
        let mut losses = self.losses(id);
        losses.retain(|loss| !self.absence_proves(loss, id, route, mine));
        regions_of(losses)
    }

    /// The losses that may hide a run of this key.
    fn losses(&self, id: &KeyId) -> Vec<Loss> {
        let mut losses = authority::losses(&self.facts());
        losses.retain(|loss| loss.may_hide(id));
        losses
    }

    /// True if the absence of the key here proves that the lost store's region never sent it.
    fn absence_proves(&self, loss: &Loss, id: &KeyId, route: &str, mine: &Meanings) -> bool {
        escrow::proves_absence(&self.facts(), &loss.origin, id, (route, mine))
    }

    fn facts(&self) -> authority::Facts<'_> {
        authority::Facts {
            view: &self.view,
            views: &self.views,
            epochs: &self.applied.epochs,
            rows: &self.applied.rows,
            waived: self.store.state().map(|state| &state.waived),
            me: self.me(),
            outlived: self.outlived,
        }
    }

    /// A reader of rows, with the facts that it needs beside them. Before all gained keys may
    /// start, no other origin's claim is over: its outcome may be on the way here.
    pub fn reader(&self, now: Moment) -> Reader {
        let mut reader = Reader::new(self.site.me.clone(), self.site.drift);
        reader.ended.extend(self.ended.1.iter().map(|(origin, since)| (origin.clone(), now.since(*since))));
        if let Some(state) = self.store.state().filter(|state| state.is_open()) {
            let lost = state.view.lost().filter_map(|(region, _)| state.view.origin(region));
            reader.over.extend(lost.chain(state.view.retired.keys().cloned()));
        }
        reader
    }

    /// The gate and its state, if the store is open and this process speaks the regions' version.
    pub fn gate(&self) -> Option<(&Gate, &GateState)> {
        match &*self.store {
            StoreHealth::Open(gate) if self.beyond.is_none() => Some((gate, gate.state.as_ref()?)),
            StoreHealth::Open(_) | StoreHealth::Closed { .. } => None,
        }
    }

    /// Reason to do nothing, if the regions go by a version that this process does not speak.
    pub fn outgrown(&self) -> Option<String> {
        let speaks = self.site.speaks;
        self.beyond.map(|beyond| {
            format!(
                "the regions go by protocol version {beyond} and this process speaks {speaks}: run a onceway here that speaks it"
            )
        })
    }

    /// The time that a lease of this region runs now.
    pub fn lease_length(&self) -> Duration {
        lease::ttl(self.site.lease, &self.view)
    }

    /// Time left during which this gateway may rely on its region's lease; zero if it holds none.
    pub fn lease_left(&self, now: Moment) -> Duration {
        self.lease.held.as_ref().map_or(Duration::ZERO, |held| now.until(held.until))
    }

    /// True if this gateway may rely on its region's lease.
    pub fn holds_lease(&self, now: Moment) -> bool {
        !self.lease_left(now).is_zero()
    }

    /// The epoch from which on no key is forgotten, and true if that is because a region is away.
    pub fn remembered_from(&self) -> (u64, bool) {
        let from = opening::remembered_from(&self.view, &self.site.me, &self.applied.rows);
        (from, from <= self.view.epoch())
    }
}

/// Changes: each is one step from one value to the next.
impl Snapshot {
    /// Takes in a chosen view. False if it is not newer than the one known here. Says nothing about
    /// the lease: the view may end its tenure ([`View::loses`]).
    pub fn learn(&mut self, view: &Arc<View>, now: Moment) -> bool {
        if self.view.epoch() >= view.epoch() {
            return false;
        }
        let me = self.me();
        if self.view.epoch() > 0 && !self.view.serves(me) && view.serves(me) {
            self.given = Some(now);
        }
        Arc::make_mut(&mut self.views).insert(view.epoch(), view.clone());
        self.view = view.clone();
        true
    }

    /// Adds views that the store keeps, each with the time that it has been there. `is_over` says
    /// if every key of so long ago has been forgotten.
    pub fn recall(&mut self, kept: Vec<(Arc<View>, Duration)>, is_over: impl Fn(Duration) -> bool) {
        let old = kept.iter().filter(|(_, stored)| is_over(*stored));
        self.outlived = old.map(|(view, _)| view.epoch()).max().unwrap_or(0);
        let views = Arc::make_mut(&mut self.views);
        for (view, _) in kept {
            views.entry(view.epoch()).or_insert(view);
        }
    }

    /// Notes that a trusted source goes by this version. If it is not spoken here, that is
    /// remembered until the process ends, as versions only grow. True if that is news.
    pub fn goes_by(&mut self, version: u16) -> bool {
        if self.site.speaks.has(version) {
            return false;
        }
        self.beyond.replace(self.beyond.unwrap_or(0).max(version)).is_none()
    }

    /// Lets no claim pass. True if that is news: the store was open, or closed for another reason.
    pub fn close(&mut self, why: &str, now: Moment) -> bool {
        let (is_news, since) = match &*self.store {
            StoreHealth::Open(_) => (true, now),
            StoreHealth::Closed { why: before, since } => (before != why, *since),
        };
        self.store = Arc::new(StoreHealth::Closed { why: why.to_owned(), since });
        is_news
    }

    /// Takes in a gate that was read later than the one known here, if both are open.
    pub fn renew_gate(&mut self, gate: Gate) {
        if let StoreHealth::Open(before) = &*self.store
            && gate.is_open()
            && before.version < gate.version
        {
            self.store = Arc::new(StoreHealth::Open(gate));
        }
    }

    /// Takes in what is missing before everything of this view may start.
    pub fn judge(&mut self, view: &View, missing: Vec<Hindrance>) {
        self.hindrances = Arc::new(missing);
        self.judged = view.epoch();
    }

    /// Notes that everything this region owns may start: from now on other origins' claims are
    /// counted out. The count begins anew under each view: another process of this region may have
    /// opened its keys before this one looked, and gained keys may still run elsewhere.
    pub fn opened(&mut self, view: &View, now: Moment) {
        if self.ended.0 != view.epoch() {
            let origins = view.members().keys().filter_map(|name| view.origin(name));
            let all = origins.chain(view.retired.keys().cloned()).map(|origin| (origin, now));
            self.ended = Arc::new((view.epoch(), all.collect()));
        }
    }

    /// Notes that gained keys may not start: nothing can be said of other origins' claims.
    pub fn closed(&mut self) {
        self.ended = Arc::default();
    }

    /// Takes in the lease as it is now.
    pub fn take_lease(&mut self, lease: &Lease) {
        let held = lease.current().cloned();
        let last = held.as_ref().map_or(self.lease.last, |held| held.until);
        self.lease = Leased { tenure: lease.tenure(), held, last };
    }
}

/// The regions of these losses, each once.
fn regions_of(losses: Vec<Loss>) -> Vec<RegionName> {
    let regions: BTreeSet<RegionName> = losses.into_iter().map(|loss| loss.origin.region).collect();
    regions.into_iter().collect()
}

#[cfg(test)]
pub(super) mod tests;
