//! Policies, from top to bottom: which request is which route's, and which two are the same.
//!
//! [`route`] matches. [`spelling`] says how a dialect writes headers, [`signature`] checks signed
//! bodies, [`canonical`] writes JSON in one way for fingerprints. Nothing here may wait.

pub mod canonical;
pub mod route;
pub mod signature;
pub(super) mod spelling;
