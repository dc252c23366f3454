//! The sample payments service, or a sample Postgres, as a process of its own: for trying a
//! deployment before the user's own takes its place.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::binaries::Binaries;
use super::cluster::Cluster;
use super::files::DATABASE;
use super::janitor::Janitor;
use super::ledger::Ledger;
use super::upstream::Upstream;
use super::wait::Leave;

/// Region name for the effects, in the ledger and in answers: one provider for all regions.
const PROVIDER: &str = "provider";
/// Time limit for running calls after a signal to end.
const CALLS_END_WITHIN: Duration = Duration::from_secs(10);
const POSTGRES_ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Runs the service until SIGTERM or SIGINT; calls `ready` with the address. Errors: the ledger's
/// file exists already or cannot be made, or the address is taken.
pub async fn run(
    address: SocketAddr,
    ledger: &Path,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let mut leave = Leave::heard()?;
    let book = Ledger::create(ledger);
    let path = ledger.display();
    let book =
        book.with_context(|| format!("cannot begin the ledger {path}: name a file that is not there"))?;
    let started = Upstream::start(PROVIDER, address, book).await;
    let upstream = started.with_context(|| format!("cannot listen on {address}"))?;
    ready(upstream.address())?;
    leave.asked().await;
    upstream.stop(CALLS_END_WITHIN).await;
    Ok(())
}

/// Runs a Postgres with data in `dir` until SIGTERM or SIGINT; calls `ready` with the URL of its
/// database. Errors: there is no Postgres here and none can be fetched, or the port is taken.
pub async fn postgres(dir: &Path, port: u16, ready: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let mut leave = Leave::heard()?;
    std::net::TcpListener::bind(("127.0.0.1", port))
        .with_context(|| format!("port {port} is not free: choose another by --port"))?;
    let binaries = tokio::task::spawn_blocking(Binaries::find_or_install).await??;
    let program = std::env::current_exe().context("where is the onceway binary?")?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make folder {}", dir.display()))?;
    let dir = &dir.canonicalize()?;
    let janitor = Janitor::spawn(&program, dir, false)?;
    let cluster = Cluster::create(&binaries, dir, port, &[]).await?;
    cluster.start().await?;
    cluster.create_database(DATABASE).await?;
    ready(&cluster.url(DATABASE))?;
    leave.asked().await;
    cluster.stop(POSTGRES_ENDS_WITHIN).await?;
    janitor.dismiss().await
}
