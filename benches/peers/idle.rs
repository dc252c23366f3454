//! The memory of connections that have asked once and are quiet, and what of it stays when they
//! have closed.
//!
//! Each round has a gateway of its own, as memory that stays would be found again. It must not use
//! an HTTP library: the client's own buffers and tasks would slow the round.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

use super::rows::Row;
use super::stand::{Form, Stand};
use super::turn::ROUNDS;

/// Connections at a time, within what a machine with 4,096 open files for a process can do.
const CONNECTIONS: usize = 3_500;
/// Requests before the first reading: what a gateway makes once does not count.
const WARM_UP: usize = 500;
/// Time in which a gateway may notice that connections are quiet, or have closed.
const NOTICES: Duration = Duration::from_secs(2);

pub async fn rows(stand: &mut Stand) -> Result<Vec<Row>> {
    let (mut each, mut kept) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let gateway = stand.gateway(Form::Usual, true).await?;
        let port = stand.region.ports.public;
        let mut one = TcpStream::connect(("127.0.0.1", port))?;
        (0..WARM_UP).try_for_each(|_| ask(&mut one))?;
        let base = resident(gateway)?;
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = TcpStream::connect(("127.0.0.1", port))?;
            ask(&mut connection).context("an idle connection")?;
            all.push(connection);
        }
        tokio::time::sleep(NOTICES).await;
        let full = resident(gateway)?;
        drop(all);
        tokio::time::sleep(NOTICES).await;
        let after = resident(gateway)?;
        eprintln!("idle, round {round}: {base} kB, {full} kB with {CONNECTIONS}, {after} kB after");
        each.push((full - base) * 1.024 / CONNECTIONS as f64);
        kept.push((after - base) / (full - base));
    }
    Ok(vec![
        Row { what: "kB for each idle connection", must: "≤ 8", values: each },
        Row { what: "part of it kept after all have closed", must: "≤ 0.1", values: kept },
    ])
}

/// One request that passes, and its whole answer.
fn ask(connection: &mut TcpStream) -> Result<()> {
    connection.write_all(
        b"POST /v1/blobs HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer sk_demo_acme\r\n\
        Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"amount\":2000}",
    )?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let length = connection.read(&mut piece)?;
        anyhow::ensure!(length > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..length]);
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
        if head.is_some_and(|head| answer.len() >= head + 4 + 1024) {
            return Ok(());
        }
    }
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no resident memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
