//! onceway: a multi-region routing gateway that makes a retried API request take effect once,
//! across regions.
//!
//! The way of a request: the gateway *admits* it (who asks, under which key, what exactly). It
//! *places* the key: the key's arc gives the home region. Then it replays the answer from the local
//! copy, forwards the request to the owner, or runs it here. To run it means: claim durably, send
//! to the upstream, settle, answer.
//!
//! The code has floors, and imports must not go up. The compiler guards the first two, which are
//! packages of their own, as is the lab (`src/lab`): it knows those two, and runs the gateway as a
//! program. `tests/suites/tidy.rs` guards the others:
//!
//! | floor | rooms | may know |
//! |---|---|---|
//! | 0 | [`protocol`] | nothing: pure values and total functions |
//! | 1 | [`ports`] | protocol, `http`, `bytes` |
//! | 2 | [`gateway`] | the floors below; gathers facts, asks `protocol`, performs through ports |
//! | 3 | [`adapters`] | the world: Postgres, peers, upstreams, clocks; translates, never decides |
//! | 4 | [`server`], [`config`] | listeners, files |
//! | 5 | [`cli`] | arguments and exit codes |
//!
//! Deliberately absent:
//!
//! - any cache of answers outside the store,
//! - any resend below the gateway (one attempt is one attempt),
//! - any decision about a key by a wall clock of this process, except the end of a signed
//!   credential,
//! - any storage of requests, except those that a route accepts.

pub mod adapters;
pub mod cli;
pub mod config;
pub mod gateway;
pub mod server;

pub use onceway_ports as ports;
pub use onceway_protocol as protocol;
