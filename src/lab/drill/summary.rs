//! Results of all runs of one drill together: counts as in [`super::report`], and the distribution
//! of every span that has a bound. Field names are a contract: add, never rename.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::report::{ClassReport, Report, Takeover, counted};

/// Distribution of one span over all runs, in milliseconds. With fewer than twenty values the 95th
/// percentile is the largest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub count: usize,
    pub least: f64,
    /// Half of the values are at most this.
    pub p50: f64,
    /// Nineteen of twenty values are at most this.
    pub p95: f64,
    pub max: f64,
}

impl Spread {
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, max) = (*values.first()?, *values.last()?);
        let count = values.len();
        let at = |percent: usize| values[(count * percent).div_ceil(100).clamp(1, count) - 1];
        Some(Spread { count, least, p50: at(50), p95: at(95), max })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstRuns {
    pub never: usize,
    pub ms: Option<Spread>,
    pub escrow_ms: Option<Spread>,
    pub window_ms: Option<Spread>,
    pub bound_ms: Option<Spread>,
    pub over_bound: usize,
    /// The parts of one bound; all but its window are the same in every run.
    pub parts: Takeover,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub summary: &'static str,
    pub runs: usize,
    pub held: usize,
    pub keys: u64,
    pub doubles: u64,
    pub doubles_listed: u64,
    pub doubles_by_rerun: u64,
    pub classes: BTreeMap<&'static str, ClassReport>,
    pub ends: BTreeMap<String, u64>,
    pub replies: BTreeMap<String, u64>,
    pub answers_changed: u64,
    pub answers_without_effect: u64,
    pub listed: u64,
    pub first_run: Option<FirstRuns>,
    /// The longest pause of each run, per home and next region; all arcs of the two move together.
    pub pauses: BTreeMap<String, Spread>,
    /// The same over all homes.
    pub pause_ms: Option<Spread>,
    pub home_again_ms: Option<Spread>,
}

impl Summary {
    /// One summary per drill, in the order in which the drills ran.
    pub fn all(reports: &[Report]) -> Vec<Summary> {
        let mut drills: Vec<&'static str> = Vec::new();
        for report in reports.iter().filter(|report| !report.drill.is_empty()) {
            if !drills.contains(&report.drill) {
                drills.push(report.drill);
            }
        }
        let runs = |drill| reports.iter().filter(|report| report.drill == drill).collect::<Vec<_>>();
        drills.into_iter().map(|drill| Summary::of(drill, &runs(drill))).collect()
    }

    fn of(drill: &'static str, runs: &[&Report]) -> Summary {
        let total = |count: fn(&Report) -> u64| runs.iter().map(|run| count(run)).sum::<u64>();
        let mut classes: BTreeMap<&'static str, ClassReport> = BTreeMap::new();
        for (class, found) in runs.iter().flat_map(|run| &run.classes) {
            classes.entry(class).or_default().add(found);
        }
        let mut all = ClassReport::default();
        classes.values().for_each(|class| all.add(class));
        let mut pauses: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (bucket, ms) in runs.iter().flat_map(|run| &run.pauses) {
            pauses.entry(bucket.clone()).or_default().push(*ms);
        }
        let pause_ms = Spread::of(pauses.values().flatten().copied());
        Summary {
            summary: drill,
            runs: runs.len(),
            held: runs.iter().filter(|run| run.held).count(),
            keys: total(|run| run.keys),
            doubles: all.doubles,
            doubles_listed: all.doubles_listed,
            doubles_by_rerun: all.doubles_by_rerun,
            classes,
            ends: counts(runs.iter().flat_map(|run| &run.ends)),
            replies: counts(runs.iter().flat_map(|run| &run.replies)),
            answers_changed: total(|run| run.answers_changed),
            answers_without_effect: total(|run| run.answers_without_effect),
            listed: total(|run| run.listed),
            first_run: first_runs(runs),
            pauses: pauses.into_iter().filter_map(|(name, of)| Some((name, Spread::of(of)?))).collect(),
            pause_ms,
            home_again_ms: Spread::of(runs.iter().filter_map(|run| run.home_again_ms)),
        }
    }

