//! A study: the outcomes of the same seeds of one scenario at several points, and its table.
//!
//! Two plays of the same seeds give the same study.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceway::gateway::policy::route::Escrow;
use serde::Serialize;

use crate::scenario::Scenario;
use crate::scenario::workload::Workload;
use crate::sums::{Figures, Spread};
use crate::words::joined;

/// A smaller multiple needs `unsafe_multiple` in a ring file.
pub const LEAST_SAFE: f64 = 2.0;

/// A point: the scenario with some settings.
#[derive(Clone, Debug)]
pub struct Point {
    pub settings: Vec<(String, String)>,
    pub scenario: Arc<Scenario>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    pub settings: Vec<(String, String)>,
    /// The multiple of the lag by which a successor waits.
    pub multiple: f64,
    /// True if a ring file needs `unsafe_multiple = true` for it.
    pub needs_unsafe_multiple: bool,
    /// The shortest wait.
    pub floor_ms: u64,
    pub figures: Figures,
}

/// The same seeds at several points.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Study {
    pub scenario: String,
    pub title: String,
    pub from: u64,
    pub count: u64,
    /// The routes that clients ask, as the scenario has them.
    pub routes: BTreeMap<String, RouteIs>,
    /// The points, in the order in which they were asked for.
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouteIs {
    /// The recovery of a key in doubt: `park`, `probe` or `rerun`.
    pub recovery: String,
    /// `off`, `claim` or `claim+answer`.
    pub escrow: String,
}

impl Point {
    /// The design, and the values that make this point.
    pub fn name(&self) -> String {
        let settings = self.settings.iter().map(|(key, value)| format!("{key}={value}"));
        joined(["onceway".to_owned()].into_iter().chain(settings), " ")
    }

    pub fn row(&self, figures: Figures) -> Row {
        let window = &self.scenario.shared.failover.window;
        let multiple = f64::from(window.percent) / 100.0;
        Row {
            name: self.name(),
            settings: self.settings.clone(),
            multiple,
            needs_unsafe_multiple: multiple < LEAST_SAFE,
            floor_ms: u64::try_from(window.floor.as_millis()).unwrap_or(u64::MAX),
            figures,
        }
    }

    /// The time of a direct call to its upstream, in milliseconds.
    pub fn direct_ms(&self) -> u64 {
        u64::try_from(self.scenario.upstream.answers_after.as_millis()).unwrap_or(u64::MAX)
    }
}

pub fn routes(scenario: &Scenario) -> BTreeMap<String, RouteIs> {
    let of = |workload: &Arc<Workload>| {
        let escrow = match workload.policy.escrow {
            Escrow::Off => "off",
            Escrow::Claim(_) => "claim",
            Escrow::ClaimAndAnswer(_) => "claim+answer",
        };
        let recovery = workload.policy.recovery.name().to_owned();
        (workload.route.clone(), RouteIs { recovery, escrow: escrow.to_owned() })
    };
    scenario.workloads.iter().map(of).collect()
}

pub const HEADS: [&str; 9] = [
    "point",
    "doubles per million (95 %)",
    "had not left",
    "refused",
    "in doubt",
    "no service p50 / max",
    "added p50 / p99",
    "hops per 100",
    "invariants",
];

pub const LEGEND: [&str; 7] = [
    "doubles per million: keys with more than one effect that no route asks for, per million keys; in brackets, between what the true rate is with a confidence of 95 %",
    "had not left: of these doubles, those whose first claim had not left its region when that was lost: no waiting shows them, escrow does",
    "refused: keys whose clients gave up without an answer; in doubt: keys that are left to an operator in the end",
    "no service: in each seed, of the arc and route that was hit worst: from the first key that a living gateway refused to the next that was answered",
    "added: from a key's first request to its answer, over all keys, less what a direct call to the upstream takes",
    "hops: calls from one region to another for the sake of a key",
    "invariants: doubles after a wait that was too short break none, if their claims say that they ran at risk and a journal lists them",
];

