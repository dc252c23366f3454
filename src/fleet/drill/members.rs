//! The drill of the ring's members. It adds a region under load, lets it serve, removes it again
//! and takes its machines away. Then one of the others dies, and nothing waits for the region that
//! left.
//!
//! `schedule` runs it, and `moves` changes rings. Every step is a command from
//! docs/operate/regions.md, in that order. It must not touch a store or a register except by the
//! product's own commands.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::Instant;

use super::bounds::millis;
use super::losses::lose;
use super::moves::{Moved, apply_ring, until_done, who_ran, write_ring_of};
use super::schedule::Run;
use crate::fleet::region::{Action, Part, Region};
use crate::fleet::{files, wait};
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;

/// Time limit of one step.
const STEP_WITHIN: Duration = Duration::from_secs(60);
/// Time that the ring stays as it is before the next change.
const STANDS: Duration = Duration::from_secs(3);
/// Class of probes: a route without escrow, so that only the move counts.
const PLAIN: usize = 1;
/// Number of settled keys asked for again after each change.
const RETRIED: usize = 120;

/// Adds a region, lets it serve and removes it; then kills another one.
pub async fn members(run: &mut Run<'_>) -> Result<()> {
    let old: Vec<usize> = (0..run.deployment.regions.len()).collect();
    let spare = old.len();
    let all: Vec<usize> = (0..=spare).collect();
    let prober = run.dense_prober(2.0, "moving", old.clone(), old.clone(), PLAIN);
    let moved = there_and_back(run, &old, &all).await;
    let probes = prober.end().await?;
    // Also after an error: the ledger has the effects of these probes.
    run.probes.extend(probes.iter().cloned());
    let moved = moved?;
    // A region that lost its lease on a busy machine has its keys run by regions that neither the
    // plan nor the ring before names.
    let lost = run.watching.events().iter().filter(|event| event.what.contains(" lost")).count();
    run.report.numbers.insert("told_lost_meanwhile", lost.into());
    for moved in moved.iter().filter(|_| lost == 0) {
        who_ran(run, &probes, moved);
    }
    // Nothing was lost so far that could excuse a second effect, and nothing allows one later. Rows
    // would record a run at risk.
    let twice = run.deployment.ledger.totals(None).into_iter();
    let twice = twice.filter(|total| total.key.starts_with(run.field.mark()) && total.effects > 1).count();
    run.report.numbers.insert("doubles_while_members_changed", twice.into());
    if twice > 0 {
        run.report.broke(format!("{twice} keys had more than one effect while the ring's members changed"));
    }
    // Nothing may wait for the region that left: keys of another lost region must find their
    // successors.
    let victim = run.victim;
    lose(run, victim, Action::Kill, Part::Both).await?;
    run.act(victim, Action::Start, Part::Both).await
}

async fn there_and_back(run: &mut Run<'_>, old: &[usize], all: &[usize]) -> Result<[Moved; 2]> {
    let asked = Instant::now();
    let added = add(run, old, all).await?;
    run.report.numbers.insert("added_ms", millis(asked.elapsed()).into());
    wait::pause(run.span(STANDS)).await;
    retried(run, all).await?;
    let asked = Instant::now();
    let removed = remove(run, old).await?;
    run.report.numbers.insert("removed_ms", millis(asked.elapsed()).into());
    retried(run, old).await?;
    Ok([added, removed])
}

async fn add(run: &mut Run<'_>, old: &[usize], all: &[usize]) -> Result<Moved> {
    let new = spare(run)?;
    run.note(format!("the files name {}", new.name));
    let (from, to) = written(run, all)?;
    run.note("its Postgres is made, and every store takes it in");
    new.cluster.start().await?;
    new.cluster.create_database(files::DATABASE).await?;
    store_init(run, all).await?;
    restart(run, old).await?;
    new.act(Action::Start, Part::Gateway).await?;
    let moved = apply_ring(run, from, to).await?;
    // In force means that the region is in the ring. It takes its keys by itself, once it is
    // covered and has been well for a while.
    let home = async || Ok(run.home(Duration::from_millis(100)).await.ok().filter(|()| votes(run, true)));
    wait::for_some("the new region to serve and vote", STEP_WITHIN, home).await?;
    Ok(Moved { done: Instant::now(), ..moved })
}

