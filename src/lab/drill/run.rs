//! A run in progress: what the faults act on, and the acts that they share.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::load::Field;
use super::plan::Settings;
use super::prober::{Aim, Probe, Prober};
use super::report::{Report, RingFile};
use super::verdict::Allowed;
use super::watching::Watching;
use crate::deployment::Deployment;
use crate::gateway::Action;
use crate::region::{Part, Region};
use crate::wait;

pub struct Run<'a> {
    pub deployment: &'a Deployment,
    pub field: Arc<Field>,
    pub watching: Watching,
    pub file: RingFile,
    pub settings: &'a Settings,
    /// The region that is broken first, by number; another one in each run.
    pub victim: usize,
    pub allowed: Allowed,
    pub probes: Vec<Probe>,
    /// Receives the progress of a long run, in words.
    pub say: &'a (dyn Fn(&str) + Sync),
    pub report: Report,
    /// Moment of the last start, resume or heal.
    pub mended: Option<Instant>,
    pub start: Instant,
}

impl Run<'_> {
    pub fn note(&self, what: impl Into<String>) {
        self.watching.note(what);
    }

    pub fn region(&self, number: usize) -> &Region {
        &self.deployment.regions[number % self.deployment.regions.len()]
    }

    pub fn name(&self, number: usize) -> String {
        self.region(number).name.to_string()
    }

    pub fn all(&self) -> Vec<usize> {
        (0..self.deployment.regions.len()).collect()
    }

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
    pub fn said(&self, words: &[&str], output: &std::process::Output) -> Result<String> {
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        self.note(format!("onceway {}: {} {said} {complaint}", words.join(" "), output.status));
        match output.status.code() {
            Some(0) => Ok(said),
            code => bail!("`onceway {}` ended with {code:?}: {said} {complaint}", words.join(" ")),
        }
    }

    /// None if the command is to be asked again: on exit code 3 (not possible yet), or if `again`.
    pub fn tried(&self, words: &[&str], output: &std::process::Output, again: bool) -> Result<Option<()>> {
        let again = again || output.status.code() == Some(3);
        match self.said(words, output) {
            Ok(_said) => Ok(Some(())),
            Err(_not_yet) if again => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a prober for keys of these homes, with `times` as many probes as usual.
    pub fn prober(
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

    pub fn standing(&self, by: usize, about: &str) -> Option<String> {
        let status = self.watching.last(&self.name(by));
        let mut regions = status["authority"]["regions"].as_array()?.iter();
        regions.find(|one| one["name"] == about)?["standing"].as_str().map(str::to_owned)
    }

    /// Waits until `told_by` says `serving`, `lost`, `sealed` or `drained` of another region.
    pub async fn until_standing(
        &self,
        seen_by: usize,
        about: usize,
        standing: &str,
        within: Duration,
    ) -> Result<()> {
        let (by, about) = (self.name(seen_by), self.name(about));
        let stands = async || Ok((self.standing(seen_by, &about).as_deref() == Some(standing)).then_some(()));
        wait::for_some(&format!("{by} to say that {about} is {standing}"), within, stands).await
    }

    /// Starts stopped parts, resumes paused ones, heals all links.
    pub async fn mend(&mut self) -> Result<()> {
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
