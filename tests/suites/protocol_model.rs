//! Small random models of views, leases and gates: the protocol's own values in a world of delays,
//! losses, pauses, restarts and drift.
//!
//! `truth` has the invariants (docs/protocol.md#invariants): 1, 2, 3, 11, 12, 13. It also checks
//! that no region starts a key without the rows of its former owner. `ONCEWAY_MODEL_SEEDS=n` runs n
//! seeds of each world, `ONCEWAY_SEED=n` one of them. It finds bugs, and must not be taken for a
//! proof.

mod acts;
mod chance;
mod truth;
mod wants;
mod world;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use onceway::protocol::plant::{Plant, planted};
use world::{World, ring};

/// The length of a run, in steps of 6 ms on average.
const STEPS: u64 = 4_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs the seeds, and returns the count of each happening.
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
                println!("ONCEWAY_SEED={seed} cargo test --test suites protocol_model::");
                std::panic::resume_unwind(broken);
            }
        }
    }
    println!("{sometimes:?}");
    sometimes
}

/// True if some seed of three regions, from `first` on, breaks an invariant without this check.
fn notices(check: Plant, first: u64) -> bool {
    let ring = ring(&["a", "b", "c"]);
    (first..first + 40).any(|seed| {
        let run = || {
            let mut world = World::new(seed, &ring, &[]);
            (0..STEPS).for_each(|_| world.step());
        };
        planted(check, || std::panic::catch_unwind(AssertUnwindSafe(run)).is_err())
    })
}

/// Checks that each of these happened; the rare ones only in the long form.
fn assert_seen(seen: &BTreeMap<&'static str, u64>, often: &[&'static str], rarely: &[&'static str]) {
    let rarely = if number("ONCEWAY_MODEL_SEEDS").is_some_and(|seeds| seeds >= 100) { rarely } else { &[] };
    if number("ONCEWAY_SEED").is_none() {
        let never: Vec<_> = often.iter().chain(rarely).filter(|what| !seen.contains_key(**what)).collect();
        assert!(never.is_empty(), "never seen: {never:?}");
    }
}

#[test]
fn three_regions_agree_and_never_own_a_key_twice() {
    let seen = run(&["a", "b", "c"], &[], 5);
    assert_seen(
        &seen,
        &[
            "blocked",
            "blocked, then accepted",
            "foreign value finished",
            "kill loses",
            "kill wins",
            "lost and back",
            "outbid",
            "sent",
            "serves again",
            "takeover",
            "voter admitted",
            "voter swapped",
        ],
        &["accepted epoch falls", "lost while sealed"],
    );
}

#[test]
fn two_regions_and_a_witness_agree_and_never_own_a_key_twice() {
    let seen = run(&["a", "b"], &["w"], 3);
    assert_seen(
        &seen,
        &["blocked, then accepted", "foreign value finished", "lost and back", "sent"],
        &["takeover"],
    );
}

#[test]
fn what_is_taken_out_is_noticed() {
    // Each with the first seed that is known to show it, so that the short form is short.
    let checks = [
        (Plant::GrantOnAccept, 3),
        (Plant::NothingNewer, 2),
        (Plant::ForeignFirst, 3),
        (Plant::ClosedWhenGained, 4),
        (Plant::PendingClosed, 1),
    ];
    for (check, first) in checks {
        assert!(notices(check, first), "forty seeds went well without {check:?}");
    }
}
