//! A port that is open at times: the server behind it can go away and come back at the same
//! address.
//!
//! The benches of peers and upstream use it, and `accept.rs`.

use crate::support::*;
use std::io;
use tokio::net::TcpSocket;

const ESTABLISHED: &str = "01";

/// A port of 127.0.0.1 that no other process gets while this lives. Its own socket is bound and
/// never listens, so connections are refused while no listener is open.
pub struct Door {
    _held: TcpSocket,
    pub address: SocketAddr,
}

impl Door {
    pub fn new() -> Self {
        let held = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        Self { address: held.local_addr().unwrap(), _held: held }
    }

    /// Waits until no socket of this machine believes itself connected to here. On a busy machine
    /// even the loopback delivers the end of a connection later. Until then, a sent message may
    /// arrive, for all its sender can know.
    pub async fn is_quiet(&self) {
        let connected = |line: &str| {
            let mut fields = line.split_whitespace().skip(2);
            let remote = fields.next().and_then(|remote| remote.rsplit(':').next());
            let port = remote.map(|port| u16::from_str_radix(port, 16));
            port == Some(Ok(self.address.port())) && fields.next() == Some(ESTABLISHED)
        };
        until("connections to end", async || {
            !fs::read_to_string("/proc/net/tcp").unwrap().lines().any(connected)
        })
        .await;
    }

    /// Opens a listener. Fails while the one before still exists.
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
