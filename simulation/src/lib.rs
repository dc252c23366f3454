//! The failover simulation harness: the same gateway and protocol as in production, over in-memory
//! ports.
//!
//! The ports' contract runs on these ports as on the real ones. Everything here follows from a seed
//! and from tokio's paused clock: ordered maps only, no task of its own, no real clock, no socket.
//! It must not be kinder than the world. [`world::World`] can do everything that Postgres, a
//! network or an upstream can do to a gateway.

#![allow(missing_docs, reason = "the command line and the tests use it, and nobody else")]

pub mod checker;
pub mod clock;
pub mod cluster;
pub mod command;
pub(crate) mod deployment;
pub mod dice;
pub mod outcome;
pub mod peers;
pub mod play;
pub mod ports;
pub(crate) mod process;
pub mod report;
pub mod scenario;
pub mod store;
pub mod study;
pub mod sums;
pub mod table;
pub mod upstream;
pub mod witness;
pub mod words;
pub mod world;

pub use deployment::{Deployment, Node, Reply};
pub use outcome::Outcome;
pub use process::Point;
