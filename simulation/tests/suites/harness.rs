//! The harness itself: its plays and their judges, its scenarios, its figures and its reports.
//!
//! [`super::checker`] has the invariants. `tests/long/harness.rs` plays what takes minutes.

mod agreed;
mod answers;
mod faults;
mod judge;
mod mattered;
mod reference;
mod replication;
mod report;
mod shipped;
mod starters;
mod story;
mod sums;
