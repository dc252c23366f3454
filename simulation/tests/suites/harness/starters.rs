//! Regions that could start a key are seen, though no key comes.
//!
//! Each scenario lacks one check.

use std::sync::Arc;

use onceway::protocol::plant::{Check, planted};
use simulation::play::play;
use simulation::scenario::{find, load};

/// The breaches of a scenario's first seed without a check.
fn broken(scenario: &str, without: Check) -> Vec<String> {
    let scenario = Arc::new(load(&find::find(scenario).unwrap(), &[]).unwrap());
    let played = planted(without, || play(&scenario, 0, false));
    played
        .outcome
        .breaches
        .into_iter()
        .map(|breach| format!("{}: {}", breach.invariant, breach.text))
        .collect()
}

#[test]
fn the_checker_sees_double_owners_and_ungranted_leases() {
    let all = broken("stale-view", Check::NothingNewer);
    let both = "one-sender (rule 9): ap-south and us-east may all start";
    assert!(all.iter().any(|text| text.starts_with(both)), "{all:?}");
    let all = broken("long-pause", Check::BootClock);
    let alone = "granted-when-sent (rule 23): us-east holds a lease while grants of no majority run for it";
    assert!(all.iter().any(|text| text == alone), "{all:?}");
}
