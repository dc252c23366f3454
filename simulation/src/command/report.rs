//! Writes a report: the page, the data, and the output on a terminal.
//!
//! The library's `report` makes the page.

use std::fs;
use std::path::{Path, PathBuf};

use super::out::say;
use super::points;
use crate::report::{Report, html};

/// Writes the page and the data and shows the rest. Returns true if every invariant held.
pub fn write(
    path: &Path,
    report: Report,
    out: Option<PathBuf>,
    json: Option<PathBuf>,
) -> Result<bool, String> {
    let out = out.unwrap_or_else(|| PathBuf::from(format!("{}.html", report.study.scenario)));
    put(&out, &html(&report))?;
    let data = serde_json::to_string(&report).map_err(|error| error.to_string())?;
    match json {
        Some(file) if file == Path::new("-") => say!("{data}"),
        some => {
            if let Some(file) = some {
                put(&file, &data)?;
            }
            points::show(path, &report.study);
            say!("\nThe page is {}.", out.display());
        }
    }
    Ok(report.study.held())
}

fn put(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
