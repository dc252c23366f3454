//! A port that is sometimes listened on: what is behind it can go away and come back at the same address.
//!
//! Neighbours: the benches of peers and upstream. It must not know what is served.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use onceway::fleet::wait;
use tokio::net::{TcpListener, TcpSocket};

const BOUND: Duration = Duration::from_secs(20);
/// As `/proc/net/tcp` writes the state.
const ESTABLISHED: &str = "01";

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

    /// Waits until no socket of this machine believes itself connected to here: on a busy machine even the loopback delivers the end
    /// of a connection later, and what is sent on it before that may, for all its sender can know, arrive.
    pub async fn is_quiet(&self) {
        let connected = |line: &str| {
            let mut fields = line.split_whitespace().skip(2);
            let port = fields
                .next()
                .and_then(|remote| remote.rsplit(':').next())
                .map(|port| u16::from_str_radix(port, 16));
            port == Some(Ok(self.address.port())) && fields.next() == Some(ESTABLISHED)
        };
        wait::for_some("connections to end", BOUND, async || {
            let sockets = std::fs::read_to_string("/proc/net/tcp")?;
            Ok((!sockets.lines().any(connected)).then_some(()))
        })
        .await
        .unwrap();
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
