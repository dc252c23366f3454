//! The real gateway over the simulated ports: one directed test per check of the request path, and a random swarm.
//!
//! Neighbours: `gateway/bench.rs` has the deployment that all parts share. Each directed test fails when the check it names is taken
//! out of `onceway::gateway`. Time is virtual; what is asserted is what clients were told and what the upstreams' ledger holds.

mod accepted;
mod approval;
mod attached;
mod bench;
mod claims;
mod counted;
mod crowd;
mod doubles;
mod ends;
mod forwards;
mod lodged;
mod operators;
mod outcomes;
mod plants;
mod policies;
mod principals;
mod quota;
mod recovery;
mod shadow;
mod stored;
mod swarm;
mod sweeps;
mod upkeep;
mod versions;
