//! The loops beside requests, each under [`supervise`]: [`heartbeat`] and [`hearing`], [`jobs`],
//! [`sweep`], [`reaper`], [`orphans`], [`doubles`], [`catching_up`], [`regain`], [`key_habits`].
//!
//! [`applied`] alone says whose rows are here. A loop must not end unseen.

pub(super) mod applied;
pub(super) mod catching_up;
pub(crate) mod doubles;
pub(crate) mod hearing;
pub(super) mod heartbeat;
pub(super) mod jobs;
pub(super) mod key_habits;
pub(super) mod looks;
pub(super) mod orphans;
mod peers;
mod pings;
pub(super) mod reaper;
pub(super) mod regain;
pub(super) mod store_gate;
pub(super) mod supervise;
pub(super) mod sweep;
pub(super) mod workers;
