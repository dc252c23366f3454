//! The register as this gateway takes part in it, from top to bottom.
//!
//! [`voters`] keeps the voters, [`protocol_version`] raises the version. [`learn`] finds chosen
//! views and adopts them; [`propose`] has one agreed on. [`asking`] asks acceptors, and is this
//! region's. [`witness`] is an acceptor without a store, in a process of its own.

pub(super) mod asking;
pub(in crate::gateway) mod learn;
pub(super) mod propose;
pub(super) mod protocol_version;
pub(in crate::gateway) mod voters;
pub mod witness;
