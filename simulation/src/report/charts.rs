//! The charts of a report: the curve for the choice of a multiple, the timeline of one seed, and
//! the latency of answers.
//!
//! [`super::page`] puts a table with the same figures beside each chart. It must not compute a
//! figure: each drawn figure is in the study or in the outcome.

use std::collections::{BTreeMap, BTreeSet};

use super::svg::{Anchor, Svg, steps};
use crate::outcome::{Outcome, Second};
use crate::study::{Row, Study};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 90.0;
const BOTTOM: f64 = 46.0;
/// The height of a timeline's bar, and of its lane.
const BAR: f64 = 12.0;
const LANE: f64 = 17.0;
/// The approximate width of a digit.
const DIGIT: f64 = 8.0;
/// The number of colours that lines take in turn.
const COLOURS: usize = 10;

fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

/// Doubles against the time without service: a point for each wait.
pub fn curve(study: &Study) -> String {
    let rows = &study.rows;
    let (top, height) = (20.0, 360.0);
    let x_of = |row: &Row| row.figures.without_service.p50_ms as f64 / 1_000.0;
    let xs = steps(rows.iter().map(x_of).fold(1.0, f64::max));
    let ys = steps(rows.iter().map(|row| row.figures.doubles_between.1).fold(1.0, f64::max));
    let (most_x, most_y) = (xs.last().copied().unwrap_or(1.0), ys.last().copied().unwrap_or(1.0));
    let down = |value: f64| top + height * (1.0 - value / most_y);
    let at = |row: &Row, doubles: f64| (across(x_of(row) / most_x), down(doubles));
    let title = "Doubles per million keys against the time without service: a point for each way to wait";
    let mut svg = Svg::new("curve", title, WIDTH, top + height + BOTTOM);
    for y in &ys {
        svg.line("grid", (LEFT, down(*y)), (WIDTH - RIGHT, down(*y)));
        svg.text((LEFT - 8.0, down(*y) + 4.0), Anchor::End, &format!("{y}"));
    }
    for x in &xs {
        svg.text((across(x / most_x), top + height + 18.0), Anchor::Middle, &format!("{x} s"));
    }
    svg.text(
        (WIDTH / 2.0, top + height + 38.0),
        Anchor::Middle,
        "time without service (median of the arc hit worst)",
    );
    svg.text((LEFT, 12.0), Anchor::Start, "doubles per million keys, with 95 % bounds");
    let waits = rows.iter().filter(|row| row.settings.iter().all(|(key, _)| key == "failover.multiple"));
    let mut line: Vec<(f64, (f64, f64))> =
        waits.map(|row| (row.multiple, at(row, row.figures.doubles_per_million))).collect();
    line.sort_by(|one, other| one.0.total_cmp(&other.0));
    svg.path("guide", &line.into_iter().map(|(_, point)| point).collect::<Vec<_>>());
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for row in rows {
        let (least, most) = row.figures.doubles_between;
        svg.line("bound", at(row, least), at(row, most));
        let place = at(row, row.figures.doubles_per_million);
        svg.dot(if row.needs_unsafe_multiple { "unsafe" } else { "safe" }, place, &row.cells().join(", "));
        // Beside its dot, or further up if another label is there already.
        let mut label = (place.0 + 9.0, place.1 - 8.0);
        while taken.iter().any(|(x, y)| (x - label.0).abs() < 130.0 && (y - label.1).abs() < 13.0) {
            label.1 -= 13.0;
        }
        taken.push(label);
        svg.text(label, Anchor::Start, &short(row));
    }
    svg.finish()
}

/// A point's name without the word that all names share.
fn short(row: &Row) -> String {
    let strip =
        |(key, value): &(String, String)| format!("{} {value}", key.rsplit('.').next().unwrap_or(key));
    let all: Vec<String> = row.settings.iter().map(strip).collect();
    if all.is_empty() { row.name.clone() } else { all.join(", ") }
}

/// A bar of a timeline.
struct Bar {
    class: &'static str,
    from_ms: u64,
    to_ms: u64,
    text: String,
    /// The text on the bar; empty for none.
    label: String,
}

