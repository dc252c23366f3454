//! A report: a study, one of its seeds in detail, and the advice. It is one page that needs no
//! other file, and data.
//!
//! Commands make the study, [`crate::advice`] the words, and [`page`] the page with drawings from
//! [`charts`] and [`svg`]. It must not hold the time, the machine or a path: the same command gives
//! the same bytes.

pub mod charts;
pub mod page;
pub mod svg;

use serde::Serialize;

use crate::advice::{self, Advice};
use crate::outcome::Outcome;
use crate::study::Study;

/// The content of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The same seeds at several points.
    pub study: Study,
    /// One seed of the unchanged scenario, in detail.
    pub shown: Outcome,
    /// The advice.
    pub advice: Advice,
}

impl Report {
    /// The report on a study, with one seed in detail.
    pub fn new(study: Study, shown: Outcome) -> Self {
        let advice = advice::advise(&study);
        Self { study, shown, advice }
    }
}

/// The advice as lines of text, for a terminal.
pub fn told(advice: &Advice) -> Vec<String> {
    let mut lines = vec!["What follows for ring.toml and routes.toml".to_owned(), String::new()];
    lines.extend(files(advice).lines().map(|line| format!("    {line}")));
    lines.push(String::new());
    lines.extend(advice.reasons.iter().map(|reason| format!("- {reason}")));
    lines.push("What this cannot tell:".to_owned());
    lines.extend(advice.limits.iter().map(|limit| format!("- {limit}")));
    lines
}

/// The recommended settings, as the files would have them.
pub fn files(advice: &Advice) -> String {
    let mut text = String::new();
    if let (Some(multiple), Some(floor)) = (advice.multiple, advice.floor_ms) {
        text.push_str(&format!("# ring.toml\n[failover]\nmultiple = {multiple}\nfloor = \"{floor}ms\"\n"));
    }
    if !advice.escrow.is_empty() {
        text.push_str("# routes.toml, where a double is worse than the round trip\n");
    }
    for (route, kind) in &advice.escrow {
        text.push_str(&format!("escrow = \"{kind}\" # in the [[route]] named {route:?}\n"));
    }
    text
}
