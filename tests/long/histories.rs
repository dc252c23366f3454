//! Real stores that follow one another reply as it was recorded: random histories of 60 steps on three of them.
//!
//! Neighbours: `tests/suites/contract.rs` has the histories of one store and the ports' contract, the simulation's `contract.rs` plays both. It must
//! not assert what no store promises.

use std::time::Duration;

use crate::support::recorded::as_recorded;
use crate::support::{beside, program};
use onceway::fleet::deployment::Options;
use onceway::fleet::drill::histories;
use onceway::fleet::ports;

/// Random histories of three stores that follow one another, with links, servers, replies and slots that are lost; recorded likewise, by the drill.
#[tokio::test(flavor = "multi_thread")]
async fn stores_follow_one_another_as_it_was_recorded() {
    let _beside = beside().await;
    let (program, port_base) = (program(), ports::free_run(40).unwrap());
    let rtt = Duration::ZERO;
    let options = Options { program, port_base, data: None, rtt, routes: None, failover: None };
    as_recorded(&histories::play(&options, &|_| {}).await.unwrap(), "replication.txt");
}
