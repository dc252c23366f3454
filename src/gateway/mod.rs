//! The gateway: gathers facts, asks `protocol` what follows from them, and performs it through ports.
//!
//! Neighbours: `protocol` and `ports` below, `adapters` above. It must not open sockets, speak SQL or read a clock.

pub mod canonical;
