//! The result of one run of a drill, with its bounds: numbers for programs, a table for people.
//!
//! `verdict` fills it, `summary` adds runs up, `cli::drill` prints it. Field names are a contract:
//! add, never rename.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use onceway_protocol::ring::Ring;
use onceway_protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Time beside the lease and the window in a takeover's bound.
const BESIDE: Duration = Duration::from_millis(250);
/// Longest pause of any arc in a clean move, at 60 ms between regions.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Longest time from `start` or `resume` until a lost region's arcs are home.
pub const HOME_WITHIN: Duration = Duration::from_secs(60);

/// `lease·(1 + 2·drift) + margin + window + 6 round trips + 250 ms`: the longest time from the
/// death of a home to the first run of one of its keys elsewhere. All in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Takeover {
    pub lease: f64,
    pub drift: f64,
    pub margin: f64,
    /// The longest window that successors reported, or the one computed from the lag observed
    /// before the death if that is longer.
    pub window: f64,
    pub round_trips: f64,
    pub beside: f64,
    pub bound: f64,
}

impl Takeover {
    pub fn of(file: &RingFile, window: Duration, rtt: Duration) -> Takeover {
        let lease = millis(file.failover.lease);
        let drift = lease * 2.0 * f64::from(file.clock.drift_ppm) / 1e6;
        let (margin, window, round_trips) = (millis(file.clock.margin), millis(window), 6.0 * millis(rtt));
        let beside = millis(BESIDE);
        let bound = lease + drift + margin + window + round_trips + beside;
        Takeover { lease, drift, margin, window, round_trips, beside, bound }
    }
}

pub fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    pub keys: u64,
    pub effects: u64,
    pub doubles: u64,
    /// Doubles that some store lists (run at risk, or journalled as double) and the audit too.
    pub doubles_listed: u64,
    pub doubles_by_rerun: u64,
}

impl ClassReport {
    pub fn add(&mut self, other: &ClassReport) {
        let ClassReport { keys, effects, doubles, doubles_listed, doubles_by_rerun } = other;
        self.keys += keys;
        self.effects += effects;
        self.doubles += doubles;
        self.doubles_listed += doubles_listed;
        self.doubles_by_rerun += doubles_by_rerun;
    }

    pub fn table(classes: &BTreeMap<&'static str, ClassReport>) -> String {
        let mut text = String::new();
        for (class, found) in classes {
            let ClassReport { keys, effects, doubles, doubles_listed, doubles_by_rerun } = found;
            let _ = writeln!(
                text,
                "  {class:<22} {keys:>5} keys {effects:>5} effects {doubles:>3} doubles ({doubles_listed} listed, {doubles_by_rerun} by rerun)"
            );
        }
        text
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstRun {
    /// Time from the death to the answer of the first key that began after it, in milliseconds.
    pub ms: Option<f64>,
    /// The same on a route under escrow, which need not wait for the window.
    pub escrow_ms: Option<f64>,
    pub bound: Takeover,
}

impl FirstRun {
    /// True if it came after its bound. If it never came, the drill has broken another bound.
    pub fn is_over(&self) -> bool {
        self.ms.is_some_and(|ms| ms > self.bound.bound)
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub drill: &'static str,
    pub run: u32,
    pub held: bool,
    pub broken: Vec<String>,
    pub keys: u64,
    pub classes: BTreeMap<&'static str, ClassReport>,
    pub ends: BTreeMap<String, u64>,
    /// All replies to clients, by status and code.
    pub replies: BTreeMap<String, u64>,
    /// Replies that this drill does not allow: key, time and word of the first ones.
    pub unexpected: Vec<String>,
    pub answers_changed: u64,
    pub answers_without_effect: u64,
    /// Keys that some store lists as run at risk, or as double.
    pub listed: u64,
    pub first_run: Option<FirstRun>,
    /// The longest time in which no key of a bucket ran, per home and next region, in milliseconds.
    pub pauses: BTreeMap<String, f64>,
    /// Time from mending until every region serves its own arcs again, in milliseconds.
    pub home_again_ms: Option<f64>,
    pub numbers: BTreeMap<&'static str, Value>,
    /// The drill's actions and the regions' statuses, with seconds since the start of the run.
    pub timeline: Vec<String>,
}

impl Report {
    pub fn broke(&mut self, what: impl Into<String>) {
        self.broken.push(what.into());
    }

    /// Adds a count of what must not be. If there is any, `what` is broken.
    pub fn none(&mut self, name: &'static str, count: u64, what: String) {
        self.numbers.insert(name, count.into());
        self.broken.extend((count > 0).then_some(what));
    }

    /// Text for people; the timeline only if it explains something.
    pub fn in_words(&self) -> String {
        let mut text = format!(
            "{} {}  run {}  {} keys\n",
            if self.held { "held  " } else { "BROKEN" },
            self.drill,
            self.run,
            self.keys
        );
        text.push_str(&ClassReport::table(&self.classes));
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

/// Counts in one line, words after their numbers.
pub(super) fn counted(counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    counts.join(", ")
}

/// The ring file, as far as drills go by it. `files` wrote all of it: no default is known twice.
#[derive(Deserialize)]
pub struct RingFile {
    seed: u64,
    place_by: PlaceBy,
    #[serde(rename = "region")]
    regions: Vec<RegionSpec>,
    pub clock: Clock,
    pub failover: Failover,
}

#[derive(Deserialize)]
pub struct Clock {
    pub drift_ppm: u32,
    #[serde(deserialize_with = "span")]
    pub margin: Duration,
}

#[derive(Deserialize)]
pub struct Failover {
    #[serde(deserialize_with = "span")]
    pub lease: Duration,
    pub multiple: f64,
    #[serde(deserialize_with = "span")]
    pub floor: Duration,
}

impl RingFile {
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("ring.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} lacks what a drill goes by", path.display()))
    }

    /// Builds the ring, which takes milliseconds for each region.
    pub fn ring(&self) -> Result<Arc<Ring>> {
        let (seed, place_by, regions) = (self.seed, self.place_by, self.regions.clone());
        Ok(Arc::new(Ring::build(&RingSpec { seed, place_by, regions, pins: Vec::new() })?))
    }
}

fn span<'de, D: Deserializer<'de>>(text: D) -> Result<Duration, D::Error> {
    humantime::parse_duration(&String::deserialize(text)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use onceway_protocol::region::RegionName;

    use super::*;
    use crate::{drill::soak, files};

    #[test]
    fn the_drills_ring_files_have_the_expected_settings() {
        let names = [RegionName::parse("us").unwrap(), RegionName::parse("eu").unwrap()];
        for (failover, lease) in [(files::FAILOVER, 3), (soak::FAILOVER, 10)] {
            let folder = tempfile::tempdir().unwrap();
            files::write(folder.path(), "ring.toml", &files::ring(&names, &[1, 2], failover)).unwrap();
            let file = RingFile::read(folder.path()).unwrap();
            let weight = file.ring().unwrap().weight(&names[1]);
            assert_eq!((file.failover.lease.as_secs(), weight), (lease, Some(2)));
        }
    }
}
