//! Credentials, from top to bottom: who operates, and who asks.
//!
//! [`operators`] are the people of the admin API. [`tokens`] finds a request's caller: by an API
//! token, or by one that an [`issuer`] signed ([`signature`]). [`caller`] is the result.
//!
//! A tenant must come from a verified credential.

pub mod caller;
pub(crate) mod issuer;
pub mod operators;
mod signature;
mod tokens;

pub use tokens::{Credentials, TokenDigest, Vouched, digest};
