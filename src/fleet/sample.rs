//! The sample payments service alone, as a process of its own: an upstream to try a deployment with before one's own takes its place.
//!
//! Neighbours: [`crate::fleet::upstream`] is its door, [`crate::fleet::ledger`] its book; `cli::sample_upstream` parses the options. It must
//! not write into a ledger that is there already, nor end before what it was told to do has happened.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::ledger::Ledger;
use super::upstream::Upstream;

/// Whose effects they are, in the ledger and in answers: one provider for all regions.
const PROVIDER: &str = "provider";
/// How long calls in progress may take once a signal asked it to leave.
const CALLS_END_WITHIN: Duration = Duration::from_secs(10);

/// Runs the service until SIGTERM or SIGINT; `ready` is told where it listens. Errors: the ledger's file is there already or cannot be
/// made, or the address is taken.
pub async fn run(
    address: SocketAddr,
    ledger: &Path,
    ready: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let book = Ledger::create(ledger).with_context(|| {
        format!("cannot begin the ledger {}: name a file that is not there", ledger.display())
    })?;
    let started = Upstream::start(PROVIDER, address, book).await;
    let upstream = started.with_context(|| format!("cannot listen on {address}"))?;
    ready(upstream.address())?;
    tokio::select! {
        biased;
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    upstream.stop(CALLS_END_WITHIN).await;
    Ok(())
}
