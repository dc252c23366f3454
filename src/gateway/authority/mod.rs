//! Authority: this gateway's knowledge of views, of its lease and of its region's gate, and the
//! consequences for a key.
//!
//! `protocol::snapshot` is that knowledge and decides over it. [`state`] holds the snapshot and
//! [`read`] asks it for requests. Loops renew it: [`learn`] finds views, [`gate_loop`] opens keys,
//! [`renew`] holds the lease. [`takeover`], [`failback`], [`moves`] and [`voters`] propose changes
//! through [`propose`]; [`answers`] and [`acceptor`] answer peers; [`admin_ops`] and its neighbours
//! are operators' acts. Nothing here may know statuses, or make a request wait for a loop.

mod acceptor;
pub mod act_error;
pub mod admin_ops;
mod answers;
mod asking;
mod break_glass;
pub mod dry_run;
mod evidence;
pub(super) mod failback;
pub mod failover;
pub(super) mod gate_loop;
mod gathered;
pub(super) mod install;
pub(super) mod learn;
mod lives;
pub(super) mod members;
mod moves;
mod poisoned;
mod proposals;
mod propose;
mod protocol_version;
mod read;
mod rebuild;
pub(super) mod renew;
pub(super) mod running;
pub(super) mod state;
pub mod status;
pub(super) mod takeover;
pub mod upstream;
pub(super) mod voters;
pub mod witness;
