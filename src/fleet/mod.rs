//! FLOOR 4, the fleet: a whole deployment on one machine, for `onceway demo`, the drills and the integration tests.
//!
//! The pieces, each usable alone: [`binaries`] finds Postgres, [`cluster`] runs a private one, [`process`] and [`gateway`] run a gateway, [`region`] one or several behind a [`balancer`],
//! [`relay`] and [`links`] are the network between regions, [`ledger`] and [`upstream`] the sample payments service ([`sample`]: alone),
//! [`deployment`] puts them together, [`demo`] and [`tour`] show it, [`control`] takes it apart, [`drill`] does so under load and counts,
//! [`compare`] sets it beside [`naive`], another design; [`janitor`] cleans up behind a supervisor that was killed. Processes are found and
//! stopped through `/proc`: Linux only.
//! Nothing here may decide anything about keys, claims or views; the fleet only starts, breaks and mends things.

pub mod account;
pub mod balancer;
pub mod behave;
pub mod binaries;
pub mod client;
pub mod cluster;
pub mod cluster_audit;
pub mod cluster_slots;
pub mod compare;
pub mod control;
pub mod demo;
pub mod deployment;
pub mod drill;
pub mod files;
pub mod gateway;
pub mod janitor;
pub mod ledger;
pub mod links;
mod naive;
pub mod ports;
pub mod process;
pub mod proctable;
pub mod region;
pub mod relay;
pub mod sample;
pub mod scratch;
pub mod shared_memory;
pub mod tour;
pub mod upstream;
pub mod wait;
