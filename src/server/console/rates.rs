//! Rates and times of requests by route, over the last minutes: what the console shows of
//! `onceway_request_seconds`.
//!
//! A sample is read from the gateway's own page of metrics again and again; a figure is the
//! difference between now and the oldest one. A quantile lies somewhere in its bucket, so it is
//! interpolated, as Prometheus does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use maud::{Markup, html};
use tokio::time::Instant;

use super::frame::{NOTHING, Row, mark, millis, table};
use crate::ports::observe;
use crate::server::locked;

pub(in crate::server) const EVERY: Duration = Duration::from_secs(30);
/// Samples that are kept: five minutes.
const KEPT: usize = 10;

pub(in crate::server) struct Rates(Mutex<VecDeque<(Instant, Sample)>>);

/// Counts since the start, by route.
type Sample = BTreeMap<String, Counts>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    all: f64,
    failed: f64,
    /// Requests that took at most so long, by the bound as it is written.
    buckets: BTreeMap<String, f64>,
}

impl Default for Rates {
    /// The first sample is the start, when nothing was counted.
    fn default() -> Self {
        Self(Mutex::new([(Instant::now(), Sample::new())].into()))
    }
}

impl Rates {
    pub(in crate::server) fn keep(&self, page: &str) {
        let mut samples = locked(&self.0);
        if samples.len() >= KEPT {
            samples.pop_front();
        }
        samples.push_back((Instant::now(), read(page)));
    }

    pub(super) fn shown(&self, page: &str) -> Markup {
        let samples = locked(&self.0);
        let Some((since, before)) = samples.front() else { return html! {} };
        drawn(&read(page), before, since.elapsed())
    }
}

fn drawn(now: &Sample, before: &Sample, over: Duration) -> Markup {
    let seconds = over.as_secs_f64().max(1.0);
    let none = Counts::default();
    let rows: Vec<Row<'_>> = now
        .iter()
        .map(|(route, counts)| (route, counts.since(before.get(route).unwrap_or(&none))))
        .filter(|(_, counts)| counts.all > 0.0)
        .map(|(route, counts)| {
            let quantile = |q: f64| {
                counts.quantile(q).map_or(NOTHING.to_owned(), |(seconds, over)| {
                    let sign = if over { "> " } else { "" };
                    format!("{sign}{}", millis(Some(seconds * 1_000.0)))
                })
            };
            let failed = match counts.failed > 0.0 {
                true => mark("bad", &format!("{:.2} %", 100.0 * counts.failed / counts.all)),
                false => mark("good", "none"),
            };
            vec![
                ("Route", html! { (route) }),
                ("Requests", html! { (format!("{:.1}/s", counts.all / seconds)) }),
                ("Failed", failed),
                ("p50", html! { (quantile(0.5)) }),
                ("p99", html! { (quantile(0.99)) }),
            ]
        })
        .collect();
    let over = format!("the last {} s", seconds.round());
    if rows.is_empty() {
        return html! { p.soft { "No request came here in " (over) "." } };
    }
    html! {
        (table("Clients' requests at this gateway by route", rows.into_iter()))
        p.soft { "Over " (over) ", to the head of the answer. Failed: answered 5xx by onceway itself. A quantile is interpolated in its bucket." }
    }
}

impl Counts {
    fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        (since.all, since.failed) = (self.all - before.all, self.failed - before.failed);
        for (bound, count) in &mut since.buckets {
            *count -= before.buckets.get(bound).unwrap_or(&0.0);
        }
        since
    }

    /// A quantile in seconds; true if it lies beyond the last bound.
    fn quantile(&self, q: f64) -> Option<(f64, bool)> {
        let mut bounds: Vec<(f64, f64)> =
            self.buckets.iter().filter_map(|(bound, count)| Some((bound.parse().ok()?, *count))).collect();
        bounds.retain(|(bound, _)| bound.is_finite());
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rank = q * self.all;
        let (mut below, mut counted) = (0.0, 0.0);
        for (bound, count) in &bounds {
            if *count >= rank && *count > counted {
                let part = (rank - counted) / (count - counted);
                return Some((below + (bound - below) * part, false));
            }
            (below, counted) = (*bound, *count);
        }
        bounds.last().map(|(bound, _)| (*bound, true))
    }
}

/// Adds up the series of each route.
fn read(page: &str) -> Sample {
    let mut sample = Sample::new();
    for line in page.lines().filter_map(|line| line.strip_prefix(observe::REQUEST_SECONDS)) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let Some((kind, labels)) = labels.split_once('{') else { continue };
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let (Some(route), Ok(value)) = (label("route"), value.parse::<f64>()) else { continue };
        let counts = sample.entry(route.to_owned()).or_default();
        match (kind, label("le")) {
            ("_count", _) => {
                counts.all += value;
                if label("verdict") == Some("failed") {
                    counts.failed += value;
                }
            }
            ("_bucket", Some(bound)) => *counts.buckets.entry(bound.to_owned()).or_default() += value,
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with requests of one verdict: at most 10 ms, at most 100 ms, and all.
    fn page(route: &str, verdict: &str, [fast, slow, all]: [u32; 3]) -> String {
        let of = |kind: &str, more: &str, value| {
            format!(
                "onceway_request_seconds{kind}{{route=\"{route}\",verdict=\"{verdict}\",where=\"here\"{more}}} {value}\n"
            )
        };
        [
            of("_bucket", ",le=\"0.01\"", fast),
            of("_bucket", ",le=\"0.1\"", slow),
            of("_bucket", ",le=\"+Inf\"", all),
            of("_sum", "", 9),
            of("_count", "", all),
        ]
        .concat()
    }

    #[test]
    fn a_route_adds_its_verdicts_up_and_shows_the_last_minutes_only() {
        let before = read(&page("charges", "settled", [10, 10, 10]));
        let now = [
            page("charges", "settled", [60, 100, 105]),
            page("charges", "failed", [5, 5, 5]),
            page("idle", "settled", [0, 0, 0]),
            "onceway_request_seconds_total_of_others{route=\"x\"} 9\n".to_owned(),
        ]
        .concat();
        let counts = read(&now)["charges"].since(&before["charges"]);
        assert_eq!((counts.all, counts.failed), (100.0, 5.0));
        let quantile = |q| counts.quantile(q).unwrap();
        // 55 of 100 took at most 10 ms, 95 at most 100 ms.
        assert!((quantile(0.5).0 - 0.01 * 50.0 / 55.0).abs() < 1e-9, "{:?}", quantile(0.5));
        assert!((quantile(0.75).0 - (0.01 + 0.09 * 20.0 / 40.0)).abs() < 1e-9, "{:?}", quantile(0.75));
        assert_eq!(quantile(0.99), (0.1, true));
        let text = drawn(&read(&now), &before, Duration::from_secs(10)).into_string();
        assert!(text.contains("10.0/s") && text.contains("5.00 %"), "{text}");
        assert!(text.contains("&gt; 100.0 ms") && !text.contains("idle"), "{text}");
        let none = drawn(&before, &before, Duration::ZERO).into_string();
        assert!(none.contains("No request came here"), "{none}");
    }
}
