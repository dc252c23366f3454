//! One attempt of a key: claimed, lodged, sent, settled; and the end of others' attempts.
//!
//! Nothing here may send a request without a durable claim.

pub(in crate::gateway) mod claim;
pub(in crate::gateway) mod escrow;
pub(in crate::gateway) mod outcome;
pub(in crate::gateway) mod recover;
pub(in crate::gateway) mod stand_in;
