//! The suites that take minutes: whole deployments under load, killed and mended, and every command
//! of the documents.
//!
//! `cargo test --test long` runs them all, `cargo test --test long storm::` one. `.ci/nightly` runs
//! them, and `.ci/run` two of them. tests/README.md says which. It must not hold tests itself.

#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod alerts;
mod clients;
mod console;
mod container;
mod detour;
mod drill;
mod gateways;
mod goodput;
mod guide;
mod histories;
mod runbook;
mod storm;
mod tenants;
mod unprivileged;

#[path = "../support/mod.rs"]
mod support;
