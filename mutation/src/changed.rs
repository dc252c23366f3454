//! Lines that changed since a revision, by git.
//!
//! With `--changed-since` only sites on these lines are tried. A line counts if the working tree
//! differs from the revision there. This file must not write to the repository.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::site::Site;

/// Changed lines, from 1, by file.
pub type Changed = BTreeMap<String, Vec<RangeInclusive<usize>>>;

/// Lines of the working tree that differ from a revision.
///
/// # Errors
/// If git cannot be run or does not know the revision.
pub fn since(top: &Path, revision: &str) -> anyhow::Result<Changed> {
    let mut git = Command::new("git");
    git.args(["diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", revision, "--"]);
    let output = git.current_dir(top).output().context("git cannot be run")?;
    if !output.status.success() {
        bail!("git diff {revision}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(diff: &str) -> Changed {
    let mut all = Changed::new();
    let mut file = String::new();
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            name.clone_into(&mut file);
        } else if let Some(hunk) = line.strip_prefix("@@ -") {
            let new = hunk.split('+').nth(1).and_then(|new| new.split(' ').next()).unwrap_or("");
            let (first, count) = new.split_once(',').unwrap_or((new, "1"));
            if let (Ok(first), Ok(count)) = (first.parse::<usize>(), count.parse::<usize>())
                && count > 0
            {
                all.entry(file.clone()).or_default().push(first..=first + count - 1);
            }
        }
    }
    all
}

/// True if the site's first line is a changed line.
pub fn has(changed: &Changed, site: &Site) -> bool {
    changed.get(&site.file).is_some_and(|all| all.iter().any(|lines| lines.contains(&site.lines.0)))
}
