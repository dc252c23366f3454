//! The network rooms through their public doors, over real sockets on the loopback: peers, upstream, listeners.
//!
//! Neighbours: `net/support.rs` has what the parts share. It must not sleep for a fixed time, nor reach beyond loopback.

#[path = "net/doors.rs"]
mod doors;
#[path = "net/frames.rs"]
mod frames;
#[path = "net/framing.rs"]
mod framing;
#[path = "net/harness.rs"]
mod harness;
#[path = "net/hostile.rs"]
mod hostile;
#[path = "net/http2.rs"]
mod http2;
#[path = "net/http2_floods.rs"]
mod http2_floods;
#[path = "net/peers.rs"]
mod peers;
#[path = "net/public.rs"]
mod public;
#[path = "net/slow.rs"]
mod slow;
#[path = "net/support.rs"]
mod support;
#[path = "net/tls.rs"]
mod tls;
#[path = "net/upstream.rs"]
mod upstream;
