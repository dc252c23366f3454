//! Settings of failover, and of the check that drains a region whose upstream is sick.
//!
//! `config` reads and compares them. This file must not know how a region obeys them.

use std::time::Duration;

use http::Uri;

use crate::protocol::lifetime::Retention;
use crate::protocol::region::RegionName;
use crate::protocol::window::WindowRule;

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
    /// Time after which a change that keys were given up for is ended if no majority agrees.
    pub kill_after: Duration,
    /// Time that a returning region must have been well before it takes its arcs back.
    pub stable_for: Duration,
    /// Regions that must stay serving after a drain, at least.
    pub min_serving: usize,
    /// Acceptors without a store, asked like peers.
    pub witnesses: Vec<RegionName>,
}

/// Settings of a region's upstream check.
#[derive(Clone, Debug)]
pub struct UpstreamHealth {
    /// Path that is asked with GET; an answer of 200 to 399 says that the upstream is well.
    pub path: Uri,
    /// Pause between two checks.
    pub every: Duration,
    /// Time limit for an answer.
    pub within: Duration,
    /// Time that every check must have failed.
    pub sick_after: Duration,
    /// Time in which a region that serves again is not drained again.
    pub cool_down: Duration,
}
