//! The adapters: the ports over the real world. They translate and never decide.
//!
//! `ports` says what each adapter must promise; `server` shares the header rules and the identity.
//! An adapter must not resend, cache, or read meaning into a status.

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

pub(crate) use strict::writes_through;
