//! What a run of a drill came to: numbers for programs, a table for people.
//!
//! Neighbours: `verdict` fills it, `cli::drill` prints it. Field names are a contract: add, never rename. It must not leave out what speaks
//! against the run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::bounds::Takeover;

/// The keys of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    /// Keys that clients used.
    pub keys: u64,
    /// Effects in the ledger.
    pub effects: u64,
    /// Keys with more than one effect.
    pub doubles: u64,
    /// Those among them that some store lists: run at risk, or journalled as double.
    pub doubles_listed: u64,
    /// Those among them that ran again because their route says `rerun`.
    pub doubles_by_rerun: u64,
}

/// The first run of a key of a lost region elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstRun {
    /// From the death to the answer of the first key that began after it, in milliseconds.
    pub ms: Option<f64>,
    /// The same on a route under escrow, which need not wait for the window.
    pub escrow_ms: Option<f64>,
    /// The bound and its parts.
    pub bound: Takeover,
}

/// One run of a drill.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Which drill.
    pub drill: &'static str,
    /// Which run of it, from 1.
    pub run: u32,
    /// Whether every bound held.
    pub held: bool,
    /// The bounds that did not hold, in words.
    pub broken: Vec<String>,
    /// Keys that clients used, those of probes included.
    pub keys: u64,
    /// By class of route.
    pub classes: BTreeMap<&'static str, ClassReport>,
    /// How the histories of keys ended.
    pub ends: BTreeMap<String, u64>,
    /// Everything that clients were told, by status and code.
    pub replies: BTreeMap<String, u64>,
    /// Replies that this drill does not allow: key, time and word of the first ones.
    pub unexpected: Vec<String>,
    /// Keys that were given two different answers.
    pub answers_changed: u64,
    /// Keys with an answer of the upstream that the ledger knows nothing of.
    pub answers_without_effect: u64,
    /// Keys that some store lists as run at risk, or as double.
    pub listed: u64,
    /// After a loss.
    pub first_run: Option<FirstRun>,
    /// The longest time in which no key of a bucket ran, per home and next region, in milliseconds.
    pub pauses: BTreeMap<String, f64>,
    /// From mending until every region serves again what is its own, in milliseconds.
    pub home_again_ms: Option<f64>,
    /// The drill's own numbers.
    pub numbers: BTreeMap<&'static str, Value>,
    /// What was done and what regions said, with seconds since the start of the run.
    pub timeline: Vec<String>,
}

impl Report {
    /// A bound did not hold.
    pub fn broke(&mut self, what: impl Into<String>) {
        self.broken.push(what.into());
    }

    /// For people; the timeline only where it explains something.
    pub fn in_words(&self) -> String {
        let mut text = format!(
            "{} {}  run {}  {} keys\n",
            if self.held { "held  " } else { "BROKEN" },
            self.drill,
            self.run,
            self.keys
        );
        for (class, found) in &self.classes {
            let ClassReport { keys, effects, doubles, doubles_listed, doubles_by_rerun } = found;
            let _ = writeln!(
                text,
                "  {class:<22} {keys:>5} keys {effects:>5} effects {doubles:>3} doubles ({doubles_listed} listed, {doubles_by_rerun} by rerun)"
            );
        }
        let _ = writeln!(text, "  ends     {}", counted(&self.ends));
        let _ = writeln!(text, "  replies  {}", counted(&self.replies));
        if let Some(FirstRun { ms, escrow_ms, bound }) = &self.first_run {
            let shown = |ms: &Option<f64>| ms.map_or("never".to_owned(), |ms| format!("{ms:.0} ms"));
            let Takeover { lease, drift, margin, window, round_trips, beside, bound } = bound;
            let _ = writeln!(
                text,
                "  first run elsewhere {} (escrow {}), bound {bound:.0} ms = lease {lease:.0} + drift {drift:.0} + margin {margin:.0} + window {window:.0} + 6 round trips {round_trips:.0} + {beside:.0}",
                shown(ms),
                shown(escrow_ms)
            );
        }
        if !self.pauses.is_empty() {
            let pauses: Vec<String> =
                self.pauses.iter().map(|(bucket, ms)| format!("{bucket} {ms:.0} ms")).collect();
            let _ = writeln!(text, "  longest pause  {}", pauses.join(", "));
        }
        if let Some(ms) = self.home_again_ms {
            let _ = writeln!(text, "  home again after {ms:.0} ms");
        }
        for (name, value) in &self.numbers {
            let _ = writeln!(text, "  {name}: {value}");
        }
        for broken in &self.broken {
            let _ = writeln!(text, "  ✗ {broken}");
        }
        for unexpected in &self.unexpected {
            let _ = writeln!(text, "    unexpected: {unexpected}");
        }
        if !self.held {
            for line in &self.timeline {
                let _ = writeln!(text, "    {line}");
            }
        }
        text
    }
}

/// What the runs of one drill came to together.
pub fn summary(reports: &[Report]) -> String {
    let mut text = String::new();
    let mut drills: Vec<&str> = reports.iter().map(|report| report.drill).collect();
    drills.dedup();
    for drill in drills {
        let of: Vec<&Report> = reports.iter().filter(|report| report.drill == drill).collect();
        let held = of.iter().filter(|report| report.held).count();
        let doubles: u64 =
            of.iter().flat_map(|report| report.classes.values()).map(|class| class.doubles).sum();
        let by_rerun: u64 =
            of.iter().flat_map(|report| report.classes.values()).map(|class| class.doubles_by_rerun).sum();
        let _ = write!(
            text,
            "{drill:<18} {held}/{} runs held, {doubles} keys with more than one effect ({by_rerun} of routes that say rerun)",
            of.len()
        );
        let mut first: Vec<f64> = of.iter().filter_map(|report| report.first_run.as_ref()?.ms).collect();
        first.sort_by(f64::total_cmp);
        if let Some(longest) = first.last() {
            let at =
                |part: f64| first[((first.len() as f64 * part).ceil() as usize).clamp(1, first.len()) - 1];
            let _ = write!(text, ", first run p50 {:.0} p95 {:.0} max {longest:.0} ms", at(0.5), at(0.95));
        }
        let pauses = of.iter().flat_map(|report| report.pauses.values());
        if let Some(longest) = pauses.copied().max_by(f64::total_cmp) {
            let _ = write!(text, ", longest pause {longest:.0} ms");
        }
        text.push('\n');
    }
    text
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    counts.join(", ")
}
