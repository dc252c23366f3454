//! The lab: a whole deployment on one machine, for `onceway demo`, the drills and the integration
//! tests, and the ports' [`contract`]. Each piece is usable alone:
//!
//! - [`binaries`] finds Postgres or has it [`fetched`], and [`cluster`] runs a private one.
//! - [`process`] and [`gateway`] run a gateway; [`region`] runs one or several behind a
//!   [`balancer`], and [`patroni`] its Postgres as a primary and its standby.
//! - [`relay`] and [`links`] are the network between regions.
//! - [`ledger`] and [`upstream`] are the sample payments service; [`sample`] runs it alone.
//! - [`deployment`] puts the pieces together, [`demo`] and [`tour`] show it, and [`control`] takes
//!   it apart. [`janitor`] cleans up after a supervisor that was killed.
//! - [`drill`] breaks it under load and counts. [`compare`] measures it beside [`naive`].
//!
//! The lab finds and stops processes through `/proc`: Linux only. The gateway is a program to it.

#![allow(clippy::disallowed_methods, reason = "it measures and stamps for people")]
#![allow(missing_docs, reason = "the command line and the tests use it, and nobody else")]

pub(crate) mod account;
pub(crate) mod balancer;
pub(crate) mod behave;
pub mod binaries;
pub mod cluster;
pub mod cluster_sql;
pub mod compare;
pub mod contract;
pub(crate) mod control;
pub mod demo;
pub mod deployment;
pub mod drill;
pub(crate) mod fetched;
pub mod files;
pub mod gateway;
pub mod janitor;
pub mod ledger;
pub(crate) mod links;
mod naive;
pub(crate) mod patroni;
pub mod ports;
pub mod process;
pub mod proctable;
pub mod region;
pub mod relay;
pub mod sample;
pub mod scratch;
pub(crate) mod shared_memory;
mod template;
pub(crate) mod tour;
pub mod upstream;
pub mod wait;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceway_client::Ask;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The status that a gateway shows at its admin listener; null if it shows none in time.
async fn status(admin: &str, within: Duration) -> Value {
    Ask::get(format!("{admin}/v1/status")).send(within).await.map(|answer| answer.json()).unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Locks a mutex whose content is right at every moment: a panic of another holder changes nothing.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries each connection that comes. Dropping the set closes the listener and all of them.
fn accept<F>(listener: TcpListener, carry: impl FnMut(TcpStream) -> F + Send + 'static) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    [accept_until(listener, std::future::pending(), carry)].into_iter().collect()
}

/// Does the same until `stop`. Then closes the listener, and waits for the connections to end.
async fn accept_until<F>(
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    mut carry: impl FnMut(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut stop, mut connections) = (std::pin::pin!(stop), JoinSet::new());
    loop {
        tokio::select! {
            // The stop and ended connections first: each comes once, so they cannot starve the
            // listener. In the other order, frequent callers could starve them, and ended
            // connections would pile up.
            biased;
            () = &mut stop => break,
            Some(_done) = connections.join_next() => {}
            accepted = listener.accept() => {
                // An error is the connection's (a reset before this accept).
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(carry(client));
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}
