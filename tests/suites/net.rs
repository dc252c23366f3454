//! The network rooms through their public doors, over real sockets on the loopback: peers, upstream, listeners.
//!
//! Neighbours: `net/support.rs` has what the parts share. It must not sleep for a fixed time, nor reach beyond loopback.

mod answers;
mod doors;
pub mod frames;
mod framing;
mod harness;
mod hostile;
mod http2;
mod http2_floods;
mod peers;
mod public;
mod slow;
pub mod support;
mod tls;
mod upstream;
