//! Limits of this gateway: [`quota`] by time, [`live_keys`] by stored keys, [`concurrency`] by
//! requests at once.
//!
//! A limit refuses before anything is claimed. It must not cut an attempt short.

pub mod concurrency;
pub(super) mod live_keys;
pub mod quota;
