//! Drills: real regions under load, broken on purpose, with every key's history checked against the
//! ledger.
//!
//! - [`schedule`] runs one drill once. [`losses`], [`restarts`], [`moves`], [`reseeds`] and
//!   [`promotes`] have the faults.
//! - [`soak`] is the long run, with its [`meter`] and its verdict [`soaked`].
//! - [`load`] and [`prober`] are the clients, [`ask`] their connections.
//! - [`watching`] records the regions' statuses. [`audited`] asks the product's audit.
//! - [`verdict`] judges by [`bounds`] into a [`report`]; [`summary`] adds runs up.
//! - [`window`] makes the table of windows.
//!
//! `cli::drill` prints the reports, and `tests/long/drill.rs` runs a short form. Drills act as
//! operators and clients can, and read stores only to check the audit. They must not make a bound
//! wider to hold it.

pub(crate) mod ask;
mod audited;
pub(crate) mod bounds;
pub mod load;
mod losses;
pub(crate) mod meter;
mod moves;
pub(crate) mod prober;
mod promotes;
pub mod report;
mod reseeds;
mod restarts;
mod schedule;
pub(crate) mod soak;
pub(crate) mod soaked;
pub mod summary;
pub(crate) mod verdict;
pub mod watching;
pub mod window;

use std::time::Duration;

use anyhow::{Context, Result};

use self::report::{FirstRun, Report};
use super::deployment::{Deployment, Options};
use super::patroni;

/// A drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drill {
    /// Gateway and Postgres of a region killed.
    Kill,
    /// Gateway, Postgres, both, and two regions at once, killed and started again at once.
    Restart,
    /// Cut off from both others.
    Isolate,
    /// A disk lost.
    DiskLost,
    /// Slots lost, and records copied anew while heartbeats arrive.
    Reseed,
    /// A primary under Patroni killed, and its standby promoted.
    Promote,
    /// A planned drain and return.
    Drain,
    /// A planned change of weights.
    Ring,
    /// A long run with all work that operators do.
    Soak,
    /// Doubles for several multiples of the lag.
    Window,
}

impl Drill {
    /// All drills; the table comes last.
    pub const ALL: [Drill; 10] = [
        Drill::Kill,
        Drill::Restart,
        Drill::Isolate,
        Drill::Drain,
        Drill::Ring,
        Drill::DiskLost,
        Drill::Reseed,
        Drill::Promote,
        Drill::Soak,
        Drill::Window,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Drill::Kill => "kill",
            Drill::Restart => "restart",
            Drill::Isolate => "isolate",
            Drill::DiskLost => "disk-lost",
            Drill::Reseed => "reseed",
            Drill::Promote => "promote",
            Drill::Drain => "drain",
            Drill::Ring => "ring",
            Drill::Soak => "soak",
            Drill::Window => "window",
        }
    }

    /// The drill on one line.
    pub fn about(self) -> &'static str {
        match self {
            Drill::Kill => "a region's gateway and Postgres killed (SIGKILL) under load, and started again",
            Drill::Restart => {
                "gateway, Postgres, both, and two regions at once, killed and started again at once: how long keys are refused"
            }
            Drill::Isolate => "both links of a region cut, while its clients go on talking to it",
            Drill::DiskLost => {
                "a region dies with its disk: rebuilt from the others while they serve its keys"
            }
            Drill::Reseed => {
                "slots lost, the region killed and back: no key runs again unsaid while its records are copied"
            }
            Drill::Promote => {
                "a region's Postgres under Patroni: the primary killed, the standby promoted: rows lost, time without service, doubles"
            }
            Drill::Drain => "a planned drain and return under load: pauses below a second, nothing twice",
            Drill::Ring => "other weights and back under load: exactly the planned arcs move, nothing twice",
            Drill::Soak => {
                "two gateways per region for --minutes: reloads, rotated certificates, restarts, drains; nothing may leak"
            }
            Drill::Window => {
                "doubles without escrow, measured and predicted, for multiples 0, 1, 2 and 4 of the lag"
            }
        }
    }

    /// True for drills that run only if they are named: one takes long, one needs Patroni.
    pub fn is_named(self) -> bool {
        matches!(self, Drill::Soak | Drill::Promote)
    }

    /// True if [`run`] gives the drill a deployment under load.
    fn is_under_load(self) -> bool {
        self != Drill::Window
    }

    /// The drill of this name.
    pub fn parse(name: &str) -> Option<Drill> {
        Drill::ALL.into_iter().find(|drill| drill.name() == name)
    }
}

/// Settings of drills.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Times that each drill runs.
    pub runs: u32,
    /// Length of a fault, for drills that have no length of their own.
    pub span: Option<Duration>,
    /// Round trip between regions.
    pub rtt: Duration,
    /// Keys that clients start per second, in all regions together.
    pub rate: f64,
    /// Probes per second of a prober.
    pub probes: f64,
    /// Holds spans against their bounds. If false, reports only show the spans: on a machine with
    /// other work they prove nothing.
    pub timed: bool,
    /// Length of a soak. In ten minutes or more: a restart each minute, a drain every five. In
    /// less: each event at least once.
    pub soak: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runs: 1,
            span: None,
            rtt: Duration::from_millis(60),
            rate: 15.0,
            probes: 12.5,
            timed: true,
            soak: soak::USUAL,
        }
    }
}

/// Runs drills one after the other, and hands each run's report to `heard` as it ends. One
/// deployment serves all of them, unless a run did not hold or broke it for good.
///
/// # Errors
/// The fleet itself cannot be started or broken. Faults of gateways stand in the reports.
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
    for drill in drills.iter().copied().filter(|drill| drill.is_under_load()) {
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
                    let options = Options { failover, ..options.clone() };
                    Deployment::start_shared(&options, &soak::GATEWAYS, say).await?
                }
                None => Deployment::start(options, say).await?,
            };
            say(&format!("{}: run {number} of {}", drill.name(), settings.runs));
            let ran = schedule::once(&ready, drill, number, settings, say).await;
            let report = match ran.with_context(|| format!("{}, run {number}", drill.name())) {
                Ok(report) => report,
                Err(error) => {
                    ready.shut_down().await?;
                    return Err(error);
                }
            };
            // A run's permanent damage, or its lag, must not count against the next run.
            if report.held && !of_its_own && !matches!(drill, Drill::DiskLost | Drill::Reseed) {
                deployment = Some(ready);
            } else {
                ready.shut_down().await?;
            }
            of_drill.push(report);
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

/// Holds the bound on the first run elsewhere at the 95th percentile. With fewer than twenty runs
/// none may exceed it.
fn hold_first_runs(reports: &mut [Report]) {
    let over = |report: &Report| report.first_run.as_ref().is_some_and(FirstRun::is_over);
    let late = reports.iter().filter(|report| over(report)).count();
    if late * 20 <= reports.len() {
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
