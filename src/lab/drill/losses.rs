//! Drills that take a region away: killed, cut off, or dead with its disk.
//!
//! `schedule` runs them and mends after them. `bounds` has the time limit of a takeover. They must
//! not wait for anything without a deadline.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::bounds::{Takeover, millis};
use super::load::{LODGED, PLAIN};
use super::moves::until_done;
use super::prober::{Prober, first_run_elsewhere};
use super::report::FirstRun;
use super::run::Run;
use crate::gateway::Action;
use crate::region::Part;
use crate::{files, wait};

/// Longer than any bound: after this time a takeover counts as missing.
const TAKEN_WITHIN: Duration = Duration::from_secs(40);
const LOST_WITHIN: Duration = Duration::from_secs(30);
/// Time that a dead part stays dead after its keys run elsewhere.
const STAYS_DEAD: Duration = Duration::from_secs(3);

/// A measured loss: probes for keys of one home through the other regions.
pub struct Loss {
    victim: usize,
    plain: Prober,
    lodged: Prober,
    window_before: Duration,
}

impl Loss {
    pub fn expect(run: &Run<'_>, victim: usize, via: Vec<usize>) -> Loss {
        let lags = via.iter().map(|number| {
            let status = run.watching.last(&run.name(*number));
            status["peers"][run.name(victim)]["lag_max_ms"].as_f64().unwrap_or(0.0)
        });
        // The window that successors will compute, unless the lag grows until the death.
        let lag = Duration::from_secs_f64(lags.fold(0.0, f64::max) / 1e3);
        let rule = &run.file.failover;
        let window_before = lag.mul_f64(rule.multiple).max(rule.floor);
        let plain = run.prober("plain", vec![victim], via.clone(), PLAIN);
        let lodged = run.prober("lodged", vec![victim], via, LODGED);
        Loss { victim, plain, lodged, window_before }
    }

    /// Waits until keys that began after `death` run elsewhere, and records the time that it took.
    pub async fn measured(self, run: &mut Run<'_>, death: Instant) -> Result<()> {
        let names = run.field.names.clone();
        let first = |prober: &Prober| first_run_elsewhere(&prober.list_probes(), &names, self.victim, death);
        let both = async || Ok((first(&self.plain).is_some() && first(&self.lodged).is_some()).then_some(()));
        if let Err(error) = wait::for_some("the keys to run elsewhere", TAKEN_WITHIN, both).await {
            run.report.broke(format!("{error:#}"));
        }
        let (plain, lodged) = (first(&self.plain), first(&self.lodged));
        for (word, found) in [("plain", plain), ("under escrow", lodged)] {
            if let Some(after) = found {
                run.note(format!("first key ({word}) ran elsewhere {:.0} ms after the death", millis(after)));
            }
        }
        run.probes.extend(self.plain.end().await?);
        run.probes.extend(self.lodged.end().await?);
        let output = run.watching.longest_wait("window", &names[self.victim]);
        let window = output.unwrap_or_default().max(self.window_before);
        let bound = Takeover::of(&run.file, window, run.settings.rtt);
        let first_run = FirstRun { ms: plain.map(millis), escrow_ms: lodged.map(millis), bound };
        run.report.first_run = Some(first_run);
        Ok(())
    }
}

/// Does this action to a region, and measures until its keys run elsewhere.
pub async fn lose(run: &mut Run<'_>, victim: usize, how: Action, part: Part) -> Result<()> {
    let loss = Loss::expect(run, victim, run.others(victim));
    wait::pause(Duration::from_secs(1)).await;
    let death = Instant::now();
    run.act(victim, how, part).await?;
    loss.measured(run, death).await
}

/// Kills gateway and Postgres (SIGKILL), and starts them when their keys run elsewhere.
pub async fn kill(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    lose(run, victim, Action::Kill, Part::Both).await?;
    wait::pause(run.span(STAYS_DEAD)).await;
    run.act(victim, Action::Start, Part::Both).await
}

/// Cuts both links of a region. Its clients go on talking to it, and it must refuse them.
pub async fn isolate(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let loss = Loss::expect(run, victim, run.others(victim));
    let inside = run.prober("inside", vec![victim], vec![victim], PLAIN);
    wait::pause(Duration::from_secs(1)).await;
    let death = Instant::now();
    for other in run.others(victim) {
        cut(run, victim, other)?;
    }
    loss.measured(run, death).await?;
    wait::pause(run.span(Duration::from_secs(3))).await;
    let inside = inside.end().await?;
    // Validity counts from before the last renewal was sent, so no request sent a lease later may
    // run.
    let over = death + run.lease();
    let late =
        |exchange: &super::ask::Exchange| exchange.sent > over && exchange.received.success().is_some();
    let ran = inside.iter().filter(|probe| late(&probe.exchange)).count() as u64;
    let what = format!("{ran} keys ran in the region that was cut off, after its lease");
    run.report.none("ran_inside_after_the_lease", ran, what);
    run.probes.extend(inside);
    for other in run.others(victim) {
        heal(run, victim, other)?;
    }
    Ok(())
}

/// Kills all of a region, and its Postgres' disk with it.
pub async fn disk_lost(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    lose(run, victim, Action::Kill, Part::Both).await?;
    replaced(run).await
}

/// Replaces the old store by an empty one, with the commands of docs/operate/replace-a-store.md.
async fn replaced(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let (name, other) = (run.name(victim), run.others(victim)[0]);
    run.until_standing(other, victim, "lost", LOST_WITHIN).await?;
    let words = ["region", "rebuild", &name, "--accept-risk", "--actor", "drill", "--reason", "drill"];
    until_done(run, other, &words).await?;
    run.act(victim, Action::Kill, Part::Both).await?;
    let region = run.region(victim);
    region.cluster.make_anew().await?;
    region.cluster.start().await?;
    region.cluster.create_database(files::DATABASE).await?;
    let file = run.deployment.dir().join(format!("{name}.toml"));
    let text = tokio::fs::read_to_string(&file).await?;
    let text = text.replacen("[store]\n", "[store]\ngeneration = 2\n", 1);
    tokio::fs::write(&file, text).await.with_context(|| format!("cannot write {}", file.display()))?;
    let init = async |number: usize| {
        let words = ["store", "init", "--wait", "60s"];
        let output = run.region(number).run(&words).await?;
        run.said(&words, &output).map(drop)
    };
    // At once: each waits for objects that the others have to make.
    tokio::try_join!(init(0), init(1), init(2))?;
    run.act(victim, Action::Start, Part::Both).await
}

fn cut(run: &Run<'_>, a: usize, b: usize) -> Result<()> {
    run.note(format!("link {} – {} cut", run.name(a), run.name(b)));
    Ok(run.deployment.links.cut(a, b, false)?)
}

fn heal(run: &mut Run<'_>, a: usize, b: usize) -> Result<()> {
    run.note(format!("link {} – {} healed", run.name(a), run.name(b)));
    run.mended = Some(Instant::now());
    Ok(run.deployment.links.heal(a, b, false)?)
}
