//! The suites that a contributor runs: `cargo test` builds and runs this one binary, and a suite
//! alone is `cargo test --test suites regions::`.
//!
//! One binary, because each would link the whole gateway again. Its suites run beside each other in
//! one process, so a suite uses folders, ports and keys of its own. `docs/testing.md` says which
//! suite proves which property. It must not hold tests itself.

#![allow(clippy::disallowed_methods, reason = "tests measure real time")]

mod accept;
mod builds;
mod by_hand;
mod cli;
mod clients;
mod config;
mod console;
mod contract;
mod credentials;
mod crowds;
mod demo;
mod deploy_files;
mod descriptors;
mod disk;
mod failures;
mod fuzz;
mod lifecycle;
mod listener;
mod net;
mod new;
mod policy;
mod reference;
mod regions;
mod reload;
mod request_path;
mod seeing;
mod store;
mod tidy;
mod upstreams;
mod versions;
mod watch;
mod watched;
mod witness;

#[path = "../support/mod.rs"]
mod support;
