//! A Postgres, a gateway or a machine starts again: its region's keys are refused for a lease and
//! two seconds at most, whatever the lease and the round trip.

use simulation::Outcome;
use simulation::play;
use simulation::scenario::{self, Scenario, find};

use crate::shared::{Arc, Duration, ms};

fn reboots(ring: &str, lease: &str, round_trip: &str) -> Scenario {
    let settings = [format!("ring=rings/{ring}.toml"), format!("failover.lease={lease}")];
    let settings = settings.into_iter().chain([format!("network.round_trip={round_trip}")]);
    let settings: Vec<_> = settings.map(|setting| setting.parse().unwrap()).collect();
    scenario::load(&find::find("reboots").unwrap(), &settings).unwrap()
}

fn played(scenario: Scenario, seed: u64) -> Outcome {
    let outcome = play::play(&Arc::new(scenario), seed, false).outcome;
    assert!(outcome.breaches.is_empty(), "seed {seed}: {:#?}", outcome.breaches);
    outcome
}

#[test]
fn keys_are_refused_for_a_lease_and_two_seconds_at_most() {
    let mut seed = 0;
    for ring in ["three", "two-and-witness"] {
        for lease in ["3s", "10s", "30s"] {
            for round_trip in ["20ms", "60ms", "200ms"] {
                let mut scenario = reboots(ring, lease, round_trip);
                // Between two renewals at any place, and away for a moment or for longer.
                for fault in &mut scenario.faults {
                    fault.at += ms(370 * seed);
                    fault.lasts = ms(30 + 170 * (seed % 9));
                }
                played(scenario, seed);
                seed += 1;
            }
        }
    }
}

#[test]
fn a_brief_postgres_restart_costs_no_view() {
    for (seed, lease) in (0..).zip(["3s", "10s", "30s"]) {
        let mut scenario = reboots("three", lease, "60ms");
        scenario.faults.truncate(1);
        let outcome = played(scenario, seed);
        assert_eq!(outcome.happened.get("takeover").copied().unwrap_or(0), 0, "{lease}");
        let longest = outcome.outages.iter().map(|out| out.to_ms - out.from_ms).max().unwrap_or(0);
        assert!(Duration::from_millis(longest) <= ms(2_000), "{lease}: refused for {longest} ms");
    }
}

/// Nobody else can be asked, and nobody else could take over.
#[test]
fn a_single_region_runs_keys_within_five_seconds_of_its_postgres() {
    for (seed, lease) in (0..).zip(["3s", "10s", "30s"]) {
        let lease = format!("failover.lease={lease}").parse().unwrap();
        let mut scenario = scenario::load(&find::find("alone").unwrap(), &[lease]).unwrap();
        scenario.refused_beyond_lease = None;
        let away = scenario.faults[0].lasts;
        let outcome = played(scenario, seed);
        let longest = outcome.outages.iter().map(|out| out.to_ms - out.from_ms).max().unwrap_or(0);
        let beside = Duration::from_millis(longest).checked_sub(away - ms(1_000)).unwrap();
        assert!(beside <= ms(6_000), "refused for {longest} ms");
    }
}
