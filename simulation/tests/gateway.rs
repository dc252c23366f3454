//! The real gateway over the simulated ports: one directed test per check of the request path, and a random swarm.
//!
//! Neighbours: `gateway/bench.rs` has the deployment that all parts share. Each directed test fails when the check it names is taken
//! out of `onceway::gateway`. Time is virtual; what is asserted is what clients were told and what the upstreams' ledger holds.

#[path = "gateway/accepted.rs"]
mod accepted;
#[path = "gateway/approval.rs"]
mod approval;
#[path = "gateway/attached.rs"]
mod attached;
#[path = "gateway/bench.rs"]
mod bench;
#[path = "gateway/claims.rs"]
mod claims;
#[path = "gateway/counted.rs"]
mod counted;
#[path = "gateway/crowd.rs"]
mod crowd;
#[path = "gateway/doubles.rs"]
mod doubles;
#[path = "gateway/ends.rs"]
mod ends;
#[path = "gateway/forwards.rs"]
mod forwards;
#[path = "gateway/lodged.rs"]
mod lodged;
#[path = "gateway/operators.rs"]
mod operators;
#[path = "gateway/outcomes.rs"]
mod outcomes;
#[path = "gateway/plants.rs"]
mod plants;
#[path = "gateway/policies.rs"]
mod policies;
#[path = "gateway/principals.rs"]
mod principals;
#[path = "gateway/quota.rs"]
mod quota;
#[path = "gateway/recovery.rs"]
mod recovery;
#[path = "gateway/shadow.rs"]
mod shadow;
#[path = "gateway/stored.rs"]
mod stored;
#[path = "gateway/swarm.rs"]
mod swarm;
#[path = "gateway/sweeps.rs"]
mod sweeps;
#[path = "gateway/upkeep.rs"]
mod upkeep;
#[path = "gateway/versions.rs"]
mod versions;
