//! The gateway: the choreography of a request, over ports.
//!
//! Neighbours: `protocol` decides, `ports` performs, `server` feeds requests in. It must not touch sockets, SQL or clocks.

pub mod credentials;
pub mod route;
