//! The loops beside requests, from top to bottom. A loop must not end unseen.
//!
//! 1. [`heartbeat`] and the pings of [`peers`].
//! 2. [`jobs`], [`sweep`], [`reaper`], [`doubles`], [`waiters`], [`catching_up`].
//! 3. Their states: [`workers`], [`looks`], [`hearing`], [`key_habits`], [`store_gate`].
//! 4. [`applied`] alone says whose rows are here. [`supervise`] notices the death of a loop.

pub(super) mod applied;
pub(super) mod catching_up;
pub(crate) mod doubles;
pub(crate) mod hearing;
pub(super) mod heartbeat;
pub(super) mod jobs;
pub(super) mod key_habits;
pub(super) mod looks;
mod peers;
pub(super) mod reaper;
pub(super) mod store_gate;
pub(super) mod supervise;
pub(super) mod sweep;
pub(super) mod waiters;
pub(super) mod workers;
