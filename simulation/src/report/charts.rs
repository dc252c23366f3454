//! The chart of a report: the curve for the choice of a multiple.
//!
//! [`super::page`] puts a table with the same figures beside it. It must not compute a figure: each
//! drawn figure is in the study.

use super::svg::{Anchor, Svg, steps};
use crate::study::{Row, Study};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 90.0;
const BOTTOM: f64 = 46.0;

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
