//! Kept seeds: this file replays them, and adds to their file.
//!
//! It takes no seed out: a person decides that.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{self, Broke};
use super::show::say;
use crate::scenario::{self, find, kept};

/// The longest text of a breach beside a seed, in characters.
const MOST_TOLD: usize = 200;

/// Replays all kept seeds, one after the other. Returns true if every invariant held.
pub fn replay() -> Result<bool, String> {
    let all = kept::read(&kept::file()).map_err(|errors| errors.to_string())?;
    let mut held = true;
    for seed in &all {
        let scenario = scenario::load(&seed.scenario, &[]).map_err(|errors| errors.to_string())?;
        let scenario = Arc::new(scenario);
        let outcome = batch::play(&scenario, seed.seed, None);
        held &= outcome.held();
        match outcome.breaches.first() {
            None => say!("held          {} {}: once {}", scenario.name, seed.seed, seed.broke),
            Some(breach) => say!(
                "BROKE         {} {}: invariant {}: {}; once {}",
                scenario.name,
                seed.seed,
                breach.invariant,
                breach.text,
                seed.broke
            ),
        }
    }
    say!("{} seeds that once broke something.", all.len());
    Ok(held)
}

/// Adds new seeds to the file in this build's source tree. Blocks: reads and writes one file.
pub fn add(scenario: &Path, broke: &[Broke]) -> Result<(), String> {
    let file = kept::in_the_tree();
    let known = kept::read(&file).map_err(|errors| errors.to_string())?;
    let scenario: PathBuf = match find::has(scenario) {
        true => scenario.to_owned(),
        false => scenario.canonicalize().map_err(|error| format!("{}: {error}", scenario.display()))?,
    };
    let is_known = |seed: u64| known.iter().any(|kept| kept.scenario == scenario && kept.seed == seed);
    let fresh = broke.iter().filter(|broke| !is_known(broke.seed));
    let text: String = fresh
        .map(|Broke { seed, breach }| {
            let what = format!("{}: {}", breach.invariant, breach.text);
            kept::entry(&scenario, *seed, &what.chars().take(MOST_TOLD).collect::<String>())
        })
        .collect();
    let opened = OpenOptions::new().append(true).open(&file);
    let written = opened.and_then(|mut open| open.write_all(text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", file.display()))
}
