//! The protocol: what is true and what follows from it, as plain values and total functions.

pub mod digest;
pub mod fingerprint;
pub mod key;
mod placement_score;
pub mod region;
pub mod ring;
mod ring_check;
