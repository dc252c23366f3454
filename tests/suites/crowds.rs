//! Many sockets that do nothing useful, against a real gateway: health checks are answered all the
//! same.
//!
//! Sockets are raw, with small buffers. Neighbours: `net/slow` has the public listener's deadlines one
//! by one. It must not need more than one region.

use std::time::Duration;

use crate::support::solo::{Solo, routes};
use crate::support::{PATIENCE, run, until};
use onceway::fleet::client::Ask;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// How long a probe waits: Kubernetes' default is a second.
const PROBE: Duration = Duration::from_secs(5);

/// A socket that takes few bytes unread.
async fn small(address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    timeout(PATIENCE, socket.connect(address.parse().unwrap())).await.expect("a connection").unwrap()
}

/// The status of the answer to one path, asked over a connection of its own.
async fn probe(address: &str, path: &str) -> Option<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
    };
    timeout(PROBE, asked).await.ok().flatten()
}

#[test]
fn a_hundred_sockets_that_read_nothing_do_not_silence_health_checks() {
    run(async {
        let solo = Solo::start(&routes(), None).await;
        let admin = solo.region.admin();
        let address = admin.strip_prefix("http://").unwrap().to_owned();
        let ask = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut deaf = Vec::new();
        for number in 0..100 {
            let mut stream = small(&address).await;
            // A few ask for more than the kernel takes; the others hold their places by being there.
            let asked = ask.repeat(if number < 5 { 40 } else { 1 });
            stream.write_all(asked.as_bytes()).await.unwrap();
            deaf.push(stream);
        }
        for _ in 0..20 {
            assert_eq!(probe(&address, "/healthz").await.map(|(status, _)| status), Some(200));
            assert!(probe(&address, "/readyz").await.is_some());
        }
        // Whatever else is asked finds this address's places taken, and is told so.
        let (status, answer) = probe(&address, "/v1/status").await.expect("an answer");
        assert!(status == 503 && answer.contains("all places of the admin listener"), "{answer}");
        // Sockets that say nothing hold the places of health checks for no longer than others come.
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(small(&address).await);
        }
        assert_eq!(probe(&address, "/healthz").await.map(|(status, _)| status), Some(200));
        // All the while the sockets are there: their time to read ends, and so do they.
        until("the places to be free again", async || {
            probe(&address, "/v1/status").await.is_some_and(|(status, _)| status == 200)
        })
        .await;
        let metrics = Ask::get(format!("{admin}/metrics")).send(PATIENCE).await.unwrap().text();
        assert!(metrics.contains("onceway_connections_cut_total{reason=\"stalled\"}"), "{metrics}");
        drop((deaf, silent));
    });
}
