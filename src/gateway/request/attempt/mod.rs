//! One attempt of a key, from top to bottom.
//!
//! 1. [`recover`] asks about a doubt. [`stand_in`] ends another region's attempt.
//! 2. [`send`] runs a claimed key. [`outcome`] judges the upstream's answer.
//! 3. [`claim`] makes the claim durable, [`escrow`] lodges it elsewhere.
//! 4. [`persist`] stores outcomes, [`probe`] asks the upstream, [`claimed`] is the claim.
//!
//! Nothing here may send a request without a durable claim.

pub(in crate::gateway) mod claim;
pub(in crate::gateway) mod claimed;
pub(in crate::gateway) mod escrow;
pub(in crate::gateway) mod outcome;
pub(in crate::gateway) mod persist;
pub(in crate::gateway) mod probe;
pub(in crate::gateway) mod recover;
pub(in crate::gateway) mod send;
pub(in crate::gateway) mod stand_in;
