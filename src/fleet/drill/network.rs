//! Drills that break links, not regions: cut off, one link cut, one way only, flapping, slow.
//!
//! `schedule` runs them and heals after them; `losses` measures takeovers. A region that still has
//! a majority keeps its keys. These drills must not pass when a broken link is mistaken for a dead
//! region.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::ask::Told;
use super::losses::{Loss, no_new_epoch};
use super::schedule::Run;
use crate::fleet::wait;

/// Class of probes: a route without escrow.
const PLAIN: usize = 1;
/// Length of a fault that changes no view.
const LASTS: Duration = Duration::from_secs(10);
/// Time until every gateway has noticed a cut link: a ping's silence and a renewal.
const NOTICED: Duration = Duration::from_secs(3);

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
    let late = |exchange: &super::ask::Exchange| exchange.sent > over && exchange.told.success().is_some();
    let ran = inside.iter().filter(|probe| late(&probe.exchange)).count();
    run.report.numbers.insert("ran_inside_after_the_lease", ran.into());
    if ran > 0 {
        run.report.broke(format!("{ran} keys ran in the region that was cut off, after its lease"));
    }
    run.probes.extend(inside);
    for other in run.others(victim) {
        heal(run, victim, other)?;
    }
    Ok(())
}

/// Cuts one link while the third region sees both ends. No region takes over, and a request that
/// cannot be forwarded is refused with its reason.
pub async fn link_cut(run: &mut Run<'_>) -> Result<()> {
    let (one, other) = (run.victim, (run.victim + 1) % 3);
    let before = run.watching.epoch();
    cut(run, one, other)?;
    wait::pause(NOTICED).await;
    let across = run.prober("across", vec![other], vec![one], PLAIN);
    let around = run.prober("around", vec![one, other], vec![(run.victim + 2) % 3], PLAIN);
    wait::pause(run.span(LASTS)).await;
    let (across, around) = (across.end().await?, around.end().await?);
    let refused = across.iter().filter(|probe| probe.exchange.told.is(503, "home-unavailable")).count();
    let ran = around.iter().filter(|probe| probe.exchange.told.success().is_some()).count();
    run.report.numbers.insert("asked_across_the_cut", across.len().into());
    run.report.numbers.insert("refused_home_unavailable", refused.into());
    if refused < across.len() {
        let ran = across.iter().filter(|probe| probe.exchange.told.success().is_some()).count();
        let other = across.len() - refused;
        run.report.broke(format!(
            "{other} of {} keys across the cut were not refused as home-unavailable ({ran} ran)",
            across.len()
        ));
    }
    if ran < around.len() {
        let words = around.iter().filter(|probe| probe.exchange.told.success().is_none());
        let words: std::collections::BTreeSet<String> =
            words.map(|probe| probe.exchange.told.word()).collect();
        run.report.broke(format!(
            "{} of {} keys through the third region did not run: {words:?}",
            around.len() - ran,
            around.len()
        ));
    }
    run.probes.extend(across);
    run.probes.extend(around);
    no_new_epoch(run, before);
    heal(run, one, other)
}

/// First, bytes from a region no longer arrive at one other: it keeps its majority. Then they
/// arrive nowhere: it is lost, although it hears all others.
pub async fn one_way(run: &mut Run<'_>) -> Result<()> {
    let (victim, other) = (run.victim, (run.victim + 1) % 3);
    let before = run.watching.epoch();
    run.note(format!("nothing of {} arrives at {}", run.name(victim), run.name(other)));
    run.deployment.links.freeze(victim, other, true)?;
    wait::pause(run.span(LASTS)).await;
    no_new_epoch(run, before);
    run.deployment.links.heal(victim, other, true)?;
    run.note("healed");
    wait::pause(NOTICED).await;
    let loss = Loss::expect(run, victim, run.others(victim));
    wait::pause(Duration::from_secs(1)).await;
    let death = Instant::now();
    run.note(format!("nothing of {} arrives anywhere", run.name(victim)));
    for other in run.others(victim) {
        run.deployment.links.freeze(victim, other, true)?;
    }
    loss.measured(run, death).await?;
    wait::pause(Duration::from_secs(3)).await;
    for other in run.others(victim) {
        heal(run, victim, other)?;
    }
    Ok(())
}

/// Cuts both links of a region and heals them, every two seconds.
pub async fn flap(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let until = Instant::now() + run.span(Duration::from_secs(16));
    while Instant::now() < until {
        for other in run.others(victim) {
            cut(run, victim, other)?;
        }
        wait::pause(Duration::from_secs(2)).await;
        for other in run.others(victim) {
            heal(run, victim, other)?;
        }
        wait::pause(Duration::from_secs(2)).await;
    }
    Ok(())
}

/// Sets two seconds of round trip between a region and the others: neither dead nor well. Clients
/// may run out of time with it.
pub async fn slow(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let before = run.watching.epoch();
    run.note(format!("2 s of round trip to and from {}", run.name(victim)));
    for other in run.others(victim) {
        run.deployment.links.set_rtt(victim, other, Duration::from_secs(2), false)?;
    }
    wait::pause(run.span(Duration::from_secs(15))).await;
    for other in run.others(victim) {
        run.deployment.links.set_rtt(victim, other, run.settings.rtt, false)?;
    }
    run.note("as fast as before");
    run.report.numbers.insert("epochs_passed", (run.watching.epoch() - before).into());
    let lives = run.field.lives().clone();
    let late =
        lives.iter().flat_map(|life| &life.exchanges).filter(|exchange| exchange.told == Told::Late).count();
    run.report.numbers.insert("clients_out_of_patience", late.into());
    Ok(())
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
