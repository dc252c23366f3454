//! The simulation's suites that a contributor runs, in one binary: `cargo test -p simulation --test suites takeover::` is one of them.
//!
//! Neighbours: `tests/long/main.rs` has the suites that want an optimized build, `docs/testing.md`
//! says which suite proves what. It must not hold tests itself.

mod contract;
mod gateway;
mod takeover;
