//! Real stores that follow one another reply as recorded: random histories of 60 steps on three of
//! them. `tests/suites/contract.rs` has those of one store; the simulation plays both.

mod three;

use crate::support::beside;
use crate::support::documents::as_recorded;

/// Each test has three servers, on ports that are chosen before they are taken.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Random histories of three stores that follow one another, with lost links, servers, replies and
/// slots. `ONCEWAY_RECORD=1` records them anew.
#[tokio::test(flavor = "multi_thread")]
async fn replicating_stores_repeat_the_recorded_history() {
    let _beside = beside().await;
    let _alone = ALONE.lock().await;
    as_recorded(&three::play().await.unwrap(), "replication.txt");
}

/// Two real stores of which one copies the other's records while its heartbeats arrive.
#[tokio::test(flavor = "multi_thread")]
async fn stores_that_copy_one_another_keep_their_contract() {
    let _beside = beside().await;
    let _alone = ALONE.lock().await;
    three::copies().await.unwrap();
}
