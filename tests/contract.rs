//! The ports' contract on the real side: every suite of `onceway::ports::contract` over Postgres, mutual TLS, HTTP and the system's clock.
//!
//! Neighbours: `contract/` plays the environments, with the pieces of the suites on the network and on the store; the simulation's
//! `tests/contract.rs` runs the same suites. It must not assert what the contract does not say, but for what only a superuser can show.

#[path = "contract/door.rs"]
mod door;
#[allow(dead_code, reason = "the network suites use the rest")]
#[path = "net/support.rs"]
mod net;
#[path = "contract/peers.rs"]
mod peers;
#[path = "contract/store.rs"]
mod store;
#[allow(dead_code, reason = "the suite on the store uses the rest")]
#[path = "store/support.rs"]
mod support;
#[path = "contract/upstream.rs"]
mod upstream;

use std::path::PathBuf;
use std::time::Duration;

use onceway::adapters::system::SystemClock;
use onceway::fleet::deployment::Options;
use onceway::fleet::drill::histories;
use onceway::fleet::ports;
use onceway::ports::contract;

/// Three servers each, on ports that are chosen before they are taken.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

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
    contract::asking::suite(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_keeps_its_contract() {
    contract::upstream::suite(&upstream::Service::start().await).await;
}

/// Random histories of calls. `ONCEWAY_RECORD=1` writes down what this store replies, for the simulated one to be held against.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_replies_as_it_was_recorded() {
    as_recorded(&contract::history::all(&store::Stores::start().await).await, "store.txt");
}

/// Random histories of three stores that follow one another, with links, servers, replies and slots that are lost; recorded likewise, by the drill.
#[tokio::test(flavor = "multi_thread")]
async fn stores_follow_one_another_as_it_was_recorded() {
    let _alone = ALONE.lock().await;
    let (program, port_base) = (PathBuf::from(env!("CARGO_BIN_EXE_onceway")), ports::free_run(40).unwrap());
    let rtt = Duration::ZERO;
    let options = Options { program, port_base, data: None, rtt, routes: None, failover: None };
    as_recorded(&histories::play(&options, &|_| {}).await.unwrap(), "replication.txt");
}

/// Two real stores of which one copies the other's records while its heartbeats come.
#[tokio::test(flavor = "multi_thread")]
async fn stores_that_copy_one_another_keep_their_contract() {
    let _alone = ALONE.lock().await;
    let (program, port_base) = (PathBuf::from(env!("CARGO_BIN_EXE_onceway")), ports::free_run(40).unwrap());
    let rtt = Duration::ZERO;
    let options = Options { program, port_base, data: None, rtt, routes: None, failover: None };
    histories::copies(&options, &|_| {}).await.unwrap();
}

fn as_recorded(played: &str, file: &str) {
    let file = format!("{}/simulation/histories/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ONCEWAY_RECORD").is_some() {
        std::fs::write(&file, played).unwrap();
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    for (number, (played, recorded)) in played.lines().zip(recorded.lines()).enumerate() {
        assert_eq!(played, recorded, "line {}", number + 1);
    }
    assert_eq!(played.lines().count(), recorded.lines().count());
}
