//! The outcome of one seed of a scenario: the raw material of every report.
//!
//! All times are simulated milliseconds since clients began to ask. Two plays of one seed have the
//! same outcome.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::Serialize;

/// Happenings that are counted per seed. Scenarios expect some of them.
pub const HAPPENINGS: &[&str] = &[
    "double",
    "double in a journal",
    "glass broken",
    "imports forgotten",
    "in doubt",
    "keys forgotten",
    "lodged",
    "lodged claims forgotten",
    "marked at risk too much",
    "refused after its life",
    "refused for another body",
    "refused while a window runs",
    "refused while keys move",
    "replayed across regions",
    "replayed after a takeover",
    "return",
    "ring change",
    "risk accepted",
    "run anew",
    "run at risk",
    "run over another region's attempt",
    "stale writer refused",
    "store retired",
    "takeover",
];

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub seed: u64,
    /// The simulated time, from the founding to the end of the last key, in milliseconds.
    pub simulated_ms: u64,
    pub events: u64,
    pub breaches: Vec<Breach>,
    pub keys: Keys,
    pub routes: BTreeMap<String, Keys>,
    /// The number of calls between regions for a key: forwards, lodged claims and lodged answers.
    pub hops: u64,
    pub requests: Requests,
    /// The time from the first request of a key to its answer, for answered keys, sorted.
    pub latency_ms: Vec<u64>,
    /// The times in which live gateways refused keys of a home region.
    pub outages: Vec<Outage>,
    pub faults: Vec<FaultSpan>,
    pub views: Vec<ViewSpan>,
    /// The times in which each region ran keys, to a tenth of a second.
    pub serving: Vec<ServingSpan>,
    /// The times in which each region held a lease by the acceptors' grants, view by view.
    pub leases: Vec<LeaseSpan>,
    /// The answers to requests, second by second, until all clients were done.
    pub seconds: Vec<Second>,
    /// Counts of happenings that a batch of seeds must have seen.
    pub happened: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breach {
    /// The invariant's name and its rule (docs/protocol.md), such as `one-sender (rule 9)`.
    /// `service` stands for keys that were refused for too long, `progress` for a key or a fault
    /// that did not end. `panic`: a gateway died of itself.
    pub invariant: String,
    /// The time at which the checker noticed.
    pub at_ms: u64,
    /// Its time in the story, in microseconds: for a missing entry, when the checker noticed.
    pub broke_us: u64,
    pub text: String,
}

/// The keys' ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Keys {
    pub begun: u64,
    /// The number of keys that were answered before everything was mended.
    pub answered: u64,
    /// The number of keys whose client gave up, because it was refused or not answered.
    pub given_up: u64,
    /// The number of keys that stay in doubt in the end, for an operator.
    pub in_doubt: u64,
    /// The keys with more than one effect.
    pub doubles: u64,
    /// The doubles that some journal lists.
    pub doubles_listed: u64,
    /// The doubles that a route allows with `recovery = "rerun"`.
    pub doubles_allowed: u64,
    /// Doubles that nothing prevents: the first claim had not left its region when that was lost.
    pub doubles_gone: u64,
}

impl Keys {
    /// The doubles that no route allows.
    pub fn unasked(&self) -> u64 {
        self.doubles - self.doubles_allowed
    }
}

impl AddAssign<&Self> for Keys {
    fn add_assign(&mut self, more: &Self) {
        self.begun += more.begun;
        self.answered += more.answered;
        self.given_up += more.given_up;
        self.in_doubt += more.in_doubt;
        self.doubles += more.doubles;
        self.doubles_listed += more.doubles_listed;
        self.doubles_allowed += more.doubles_allowed;
        self.doubles_gone += more.doubles_gone;
    }
}

/// The answers to the requests of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    pub sent: u64,
    /// Answered for the first time.
    pub answered: u64,
    /// Answered again, with a stored answer.
    pub replayed: u64,
    /// Refused, by problem code; `upstream-500` is the upstream's own answer.
    pub refused: BTreeMap<String, u64>,
    pub broken: u64,
    pub timed_out: u64,
    /// Carried to another region.
    pub forwarded: u64,
}

/// A time in which keys of one home region and one route were refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    pub home: String,
    pub route: String,
    /// The first request that was refused.
    pub from_ms: u64,
    /// The next request that was answered, but not replayed.
    pub to_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultSpan {
    pub kind: String,
    /// The place: a region, or `from>to`.
    pub place: String,
    pub from_ms: u64,
    pub to_ms: u64,
    /// True if the fault mattered, meanwhile or in the second after. A request that concerns its
    /// place was not answered at once, or a view changed the standing or weight of its region.
    pub mattered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViewSpan {
    pub epoch: u64,
    /// The time at which the first region adopted it.
    pub at_ms: u64,
    /// The standing of each region: `serving`, `sealed` or `lost`.
    pub standings: BTreeMap<String, String>,
}

/// A time in which a region ran keys: it held its lease, and a view had given it arcs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServingSpan {
    pub region: String,
    pub from_ms: u64,
    pub to_ms: u64,
}

/// A time in which a majority of acceptors had granted a region its lease, all under one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseSpan {
    pub region: String,
    pub epoch: u64,
    pub from_ms: u64,
    /// The end. No acceptor may end the lease earlier.
    pub to_ms: u64,
}

/// The answers to requests that ended in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Second {
    pub answered: u64,
    /// Answered again, with a stored answer.
    pub replayed: u64,
    /// Asked to come again, or refused.
    pub refused: u64,
    /// Broken or timed out.
    pub failed: u64,
}

impl Breach {
    /// The name of the invariant, without its rule.
    pub fn name(&self) -> &str {
        self.invariant.split(' ').next().unwrap_or_default()
    }
}

impl Outcome {
    /// The outcome of a seed that broke before it could be played.
    pub(crate) fn broken(seed: u64, invariant: &str, text: String) -> Self {
        let breach = Breach { invariant: invariant.to_owned(), at_ms: 0, broke_us: 0, text };
        Self { seed, breaches: vec![breach], ..Self::default() }
    }

    pub fn held(&self) -> bool {
        self.breaches.is_empty()
    }
}
