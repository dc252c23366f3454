//! The network rooms through their public doors, over real sockets on the loopback: peers, upstream, listeners.
//!
//! Neighbours: `net/support.rs` has what the parts share. It must not sleep for a fixed time, nor reach beyond loopback.

#[path = "net/doors.rs"]
mod doors;
#[path = "net/hostile.rs"]
mod hostile;
#[path = "net/peers.rs"]
mod peers;
#[path = "net/public.rs"]
mod public;
#[path = "net/support.rs"]
mod support;
#[path = "net/upstream.rs"]
mod upstream;
