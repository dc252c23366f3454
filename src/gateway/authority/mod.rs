//! Authority, from top to bottom: this gateway's knowledge of views, of its lease and of its
//! region's gate, and the consequences for a key.
//!
//! [`status`] is for people. [`answers`] are to peers, [`acts`] by operators. [`failback`] brings
//! this region back, or drains it. [`gate_loop`] opens keys, [`moves`] gives some up, and says who
//! may join. [`takeover`] declares a region lost. [`renew`] holds the lease. The [`register`] has
//! views agreed on. [`act_error`] says why not. [`knowledge`] asks the snapshot in [`state`];
//! [`failover`] are settings. Nothing here may know statuses, or make a request wait for a loop.

pub mod act_error;
pub mod acts;
mod answers;
pub(super) mod failback;
pub mod failover;
pub(super) mod gate_loop;
mod knowledge;
pub(super) mod moves;
pub mod register;
pub(super) mod renew;
pub(super) mod state;
pub mod status;
pub(super) mod takeover;
