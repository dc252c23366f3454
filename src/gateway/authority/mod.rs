//! Authority, from top to bottom: this gateway's knowledge of views, of its lease and of its
//! region's gate, and the consequences for a key.
//!
//! [`status`] is for people. [`answers`] are to peers, [`acts`] by operators. [`failback`] brings
//! this region back, [`upstream`] drains it. [`gate_loop`] opens keys, [`moves`] gives some up,
//! [`takeover`] declares a region lost. [`members`] says who may join. [`renew`] holds the lease,
//! [`lives`] has lives agreed on through the [`register`]. [`act_error`] says why not. [`read`]
//! asks the snapshot in [`state`]; [`gathered`], [`proposals`], [`running`] and [`failover`] are
//! values. Nothing here may know statuses, or make a request wait for a loop.

pub mod act_error;
pub mod acts;
mod answers;
pub(super) mod failback;
pub mod failover;
pub(super) mod gate_loop;
mod gathered;
mod lives;
pub(super) mod members;
mod moves;
mod proposals;
mod read;
pub mod register;
pub(super) mod renew;
pub(super) mod running;
pub(super) mod state;
pub mod status;
pub(super) mod takeover;
pub mod upstream;
