//! Real stores that follow one another reply as recorded: random histories of 60 steps on three of
//! them.
//!
//! `tests/suites/contract.rs` has the histories of one store and the ports' contract; the
//! simulation's `contract.rs` plays both. It must not assert a reply that no store promises.

use std::time::Duration;

use crate::support::recorded::as_recorded;
use crate::support::{beside, program};
use onceway::fleet::deployment::Options;
use onceway::fleet::drill::histories;
use onceway::fleet::ports;

/// Each test has three servers, on ports that are chosen before they are taken.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Random histories of three stores that follow one another, with lost links, servers, replies and
/// slots. The drill recorded them.
#[tokio::test(flavor = "multi_thread")]
async fn stores_follow_one_another_as_it_was_recorded() {
    let _beside = beside().await;
    let _alone = ALONE.lock().await;
    let (program, port_base) = (program(), ports::free_run(40).unwrap());
    let rtt = Duration::ZERO;
    let options = Options { program, port_base, data: None, rtt, routes: None, failover: None };
    as_recorded(&histories::play(&options, &|_| {}).await.unwrap(), "replication.txt");
}

/// Two real stores of which one copies the other's records while its heartbeats arrive.
#[tokio::test(flavor = "multi_thread")]
async fn stores_that_copy_one_another_keep_their_contract() {
    let _beside = beside().await;
    let _alone = ALONE.lock().await;
    let (program, port_base) = (program(), ports::free_run(40).unwrap());
    let rtt = Duration::ZERO;
    let options = Options { program, port_base, data: None, rtt, routes: None, failover: None };
    histories::copies(&options, &|_| {}).await.unwrap();
}
