//! One run of a drill, from a healthy deployment to a verdict: load, faults and repairs, the ends
//! of all keys, the count.
//!
//! `losses`, `restarts`, `moves`, `reseeds` and `promotes` have the middle part, and act through
//! [`Run`]; `verdict` judges. The run mends every fault before it brings keys to their ends. It
//! must not skip the count when the middle fails.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::bounds::{self, millis};
use super::load::{self, Field, Load};
use super::prober::{Aim, Probe, Prober};
use super::report::Report;
use super::verdict::{self, Allowed, Remains};
use super::watching::Watching;
use super::{Drill, Settings, audited, losses, moves, promotes, reseeds, restarts, soak, soaked};
use crate::cluster_audit::Noted;
use crate::deployment::Deployment;
use crate::gateway::Action;
use crate::region::{Part, Region};
use crate::ring_file::RingFile;
use crate::{files, wait};

/// Load before the first fault, so that caches, connections and observed lags are those of a
/// running deployment.
const BEFORE: Duration = Duration::from_secs(3);
/// Load after everything is home again.
const AFTER: Duration = Duration::from_secs(2);
/// Time limit for keys to end when everything is well: the longest hold, a probe, and room.
const ENDS_WITHIN: Duration = Duration::from_secs(45);
/// Number of keys asked for once more when everything is over.
const ASKED_AGAIN: usize = 400;

/// A run in progress.
pub struct Run<'a> {
    /// The deployment that it breaks.
    pub deployment: &'a Deployment,
    /// State of the clients.
    pub field: std::sync::Arc<Field>,
    /// Watch over the regions' statuses.
    pub watching: Watching,
    /// The deployment's settings.
    pub file: RingFile,
    pub settings: &'a Settings,
    /// The region that is broken first, by number; another one in each run.
    pub victim: usize,
    /// Replies that clients may get.
    pub allowed: Allowed,
    pub probes: Vec<Probe>,
    pub soaked: Option<soaked::Soaked>,
    /// Receives the progress of a long run, in words.
    pub say: &'a (dyn Fn(&str) + Sync),
    pub report: Report,
    /// Moment of the last start, resume or heal.
    pub mended: Option<Instant>,
    start: Instant,
}

