//! The ports' contract on the real side: every suite of `onceway_lab::contract` over Postgres,
//! mutual TLS, HTTP and the system's clock. The simulation's `tests/suites/contract.rs` runs the
//! same suites.

mod peers;
mod store;
mod upstream;

use crate::support::documents::as_recorded;
use crate::support::*;
use onceway_lab::contract;
use std::io;

#[tokio::test]
async fn the_clock_keeps_its_contract() {
    contract::clock::suite(&SystemClock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_its_contract() {
    contract::store::suite(&store::Stores::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replica_keeps_its_contract() {
    contract::replica::suite(&store::Stores::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_acceptor_and_the_gate_keep_their_contract() {
    contract::authority::suite(&store::Stores::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_escrows_keep_their_contract() {
    contract::escrow::suite(&store::Stores::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_imports_keep_their_contract() {
    contract::imports::suite(&store::Stores::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_keeps_its_contract() {
    contract::audit::suite(&store::Stores::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peers_keep_their_contract() {
    let link = peers::Link::start().await;
    contract::peers::suite(&link).await;
    contract::peers::asking(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_keeps_its_contract() {
    contract::upstream::suite(&upstream::Service::start().await).await;
}

/// `ONCEWAY_RECORD=1` writes this store's replies down, for the simulated one.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_replies_as_it_was_recorded() {
    as_recorded(&contract::history::all(&store::Stores::start().await).await, "store.txt");
}

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
        let ended = async || !fs::read_to_string("/proc/net/tcp").unwrap().lines().any(connected);
        until("connections to end", ended).await;
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
