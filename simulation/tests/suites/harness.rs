//! The harness itself: its plays and their judges, its scenarios, its figures and its reports.
//!
//! [`super::checker`] has the invariants. `tests/long/harness.rs` plays what takes minutes.

mod plays;
mod reference;
mod replication;
mod report;
