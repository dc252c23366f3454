//! The ports' contract on the simulated side: every suite of `onceway_lab::contract`.
//!
//! `benches` plays the environment; `breaches` shows that the suites can fail. The real side runs
//! the same suites.

mod benches;
mod breaches;

use benches::{Link, Service, Stores, Three};
use onceway::ports::Ports;
use onceway_lab::contract;
use simulation::world::World;

use crate::shared::{play, region};

#[test]
fn the_clock_keeps_its_contract() {
    play(async {
        contract::clock::suite(World::new(1, &[region("eu")], false).ports(&region("eu")).clock()).await;
    });
}

#[test]
fn the_store_keeps_its_contract() {
    play(async { contract::store::suite(&Stores::new(|store| store)).await });
}

#[test]
fn authority_escrow_imports_and_replica_keep_their_contract() {
    let stores = || Stores::new(|store| store);
    play(async { contract::authority::suite(&stores()).await });
    play(async { contract::escrow::suite(&stores()).await });
    play(async { contract::imports::suite(&stores()).await });
    play(async { contract::replica::suite(&stores()).await });
}

#[test]
fn the_audit_keeps_its_contract() {
    play(async { contract::audit::suite(&Stores::new(|store| store)).await });
}

#[test]
fn calls_keep_their_contract() {
    play(async { contract::peers::suite(&Link::new(|peers| peers)).await });
    play(async { contract::peers::asking(&Link::new(|peers| peers)).await });
    play(async { contract::upstream::suite(&Service::new(|upstream| upstream)).await });
}

#[test]
fn stores_that_copy_one_another_keep_their_contract() {
    play(async { contract::replication::copying(&Three::new()).await }).unwrap();
}

/// The replies of a real Postgres, as the root's `tests/suites/contract.rs` and
/// `tests/long/histories.rs` recorded them.
#[test]
fn the_store_replies_as_a_real_one_did() {
    let played = play(async { contract::history::all(&Stores::new(|store| store)).await });
    as_recorded(&played, include_str!("../../histories/store.txt"));
}

/// The acts of three real stores that follow one another, recorded by `tests/long/histories.rs`.
#[test]
fn stores_follow_one_another_as_real_ones_did() {
    let played = play(async { contract::replication::all(&Three::new(), &|_| {}).await });
    as_recorded(&played.unwrap(), include_str!("../../histories/replication.txt"));
}

fn as_recorded(played: &str, recorded: &str) {
    for (number, (played, recorded)) in played.lines().zip(recorded.lines()).enumerate() {
        assert_eq!(played, recorded, "line {}", number + 1);
    }
    assert_eq!(played.lines().count(), recorded.lines().count());
}
