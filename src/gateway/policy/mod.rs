//! Policies, from top to bottom: which request is which route's, and which two are the same.
//!
//! [`route`] matches, and [`settings`] declares what a route has: values of [`choices`] and a
//! pattern of [`path`]. [`signature`] selects fields of bodies, [`canonical`] writes JSON in one
//! way for fingerprints. Nothing here waits.

pub mod canonical;
pub(super) mod choices;
mod path;
pub mod route;
pub mod settings;
pub mod signature;
