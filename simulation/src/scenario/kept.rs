//! Kept seeds, which once broke something: `kept/seeds.toml`.
//!
//! `onceway-sim kept` replays them, `onceway-sim seeds --keep` adds to them.

use std::path::{Path, PathBuf};

use onceway::config::Errors;
use onceway::config::reader::{self, At, Problems, Section};

use super::find;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub scenario: PathBuf,
    pub seed: u64,
    /// The breach, in a line.
    pub broke: String,
}

/// The file, as it comes with the harness.
pub fn file() -> PathBuf {
    find::path("kept/seeds.toml")
}

/// The file in the source tree of this build, to which seeds are added.
pub fn in_the_tree() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("kept").join("seeds.toml")
}

/// All seeds of a file, in its order, or all its problems. Blocks: reads one file.
pub fn read(path: &Path) -> Result<Vec<Kept>, Errors> {
    let problems = Problems::default();
    let all = find::read(path, &At::file(path), &problems).and_then(|source| {
        let document = source.parse(&problems)?;
        let top = Section::top(&source, &document, &problems);
        let all: Option<Vec<Kept>> =
            top.tables("kept").into_iter().map(|section| one(section, path)).collect();
        top.finish();
        all
    });
    match (all, problems.into_sorted()) {
        (Some(all), none) if none.is_empty() => Ok(all),
        (_, some) => Err(Errors(some)),
    }
}

fn one(section: Section<'_>, path: &Path) -> Option<Kept> {
    let beside = |name: &str| path.with_file_name(format!("{name}.toml"));
    let scenario = section.required("scenario", "name the scenario, such as scenario = \"swarm\"", |value| {
        let name = reader::text(value)?;
        let file = beside(&name);
        if file.is_file() || find::has(&file) { Ok(file) } else { find::find(&name) }
    });
    let seed = section.required("seed", "say which run, such as seed = 17", |value| {
        reader::number(value, 0, i64::MAX as u64)
    });
    let broke = section.required("broke", "say in a line what it broke", reader::text);
    section.finish();
    Some(Kept { scenario: scenario?, seed: seed?, broke: broke? })
}

/// The file's new entry for a seed. A scenario of the harness is named, others are given by path.
pub fn entry(scenario: &Path, seed: u64, broke: &str) -> String {
    let stem = scenario.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let comes_along = find::find(&stem).is_ok_and(|file| file == scenario);
    let name = if comes_along { stem } else { scenario.display().to_string() };
    let [name, broke] = [name, broke.to_owned()].map(toml::Value::String);
    format!("\n[[kept]]\nscenario = {name}\nseed = {seed}\nbroke = {broke}\n")
}
