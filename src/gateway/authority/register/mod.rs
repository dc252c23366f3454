//! The register as this gateway takes part in it, from top to bottom.
//!
//! [`voters`] keeps the voters and the version. [`learn`] finds chosen views and adopts them;
//! [`propose`] has one agreed on, and asks acceptors. [`witness`] is one without a store.

pub(in crate::gateway) mod learn;
pub(super) mod propose;
pub(in crate::gateway) mod voters;
pub mod witness;
