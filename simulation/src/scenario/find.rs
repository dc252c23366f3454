//! Finds a scenario's file by a path, or by the name of one that comes with the harness.
//!
//! [`super::shipped`] has the files that come with the harness.

use std::path::{Path, PathBuf};

use super::shipped;

/// The file: the path itself if it exists, else the scenario of this name.
///
/// # Errors
/// The existing scenarios, in one line.
pub fn find(wanted: &str) -> Result<PathBuf, String> {
    let path = Path::new(wanted);
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let named = shipped::path(&format!("scenarios/{stem}.toml"));
    let is_name = path.components().count() == 1 || wanted.starts_with("scenarios/");
    if is_name && shipped::has(&named) {
        return Ok(named);
    }
    Err(format!("there is no scenario {wanted:?}: give the path of a file, or one of {}", names().join(", ")))
}

/// The names of the scenarios that come with the harness, in order.
pub fn names() -> Vec<String> {
    shipped::names().map(str::to_owned).collect()
}

/// The text that finds this scenario: its name if it comes with the harness, else its path.
pub fn shown(path: &Path) -> String {
    match shipped::has(path) {
        true => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        false => path.display().to_string(),
    }
}
