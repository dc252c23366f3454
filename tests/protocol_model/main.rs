//! Small random models of views, leases and gates: the protocol's own values in a world of delays, losses, pauses, restarts and drift.
//!
//! Neighbours: `world` is the world, `acts` and `wants` what processes do, `truth` the invariants (protocol reference, section 6: 1, 2, 3, 11, 12,
//! 13, and that nobody starts a key without the rows of who had it before). It finds bugs; it proves nothing. `ONCEWAY_MODEL_SEEDS=n` runs n
//! seeds of each world, `ONCEWAY_SEED=n` one of them.

mod acts;
mod chance;
mod truth;
mod wants;
mod world;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use world::{World, ring};

/// How long a run is, in steps of 6 ms on average.
const STEPS: u64 = 4_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs the seeds, and gives back how often what happened.
fn run(regions: &[&str], witnesses: &[&str], seeds: u64) -> BTreeMap<&'static str, u64> {
    let ring = ring(regions);
    let one = number("ONCEWAY_SEED");
    let seeds = number("ONCEWAY_MODEL_SEEDS").unwrap_or(seeds);
    let mut sometimes = BTreeMap::new();
    for seed in one.map_or(0..seeds, |seed| seed..seed + 1) {
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut world = World::new(seed, &ring, witnesses);
            for _ in 0..STEPS {
                world.step();
            }
            let most = world.truth.chosen.keys().last().copied().unwrap_or(0);
            *world.truth.sometimes.entry("epochs").or_default() += most;
            world.truth.sometimes
        }));
        match run {
            Ok(seen) => {
                seen.into_iter().for_each(|(what, count)| *sometimes.entry(what).or_default() += count)
            }
            Err(broken) => {
                println!("ONCEWAY_SEED={seed} cargo test --test protocol_model");
                std::panic::resume_unwind(broken);
            }
        }
    }
    println!("{sometimes:?}");
    sometimes
}

fn assert_seen(seen: &BTreeMap<&'static str, u64>, wanted: &[&'static str]) {
    if number("ONCEWAY_SEED").is_none() {
        let never: Vec<_> = wanted.iter().filter(|what| !seen.contains_key(**what)).collect();
        assert!(never.is_empty(), "never seen: {never:?}");
    }
}

#[test]
fn three_regions_agree_and_never_own_a_key_twice() {
    let seen = run(&["a", "b", "c"], &[], 8);
    assert_seen(
        &seen,
        &[
            "accepted epoch falls",
            "blocked",
            "blocked, then accepted",
            "foreign value finished",
            "lost and back",
            "outbid",
            "sent",
            "serves again",
            "takeover",
            "voter admitted",
            "voter swapped",
        ],
    );
}

#[test]
fn two_regions_and_a_witness_agree_and_never_own_a_key_twice() {
    let seen = run(&["a", "b"], &["w"], 4);
    assert_seen(
        &seen,
        &["blocked, then accepted", "foreign value finished", "lost and back", "sent", "takeover"],
    );
}
