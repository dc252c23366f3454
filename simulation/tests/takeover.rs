//! Failover of the real gateway over the simulated ports: directed scenarios, each with the invariants checked at each of its steps.
//!
//! Neighbours: `takeover/trio.rs` has the deployment; `simulation::checker` has the invariants. Time is virtual; what is asserted is what
//! clients were told, what the upstreams saw and what the stores went through.

#[path = "takeover/break_glass.rs"]
mod break_glass;
#[path = "takeover/copies.rs"]
mod copies;
#[path = "takeover/cuts.rs"]
mod cuts;
#[path = "takeover/doubts.rs"]
mod doubts;
#[path = "takeover/early.rs"]
mod early;
#[path = "takeover/escrows.rs"]
mod escrows;
#[path = "takeover/faults.rs"]
mod faults;
#[path = "takeover/gates.rs"]
mod gates;
#[path = "takeover/healths.rs"]
mod healths;
#[path = "takeover/imports.rs"]
mod imports;
#[path = "takeover/jobs.rs"]
mod jobs;
#[path = "takeover/losses.rs"]
mod losses;
#[path = "takeover/members.rs"]
mod members;
#[path = "takeover/moves.rs"]
mod moves;
#[path = "takeover/overtaken.rs"]
mod overtaken;
#[path = "takeover/pauses.rs"]
mod pauses;
#[path = "takeover/plants.rs"]
mod plants;
#[path = "takeover/rebuilds.rs"]
mod rebuilds;
#[path = "takeover/rehearsals.rs"]
mod rehearsals;
#[path = "takeover/risk.rs"]
mod risk;
#[path = "takeover/settings.rs"]
mod settings;
#[path = "takeover/stepwise.rs"]
mod stepwise;
#[path = "takeover/swarm.rs"]
mod swarm;
#[path = "takeover/trio.rs"]
mod trio;
#[path = "takeover/witness.rs"]
mod witness;