/// Runs a drill once. Errors are the fleet's own; faults of gateways stand in the report.
pub async fn once(
    deployment: &Deployment,
    drill: Drill,
    number: u32,
    settings: &Settings,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Report> {
    let file = RingFile::read(deployment.dir())?;
    let start = Instant::now();
    let mark = format!("{}-{number}-{:x}", drill.name(), std::process::id());
    let field = Field::new(deployment, file.ring()?, mark)?;
    let watching = Watching::start(deployment);
    let mut run = Run {
        deployment,
        field: field.clone(),
        watching,
        file,
        settings,
        victim: usize::try_from(number)? % deployment.regions.len(),
        allowed: Allowed::default(),
        probes: Vec::new(),
        soaked: None,
        say,
        mended: None,
        report: Report { drill: drill.name(), run: number, ..Report::default() },
        start,
    };
    run.home(bounds::HOME_WITHIN).await.context("before the run")?;
    let load = Load::start(&field, settings.rate);
    wait::pause(BEFORE).await;
    if let Err(error) = middle(drill, &mut run).await {
        run.note(format!("the drill could not go on: {error:#}"));
        run.report.broke(format!("the drill could not go on: {error:#}"));
    }
    run.mend().await?;
    let mended = run.mended.unwrap_or_else(Instant::now);
    match run.home(bounds::HOME_WITHIN).await {
        Ok(()) if mended.elapsed() > bounds::HOME_WITHIN => {
            run.report.broke(format!("home again after {:?} only", mended.elapsed()));
        }
        Ok(()) => run.report.home_again_ms = Some(millis(mended.elapsed())),
        Err(error) => {
            run.report.broke(format!("not home again within {:?}: {error:#}", bounds::HOME_WITHIN));
        }
    }
    wait::pause(AFTER).await;
    load.end(ENDS_WITHIN).await?;
    // A refused probe must run now, once. The outcome of a probe without an answer must be found
    // out.
    let probed = std::mem::take(&mut run.probes).into_iter().map(Probe::life).collect();
    load::bring_all(&field, probed, ENDS_WITHIN).await;
    run.note("every key has its end");
    load::ask_again(&field, ASKED_AGAIN).await;
    let broken = run.report.broken.join("; ");
    // An error of the count may come from an earlier fault.
    run.finish().await.with_context(|| format!("the count, after: {broken}"))
}

async fn middle(drill: Drill, run: &mut Run<'_>) -> Result<()> {
    match drill {
        Drill::Kill => losses::kill(run).await,
        Drill::Restart => restarts::restart(run).await,
        Drill::Isolate => losses::isolate(run).await,
        Drill::Drain => moves::drain(run).await,
        Drill::Ring => moves::ring(run).await,
        Drill::DiskLost => losses::disk_lost(run).await,
        Drill::Reseed => reseeds::reseed(run).await,
        Drill::Promote => promotes::promote(run).await,
        Drill::Soak => soak::soak(run).await,
        Drill::Window => bail!("this drill has machines of its own"),
    }
}

impl Run<'_> {
    /// Notes an action, with its time.
    pub fn note(&self, what: impl Into<String>) {
        self.watching.note(what);
    }

    pub fn region(&self, number: usize) -> &Region {
        &self.deployment.regions[number % self.deployment.regions.len()]
    }

    pub fn name(&self, number: usize) -> String {
        self.region(number).name.to_string()
    }

    /// The numbers of all regions but one.
    pub fn others(&self, of: usize) -> Vec<usize> {
        (0..self.deployment.regions.len()).filter(|number| *number != of).collect()
    }

    /// Length of something that has no length of its own: the settings' span, or the usual one.
    pub fn span(&self, usual: Duration) -> Duration {
        self.settings.span.unwrap_or(usual)
    }

    pub fn lease(&self) -> Duration {
        self.file.failover.lease
    }

    /// Does an action to a region. Broken connections of its clients are allowed from then on.
    pub async fn act(&mut self, number: usize, action: Action, part: Part) -> Result<()> {
        self.note(format!("{action:?} {part:?} of {}", self.name(number)));
        if matches!(action, Action::Start | Action::Resume) {
            self.mended = Some(Instant::now());
        }
        if part != Part::Postgres {
            self.allowed.harmed.insert(number);
        }
        self.region(number).act(action, part).await
    }

    /// Standard output of a command, noted too; an error if the command failed.
    pub fn said(&self, words: &[&str], told: &std::process::Output) -> Result<String> {
        let said = String::from_utf8_lossy(&told.stdout).trim().to_owned();
        let complaint = String::from_utf8_lossy(&told.stderr).trim().to_owned();
        self.note(format!("onceway {}: {} {said} {complaint}", words.join(" "), told.status));
        match told.status.code() {
            Some(0) => Ok(said),
            code => bail!("`onceway {}` ended with {code:?}: {said} {complaint}", words.join(" ")),
        }
    }

    /// Starts a prober for keys of these homes.
    pub fn prober(&self, word: &'static str, homes: Vec<usize>, via: Vec<usize>, class: usize) -> Prober {
        self.dense_prober(1.0, word, homes, via, class)
    }

    /// Starts a prober like [`Run::prober`], with `times` as many probes.
    pub fn dense_prober(
        &self,
        times: f64,
        word: &'static str,
        homes: Vec<usize>,
        via: Vec<usize>,
        class: usize,
    ) -> Prober {
        let every = Duration::from_secs_f64(1.0 / (self.settings.probes * times));
        Prober::start(&self.field, Aim { word, homes, via, class, every })
    }

    /// Waits until every region serves its own arcs again, under one epoch.
    pub async fn home(&self, within: Duration) -> Result<()> {
        let home = async || {
            let (mut epochs, mut well) = (Vec::new(), true);
            for region in &self.deployment.regions {
                let status = self.watching.last(region.name.as_str());
                epochs.push(status["authority"]["epoch"].clone());
                well &= is_home(&status);
            }
            epochs.dedup();
            Ok((well && epochs.len() == 1).then_some(()))
        };
        let waited = wait::for_some("every region to be home", within, home).await;
        waited.with_context(|| self.watching.now().join(" | "))?;
        self.note("every region is home");
        Ok(())
    }

    /// The standing of a region as another one reports it.
    pub fn standing(&self, by: usize, about: &str) -> Option<String> {
        let status = self.watching.last(&self.name(by));
        let regions = status["authority"]["regions"].as_array()?;
        let found = regions.iter().find(|one| one["name"] == about)?;
        found["standing"].as_str().map(str::to_owned)
    }

    /// Waits until region `told_by` reports this standing of another one: `serving`, `lost`,
    /// `sealed` or `drained`.
    pub async fn until_standing(
        &self,
        told_by: usize,
        about: usize,
        standing: &str,
        within: Duration,
    ) -> Result<()> {
        let (by, about) = (self.name(told_by), self.name(about));
        let stands = async || Ok((self.standing(told_by, &about).as_deref() == Some(standing)).then_some(()));
        wait::for_some(&format!("{by} to say that {about} is {standing}"), within, stands).await
    }

    /// Starts stopped parts, resumes paused ones, heals all links.
    async fn mend(&mut self) -> Result<()> {
        let regions = self.deployment.regions.len();
        for a in 0..regions {
            for b in self.others(a) {
                self.deployment.links.heal(a, b, true)?;
                self.deployment.links.set_rtt(a, b, self.settings.rtt, true)?;
            }
        }
        for region in &self.deployment.regions {
            region.act(Action::Resume, Part::Both).await?;
            region.act(Action::Start, Part::Both).await?;
        }
        self.note("everything is mended");
        Ok(())
    }

    async fn finish(mut self) -> Result<Report> {
        let mut noted: BTreeMap<String, Noted> = BTreeMap::new();
        for region in &self.deployment.regions {
            for (key, told) in region.cluster.noted(files::DATABASE, self.field.mark()).await? {
                noted.entry(key).or_default().merge(told);
            }
        }
        let mut audited = BTreeMap::new();
        for region in &self.deployment.regions {
            if let Err(error) = audited::add(&mut audited, region, self.field.mark()).await {
                self.report.broke(format!("{error:#}"));
            }
        }
        let totals = self.deployment.ledger.totals(None);
        let mut report = std::mem::take(&mut self.report);
        report.numbers.insert("keys_held_back", self.field.held_back().into());
        {
            let lives = self.field.lives();
            let (mark, start) = (self.field.mark(), self.start);
            let (lives, totals) = (&lives[..], &totals[..]);
            let remains = Remains { lives, totals, noted: &noted, audited: &audited, mark, start };
            verdict::judge(&mut report, &self.allowed, &remains);
        }
        if let Some(left) = self.soaked.take() {
            soaked::hold(&left, &self, &audited, &mut report).await?;
        }
        let line = |event: &super::watching::Event| {
            format!("{:7.3} s  {}", (event.at - self.start).as_secs_f64(), event.what)
        };
        report.timeline = self.watching.events().iter().map(line).collect();
        report.held = report.broken.is_empty();
        Ok(report)
    }
}

/// True if a region reports that it runs its keys, sees all others serve, and waits for nothing.
fn is_home(status: &Value) -> bool {
    let authority = &status["authority"];
    let regions = authority["regions"].as_array().cloned().unwrap_or_default();
    let waits = authority["opening"].as_array().cloned().unwrap_or_default();
    status["readiness"]["serves"] == true
        && !regions.is_empty()
        && regions.iter().all(|region| region["standing"] == "serving" || region["in_ring"] == false)
        && waits.is_empty()
        && authority["pending"].is_null()
}