async fn remove(run: &mut Run<'_>, old: &[usize]) -> Result<Moved> {
    let gone = spare(run)?;
    let at = (run.victim + 1) % old.len();
    let name = gone.name.to_string();
    let asked = Instant::now();
    let (from, to) = written(run, old)?;
    // The region still serves: the ring without it is refused.
    let words =
        ["ring", "apply", "--expect-epoch", &run.watching.epoch().to_string(), "--yes", "--actor", "drill"];
    let told = run.region(at).run(&words).await?;
    let refused = told.status.code() == Some(1) && String::from_utf8_lossy(&told.stderr).contains("drain");
    ensure!(refused, "a ring without a region that serves was not refused: {told:?}");
    until_done(run, at, &["region", "drain", &name, "--actor", "drill", "--reason", "drill"]).await?;
    let moved = apply_ring(run, from, to).await?;
    let out = async || Ok(votes(run, false).then_some(()));
    wait::for_some("the region that left to vote no more", STEP_WITHIN, out).await?;
    restart(run, old).await?;
    // All its rows are here, and no region follows it any more. Its own Postgres still follows the
    // others.
    for number in old {
        let covered = async || {
            let told = run.region(*number).run(&["store", "init"]).await?;
            let said = String::from_utf8_lossy(&told.stdout).into_owned();
            Ok((said.contains("all its rows are here") || told.status.success()).then_some(()))
        };
        wait::for_some("the rows of the region that left to be everywhere", STEP_WITHIN, covered).await?;
    }
    run.note(format!("{name} is switched off for good"));
    gone.act(Action::Kill, Part::Both).await?;
    store_init(run, old).await?;
    for number in old {
        let left = run.region(*number).cluster.ties_to(files::DATABASE, &name).await?;
        ensure!(left == 0, "{} keeps {left} subscriptions or slots of {name}", run.name(*number));
    }
    Ok(Moved { asked, ..moved })
}

/// Writes the ring file and every region's own file for these regions, by number. Returns the rings
/// before and after.
fn written(run: &Run<'_>, members: &[usize]) -> Result<(Arc<Ring>, Arc<Ring>)> {
    let names: Vec<RegionName> =
        run.deployment.all().take(members.len()).map(|region| region.name.clone()).collect();
    for number in members {
        run.deployment.write_file(*number, members)?;
    }
    write_ring_of(run, &names, &vec![1; members.len()])
}

fn spare<'a>(run: &Run<'a>) -> Result<&'a Region> {
    run.deployment.spare.as_ref().context("this drill needs machines for one more region")
}

fn region<'a>(run: &Run<'a>, number: usize) -> Result<&'a Region> {
    run.deployment.all().nth(number).context("no such region")
}

/// Runs `onceway store init` in all of them at once: each waits for objects that the others have to
/// make.
async fn store_init(run: &Run<'_>, members: &[usize]) -> Result<()> {
    let one = async |number: usize| match members.get(number) {
        None => Ok(()),
        Some(number) => {
            let words = ["store", "init", "--wait", "60s"];
            let told = region(run, *number)?.run(&words).await?;
            run.said(&words, &told).map(drop)
        }
    };
    tokio::try_join!(one(0), one(1), one(2), one(3)).map(drop)
}

/// Restarts one gateway after the other. Each has the new files, and serves again, before the next
/// stops.
async fn restart(run: &mut Run<'_>, members: &[usize]) -> Result<()> {
    for number in members {
        run.act(*number, Action::Stop, Part::Gateway).await?;
        run.act(*number, Action::Start, Part::Gateway).await?;
        run.home(STEP_WITHIN).await?;
    }
    Ok(())
}

/// True if all old regions report that the spare one votes (`wanted`), or that it does not.
fn votes(run: &Run<'_>, wanted: bool) -> bool {
    let Some(spare) = &run.deployment.spare else { return false };
    run.deployment.regions.iter().all(|region| {
        let status = run.watching.last(region.name.as_str());
        let voters = status["authority"]["voters"].as_array().cloned().unwrap_or_default();
        let serves = status["authority"]["regions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["name"] == spare.name.as_str() && one["standing"] == "serving");
        voters.contains(&Value::from(spare.name.as_str())) == wanted && serves == wanted
    })
}

/// Asks everywhere again for keys that were settled before a change, and compares the answers with
/// the first ones.
async fn retried(run: &mut Run<'_>, via: &[usize]) -> Result<()> {
    let settled: Vec<(usize, String, usize, u64)> = {
        let lives = run.field.lives();
        // Spread over the whole run so far.
        let every = (lives.len() / RETRIED).max(1);
        let answered = lives.iter().enumerate().step_by(every).filter_map(|(at, life)| {
            let first = life.exchanges.iter().find_map(|exchange| exchange.told.success())?;
            Some((at, life.key.clone(), life.class, first.body))
        });
        answered.collect()
    };
    let (mut misses, mut asked) = (0_u64, 0_u64);
    for (number, (at, key, class, body)) in settled.into_iter().enumerate() {
        let again = run.field.ask(via[number % via.len()], class, &key, Duration::from_secs(8)).await;
        asked += 1;
        misses +=
            u64::from(!again.told.success().is_some_and(|answer| answer.replayed && answer.body == body));
        if let Some(life) = run.field.lives().get_mut(at) {
            life.exchanges.push(again);
        }
    }
    run.note(format!("{asked} settled keys were asked for again, {misses} missed"));
    let so_far =
        |word: &str, run: &Run<'_>| run.report.numbers.get(word).and_then(Value::as_u64).unwrap_or(0);
    let (asked, misses) = (asked + so_far("retries", run), misses + so_far("misses", run));
    run.report.numbers.insert("retries", asked.into());
    run.report.numbers.insert("misses", misses.into());
    if misses > 0 {
        run.report.broke(format!("{misses} retries of settled keys were given anything but their answer"));
    }
    Ok(())
}
