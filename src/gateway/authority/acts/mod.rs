//! Operators' acts on the register, from top to bottom.
//!
//! [`dry_run`] rehearses each act and changes nothing. [`break_glass`] goes on without a majority,
//! [`rebuild`] retires a store. [`admin_ops`] has all other acts.

pub mod admin_ops;
pub(super) mod break_glass;
pub mod dry_run;
pub(super) mod rebuild;
