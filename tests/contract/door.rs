//! A port that is sometimes listened on: what is behind it can go away and come back at the same address.
//!
//! Neighbours: the benches of peers and upstream. It must not know what is served.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// A port of 127.0.0.1 that nobody else gets while this lives: its own socket is bound and never listens, so that connections
/// are refused while no listener is open.
pub struct Door {
    _held: TcpSocket,
    pub address: SocketAddr,
}

impl Door {
    pub fn new() -> Self {
        let held = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        Self { address: held.local_addr().unwrap(), _held: held }
    }

    /// A listener. Fails while the one before is still there.
    pub fn open(&self) -> io::Result<TcpListener> {
        bound(self.address)?.listen(128)
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
