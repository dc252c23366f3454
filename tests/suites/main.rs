//! The suites that a contributor runs, in one binary, because each would link the whole gateway
//! again. They run beside each other in one process, so a suite uses folders, ports and keys of its
//! own. `docs/testing.md` says which suite proves which property.

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
