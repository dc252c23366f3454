//! The network rooms through their public functions, over real sockets on the loopback: peers,
//! upstream, listeners.

mod edge;
pub mod frames;
mod framing;
pub mod harness;
mod hostile;
mod http2;
mod http2_floods;
pub mod peers;
mod public;
mod slow;
pub mod support;
mod upstream;
mod verdicts;
