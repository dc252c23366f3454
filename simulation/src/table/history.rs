//! What one region's Postgres went through: the truth for checkers, which no gateway sees.
//!
//! Neighbours: [`super`] writes it down, [`crate::checker`] judges it. It outlives a restored copy and a destroyed disk. It must not be
//! read by any statement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::upkeep::Entry;
use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{RequestId, Row, Token};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{Accepted, Acceptor, Ballot};
use onceway::protocol::view::{AcceptorId, View};

use super::{Change, Commit, Phase, Stored, Table};

/// A claim that was lodged here durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lodgment {
    /// When, since the world began.
    pub at: Duration,
    /// The key.
    pub id: KeyId,
    /// Whose claim.
    pub origin: Origin,
    /// Its token.
    pub token: Token,
}

/// A state of the gate.
#[derive(Clone, Debug)]
pub struct Gated {
    /// When it was committed, since the world began.
    pub at: Duration,
    /// The state.
    pub state: GateState,
    /// What stood here then of each origin: the highest heartbeat that was applied, or up to which rows were imported.
    pub applied: BTreeMap<Origin, u64>,
    /// Whose lodged claims stood here then and were no records yet.
    pub lodged: BTreeSet<Origin>,
}

/// What an acceptor held from some moment on, leases left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Since when, since the world began.
    pub at: Duration,
    /// Which acceptor.
    pub id: AcceptorId,
    /// Its promise.
    pub promised: Option<Ballot>,
    /// What it had accepted last.
    pub accepted: Option<Accepted>,
}

/// A lease, as one acceptor granted it.
#[derive(Clone, Debug)]
pub struct Granted {
    /// When, since the world began.
    pub at: Duration,
    /// Which acceptor.
    pub id: AcceptorId,
    /// Whose lease.
    pub region: RegionName,
    /// Before this moment nobody may call it over, however clocks drift.
    pub until: Duration,
    /// The view that it was granted under.
    pub view: Arc<View>,
}

impl Granted {
    /// What an acceptor granted at `at` by becoming `next`.
    pub(crate) fn between(before: &Acceptor, next: &Acceptor, at: Duration) -> Vec<Self> {
        let known = |region: &RegionName| before.grants.get(region).map(|grant| (grant.boot, grant.number));
        let fresh =
            next.grants.iter().filter(|(region, grant)| known(region) != Some((grant.boot, grant.number)));
        fresh
            .map(|(region, grant)| Self {
                at,
                id: next.id,
                region: region.clone(),
                until: at + grant.ttl,
                view: grant.view.clone(),
            })
            .collect()
    }
}

/// Everything that a store went through and that its tables do not show any more.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Each state of the gate.
    pub gates: Vec<Gated>,
    /// Each promise and each accepted value of the acceptor.
    pub acceptors: Vec<Held>,
    /// How many claims and ends of attempts were refused, as the gate had moved or another attempt had taken their place.
    pub stale: u64,
    /// Each lease that the acceptor granted.
    pub granted: Vec<Granted>,
    /// Each claim that was lodged here.
    pub lodged: Vec<Lodgment>,
    /// Each view that was kept here, in the order in which they were.
    pub views: Vec<Arc<View>>,
}

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Claimed.
    Claimed,
    /// In doubt.
    InDoubt,
    /// Released.
    Released,
    /// Settled.
    Settled,
    /// A tombstone.
    Tombstone,
}

/// A record as it was written.
#[derive(Clone, Debug)]
pub struct Record {
    /// The attempt's token.
    pub token: Token,
    /// Where it stands.
    pub standing: Standing,
    /// Rows of other origins that it supersedes.
    pub over: Vec<(Origin, Token)>,
    /// Lost regions whose window alone allowed it.
    pub risk: Vec<RegionName>,
    /// Whose request it was.
    pub request_id: RequestId,
    /// The route.
    pub route: Arc<str>,
    /// How long the claim may go without an outcome; nothing if nobody sends under it.
    pub hold: Duration,
    /// The key's life from this claim on, before its tombstone and with it; as written, which says
    /// nothing of a tombstone.
    pub lives: (Duration, Duration),
}

/// One write of a record, or its end.
#[derive(Clone, Debug)]
pub struct Write {
    /// When it was committed, since the world began.
    pub at: Duration,
    /// The key.
    pub id: KeyId,
    /// What was written; `None` if it was deleted.
    pub record: Option<Record>,
    /// Whether the server that wrote it was the approved one.
    pub approved: bool,
    /// Whether another origin's row of the key stood here then that may still come to something.
    pub beside_open: bool,
}

/// All that there is to know about one store.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Under which origin it writes.
    pub origin: Origin,
    /// What it went through.
    pub history: History,
    /// Every write of an own record, in the order of commits.
    pub writes: Vec<Write>,
    /// What a look-up shows, by key.
    pub rows: BTreeMap<KeyId, Vec<Row>>,
    /// Its journal.
    pub journal: Vec<(Option<KeyId>, Entry)>,
}

impl Table {
    pub(crate) fn truth(&self) -> Truth {
        Truth {
            origin: self.origin.clone(),
            history: self.history.clone(),
            writes: self.log.iter().filter_map(Commit::written).collect(),
            rows: self.rows.keys().chain(self.imports.keys()).map(|id| (id.clone(), self.read(id))).collect(),
            journal: self.journal.clone(),
        }
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Up to which heartbeat the rows of each origin are here.
    pub(super) fn applied(&self) -> BTreeMap<Origin, u64> {
        let whole = self.beats.iter().filter(|(origin, _)| !self.copying.contains(*origin));
        let mut applied: BTreeMap<Origin, u64> =
            whole.map(|(origin, (seq, _))| (origin.clone(), *seq)).collect();
        for (origin, memory) in &self.memory {
            let seq = applied.entry(origin.clone()).or_insert(0);
            *seq = memory.imported.max(*seq);
        }
        applied
    }
}

impl Commit {
    /// The write of a record that it was, if it was one.
    pub(crate) fn written(&self) -> Option<Write> {
        let (id, record) = match &self.change {
            Change::Row(id, row) => (id, Some(row.recorded())),
            Change::Gone(id) => (id, None),
            Change::Beat { .. } => return None,
        };
        let (id, approved, beside_open) = (id.clone(), self.approved, self.beside_open);
        Some(Write { at: self.at, id, record, approved, beside_open })
    }
}

impl Stored {
    fn recorded(&self) -> Record {
        let lives = self.due.saturating_sub(self.held_at);
        let lives = Duration::from_micros(u64::try_from(lives).unwrap_or(0));
        Record {
            token: self.token,
            standing: match self.phase {
                Phase::Claimed => Standing::Claimed,
                Phase::InDoubt(_) => Standing::InDoubt,
                Phase::Released => Standing::Released,
                Phase::Settled(..) => Standing::Settled,
                Phase::Tombstone => Standing::Tombstone,
            },
            over: self.over.clone(),
            risk: self.risk.clone(),
            request_id: self.request_id,
            route: self.route.clone(),
            hold: self.hold,
            lives: (lives, lives.saturating_add(self.tombstone)),
        }
    }
}
