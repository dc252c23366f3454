//! Results: the outcome of each mutant, kept in a file, and the report for people.
//!
//! Each outcome is written when it is known, so a stopped run goes on from there. The line's text
//! identifies outcomes and known equivalents, never the line's number. This file must not decide
//! which mutants are tried.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::site::Site;

/// Outcome of a mutant over all suites that ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The site's identity.
    pub site: String,
    /// True if the mutant does not compile.
    #[serde(default)]
    pub refused: bool,
    /// The suite and the test that noticed the mutant.
    #[serde(default)]
    pub noticed: Option<String>,
    /// Suites that reached the mutant and did not notice it.
    #[serde(default)]
    pub passed: BTreeSet<String>,
    /// Suites that did not run all tests that reach the mutant.
    #[serde(default)]
    pub partly: BTreeSet<String>,
}

/// Outcomes by identity, and their file.
pub struct Results {
    known: BTreeMap<String, Outcome>,
    file: File,
}

impl Results {
    /// Reads the file, or creates it. Later lines replace earlier ones of the same site.
    ///
    /// # Errors
    /// If the file cannot be created or read, or a line is no outcome.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::options().create(true).append(true).open(path).context("the results")?;
        let mut known = BTreeMap::new();
        for line in fs::read_to_string(path)?.lines() {
            let outcome: Outcome = serde_json::from_str(line)
                .with_context(|| format!("a line of {} is no outcome: {line}", path.display()))?;
            known.insert(outcome.site.clone(), outcome);
        }
        Ok(Self { known, file })
    }

    /// The known outcome of a site; an empty one if the site is new.
    pub fn of(&self, site: &Site) -> Outcome {
        let site = site.identity();
        self.known.get(&site).cloned().unwrap_or_else(|| Outcome { site, ..Outcome::default() })
    }

    /// Forgets mutants that no suite noticed, so that they are tried again. The file keeps them.
    pub fn forget_survivors(&mut self) {
        self.known.retain(|_, outcome| outcome.refused || outcome.noticed.is_some());
    }

    /// Stores that a mutant does not compile.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn refuse(&mut self, site: &Site) -> anyhow::Result<()> {
        let outcome = self.of(site);
        if outcome.refused { Ok(()) } else { self.enter(Outcome { refused: true, ..outcome }) }
    }

    /// Stores an outcome.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn enter(&mut self, outcome: Outcome) -> anyhow::Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&outcome)?)?;
        self.known.insert(outcome.site.clone(), outcome);
        Ok(())
    }
}

/// The file of known equivalents.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equivalents {
    #[serde(default)]
    equivalent: Vec<Equivalent>,
}

/// A mutant that no test can notice, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equivalent {
    file: String,
    /// The text of the site's first line.
    line: String,
    change: String,
    /// Which of several alike on lines of the same text, from 0.
    #[serde(default)]
    nth: u32,
    reason: String,
}

impl Equivalents {
    /// Reads the file. Every entry must belong to a site and give a reason.
    ///
    /// # Errors
    /// If the file cannot be read or parsed, or an entry has no site or no reason.
    pub fn read(path: &Path, sites: &[Site]) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let all: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for entry in &all.equivalent {
            if !sites.iter().any(|site| entry.is(site)) {
                let Equivalent { file, line, change, .. } = entry;
                bail!("{}: no mutant `{change}` at `{line}` in {file}: remove the entry", path.display());
            }
            if entry.reason.trim().is_empty() {
                bail!("{}: `{}` in {} has no reason", path.display(), entry.change, entry.file);
            }
        }
        Ok(all)
    }

    /// True if the file lists the site.
    pub fn has(&self, site: &Site) -> bool {
        self.equivalent.iter().any(|entry| entry.is(site))
    }
}

impl Equivalent {
    fn is(&self, site: &Site) -> bool {
        let site_of = (&site.file, &site.text, &site.change, site.nth);
        (&self.file, &self.line, &self.change, self.nth) == site_of
    }
}

/// Numbers of mutants by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub refused: usize,
    pub noticed: usize,
    pub equivalent: usize,
    /// Reached, and not noticed by any suite that ran.
    pub survived: usize,
    /// Not reached by any suite that ran.
    pub unreached: usize,
}

impl Counts {
    fn count(&mut self, outcome: &Outcome, is_equivalent: bool) {
        *match outcome {
            Outcome { refused: true, .. } => &mut self.refused,
            Outcome { noticed: Some(_), .. } => &mut self.noticed,
            _ if is_equivalent => &mut self.equivalent,
            Outcome { passed, .. } if passed.is_empty() => &mut self.unreached,
            _ => &mut self.survived,
        } += 1;
    }

    /// Number of mutants that compile.
    pub fn tried(&self) -> usize {
        self.noticed + self.equivalent + self.survived + self.unreached
    }
}

/// Prints survivors and unreached mutants, then a table by file. Returns the sums.
pub fn report(sites: &[Site], results: &Results, equivalents: &Equivalents) -> Counts {
    let mut files: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut sums = Counts::default();
    for site in sites {
        let outcome = results.of(site);
        let is_equivalent = equivalents.has(site);
        files.entry(&site.file).or_default().count(&outcome, is_equivalent);
        let mut own = Counts::default();
        own.count(&outcome, is_equivalent);
        sums.count(&outcome, is_equivalent);
        if own.survived + own.unreached > 0 {
            let word = if own.survived > 0 { "survived" } else { "unreached" };
            println!("{word} {}:{}: {}", site.file, site.lines.0, site.text);
            let suites: Vec<&str> = outcome.passed.iter().map(String::as_str).collect();
            let partly = if outcome.partly.is_empty() { "" } else { " (not all tests that reach it)" };
            println!("    {}  [{}{partly}]", site.change, suites.join(" "));
        }
        if outcome.noticed.is_some() && is_equivalent {
            println!(
                "no equivalent, since a test notices it: {}:{}: {}",
                site.file, site.lines.0, site.change
            );
        }
    }
    println!(
        "{:44} {:>6} {:>8} {:>11} {:>9} {:>10}",
        "file", "tried", "noticed", "equivalent", "survived", "unreached"
    );
    for (file, counts) in files.into_iter().chain([("all", sums)]) {
        let Counts { noticed, equivalent, survived, unreached, .. } = counts;
        println!(
            "{file:44} {:>6} {noticed:>8} {equivalent:>11} {survived:>9} {unreached:>10}",
            counts.tried()
        );
    }
    println!("{} more do not compile", sums.refused);
    sums
}
