//! The real gateway over the simulated ports: one directed test per check of the request path.
//!
//! `gateway/bench.rs` has the shared deployment. Each directed test fails when its check is taken
//! out of `onceway::gateway`. Time is virtual.

mod accepted;
pub mod approval;
mod bench;
mod claims;
mod counted;
mod crowd;
pub mod doubles;
mod forwards;
mod operators;
mod outcomes;
mod policies;
mod quota;
mod recovery;
mod reloads;
mod shadow;
mod stored;
pub mod upkeep;
mod versions;
