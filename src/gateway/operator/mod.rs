//! Questions and acts of operators, from top to bottom.
//!
//! 1. Lists: [`audit`] and [`export`] of one region, [`doubt_lists`] of all.
//! 2. Acts: [`dead_letters`], and [`acts`] on keys.
//! 3. [`key`] is one key, here and over all regions, which [`everywhere`] asks.
//! 4. Spellings: [`instant`], [`percent`].
//!
//! An act needs a name and a reason, and is journalled in the statement that performs it.

pub(crate) mod acts;
pub(crate) mod audit;
pub mod dead_letters;
pub(crate) mod doubt_lists;
pub(super) mod everywhere;
pub(crate) mod export;
pub(crate) mod instant;
pub(crate) mod key;
pub mod percent;

pub use acts::Refusal;
