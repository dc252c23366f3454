//! Questions and acts of operators: [`acts`] on keys, [`doubt_rule`], [`dead_letters`]; lists of
//! one region ([`search`], [`export`], [`audit`]) and of all ([`doubt_lists`], [`life`],
//! [`everywhere`]).
//!
//! An act needs a name and a reason, and is journalled in the statement that performs it.

pub(crate) mod acts;
pub(crate) mod audit;
pub mod dead_letters;
pub(crate) mod doubt_lists;
pub(crate) mod doubt_rule;
pub(super) mod everywhere;
pub(crate) mod export;
pub(crate) mod instant;
pub(super) mod life;
pub mod percent;
pub(crate) mod search;

pub use acts::Refusal;