fn views(outcome: &Outcome) -> Vec<Bar> {
    // The last one is drawn up to the end of the timeline.
    let ends = outcome.serving.iter().map(|span| span.to_ms).chain([outcome.seconds.len() as u64 * 1_000]);
    let shown = ends.max().unwrap_or_default();
    let bar = |(number, view): (usize, &crate::outcome::ViewSpan)| {
        let next = outcome.views.get(number + 1).map_or(shown, |next| next.at_ms);
        let (epoch, from_ms, to_ms) = (view.epoch, view.at_ms, next.max(view.at_ms));
        let standings: Vec<String> =
            view.standings.iter().map(|(region, standing)| format!("{region} {standing}")).collect();
        let text = format!("view {epoch}, {from_ms} to {to_ms} ms: {}", standings.join(", "));
        Bar { class: "epoch", from_ms, to_ms, text, label: epoch.to_string() }
    };
    outcome.views.iter().enumerate().map(bar).collect()
}

/// The bars of a region's leases, one for each view that they were granted under.
fn leases(outcome: &Outcome, region: &str) -> Vec<Bar> {
    let of_region = outcome.leases.iter().filter(|span| span.region == region);
    let bar = |span: &crate::outcome::LeaseSpan| {
        let (epoch, from_ms, to_ms) = (span.epoch, span.from_ms, span.to_ms);
        let text = format!("{region} holds a lease of view {epoch}, {from_ms} to {to_ms} ms");
        Bar { class: "lease", from_ms, to_ms, text, label: String::new() }
    };
    of_region.map(bar).collect()
}

/// The timeline: faults by place, the newest view, held leases, and serving regions.
pub fn timeline(outcome: &Outcome) -> String {
    let mut lanes: Vec<(String, Vec<Bar>)> = vec![("view".to_owned(), views(outcome))];
    let regions: BTreeSet<&String> = outcome.views.iter().flat_map(|view| view.standings.keys()).collect();
    for region in regions {
        let serving = outcome.serving.iter().filter(|span| span.region == *region);
        let bar = |span: &crate::outcome::ServingSpan| Bar {
            class: "serving",
            from_ms: span.from_ms,
            to_ms: span.to_ms,
            text: format!("{region} serves, {} to {} ms", span.from_ms, span.to_ms),
            label: String::new(),
        };
        lanes.push((format!("{region} lease"), leases(outcome, region)));
        lanes.push((format!("{region} serves"), serving.map(bar).collect()));
        faults(outcome, region, &mut lanes);
    }
    let places = outcome.faults.iter().map(|fault| &fault.place);
    let links: BTreeSet<&String> = places.filter(|place| place.contains('>')).collect();
    links.into_iter().for_each(|place| faults(outcome, place, &mut lanes));
    let top = 30.0;
    let height = lanes.len() as f64 * LANE;
    let title = format!(
        "Seed {}: which view was the newest, which region held a lease and served, and what was broken where",
        outcome.seed
    );
    let mut svg = Svg::new("timeline", &title, WIDTH, top + height + BOTTOM);
    let most = time_axis(&mut svg, outcome, top, height);
    for (number, (name, bars)) in lanes.iter().enumerate() {
        let y = top + number as f64 * LANE;
        svg.text((LEFT - 8.0, y + BAR), Anchor::End, name);
        for bar in bars {
            let from = across((bar.from_ms as f64 / most).min(1.0));
            let to = across((bar.to_ms as f64 / most).min(1.0));
            svg.rect(bar.class, (from, y + 2.0), (to - from, BAR), &bar.text);
            // A number that does not fit would overlap the next bar.
            if !bar.label.is_empty() && to - from >= DIGIT * bar.label.len() as f64 {
                svg.text(((from + to) / 2.0, y + BAR), Anchor::Middle, &bar.label);
            }
        }
    }
    for view in outcome.views.iter().filter(|view| view.at_ms > 0) {
        let x = across(view.at_ms as f64 / most);
        svg.line("view", (x, top - 6.0), (x, top + height));
    }
    svg.finish()
}

/// The lanes of a place's faults, by kind.
fn faults(outcome: &Outcome, place: &String, lanes: &mut Vec<(String, Vec<Bar>)>) {
    let mut kinds: BTreeMap<&String, Vec<Bar>> = BTreeMap::new();
    for fault in outcome.faults.iter().filter(|fault| fault.place == *place) {
        let text = format!("{} at {place}, {} to {} ms", fault.kind, fault.from_ms, fault.to_ms);
        let (from_ms, to_ms) = (fault.from_ms, fault.to_ms);
        let bar = Bar { class: "fault", from_ms, to_ms, text, label: String::new() };
        kinds.entry(&fault.kind).or_default().push(bar);
    }
    let name = |kind: &String| if place.contains('>') { format!("{kind} {place}") } else { kind.clone() };
    lanes.extend(kinds.into_iter().map(|(kind, bars)| (name(kind), bars)));
}

