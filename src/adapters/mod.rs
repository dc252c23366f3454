//! The adapters: the ports over the real world. They translate and never decide.
//!
//! Neighbours: `ports` says what each must promise; `config` builds them, `server` shares their header rules and identity. Nothing
//! here may resend, cache, or read meaning into a status.

pub mod bundle;
pub mod connection;
pub mod expiry;
pub mod headers;
pub mod identity;
pub mod issue;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod peers;
pub mod postgres;
pub mod streaming;
mod strict;
pub mod system;
pub mod tls;
mod upload;
pub mod upstream;
pub mod views;
pub mod wire;
pub mod witness;
