//! The same seeds at several points: makes, plays and shows them, and writes the page of a report.
//!
//! All points have the same seeds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch;
use super::show::say;
use crate::report::{Report, html};
use crate::scenario::vary::Setting;
use crate::scenario::{self, Scenario, find};
use crate::study::{self, LEGEND, Point, Study};
use crate::sums::Sums;
use crate::words::joined;

/// The limit for points: more are surely a typing mistake.
const MOST_POINTS: usize = 500;
const MULTIPLES: [&str; 4] = ["0", "1", "2", "3"];

/// Every combination of the values, or all faults of all values, a line each.
pub fn grid(path: &Path, base: &[Setting], vary: &[String]) -> Result<Vec<Point>, String> {
    let mut errors = Vec::new();
    let mut axes: Vec<Vec<Setting>> = Vec::new();
    for text in vary {
        match Setting::several(text) {
            Err(why) => errors.push(format!("--vary {why}")),
            Ok(axis) if axes.iter().any(|other| other[0].path == axis[0].path) => {
                let key = axis[0].key();
                errors.push(format!("--vary {text}: {key} is varied twice: list its values once"));
            }
            Ok(axis) => axes.push(axis),
        }
    }
    let size = axes.iter().map(Vec::len).product::<usize>();
    if size > MOST_POINTS {
        errors.push(format!("--vary: {size} combinations, more than {MOST_POINTS}: vary less at once"));
        return Err(errors.join("\n"));
    }
    let named = |settings: Vec<Setting>| {
        let shown = joined(settings.iter().map(Setting::shown), " ");
        let found = point(path, base, settings);
        found.map_err(|errors| errors.iter().map(|error| format!("{error} ({shown})")).collect::<Vec<_>>())
    };
    // First each value by itself, so that each of its faults is reported once.
    for value in axes.iter().flatten() {
        errors.extend(named(vec![value.clone()]).err().unwrap_or_default());
    }
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    let mut all: Vec<Vec<Setting>> = vec![Vec::new()];
    for axis in axes {
        let with = |settings: &Vec<Setting>, value| [&settings[..], std::slice::from_ref(value)].concat();
        let each = all.iter().flat_map(|settings| axis.iter().map(move |value| with(settings, value)));
        all = each.collect();
    }
    let points = all.into_iter().map(named);
    points.collect::<Result<_, _>>().map_err(|errors| errors.join("\n"))
}

/// The points of a comparison: several multiples, and escrow on all routes. Or all their faults.
pub fn compared(path: &Path, base: &[Setting]) -> Result<Vec<Point>, String> {
    let multiples = MULTIPLES.iter().map(|multiple| format!("failover.multiple={multiple}"));
    let escrows = ["claim", "claim+answer"].iter().map(|escrow| format!("route.escrow={escrow}"));
    let all: Vec<Setting> = multiples.chain(escrows).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let points = all.into_iter().map(|setting| point(path, base, vec![setting]));
    points.collect::<Result<_, _>>().map_err(|errors: Vec<String>| errors.join("\n"))
}

fn point(path: &Path, base: &[Setting], settings: Vec<Setting>) -> Result<Point, Vec<String>> {
    let together = [base, &settings].concat();
    let settings: Vec<(String, String)> =
        settings.iter().map(|setting| (setting.key(), setting.value.clone())).collect();
    match scenario::load(path, &together) {
        Ok(scenario) => Ok(Point { settings, scenario: Arc::new(scenario) }),
        Err(errors) => Err(errors.0.iter().map(ToString::to_string).collect()),
    }
}

pub fn join(points: &mut Vec<Point>, more: Vec<Point>) {
    let new = |point: &Point| points.iter().all(|other| other.settings != point.settings);
    let fresh: Vec<Point> = more.into_iter().filter(new).collect();
    points.extend(fresh);
}

/// Plays the same seeds at all points, on all cores.
pub fn play(scenario: &Scenario, points: &[Point], from: u64, count: u64) -> Study {
    let mut sums = vec![Sums::default(); points.len()];
    let of = |number: u64| ((number / count.max(1)) as usize, from + number % count.max(1));
    batch::on_all_cores(
        count * points.len() as u64,
        |number| {
            let (point, seed) = of(number);
            batch::play(&points[point].scenario, seed, None)
        },
        |number, outcome| sums[of(number).0].add(&outcome),
    );
    let rows = points.iter().zip(sums).map(|(point, sums)| point.row(sums.figures(point.direct_ms())));
    Study {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        from,
        count,
        routes: study::routes(scenario),
        rows: rows.collect(),
    }
}

pub fn show(path: &Path, study: &Study) {
    say!("{}: {}", study.scenario, study.title);
    let last = study.from + study.count.saturating_sub(1);
    say!("seeds {} to {last} at each of {} points\n", study.from, study.rows.len());
    study.answer().iter().for_each(|line| say!("{line}"));
    say!();
    study.table().iter().for_each(|line| say!("{line}"));
    say!();
    LEGEND.iter().for_each(|line| say!("{line}"));
    if study.rows.iter().any(|row| row.needs_unsafe_multiple) {
        say!(
            "(unsafe): a ring file is refused with a multiple below 2 unless unsafe_multiple = true stands beside it; it was set for these points"
        );
    }
    for row in &study.rows {
        for (seed, breach) in &row.figures.first_broken {
            let settings: Vec<String> =
                row.settings.iter().map(|(key, value)| format!(" --set {key}={value}")).collect();
            say!("BROKE  {}, seed {seed}: invariant {}: {}", row.name, breach.invariant, breach.text);
            say!("       onceway-sim replay {} --seed {seed}{}", find::shown(path), settings.concat());
        }
    }
}

/// Writes the page and the data and shows the rest. Returns true if every invariant held.
pub fn report(
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
            show(path, &report.study);
            say!("\nThe page is {}.", out.display());
        }
    }
    Ok(report.study.held())
}

fn put(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
