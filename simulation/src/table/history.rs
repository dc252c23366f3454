//! The history of one region's Postgres: the truth for checkers, which no gateway sees.
//!
//! It outlives a restored copy and a destroyed disk. All times are since the world began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::upkeep::Entry;
use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{RequestId, Row, Token};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{Accepted, Acceptor, Ballot, Grant};
use onceway::protocol::view::{AcceptorId, View};
use onceway::protocol::worded;

/// Progress of a store in an origin's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeardOf {
    /// The epoch of the newest heartbeat here; 0 without one.
    pub epoch: u64,
    /// The heartbeat up to which rows are here, applied or imported.
    pub rows: u64,
}

/// A claim that was lodged here durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lodgment {
    pub at: Duration,
    pub id: KeyId,
    pub origin: Origin,
    pub token: Token,
}

#[derive(Clone, Debug)]
pub struct Gated {
    pub at: Duration,
    pub state: GateState,
    /// The highest heartbeat of each origin that was applied or imported up to, at that time.
    pub applied: BTreeMap<Origin, u64>,
    /// The origins whose lodged claims were here at that time and were no records yet.
    pub lodged: BTreeSet<Origin>,
    /// The largest lag behind each origin that the store was told to remember in the last minutes.
    pub lags: BTreeMap<Origin, Duration>,
}

/// The state of an acceptor from some moment on, without leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub at: Duration,
    pub id: AcceptorId,
    pub promised: Option<Ballot>,
    pub accepted: Option<Accepted>,
}

/// A lease, as one acceptor granted it.
#[derive(Clone, Debug)]
pub struct Granted {
    pub at: Duration,
    pub id: AcceptorId,
    pub region: RegionName,
    /// The end. Nobody may end the lease earlier, however clocks drift.
    pub until: Duration,
    pub view: Arc<View>,
}

impl Granted {
    /// The leases that an acceptor granted at `at` by becoming `next`.
    pub(crate) fn between(before: &Acceptor, next: &Acceptor, at: Duration) -> Vec<Self> {
        let known = |region: &RegionName| before.grants.get(region).map(|grant| (grant.boot, grant.number));
        let fresh =
            next.grants.iter().filter(|(region, grant)| known(region) != Some((grant.boot, grant.number)));
        let granted = |(region, grant): (&RegionName, &Grant)| {
            let (region, view) = (region.clone(), grant.view.clone());
            Self { at, id: next.id, region, until: at + grant.ttl, view }
        };
        fresh.map(granted).collect()
    }
}

/// The history of a store that its tables do not show any more.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub gates: Vec<Gated>,
    /// Each promise and each accepted value of the acceptor.
    pub acceptors: Vec<Held>,
    /// The number of claims and ends of attempts refused because gate or attempt was another.
    pub stale: u64,
    /// The number of gates that were not opened because the gate was no longer the one looked at.
    pub opened_late: u64,
    /// The attempts of other regions whose rows came here, by replication or from a third region.
    pub arrived: Vec<(RegionName, KeyId, Token)>,
    /// The number of imported rows whose time was over.
    pub imports_gone: u64,
    /// The number of lodged claims whose time was over before their owner's rows came.
    pub escrows_gone: u64,
    pub granted: Vec<Granted>,
    pub lodged: Vec<Lodgment>,
    pub views: Vec<Arc<View>>,
    /// The largest lag behind each origin that was remembered here, and since when.
    lags: BTreeMap<Origin, (Duration, Duration)>,
}

/// The time for which a lag counts: less than a gateway's trailing period.
const LAG_COUNTS: Duration = Duration::from_secs(500);

impl History {
    pub(super) fn remembers(&mut self, origin: &Origin, lag: Option<Duration>, at: Duration) {
        let known = self.lags.get(origin).filter(|(_, since)| at.saturating_sub(*since) < LAG_COUNTS);
        if let Some(lag) = lag.filter(|lag| known.is_none_or(|(known, _)| lag > known)) {
            self.lags.insert(origin.clone(), (lag, at));
        }
    }

    pub(super) fn lags_at(&self, at: Duration) -> BTreeMap<Origin, Duration> {
        let counts = self.lags.iter().filter(|(_, (_, since))| at.saturating_sub(*since) < LAG_COUNTS);
        counts.map(|(origin, (lag, _))| (origin.clone(), *lag)).collect()
    }
}

worded! {
    /// The state of a record.
    Standing;
    /// The words of a story for it, before the token.
    says {
        Claimed = "is claimed under",
        InDoubt = "is in doubt under",
        Released = "is free again after",
        Settled = "is settled under",
        Tombstone = "is past its retention, last",
    }
}

/// A record as it was written.
#[derive(Clone, Debug)]
pub struct Record {
    pub token: Token,
    pub standing: Standing,
    /// Rows of other origins that it supersedes.
    pub over: Vec<(Origin, Token)>,
    /// Lost regions whose window alone allowed it.
    pub risk: Vec<RegionName>,
    /// True if it is of an accepted request, which a job runs.
    pub accepted: bool,
    /// The request that claimed it.
    pub request_id: RequestId,
    pub route: Arc<str>,
    /// The longest time without an outcome; zero if nobody sends under the claim.
    pub hold: Duration,
    /// The key's life from this claim on, before its tombstone and with it. It is computed from the
    /// row as written, and means nothing for a tombstone.
    pub lives: (Duration, Duration),
}

/// One write of a record, or its end.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Duration,
    pub id: KeyId,
    /// The record; `None` if it was deleted.
    pub record: Option<Record>,
    /// True if the server that wrote it was the approved one.
    pub approved: bool,
    /// True if another origin's row of the key was here then and still open.
    pub beside_open: bool,
}

#[derive(Clone, Debug)]
pub struct Truth {
    pub origin: Origin,
    /// The past, which its tables do not show.
    pub history: History,
    /// Every write of an own record, in the order of commits.
    pub writes: Vec<Write>,
    /// The result of a look-up, by key.
    pub rows: BTreeMap<KeyId, Vec<Row>>,
    pub journal: Vec<(Option<KeyId>, Entry)>,
}

/// The entries that a history gained since the cursor was last moved.
pub(crate) fn fresh<'a, T>(history: &'a [T], cursor: &mut usize) -> &'a [T] {
    let new = history.get(*cursor..).unwrap_or_default();
    *cursor = history.len();
    new
}

/// The acceptor after the founding, which it accepted.
pub(crate) fn founded(acceptor: &Acceptor, ballot: &Ballot, view: &Arc<View>) -> Acceptor {
    let accepted = Some(Accepted { ballot: ballot.clone(), view: view.clone() });
    Acceptor { admitted: true, promised: Some(ballot.clone()), accepted, ..acceptor.clone() }
}
