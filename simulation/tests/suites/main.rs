//! The simulation's suites that a contributor runs, in one binary: `cargo test -p simulation --test
//! suites takeover::` is one of them.
//!
//! `tests/long/main.rs` has the suites that need an optimized build, `docs/testing.md` says which
//! suite proves which property. It must not hold tests itself.

mod contract;
mod gateway;
mod takeover;
