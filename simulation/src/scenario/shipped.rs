//! The files that come with the harness, within the binary: scenarios, their ring and routes files,
//! and the kept seeds.
//!
//! So a binary has them all wherever it is installed. [`super::find`] looks for scenarios here by
//! name, [`super::load`] reads files by a path of this folder. It must not hold a file that is not
//! in the tree, nor leave one out.

use std::path::{Component, Path, PathBuf};

use onceway::config::reader::{At, Problems, Source};

macro_rules! files {
    ($($name:literal)*) => {
        /// Each file's path in the tree of the harness, and its text.
        pub const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../", $name)))),*];
    };
}

files! {
    "kept/seeds.toml"
    "kept/swarm-37.toml"
    "kept/swarm-41.toml"
    "kept/swarm-46.toml"
    "kept/swarm-51.toml"
    "kept/swarm-53.toml"
    "kept/swarm-55.toml"
    "scenarios/alone.toml"
    "scenarios/asked-first.toml"
    "scenarios/brief-swarm.toml"
    "scenarios/client-clocks.toml"
    "scenarios/clock-jumps.toml"
    "scenarios/clock-set-right.toml"
    "scenarios/copied-frontier.toml"
    "scenarios/copied-rows.toml"
    "scenarios/copied-target.toml"
    "scenarios/disk-lost.toml"
    "scenarios/five-regions.toml"
    "scenarios/flapping.toml"
    "scenarios/half-a-word.toml"
    "scenarios/hidden-doubt.toml"
    "scenarios/isolated.toml"
    "scenarios/lag-remembered.toml"
    "scenarios/lag-spike.toml"
    "scenarios/last-region.toml"
    "scenarios/late-job.toml"
    "scenarios/late-renewal.toml"
    "scenarios/late-rows.toml"
    "scenarios/lodged-lives.toml"
    "scenarios/long-pause.toml"
    "scenarios/lost-grants.toml"
    "scenarios/lost-news.toml"
    "scenarios/new-target.toml"
    "scenarios/new-voter.toml"
    "scenarios/one-way-cut.toml"
    "scenarios/open-import.toml"
    "scenarios/promoted.toml"
    "scenarios/proxy-gives-up.toml"
    "scenarios/put-back.toml"
    "scenarios/rebooted.toml"
    "scenarios/reboots.toml"
    "scenarios/raised-lease.toml"
    "scenarios/raised-lives.toml"
    "scenarios/region-loss.toml"
    "scenarios/renamed-routes.toml"
    "scenarios/restarts.toml"
    "scenarios/retry-storm.toml"
    "scenarios/reused-keys.toml"
    "scenarios/ring-change.toml"
    "scenarios/rings/five.toml"
    "scenarios/rings/one.toml"
    "scenarios/rings/routes-accepting.toml"
    "scenarios/rings/routes-brief.toml"
    "scenarios/rings/routes-fleeting.toml"
    "scenarios/rings/routes-forgetful.toml"
    "scenarios/rings/routes-patient.toml"
    "scenarios/rings/routes-refusing.toml"
    "scenarios/rings/routes-settling.toml"
    "scenarios/rings/routes.toml"
    "scenarios/rings/three-brief.toml"
    "scenarios/rings/three-calm.toml"
    "scenarios/rings/three-curt.toml"
    "scenarios/rings/three-fleeting.toml"
    "scenarios/rings/three-hasty.toml"
    "scenarios/rings/three-impatient.toml"
    "scenarios/rings/three-young.toml"
    "scenarios/rings/three.toml"
    "scenarios/rings/two-and-witness.toml"
    "scenarios/risk-accepted.toml"
    "scenarios/rolling-upgrade.toml"
    "scenarios/sealed-keeper.toml"
    "scenarios/second-lease.toml"
    "scenarios/short-lived.toml"
    "scenarios/shorter-holds.toml"
    "scenarios/shorter-lives.toml"
    "scenarios/shorter-settling.toml"
    "scenarios/skipped-view.toml"
    "scenarios/sleeping-handler.toml"
    "scenarios/slot-lost.toml"
    "scenarios/slow-links.toml"
    "scenarios/slow-store.toml"
    "scenarios/stale-view.toml"
    "scenarios/swarm.toml"
    "scenarios/two-and-witness.toml"
    "scenarios/two-moves.toml"
    "scenarios/used-again.toml"
    "scenarios/witness-swarm.toml"
}

/// The folder that all of them are in. No file system has it.
const ROOT: &str = "(onceway-sim)";

/// The path of one of the files, by its path in the tree of the harness.
pub fn path(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

/// True if a file of this path is here.
pub fn has(path: &Path) -> bool {
    text(path).is_some()
}

/// The text of the file at this path, which may have `..` in it; `None` for one of the file system.
fn text(path: &Path) -> Option<&'static str> {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.strip_prefix(ROOT).ok()?.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => drop(parts.pop()?),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir => return None,
        }
    }
    let name = parts.join("/");
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Reads a file of the file system, or one from here. `wanted_by` is the place that names it.
/// Blocks: reads one file at most.
pub(super) fn read(path: &Path, wanted_by: &At, problems: &Problems) -> Option<Source> {
    match text(path) {
        Some(text) => Some(Source::of(path, text.to_owned())),
        None => Source::read(path, wanted_by, problems),
    }
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let files = FILES.iter().filter_map(|(name, _)| name.strip_prefix("scenarios/"));
    files.filter_map(|name| name.strip_suffix(".toml")).filter(|name| !name.contains('/'))
}
