//! One attempt of a key, from top to bottom.
//!
//! 1. [`recover`] asks about a doubt, and ends another region's attempt.
//! 2. [`send`] runs a claimed key. [`outcome`] judges the upstream's answer.
//! 3. [`escrow`] lodges a claim elsewhere, [`claim`] makes it durable.
//! 4. [`persist`] stores outcomes, and asks the upstream for them.
//!
//! Nothing here may send a request without a durable claim.

pub(in crate::gateway) mod claim;
pub(in crate::gateway) mod escrow;
pub(in crate::gateway) mod outcome;
pub(in crate::gateway) mod persist;
pub(in crate::gateway) mod recover;
pub(in crate::gateway) mod send;
