//! Drills that take a region or a part of it away: killed, paused, its Postgres dead, its gateway
//! dead, two in a row, again on its return.
//!
//! `schedule` runs them and mends after them. `bounds` has the time limit of a takeover. They must
//! not wait for anything without a deadline.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::bounds::{Takeover, millis};
use super::prober::{Prober, first_run_elsewhere};
use super::report::FirstRun;
use super::schedule::Run;
use crate::fleet::region::{Action, Part};
use crate::fleet::wait;

/// Longer than any bound: after this time a takeover counts as missing.
const TAKEN_WITHIN: Duration = Duration::from_secs(40);
/// Time that a dead part stays dead after its keys run elsewhere.
const STAYS_DEAD: Duration = Duration::from_secs(3);

/// Classes, by number, for probes: without escrow the window counts.
const PLAIN: usize = 1;
const LODGED: usize = 0;

/// A measured loss: probes for keys of one home through the other regions.
pub struct Loss {
    victim: usize,
    plain: Prober,
    lodged: Prober,
    window_before: Duration,
}

impl Loss {
    /// Starts to measure, before anything happens.
    pub fn expect(run: &Run<'_>, victim: usize, via: Vec<usize>) -> Loss {
        let lags = via.iter().map(|number| {
            let status = run.watching.last(&run.name(*number));
            status["peers"][run.name(victim)]["lag_max_ms"].as_f64().unwrap_or(0.0)
        });
        // The window that successors will compute, unless the lag grows until the death.
        let lag = Duration::from_secs_f64(lags.fold(0.0, f64::max) / 1e3);
        let rule = &run.file.failover.window;
        let window_before = (lag * rule.percent / 100).max(rule.floor);
        let plain = run.prober("plain", vec![victim], via.clone(), PLAIN);
        let lodged = run.prober("lodged", vec![victim], via, LODGED);
        Loss { victim, plain, lodged, window_before }
    }

    /// Waits until keys that began after `death` run elsewhere, and records the time that it took.
    pub async fn measured(self, run: &mut Run<'_>, death: Instant) -> Result<()> {
        let names = run.field.names.clone();
        let first = |prober: &Prober| first_run_elsewhere(&prober.so_far(), &names, self.victim, death);
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
        let told = run.watching.longest_wait("window", &names[self.victim]);
        let window = told.unwrap_or_default().max(self.window_before);
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

/// Stops everything (SIGSTOP) until its keys run elsewhere, then resumes it, with unfinished
/// requests.
pub async fn pause_long(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    lose(run, victim, Action::Pause, Part::Both).await?;
    wait::pause(run.span(STAYS_DEAD)).await;
    run.act(victim, Action::Resume, Part::Both).await
}

/// Stops everything (SIGSTOP) for half a lease, three times: no region may take over.
pub async fn pause_short(run: &mut Run<'_>) -> Result<()> {
    let (victim, before) = (run.victim, run.watching.epoch());
    let rest = run.span(Duration::from_secs(2));
    for _ in 0..3 {
        run.act(victim, Action::Pause, Part::Both).await?;
        wait::pause(run.lease() / 2).await;
        run.act(victim, Action::Resume, Part::Both).await?;
        wait::pause(rest).await;
    }
    no_new_epoch(run, before);
    Ok(())
}

/// Checks that no region has changed the view, since none had a reason.
pub fn no_new_epoch(run: &mut Run<'_>, before: u64) {
    let after = run.watching.epoch();
    if after != before {
        run.report.broke(format!("the epoch went from {before} to {after} without a reason"));
    }
}

/// Kills one part and leaves the other alive. Gateways without a store give up; a store without
/// gateways runs no keys.
pub async fn part_dead(run: &mut Run<'_>, part: Part) -> Result<()> {
    let victim = run.victim;
    lose(run, victim, Action::Kill, part).await?;
    wait::pause(run.span(STAYS_DEAD)).await;
    run.act(victim, Action::Start, part).await
}

/// Kills one region, and the next one once the first one's keys run elsewhere. Then starts both,
/// one after the other. The third alone is no majority, and must say so.
pub async fn two_killed(run: &mut Run<'_>) -> Result<()> {
    let (first, second, third) = (run.victim, (run.victim + 1) % 3, (run.victim + 2) % 3);
    lose(run, first, Action::Kill, Part::Both).await?;
    run.act(second, Action::Kill, Part::Both).await?;
    // One of three is no majority: a lease later nothing runs, and clients learn that.
    wait::pause(run.lease() * 2).await;
    let prober = run.prober("alone", vec![third], vec![third], PLAIN);
    wait::pause(Duration::from_secs(1)).await;
    let alone = prober.end().await?;
    let ran = alone.iter().filter(|probe| probe.exchange.told.success().is_some()).count();
    run.report.numbers.insert("ran_without_majority", ran.into());
    if ran > 0 {
        run.report.broke(format!("{ran} keys ran in a region that has no majority"));
    }
    run.probes.extend(alone);
    run.act(first, Action::Start, Part::Both).await?;
    // The first region is back and is a majority with the third: the second's keys must move on
    // without it.
    wait::pause(run.span(run.lease() * 3)).await;
    run.act(second, Action::Start, Part::Both).await
}

/// Kills a region, starts it, and kills it again as soon as its return has begun.
pub async fn kill_in_return(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let witness = (victim + 1) % 3;
    lose(run, victim, Action::Kill, Part::Both).await?;
    run.act(victim, Action::Start, Part::Both).await?;
    run.until_standing(witness, victim, "sealed", TAKEN_WITHIN).await?;
    run.act(victim, Action::Kill, Part::Both).await?;
    wait::pause(run.span(run.lease() * 2)).await;
    run.act(victim, Action::Start, Part::Both).await?;
    run.until_standing(witness, victim, "serving", TAKEN_WITHIN).await?;
    run.note("killed as its keys come home");
    run.act(victim, Action::Kill, Part::Both).await?;
    wait::pause(run.span(run.lease() * 3)).await;
    run.act(victim, Action::Start, Part::Both).await
}
