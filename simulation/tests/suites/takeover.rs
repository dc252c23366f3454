//! Failover of the real gateway over the simulated ports: directed scenarios, each with the
//! invariants checked at each of its steps.
//!
//! `takeover/trio.rs` has the deployment; `simulation::checker` has the invariants. Time is
//! virtual.

mod break_glass;
mod copies;
mod cuts;
mod doubts;
mod early;
mod escrows;
mod gates;
mod healths;
mod hostile;
mod imports;
mod jobs;
mod liars;
mod losses;
mod members;
mod moves;
mod overtaken;
mod pauses;
mod plants;
mod reboots;
mod rebuilds;
mod rehearsals;
mod risk;
mod trio;
mod witness;
