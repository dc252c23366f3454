//! The rows of the result, and their place in the documents.
//!
//! It must not change anything outside of its two marks.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- peers -->";
const END: &str = "<!-- /peers -->";

/// One measured quantity, with a value for each round.
pub struct Row {
    pub what: &'static str,
    /// The bound that issue 39 sets; empty if there is none.
    pub must: &'static str,
    pub values: Vec<f64>,
}

/// The table as text, with a last line that says where it was measured.
pub fn show(rows: &[Row], place: &str) -> String {
    let mut text = String::from("| row | minimum | median | maximum | must |\n|---|---|---|---|---|\n");
    for Row { what, must, values } in rows {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        let [least, middle, most] = [at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1))];
        writeln!(text, "| {what} | {least:.2} | {middle:.2} | {most:.2} | {must} |")
            .unwrap_or_else(|error| panic!("a string takes all text: {error}"));
    }
    format!("{text}\n{place}")
}

/// Puts the text between the marks of `docs/measurements.md`.
pub fn write(shown: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements.md");
    let old = std::fs::read_to_string(&path)?;
    let (before, rest) =
        old.split_once(BEGIN).with_context(|| format!("no {BEGIN} in {}", path.display()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no {END} in {}", path.display()))?;
    std::fs::write(&path, format!("{before}{BEGIN}\n{shown}\n{END}{after}"))?;
    Ok(())
}

/// The machine's load of the last minute.
pub fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
