//! Drills: real regions under load, broken on purpose, with every key's history checked against the
//! ledger. They act as operators and clients can, and read stores only to check the audit. No bound
//! is made wider to hold it.
//!
//! - [`plan`] names the drills. [`schedule`] runs one once: [`run`] has its state, and [`losses`],
//!   [`moves`] and [`promotes`] have the faults.
//! - [`soak`] is the long run, with its [`meter`] and its verdict [`soaked`].
//! - [`load`] and [`prober`] are the clients, [`ask`] their connections. [`watching`] records the
//!   regions' statuses.
//! - [`verdict`] judges into a [`report`], which has the bounds; [`summary`] adds runs up.
//! - [`window`] makes the table of windows.

pub(crate) mod ask;
pub mod load;
mod losses;
pub(crate) mod meter;
mod moves;
mod plan;
pub(crate) mod prober;
mod promotes;
pub mod report;
mod run;
mod schedule;
pub(crate) mod soak;
pub(crate) mod soaked;
pub mod summary;
pub(crate) mod verdict;
pub mod watching;
pub mod window;

use anyhow::{Context, Result};

pub use self::plan::{Drill, Settings};
use self::report::{FirstRun, Report};
use super::deployment::{Deployment, Options};
use super::patroni;

/// Runs drills one after the other, and hands each run's report to `heard` as it ends. One
/// deployment serves all of them, unless a run did not hold or broke it for good. Errors are the
/// fleet's own; faults of gateways stand in the reports.
pub async fn run(
    drills: &[Drill],
    options: &Options,
    settings: &Settings,
    say: &(dyn Fn(&str) + Sync),
    heard: &mut (dyn FnMut(&Report) + Send),
) -> Result<Vec<Report>> {
    if drills.contains(&Drill::Promote) {
        patroni::check().context("drill promote")?;
    }
    let mut deployment: Option<Deployment> = None;
    let mut reports = Vec::new();
    for drill in drills.iter().copied().filter(|drill| *drill != Drill::Window) {
        let mut of_drill = Vec::new();
        let of_its_own = drill == Drill::Soak;
        if of_its_own && let Some(another) = deployment.take() {
            another.shut_down().await?;
        }
        for number in 1..=settings.runs {
            let ready = match deployment.take() {
                Some(ready) => ready,
                None if drill == Drill::Soak => {
                    let failover = options.failover.clone().or(Some(soak::FAILOVER.to_owned()));
                    let gateways = soak::GATEWAYS.to_vec();
                    Deployment::start(&Options { failover, gateways, ..options.clone() }, say).await?
                }
                None => Deployment::start(options, say).await?,
            };
            say(&format!("{}: run {number} of {}", drill.name(), settings.runs));
            let ran = schedule::once(&ready, drill, number, settings, say).await;
            // A run's permanent damage, or its lag, must not count against the next run.
            let is_whole = !of_its_own && !matches!(drill, Drill::DiskLost | Drill::Reseed);
            if is_whole && ran.as_ref().is_ok_and(|report| report.held) {
                deployment = Some(ready);
            } else {
                ready.shut_down().await?;
            }
            of_drill.push(ran.with_context(|| format!("{}, run {number}", drill.name()))?);
            if settings.timed {
                hold_first_runs(&mut of_drill);
            }
            of_drill.last().map(&mut *heard);
        }
        reports.append(&mut of_drill);
    }
    if let Some(ready) = deployment {
        ready.shut_down().await?;
    }
    Ok(reports)
}

/// Holds the bound at the 95th percentile: with fewer than twenty runs none may exceed it.
fn hold_first_runs(reports: &mut [Report]) {
    let over = |report: &Report| report.first_run.as_ref().is_some_and(FirstRun::is_over);
    if reports.iter().filter(|report| over(report)).count() * 20 <= reports.len() {
        return;
    }
    if let Some(last) = reports.last_mut().filter(|report| over(report))
        && let Some(first) = &last.first_run
    {
        let (ms, bound) = (first.ms.unwrap_or_default(), first.bound.bound);
        last.broken.push(format!("the first key ran elsewhere after {ms:.0} ms, the bound is {bound:.0} ms"));
        last.held = false;
    }
}
