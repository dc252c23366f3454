//! The ports' contract on the real side: every suite of `onceway_lab::contract` over Postgres,
//! mutual TLS, HTTP and the system's clock. The simulation's `tests/suites/contract.rs` runs the
//! same suites.

pub mod door;
mod peers;
mod store;
mod upstream;

use crate::support::documents::as_recorded;
use onceway::adapters::system::SystemClock;
use onceway_lab::contract;

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

/// Random histories of calls. `ONCEWAY_RECORD=1` writes down this store's replies, for comparison
/// with the simulated one.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_replies_as_it_was_recorded() {
    as_recorded(&contract::history::all(&store::Stores::start().await).await, "store.txt");
}
