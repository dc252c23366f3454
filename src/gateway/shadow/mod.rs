//! Shadow mode, from top to bottom: requests pass through, and decisions are only counted.
//!
//! 1. [`pass`]: a request goes on as it came, beside the verdict that it would have got.
//! 2. [`memory`]: the keys so far, and the report.
//!
//! Nothing here may refuse, delay or change a request, nor touch the store or a peer.

pub(super) mod memory;
pub(super) mod pass;

pub use memory::Counts;
