//! Limits of this gateway, each refused before anything is claimed, from top to bottom.
//!
//! 1. [`enforce`]: the limits as requests meet them.
//! 2. [`concurrency`]: requests at once. [`live_keys`]: stored keys. [`quota`]: rates.
//!
//! A limit must not cut an attempt short.

pub mod concurrency;
mod enforce;
pub(super) mod live_keys;
pub mod quota;
