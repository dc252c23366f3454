//! The sample payments service alone, as a process of its own: an upstream for trying a deployment
//! before the user's own takes its place.
//!
//! [`crate::fleet::upstream`] serves, and [`crate::fleet::ledger`] keeps the effects. This file
//! must not write into an existing ledger. At its end it must let running calls finish (at most ten
//! seconds).

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::ledger::Ledger;
use super::upstream::Upstream;

/// Region name for the effects, in the ledger and in answers: one provider for all regions.
const PROVIDER: &str = "provider";
/// Time limit for running calls after a signal to end.
const CALLS_END_WITHIN: Duration = Duration::from_secs(10);

/// Runs the service until SIGTERM or SIGINT; calls `ready` with the address. Errors: the ledger's
/// file exists already or cannot be made, or the address is taken.
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
