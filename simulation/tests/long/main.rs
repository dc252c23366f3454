//! The simulation's suites that take minutes, because they walk through many states and play hours.
//!
//! `cargo test -p simulation --test long` runs them, and so does `.ci/run`; plain `cargo test` does
//! not. The root's `docs/testing.md` says which suite proves which property.

mod harness;
mod model;
