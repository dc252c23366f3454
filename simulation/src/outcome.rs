//! What came of one seed of a scenario: counts, what was broken when, and what clients were told; the raw material of every report.
//!
//! Neighbours: [`crate::play`] fills it, the command line and reports add outcomes up. All times are simulated milliseconds since clients began
//! to ask. It must not hold anything that differs between two plays of one seed.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::Serialize;

/// What may happen, counted per seed: scenarios expect some of it.
pub const HAPPENINGS: &[&str] = &[
    "double",
    "double in a journal",
    "glass broken",
    "in doubt",
    "lodged",
    "refused for another body",
    "refused while a window runs",
    "refused while keys move",
    "replayed across regions",
    "replayed after a takeover",
    "return",
    "ring change",
    "risk accepted",
    "run at risk",
    "run over another region's attempt",
    "stale writer refused",
    "store retired",
    "takeover",
];

/// What came of one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How much time was simulated, from the founding to the end of the last key, in milliseconds.
    pub simulated_ms: u64,
    /// How many messages, statements and requests there were.
    pub events: u64,
    /// Invariants that did not hold; empty if all did.
    pub breaches: Vec<Breach>,
    /// What came of the keys.
    pub keys: Keys,
    /// The same by route.
    pub routes: BTreeMap<String, Keys>,
    /// Calls from one region to another for the sake of a key: forwards, and claims and answers that are lodged elsewhere.
    pub hops: u64,
    /// What requests were told.
    pub requests: Requests,
    /// From the first request of a key to its answer, for keys that were answered, sorted.
    pub latency_ms: Vec<u64>,
    /// When keys of a home region were refused by gateways that live.
    pub outages: Vec<Outage>,
    /// What was broken when.
    pub faults: Vec<FaultSpan>,
    /// Every view that was agreed on.
    pub views: Vec<ViewSpan>,
    /// When which region ran keys, to a tenth of a second.
    pub serving: Vec<ServingSpan>,
    /// When which region held a lease by what acceptors had granted, view by view.
    pub leases: Vec<LeaseSpan>,
    /// What requests were told, second by second, until their clients were done.
    pub seconds: Vec<Second>,
    /// How often things happened that a batch of seeds must have seen.
    pub happened: BTreeMap<String, u64>,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breach {
    /// Which: its number (docs/protocol.md#invariants) and its name, such as `3 one-sender`;
    /// `progress` for what did not end, `panic` for a gateway that died of itself.
    pub invariant: String,
    /// When it was noticed.
    pub at_ms: u64,
    /// When it broke, in microseconds: where the story has it. What is missing has no moment but that at which it was missed.
    pub broke_us: u64,
    /// What was seen.
    pub text: String,
}

/// What came of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Keys {
    /// How many clients began.
    pub begun: u64,
    /// How many had their answer before everything was mended.
    pub answered: u64,
    /// How many were refused or not answered until their client gave up.
    pub given_up: u64,
    /// How many stay in doubt in the end, for an operator.
    pub in_doubt: u64,
    /// How many took effect more than once.
    pub doubles: u64,
    /// Of these, those that some journal lists.
    pub doubles_listed: u64,
    /// Of the doubles, those that a route asked for with `recovery = "rerun"`.
    pub doubles_allowed: u64,
    /// Of those that nobody asked for: the first claim had not left its region when that was lost, so that no waiting would have shown it.
    pub doubles_gone: u64,
}

impl Keys {
    /// Of the doubles, those that nobody asked for.
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

/// What requests were told, of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// How many were sent.
    pub sent: u64,
    /// Answered for the first time.
    pub answered: u64,
    /// Answered again.
    pub replayed: u64,
    /// Refused, by problem code; `upstream-500` is the upstream's own word.
    pub refused: BTreeMap<String, u64>,
    /// The connection broke, or could not be made.
    pub broken: u64,
    /// Nothing came before the client gave up.
    pub timed_out: u64,
    /// Carried to another region.
    pub forwarded: u64,
}

/// A time in which keys of one home region and one route were refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// The home region.
    pub home: String,
    /// The route.
    pub route: String,
    /// The first request that was refused.
    pub from_ms: u64,
    /// The next one that was answered, and no replay.
    pub to_ms: u64,
}

/// Something that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultSpan {
    /// Its kind.
    pub kind: String,
    /// Where: a region, or `from>to`.
    pub place: String,
    /// When it began.
    pub from_ms: u64,
    /// When it was mended.
    pub to_ms: u64,
    /// Whether meanwhile, or in the second after, a request that has to do with its place was not answered at once, or a view changed how a region
    /// of its place stands or what it weighs.
    pub mattered: bool,
}

/// A view that was agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViewSpan {
    /// Its number.
    pub epoch: u64,
    /// When the first region went by it.
    pub at_ms: u64,
    /// How each region stands: `serving`, `sealed` or `lost`.
    pub standings: BTreeMap<String, String>,
}

/// A time in which a region ran keys: it held its lease, and a view had given it arcs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServingSpan {
    /// The region.
    pub region: String,
    /// Since when.
    pub from_ms: u64,
    /// Until when.
    pub to_ms: u64,
}

/// A time in which a majority of acceptors had granted a region its lease, all under one view. A gateway stops before its end: it takes its own
/// clock to be slow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseSpan {
    /// The region.
    pub region: String,
    /// The view's number.
    pub epoch: u64,
    /// Since when.
    pub from_ms: u64,
    /// Before this nobody may call it over.
    pub to_ms: u64,
}

/// What requests that ended in one second were told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Second {
    /// Answered for the first time.
    pub answered: u64,
    /// Answered again.
    pub replayed: u64,
    /// Told to come again, or refused.
    pub refused: u64,
    /// Broken or timed out.
    pub failed: u64,
}

impl Breach {
    /// What goes by the number alone.
    pub fn number(&self) -> &str {
        self.invariant.split(' ').next().unwrap_or_default()
    }
}

impl Outcome {
    /// Whether every invariant held.
    pub fn held(&self) -> bool {
        self.breaches.is_empty()
    }
}
