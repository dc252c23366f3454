//! The simulation's suites that a contributor runs, in one binary: `cargo test --test simulated
//! takeover::` is one of them.
//! `tests/long/main.rs` has those that play hours. `docs/testing.md` says which suite proves which
//! property.

mod checker;
mod contract;
mod gateway;
mod harness;
mod shared;
mod takeover;