/// The first row whose doubles these seeds cannot tell from those of the best one.
fn first_of_the_best<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    let least = |row: &&&Row| row.figures.doubles_between.0;
    let most = |row: &&Row| row.figures.doubles_between.1;
    let best = rows.iter().map(most).min_by(f64::total_cmp)?;
    rows.iter().find(|row| least(row) <= best).copied()
}

impl Row {
    fn is_escrow(&self) -> bool {
        self.settings.iter().any(|(key, value)| key == "route.escrow" && value != "off")
    }

    /// The point with what it costs, for one line.
    fn shown(&self) -> String {
        let Figures { doubles_per_million, doubles_between: (least, most), .. } = &self.figures;
        format!(
            "{}, with {doubles_per_million:.0} doubles per million keys ({least:.0} to {most:.0}) and at most {:.1} s without service",
            self.name,
            self.figures.without_service.max_ms as f64 / 1_000.0
        )
    }

    /// The cells under [`HEADS`].
    pub fn cells(&self) -> [String; 9] {
        let Figures { keys, doubles_per_million, doubles_between, .. } = &self.figures;
        let (least, most) = doubles_between;
        let latency = &self.figures.added_latency_ms;
        [
            format!("{}{}", self.name, if self.needs_unsafe_multiple { " (unsafe)" } else { "" }),
            format!("{doubles_per_million:.0} ({least:.0} to {most:.0})"),
            keys.doubles_gone.to_string(),
            keys.given_up.to_string(),
            keys.in_doubt.to_string(),
            shown(&self.figures.without_service),
            format!("{} / {} ms", latency.p50, latency.p99),
            format!("{:.0}", self.figures.hops_per_hundred),
            match self.figures.broke {
                0 => "held".to_owned(),
                broke => format!("broke in {broke}"),
            },
        ]
    }
}

fn shown(spread: &Spread) -> String {
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    format!("{:.1} / {:.1} s", seconds(spread.p50_ms), seconds(spread.max_ms))
}

impl Study {
    pub fn held(&self) -> bool {
        self.rows.iter().all(|row| row.figures.broke == 0)
    }

    /// The answer, in a line each: did everything hold, and which point to take.
    ///
    /// Of the points that a ring file takes as it is, that is the first one that these seeds cannot
    /// tell from the best: later points wait longer, or cost more.
    pub fn answer(&self) -> Vec<String> {
        let broke = self.rows.iter().filter(|row| row.figures.broke > 0);
        let broke = joined(broke.map(|row| &row.name), "; ");
        let held = match self.held() {
            true => format!("Every invariant held, in {} seeds at each point.", self.count),
            false => format!("An invariant BROKE at: {broke}."),
        };
        let (with, without): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().filter(|row| !row.needs_unsafe_multiple).partition(|row| row.is_escrow());
        let all: Vec<&Row> = without.iter().chain(&with).copied().collect();
        let mut lines = vec![held];
        let best = first_of_the_best(&all);
        lines.push(best.map_or_else(
            || "A ring file takes none of these points as it is.".to_owned(),
            |best| format!("Fewest doubles: {}.", best.shown()),
        ));
        if best.is_some_and(Row::is_escrow)
            && let Some(best) = first_of_the_best(&without)
        {
            lines.push(format!("Fewest without escrow: {}.", best.shown()));
        }
        lines
    }

    /// The table as lines of text: columns as wide as they need to be.
    pub fn table(&self) -> Vec<String> {
        let rows: Vec<[String; 9]> = self.rows.iter().map(Row::cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([HEADS[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
        let line = |cells: [&str; 9]| {
            let pad = |(cell, (column, width)): (&str, (usize, &usize))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
            joined(cells.into_iter().zip(widths.iter().enumerate()).map(pad), "  ").trim_end().to_owned()
        };
        let mut lines = vec![line(HEADS)];
        lines.extend(rows.iter().map(|row| line(row.each_ref().map(String::as_str))));
        lines
    }
}
