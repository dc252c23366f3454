//! Policies, from top to bottom: which request is which route's, and which two are the same.
//!
//! [`route`] matches, and [`settings`] declares what a route has: values of [`choices`] and a
//! [`pattern`]. [`spelling`] says how a dialect writes headers, [`signature`] checks signed bodies,
//! [`canonical`] writes JSON in one way for fingerprints. Nothing here may wait.

pub mod canonical;
pub(super) mod choices;
mod pattern;
pub mod route;
pub mod settings;
pub mod signature;
pub(super) mod spelling;
