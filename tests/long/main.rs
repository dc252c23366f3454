//! The suites that take minutes: whole deployments under load, killed and mended, and every command
//! of the documents. tests/README.md says which of them `.ci/run` and `.ci/nightly` run.

#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod alerts;
mod clients;
mod console;
mod container;
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