    pub fn in_words(&self) -> String {
        let Summary { summary, runs, held, keys, doubles, doubles_listed, doubles_by_rerun, .. } = self;
        let mut text = format!(
            "{summary}: {held} of {runs} runs held, {keys} keys, {doubles} with more than one effect ({doubles_listed} listed, {doubles_by_rerun} by rerun), {} listed at risk\n",
            self.listed
        );
        text.push_str(&ClassReport::table(&self.classes));
        let _ = writeln!(text, "  ends     {}", counted(&self.ends));
        let _ = writeln!(text, "  replies  {}", counted(&self.replies));
        let mut spans: Vec<(String, &Spread)> = Vec::new();
        let mut lines = String::new();
        if let Some(first) = &self.first_run {
            let named = [
                ("first run elsewhere", &first.ms),
                ("  under escrow", &first.escrow_ms),
                ("  window", &first.window_ms),
                ("  bound", &first.bound_ms),
            ];
            spans.extend(named.into_iter().filter_map(|(name, of)| Some((name.to_owned(), of.as_ref()?))));
            let Takeover { lease, drift, margin, round_trips, beside, window: _, bound: _ } = &first.parts;
            let _ = writeln!(
                lines,
                "  {} over their bound, {} never; bound = lease {lease:.0} + drift {drift:.0} + margin {margin:.0} + the run's window + 6 round trips {round_trips:.0} + {beside:.0} ms",
                first.over_bound, first.never
            );
        }
        spans.extend(self.pauses.iter().map(|(bucket, spread)| (format!("pause, {bucket}"), spread)));
        spans.extend(self.pause_ms.as_ref().map(|spread| ("pause, all".to_owned(), spread)));
        spans.extend(self.home_again_ms.as_ref().map(|spread| ("home again".to_owned(), spread)));
        if !spans.is_empty() {
            let _ = writeln!(text, "  {:<30} count   least     p50     p95     max  ms", "");
        }
        for (name, Spread { count, least, p50, p95, max }) in spans {
            let _ = writeln!(text, "  {name:<30} {count:>5} {least:>7.0} {p50:>7.0} {p95:>7.0} {max:>7.0}");
        }
        text + &lines
    }
}

fn counts<'a>(of: impl Iterator<Item = (&'a String, &'a u64)>) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (word, count) in of {
        *counts.entry(word.clone()).or_default() += count;
    }
    counts
}

fn first_runs(runs: &[&Report]) -> Option<FirstRuns> {
    let of: Vec<_> = runs.iter().filter_map(|run| run.first_run.as_ref()).collect();
    let parts = of.first()?.bound.clone();
    Some(FirstRuns {
        never: of.iter().filter(|first| first.ms.is_none()).count(),
        ms: Spread::of(of.iter().filter_map(|first| first.ms)),
        escrow_ms: Spread::of(of.iter().filter_map(|first| first.escrow_ms)),
        window_ms: Spread::of(of.iter().map(|first| first.bound.window)),
        bound_ms: Spread::of(of.iter().map(|first| first.bound.bound)),
        over_bound: of.iter().filter(|first| first.is_over()).count(),
        parts,
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::FirstRun;
    use super::*;

    fn run(drill: &'static str, ms: f64, held: bool) -> Report {
        let bound = Takeover { bound: 4663.0, ..Takeover::default() };
        let class = ClassReport { doubles: 1, doubles_listed: 1, ..ClassReport::default() };
        Report {
            drill,
            held,
            keys: 10,
            classes: [("notes", class)].into(),
            ends: [("definite".to_owned(), 9), ("in doubt".to_owned(), 1)].into(),
            first_run: Some(FirstRun { ms: Some(ms), escrow_ms: None, bound }),
            pauses: [("eu then us".to_owned(), ms / 10.0)].into(),
            ..Report::default()
        }
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let spread = Spread::of((1..=20).map(f64::from)).unwrap();
        assert_eq!((spread.least, spread.p50, spread.p95, spread.max), (1.0, 10.0, 19.0, 20.0));
        let few = Spread::of([3.0, 1.0]).unwrap();
        assert_eq!((few.p50, few.p95), (1.0, 3.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn runs_of_one_drill_are_added_up_and_drills_are_kept_apart() {
        let reports =
            [run("kill", 4000.0, true), run("kill", 5000.0, false), run("pause-long", 4100.0, true)];
        let all = Summary::all(&reports);
        assert_eq!(
            all.iter().map(|one| (one.summary, one.runs)).collect::<Vec<_>>(),
            [("kill", 2), ("pause-long", 1)]
        );
        let kill = &all[0];
        assert_eq!((kill.held, kill.keys, kill.doubles, kill.doubles_listed), (1, 20, 2, 2));
        assert_eq!((kill.ends["definite"], kill.ends["in doubt"]), (18, 2));
        let first = kill.first_run.as_ref().unwrap();
        assert_eq!((first.over_bound, first.never, first.ms.as_ref().unwrap().max), (1, 0, 5000.0));
        let words = kill.in_words();
        assert!(words.contains("1 of 2 runs held") && words.contains("1 over their bound"), "{words}");
        assert!(words.contains("18 definite, 2 in doubt") && words.contains("pause, eu then us"), "{words}");
    }
}
