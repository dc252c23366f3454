//! The use of each safety check: one is removed in turn, and the seeds that notice are counted.
//!
//! Seeds that break with all checks in place do not count.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::plant::Check;

use super::batch::Batch;
use super::show::say;
use crate::scenario::directed::directed;
use crate::scenario::{self, Scenario};
use crate::words::joined;

struct Seeds {
    scenario: Arc<Scenario>,
    from: u64,
    count: u64,
    /// The seeds that break with all checks in place.
    broken: BTreeSet<u64>,
}

impl Seeds {
    fn of(scenario: Arc<Scenario>, from: u64, count: u64) -> Self {
        let broken = broken(&scenario, from, count, None).into_keys().collect();
        Self { scenario, from, count, broken }
    }

    /// The seeds that break without the check only, each with the invariant that broke first.
    fn noticing(&self, check: Check) -> BTreeMap<u64, String> {
        let mut found = broken(&self.scenario, self.from, self.count, Some(check));
        found.retain(|seed, _| !self.broken.contains(seed));
        found
    }
}

/// Prints a row for each of these checks. Returns true if every removal was noticed.
pub fn table(scenarios: Vec<Arc<Scenario>>, count: u64, checks: &[Check]) -> Result<bool, String> {
    let asked: Vec<Seeds> = scenarios.into_iter().map(|scenario| Seeds::of(scenario, 0, count)).collect();
    let mut own = Own::default();
    say!("{:<22} {:<18} {:>12} {:>10}  what broke first", "removed check", "scenario", "seeds", "mean seeds");
    let mut unnoticed = 0;
    for check in checks {
        let noticing = |seeds: &Seeds| {
            let found = seeds.noticing(*check);
            (!found.is_empty()).then(|| row(*check, &seeds.scenario.name, seeds.count, &found))
        };
        let answer = match asked.iter().find_map(noticing) {
            Some(answer) => Some(answer),
            None => own.noticing(*check)?,
        };
        unnoticed += usize::from(answer.is_none());
        say!("{}", answer.unwrap_or_else(|| format!("{:<22} goes unnoticed", check.name())));
    }
    say!("{} of {} noticed", checks.len() - unnoticed, checks.len());
    Ok(unnoticed == 0)
}

/// The directed scenarios, each played once with all checks in place.
#[derive(Default)]
struct Own(BTreeMap<(&'static str, u64, u64), Seeds>);

impl Own {
    /// The row of this check, if its own scenario notices: a few seeds at a time, until one does.
    fn noticing(&mut self, check: Check) -> Result<Option<String>, String> {
        const AT_A_TIME: u64 = 2;
        let own = directed(check);
        let end = own.from + own.seeds;
        for from in (own.from..end).step_by(AT_A_TIME as usize) {
            let to = end.min(from + AT_A_TIME);
            let seeds = match self.0.entry((own.scenario, from, to)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    new.insert(Seeds::of(scenario::as_it_is(own.scenario)?, from, to - from))
                }
            };
            let found = seeds.noticing(check);
            if !found.is_empty() {
                return Ok(Some(row(check, own.scenario, to - own.from, &found)));
            }
        }
        Ok(None)
    }
}

fn row(check: Check, name: &str, count: u64, found: &BTreeMap<u64, String>) -> String {
    let noticed = format!("{} of {count}", found.len());
    let mean = count as f64 / found.len() as f64;
    format!("{:<22} {name:<18} {noticed:>12} {mean:>10.1}  {}", check.name(), first_of(found))
}

/// The invariant that each broken seed broke first, by its name.
fn broken(scenario: &Arc<Scenario>, from: u64, count: u64, check: Option<Check>) -> BTreeMap<u64, String> {
    let batch = Batch::play(scenario, from, count, check);
    batch.broke.into_iter().map(|broke| (broke.seed, broke.breach.name().to_owned())).collect()
}

/// The first broken invariants with their counts, the most frequent one first.
fn first_of(found: &BTreeMap<u64, String>) -> String {
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for invariant in found.values() {
        *counted.entry(invariant).or_default() += 1;
    }
    let mut all: Vec<(&str, u64)> = counted.into_iter().collect();
    all.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    joined(all.iter().map(|(invariant, count)| format!("{invariant} ({count})")), ", ")
}
