//! The simulation's suites that want an optimized build, since they walk through millions of states and play hours:
//! `cargo test --release -p simulation --test long`.
//!
//! `.ci/run` runs them; plain `cargo test` does not. Neighbours: `tests/suites/main.rs` has the other suites, the root's
//! `docs/testing.md` says which suite proves what. It must not hold tests itself.

mod harness;
mod model;
