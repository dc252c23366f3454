//! Drawings of the console: a bar for a share of the ring, a line for the course of a lag.
//!
//! They are plain shapes, coloured by the page's own style. [`super::now`] puts the same figures in
//! words beside each. No text is drawn: drawings shrink on a phone, texts must not.

use std::time::Duration;

use maud::{Markup, html};

use crate::gateway::telemetry::lag_history::TrailPoint;

/// Time that lines may go back, in minutes. The first value that shows every point is used.
const MINUTES: [u32; 3] = [1, 3, 15];
/// Sizes of a line's drawing, in its own units.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 48.0;
/// Longest time between two joined points: beyond it, nothing was measured.
const GAP: Duration = Duration::from_secs(12);

/// Draws the share that a region owns now, and a tick for its share at home. Both are 0 to 1.
pub(super) fn share(now: f64, home: f64) -> Markup {
    let (now, home) = (now.clamp(0.0, 1.0) * 100.0, home.clamp(0.0, 1.0) * 100.0);
    html! {
        svg.bar aria-hidden="true" viewBox="0 0 100 10" preserveAspectRatio="none" {
            rect.back x="0" y="1" width="100" height="8" {}
            rect.now x="0" y="1" width=(format!("{now:.2}")) height="8" {}
            line.home x1=(format!("{home:.2}")) y1="0" x2=(format!("{home:.2}")) y2="10" {}
        }
    }
}

/// Minutes that a line has to go back to show the oldest point.
pub(super) fn minutes(oldest: Duration) -> u32 {
    let enough = |minutes: &u32| Duration::from_secs(60) * *minutes >= oldest;
    MINUTES.into_iter().find(enough).unwrap_or(MINUTES[2])
}

/// Draws the lag of the last minutes on a scale that ends at `most`. Two marks divide the time in
/// three.
pub(super) fn trail(title: &str, points: &[TrailPoint], minutes: u32, most: Duration) -> Markup {
    let back = 60.0 * f64::from(minutes);
    let across = |age: Duration| WIDTH * (1.0 - age.as_secs_f64() / back).clamp(0.0, 1.0);
    let most = most.as_secs_f64().max(0.001);
    let down = |lag: Duration| HEIGHT - 1.0 - (lag.as_secs_f64() / most).min(1.0) * (HEIGHT - 2.0);
    let lines = runs(points);
    html! {
        svg.trail role="img" aria-label=(title) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
            @for third in [1.0, 2.0] {
                line.grid x1=(WIDTH * third / 3.0) y1="0" x2=(WIDTH * third / 3.0) y2=(HEIGHT) {}
            }
            line.grid x1="0" y1=(HEIGHT - 0.5) x2=(WIDTH) y2=(HEIGHT - 0.5) {}
            @for point in points.iter().filter(|point| point.lag.is_none()) {
                rect.gap x=(format!("{:.1}", across(point.age))) y="0" width=(format!("{:.1}", WIDTH * 5.0 / back)) height=(HEIGHT) {}
            }
            @for run in lines {
                polyline.lag points=(run.iter().map(|(age, lag)| format!("{:.1},{:.1}", across(*age), down(*lag))).collect::<Vec<_>>().join(" ")) {}
            }
        }
    }
}

/// Splits the points at their gaps. A single point gets a second one, so that it is visible.
fn runs(points: &[TrailPoint]) -> Vec<Vec<(Duration, Duration)>> {
    let joined = |one: &TrailPoint, next: &TrailPoint| {
        one.lag.is_some() && next.lag.is_some() && one.age.saturating_sub(next.age) <= GAP
    };
    let measured = |point: &TrailPoint| Some((point.age, point.lag?));
    let runs = points.chunk_by(joined).map(|run| run.iter().filter_map(measured).collect());
    let mut all: Vec<Vec<(Duration, Duration)>> = runs.collect();
    all.retain(|run| !run.is_empty());
    for run in &mut all {
        if let [(age, lag)] = run[..] {
            run.push((age.saturating_sub(Duration::from_secs(4)), lag));
        }
    }
    all
}

/// End of the scale that all lines share: the next of 1, 2 or 5 times a power of ten milliseconds.
pub(super) fn scale(largest: Duration) -> Duration {
    let steps = (1..=19).flat_map(|power| [1, 2, 5].map(|factor| factor * 10_u128.pow(power)));
    let end = steps.into_iter().find(|end| *end >= largest.as_millis()).unwrap_or(u128::MAX);
    Duration::from_millis(u64::try_from(end).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(age: u64, lag: Option<u64>) -> TrailPoint {
        TrailPoint { age: Duration::from_secs(age), lag: lag.map(Duration::from_millis) }
    }

    #[test]
    fn silence_and_missing_points_break_the_line() {
        let points = [
            point(60, Some(1)),
            point(55, Some(2)),
            point(50, None),
            point(45, Some(3)),
            point(10, Some(4)),
            point(5, Some(5)),
        ];
        let lengths: Vec<usize> = runs(&points).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 2, 2], "two, one made visible, two");
        let drawn = trail("t", &points, 1, Duration::from_millis(5)).into_string();
        assert_eq!((drawn.matches("<polyline").count(), drawn.matches("class=\"gap\"").count()), (3, 1));
    }

    #[test]
    fn the_scale_is_round_and_covers() {
        for (lag, end) in [(0, 10), (10, 10), (11, 20), (49, 50), (51, 100), (1_001, 2_000), (9_999, 10_000)]
        {
            assert_eq!(scale(Duration::from_millis(lag)), Duration::from_millis(end));
        }
    }

    #[test]
    fn a_chart_spans_the_time_of_its_oldest_point() {
        for (oldest, back) in [(0, 1), (60, 1), (61, 3), (180, 3), (181, 15), (9_000, 15)] {
            assert_eq!(minutes(Duration::from_secs(oldest)), back);
        }
    }

    #[test]
    fn a_bar_stays_within_its_frame() {
        let drawn = share(7.0, -1.0).into_string();
        assert!(drawn.contains("width=\"100.00\"") && drawn.contains("x1=\"0.00\""), "{drawn}");
    }
}
