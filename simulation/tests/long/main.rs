//! The simulation's suites that need an optimized build, because they walk through millions of
//! states and play hours.
//!
//! `cargo test --release -p simulation --test long` runs them, and so does `.ci/run`; plain `cargo
//! test` does not. The root's `docs/testing.md` says which suite proves which property. It must not
//! hold tests itself.

mod harness;
mod model;
