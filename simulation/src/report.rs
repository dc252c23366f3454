//! A report: a study, and one of its seeds in detail, as data and as one page. The page needs no
//! network, no script and no other file.
//!
//! The same command gives the same bytes: no time, machine or path stands in it.

use serde::Serialize;

use crate::outcome::{Outcome, Second};
use crate::study::{HEADS, LEGEND, Row, Study};
use crate::sums::Figures;
use crate::words::joined;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub study: Study,
    /// One seed of the unchanged scenario, in detail.
    pub shown: Outcome,
}

/// The colours and sizes; dark if the reader's screen is.
const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --ink: #1c1e21; --soft: #5b616a; --line: #d9dce1; }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --ink: #e8eaed; --soft: #a5abb3; --line: #363a40; } }
body { background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.25; } p.soft { color: var(--soft); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; } th:first-child, td:first-child { text-align: left; }
";

/// The page, as HTML that is also XML.
pub fn html(report: &Report) -> String {
    let Report { study, shown } = report;
    let (name, title) = (escaped(&study.scenario), escaped(&study.title));
    let last = study.from + study.count.saturating_sub(1);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{name}: which multiple</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}: {title}</h1>\n\
         <p>Seeds {} to {last} at each of {} points: the same clients, keys and faults at all of them.</p>\n",
        study.from,
        study.rows.len()
    );
    let answer: String =
        study.answer().iter().map(|line| format!("<p><strong>{}</strong></p>\n", escaped(line))).collect();
    page.push_str(&answer);
    page.push_str(&section(
        "Which multiple",
        "Bounds of 95 % in brackets: where two overlap, more seeds would have to tell them apart. Below a multiple of 2, a ring file needs \
         unsafe_multiple = true.",
        &table(&HEADS, study.rows.iter().map(|row| row.cells().to_vec())),
    ));
    let legend = LEGEND.iter().map(|line| format!("<li>{}</li>", escaped(line)));
    page.push_str(&format!("<ul>{}</ul>\n", joined(legend, "\n")));
    let all = |count: fn(&Figures) -> u64| study.rows.iter().map(|row| count(&row.figures)).sum::<u64>();
    page.push_str(&format!(
        "<p>Runs at risk of a lost region, at all points: {}. Of these, at risk of a region that cannot have run the key: {}.</p>\n",
        all(|figures| figures.at_risk),
        all(|figures| figures.marked_too_much)
    ));
    page.push_str(&section(
        "How long answers take",
        "Beyond a direct call to the upstream, over all keys, those included that were sent while a region was gone.",
        &latencies(study),
    ));
    page.push_str(&section(
        "What happened in one seed",
        &format!("Seed {} of the scenario as it is. A region serves while it holds its lease, a view has given it keys, and these are open.", shown.seed),
        &events(shown),
    ));
    page.push_str(&section(
        "What its requests were told",
        "The same seed, second by second, until its clients were done. After that everything is mended and each key is sent once more, to see how it \
         ended: not shown here.",
        &seconds(shown),
    ));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn section(title: &str, about: &str, table: &str) -> String {
    let (title, about) = (escaped(title), escaped(about));
    format!("<section>\n<h2>{title}</h2>\n<p class=\"soft\">{about}</p>\n{table}</section>\n")
}

/// Escapes a text for a place between tags or in an attribute.
fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            '\'' => all.push_str("&#39;"),
            '\n' | '\t' => all.push(' '),
            control if control.is_control() => all.push('\u{fffd}'),
            other => all.push(other),
        }
    }
    all
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = |head: &&str| format!("<th scope=\"col\">{}</th>", escaped(head));
    let heads: String = heads.iter().map(head).collect();
    let row = |cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.map(row).collect();
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

fn latencies(study: &Study) -> String {
    let shares = [240, 500, 900, 990, 999];
    let row = |row: &Row| {
        let of = |share: &u32| row.figures.distribution.iter().find(|(known, _)| known == share);
        let cells = shares.iter().map(|share| of(share).map_or(String::new(), |(_, ms)| format!("{ms} ms")));
        [row.name.clone()].into_iter().chain(cells).collect()
    };
    table(&["point", "24 %", "50 %", "90 %", "99 %", "99.9 %"], study.rows.iter().map(row))
}

fn events(outcome: &Outcome) -> String {
    let mut rows: Vec<(u64, Vec<String>)> = Vec::new();
    let line = |from: u64, to: Option<u64>, what: String| {
        let to = to.map_or(String::new(), |to| to.to_string());
        (from, vec![what, from.to_string(), to])
    };
    for fault in &outcome.faults {
        rows.push(line(fault.from_ms, Some(fault.to_ms), format!("{} at {}", fault.kind, fault.place)));
    }
    for span in &outcome.serving {
        rows.push(line(span.from_ms, Some(span.to_ms), format!("{} serves", span.region)));
    }
    for span in &outcome.leases {
        let what = format!("{} holds a lease of view {}", span.region, span.epoch);
        rows.push(line(span.from_ms, Some(span.to_ms), what));
    }
    for view in &outcome.views {
        let standings = view.standings.iter().map(|(region, standing)| format!("{region} {standing}"));
        rows.push(line(view.at_ms, None, format!("view {}: {}", view.epoch, joined(standings, ", "))));
    }
    for outage in &outcome.outages {
        let what = format!("no service for {} of {}", outage.route, outage.home);
        rows.push(line(outage.from_ms, Some(outage.to_ms), what));
    }
    rows.sort();
    table(&["what", "from (ms)", "to (ms)"], rows.into_iter().map(|(_, cells)| cells))
}

fn seconds(outcome: &Outcome) -> String {
    let row = |(number, second): (usize, &Second)| {
        let Second { answered, replayed, refused, failed } = *second;
        let counts = [number as u64, answered, replayed, refused, failed];
        counts.map(|count| count.to_string()).to_vec()
    };
    let heads = ["second", "answered", "replayed", "refused", "failed"];
    table(&heads, outcome.seconds.iter().enumerate().map(row))
}
