//! Failover of the real gateway over the simulated ports: directed scenarios, each with the invariants checked at each of its steps.
//!
//! Neighbours: `takeover/trio.rs` has the deployment; `simulation::checker` has the invariants. Time is virtual; what is asserted is what
//! clients were told, what the upstreams saw and what the stores went through.

#[path = "takeover/cuts.rs"]
mod cuts;
#[path = "takeover/doubts.rs"]
mod doubts;
#[path = "takeover/escrows.rs"]
mod escrows;
#[path = "takeover/healths.rs"]
mod healths;
#[path = "takeover/losses.rs"]
mod losses;
#[path = "takeover/members.rs"]
mod members;
#[path = "takeover/pauses.rs"]
mod pauses;
#[path = "takeover/rebuilds.rs"]
mod rebuilds;
#[path = "takeover/trio.rs"]
mod trio;
