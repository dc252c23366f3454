//! Shadow mode, from top to bottom: requests pass through, and decisions are only counted.
//!
//! 1. [`pass`]: a request goes on as it came.
//! 2. [`trial`]: the verdict that it would have got. [`tee`] copies its body.
//! 3. [`counts`]: the report. [`memory`]: the keys so far.
//!
//! Nothing here may refuse, delay or change a request, nor touch the store or a peer.

pub(super) mod counts;
mod memory;
pub(super) mod pass;
mod tee;
mod trial;

pub use counts::Counts;
