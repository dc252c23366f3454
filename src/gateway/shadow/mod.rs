//! Shadow mode: requests pass through, and onceway's decisions are only counted.
//!
//! Nothing here may refuse, delay or change a request, nor touch the store or a peer.

mod memory;
pub(super) mod pass;
mod tee;

pub use pass::Counts;
