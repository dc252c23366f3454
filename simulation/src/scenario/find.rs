//! The files that come with the harness, within the binary: scenarios, their ring and routes files,
//! and the kept seeds.
//!
//! A scenario is found by the path of a file, or by the name of one of these.

use std::path::{Component, Path, PathBuf};

use onceway::config::reader::{At, Problems, Source};

/// Each file's path in the tree of the harness, and its text, as `build.rs` found them.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

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

/// Reads a file from here or of the file system, which blocks. `wanted_by` names it.
pub(super) fn read(path: &Path, wanted_by: &At, problems: &Problems) -> Option<Source> {
    match text(path) {
        Some(text) => Some(Source::of(path, text.to_owned())),
        None => Source::read(path, wanted_by, problems),
    }
}

/// The file: the path itself if it exists, else the scenario of this name. Or the existing ones.
pub fn find(wanted: &str) -> Result<PathBuf, String> {
    let given = Path::new(wanted);
    if given.is_file() {
        return Ok(given.to_owned());
    }
    let stem = given.file_stem().unwrap_or_default().to_string_lossy();
    let named = path(&format!("scenarios/{stem}.toml"));
    let is_name = given.components().count() == 1 || wanted.starts_with("scenarios/");
    if is_name && has(&named) {
        return Ok(named);
    }
    Err(format!("there is no scenario {wanted:?}: give the path of a file, or one of {}", names().join(", ")))
}

/// The names of the scenarios that come with the harness, in order.
pub fn names() -> Vec<String> {
    let files = FILES.iter().filter_map(|(name, _)| name.strip_prefix("scenarios/"));
    let names = files.filter_map(|name| name.strip_suffix(".toml"));
    names.filter(|name| !name.contains('/')).map(str::to_owned).collect()
}

/// The text that finds this scenario: its name if it comes with the harness, else its path.
pub fn shown(path: &Path) -> String {
    match has(path) {
        true => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        false => path.display().to_string(),
    }
}
