//! What each safety check is worth: every one is removed in turn, and the seeds that notice are counted.
//!
//! Neighbours: `batch` plays the seeds; `protocol::plant` names the checks. Seeds that break with all checks in place notice nothing, and do not
//! count. It must not remove two checks at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::plant::Plant;
use simulation::scenario::Scenario;

use super::batch::Batch;

/// Prints a row for each check, and says whether every one was noticed.
pub fn table(scenarios: &[Arc<Scenario>], count: u64) -> bool {
    let sound: Vec<BTreeSet<u64>> =
        scenarios.iter().map(|scenario| broken(scenario, count, None).1).collect();
    println!(
        "{:<22} {:<16} {:>5} of {count:<6} {:>10}  what broke first",
        "removed check", "scenario", "seeds", "mean seeds"
    );
    let mut unnoticed = Vec::new();
    for plant in Plant::ALL {
        let noticed = scenarios.iter().zip(&sound).find_map(|(scenario, sound)| {
            let (first, seeds) = broken(scenario, count, Some(*plant));
            let new: BTreeSet<u64> = seeds.difference(sound).copied().collect();
            let row = || (scenario.name.clone(), new.len() as u64, first_of(&first, &new));
            (!new.is_empty()).then(row)
        });
        match noticed {
            Some((scenario, seeds, first)) => {
                let mean = count as f64 / seeds as f64;
                println!(
                    "{:<22} {scenario:<16} {seeds:>5} of {count:<6} {mean:>10.1}  {first}",
                    plant.name()
                );
            }
            None => {
                println!("{:<22} {:<16} {:>5} of {count:<6} {:>10}  -", plant.name(), "-", 0, "-");
                unnoticed.push(plant.name());
            }
        }
    }
    println!("{} of {} noticed", Plant::ALL.len() - unnoticed.len(), Plant::ALL.len());
    unnoticed.is_empty()
}

/// Which invariant each broken seed broke first, and all of them.
fn broken(
    scenario: &Arc<Scenario>,
    count: u64,
    plant: Option<Plant>,
) -> (BTreeMap<u64, String>, BTreeSet<u64>) {
    let batch = Batch::play(scenario, 0, count, plant);
    let first: BTreeMap<u64, String> =
        batch.broke.into_iter().map(|broke| (broke.seed, broke.breach.invariant)).collect();
    let seeds = first.keys().copied().collect();
    (first, seeds)
}

/// How often each invariant broke first in these seeds, the most frequent one first.
fn first_of(first: &BTreeMap<u64, String>, seeds: &BTreeSet<u64>) -> String {
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        *counted.entry(first.get(seed).map_or("", String::as_str)).or_default() += 1;
    }
    let mut all: Vec<(&str, u64)> = counted.into_iter().collect();
    all.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    all.iter().map(|(invariant, count)| format!("{invariant} ({count})")).collect::<Vec<_>>().join(", ")
}