/// Draws the axis of a seed's time, and returns its length, in milliseconds.
fn time_axis(svg: &mut Svg, outcome: &Outcome, top: f64, height: f64) -> f64 {
    let last = outcome.seconds.len().max(1) as f64;
    let all = steps(last);
    let most = all.last().copied().unwrap_or(last);
    for second in &all {
        let x = across(second / most);
        svg.line("grid", (x, top), (x, top + height));
        svg.text((x, top + height + 18.0), Anchor::Middle, &format!("{second} s"));
    }
    svg.text((WIDTH / 2.0, top + height + 38.0), Anchor::Middle, "since clients began to ask");
    most * 1_000.0
}

/// The parts of a second's requests, from below: the class, the name and the count.
pub fn parts(second: &Second) -> [(&'static str, &'static str, u64); 4] {
    [
        ("answered", "answered", second.answered),
        ("replayed", "replayed", second.replayed),
        ("refused", "refused or told to come again", second.refused),
        ("failed", "broke or timed out", second.failed),
    ]
}

/// The answers to requests, second by second.
pub fn seconds(outcome: &Outcome) -> String {
    let (top, height) = (30.0, 220.0);
    let title = format!("Seed {}: what requests were told, second by second", outcome.seed);
    let mut svg = Svg::new("seconds", &title, WIDTH, top + height + BOTTOM);
    let sum = |second: &Second| parts(second).iter().map(|(.., count)| *count).sum::<u64>();
    let ys = steps(outcome.seconds.iter().map(sum).max().unwrap_or(0).max(1) as f64);
    let most_y = ys.last().copied().unwrap_or(1.0);
    for y in &ys {
        svg.text((LEFT - 8.0, top + height * (1.0 - y / most_y) + 4.0), Anchor::End, &format!("{y}"));
    }
    let most = time_axis(&mut svg, outcome, top, height);
    let mut x = LEFT;
    for (class, name, _) in parts(&Second::default()) {
        svg.rect(class, (x, 6.0), (12.0, 12.0), name);
        svg.text((x + 16.0, 16.0), Anchor::Start, name);
        x += 45.0 + name.len() as f64 * 7.0;
    }
    for (number, second) in outcome.seconds.iter().enumerate() {
        let from = across(number as f64 * 1_000.0 / most);
        let width = across((number + 1) as f64 * 1_000.0 / most) - from - 0.6;
        let mut below = 0;
        for (class, name, count) in parts(second).into_iter().filter(|(.., count)| *count > 0) {
            let (from_y, to_y) = (below as f64 / most_y, (below + count) as f64 / most_y);
            let place = (from, top + height * (1.0 - to_y));
            svg.rect(
                class,
                place,
                (width, height * (to_y - from_y)),
                &format!("second {number}: {count} {name}"),
            );
            below += count;
        }
    }
    svg.finish()
}

/// The share of the keys that was answered within each time.
pub fn latency(study: &Study) -> String {
    let (top, height) = (20.0, 300.0);
    let legend = study.rows.len() as f64 * 17.0;
    let title = "Which share of the keys was answered within what time, beyond a direct call";
    let mut svg = Svg::new("latency", title, WIDTH, top + height + BOTTOM + legend);
    // From a millisecond to a hundred seconds, on a logarithmic scale.
    let right = |ms: u64| across((ms.max(1) as f64).log10() / 5.0);
    let up = |thousandths: u32| top + height * (1.0 - f64::from(thousandths) / 1_000.0);
    for (ms, name) in
        [(1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1_000, "1 s"), (10_000, "10 s"), (100_000, "100 s")]
    {
        svg.line("grid", (right(ms), top), (right(ms), top + height));
        svg.text((right(ms), top + height + 18.0), Anchor::Middle, name);
    }
    for share in [0, 250, 500, 750, 1_000] {
        svg.line("grid", (LEFT, up(share)), (WIDTH - RIGHT, up(share)));
        svg.text((LEFT - 8.0, up(share) + 4.0), Anchor::End, &format!("{} %", share / 10));
    }
    for (number, row) in study.rows.iter().enumerate() {
        let class = format!("series c{}", number % COLOURS);
        let points: Vec<(f64, f64)> =
            row.figures.distribution.iter().map(|(share, ms)| (right(*ms), up(*share))).collect();
        svg.path(&class, &points);
        let y = top + height + BOTTOM + number as f64 * 17.0;
        svg.line(&class, (LEFT, y - 4.0), (LEFT + 24.0, y - 4.0));
        svg.text((LEFT + 32.0, y), Anchor::Start, &row.name);
    }
    svg.finish()
}
