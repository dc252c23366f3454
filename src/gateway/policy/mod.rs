//! Policies: which request is which route's, and which two requests are the same.
//!
//! [`settings`] declares what a route has, [`route`] matches, [`spelling`] says how a dialect
//! writes headers, [`canonical`] writes JSON in one way for fingerprints, [`signature`] checks
//! signed bodies. Nothing here may wait.

pub mod canonical;
mod choices;
mod pattern;
pub mod route;
pub mod settings;
pub mod signature;
pub(super) mod spelling;
