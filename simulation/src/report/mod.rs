//! A report: a study, and one of its seeds in detail. It is one page that needs no other file, and
//! data.
//!
//! Commands make the study, and [`page`] the page. It must not hold the time, the machine or a
//! path: the same command gives the same bytes.

pub mod page;

use serde::Serialize;

use crate::outcome::Outcome;
use crate::study::Study;

/// The content of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The same seeds at several points.
    pub study: Study,
    /// One seed of the unchanged scenario, in detail.
    pub shown: Outcome,
}
