//! The loops beside requests, from top to bottom.
//!
//! 1. [`heartbeat`] and the pings of [`peers`].
//! 2. [`jobs`], [`sweep`], [`doubles`].
//! 3. Their states: [`workers`], [`looks`], [`hearing`], [`key_habits`], [`store_gate`].
//! 4. [`applied`] alone says whose rows are here.

pub(super) mod applied;
pub(crate) mod doubles;
pub(crate) mod hearing;
pub(super) mod heartbeat;
pub(super) mod jobs;
pub(super) mod key_habits;
pub(super) mod looks;
pub(super) mod peers;
pub(super) mod store_gate;
pub(super) mod sweep;
pub(super) mod workers;
