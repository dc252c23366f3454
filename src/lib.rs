//! onceway: a multi-region routing gateway that makes a retried API request take effect once, across regions.
//!
//! Bird's-eye view. A request is *admitted* (who asks, under which key, what exactly), *placed* (the key's arc and so its
//! home region), and then either replayed from the local copy, forwarded to the owner, or run here: claimed durably,
//! sent to the upstream, settled, answered. The house has floors, and imports go down only (`tests/suites/tidy.rs` checks it):
//!
//! | floor | rooms | may know |
//! |---|---|---|
//! | 0 | [`protocol`] | nothing: pure values and total functions |
//! | 1 | [`ports`] | protocol, `http`, `bytes` |
//! | 2 | [`gateway`] | the floors below; gathers facts, asks `protocol`, performs through ports |
//! | 3 | [`adapters`] | the world: Postgres, peers, upstreams, clocks; translates, never decides |
//! | 4 | [`server`], [`config`], [`fleet`] | listeners, files, a whole deployment on one machine |
//! | 5 | [`cli`] | arguments and exit codes |
//!
//! Deliberately absent: any cache of answers outside the store, any resend below the gateway (one attempt is one
//! attempt), any decision about a key taken from a wall clock of this process
//! (only whether a signed credential has expired), any storage of requests but of those that a route accepts.

pub mod adapters;
pub mod cli;
pub mod config;
pub mod fleet;
pub mod gateway;
pub mod ports;
pub mod protocol;
pub mod server;
