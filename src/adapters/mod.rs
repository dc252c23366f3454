//! The adapters: the ports over the real world. They translate and never decide.
//!
//! `ports` says what each adapter must promise; `server` shares the header rules and the identity.
//! An adapter must not resend, cache, or read meaning into a status.

pub(crate) mod bundle;
pub(crate) mod headers;
pub mod identity;
pub mod issue;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
pub mod peers;
pub mod postgres;
pub(crate) mod streaming;
pub mod system;
pub mod tls;
pub mod upstream;
pub(crate) mod views;
pub mod wire;
pub mod witness;

pub(crate) use upstream::writes_through;
