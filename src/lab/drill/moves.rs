//! Drills that move arcs on purpose: drain and return, and another ring. They ask for every move
//! with an operator's command, one at a time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::time::Instant;

use super::load::PLAIN;
use super::prober::{Probe, pauses};
use super::report::{PAUSE, RingFile, millis};
use super::run::Run;
use crate::{files, wait};
use onceway_protocol::region::RegionName;
use onceway_protocol::ring::Ring;

/// Time during which an operator asks again while a move is not possible yet.
const ASKED_WITHIN: Duration = Duration::from_secs(40);
const STANDS_WITHIN: Duration = Duration::from_secs(40);
const STANDS: Duration = Duration::from_secs(3);

pub async fn drain(run: &mut Run<'_>) -> Result<()> {
    let (victim, all, other) = (run.victim, run.all(), (run.victim + 1) % 3);
    (run.allowed.only_moving, run.allowed.no_double_at_all) = (true, true);
    let name = run.name(victim);
    let prober = run.prober(2.0, "moving", vec![victim], all, PLAIN);
    wait::pause(Duration::from_secs(1)).await;
    let words = ["region", "drain", &name, "--actor", "drill", "--reason", "drill"];
    let asked = Instant::now();
    until_done(run, other, &words).await?;
    run.report.numbers.insert("drain_ms", millis(asked.elapsed()).into());
    run.until_standing(other, victim, "drained", STANDS_WITHIN).await?;
    wait::pause(run.span(STANDS)).await;
    let asked = Instant::now();
    until_done(run, other, &["region", "resume", &name, "--actor", "drill"]).await?;
    run.report.numbers.insert("return_ms", millis(asked.elapsed()).into());
    run.until_standing(other, victim, "serving", STANDS_WITHIN).await?;
    wait::pause(STANDS).await;
    let probes = prober.end().await?;
    hold_pauses(run, &probes);
    run.probes.extend(probes);
    Ok(())
}

/// Changes the weights and changes them back: exactly the planned arcs move.
pub async fn ring(run: &mut Run<'_>) -> Result<()> {
    (run.allowed.only_moving, run.allowed.no_double_at_all) = (true, true);
    let all = run.all();
    let prober = run.prober(3.0, "moving", all.clone(), all, PLAIN);
    wait::pause(Duration::from_secs(1)).await;
    let mut weights = [2, 2, 2];
    weights[run.victim] = 1;
    let first = change_ring(run, &weights).await?;
    wait::pause(run.span(STANDS)).await;
    let second = change_ring(run, &[1; 3]).await?;
    wait::pause(STANDS).await;
    let probes = prober.end().await?;
    for moved in [first, second] {
        check_runners(run, &probes, &moved);
    }
    hold_pauses(run, &probes);
    run.probes.extend(probes);
    Ok(())
}

struct Moved {
    from: Arc<Ring>,
    to: Arc<Ring>,
    asked: Instant,
    done: Instant,
}

async fn change_ring(run: &mut Run<'_>, weights: &[u32]) -> Result<Moved> {
    let (from, to) = write_ring(run, weights)?;
    let at = (run.victim + 1) % 3;
    let output = run.region(at).run(&["ring", "plan", "--json"]).await?;
    let plan: Value = serde_json::from_str(&run.said(&["ring", "plan"], &output)?)?;
    let mut said: Vec<(String, String, u64)> = Vec::new();
    for one in plan["moves"].as_array().into_iter().flatten() {
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        said.push((text("from"), text("to"), one["arcs"].as_u64().unwrap_or(0)));
    }
    let real = tokio::task::block_in_place(|| from.moves(&to))?.arcs;
    let named = |((from, to), arcs): (&(RegionName, RegionName), &u32)| {
        (from.to_string(), to.to_string(), u64::from(*arcs))
    };
    let mut real: Vec<(String, String, u64)> = real.iter().map(named).collect();
    said.sort();
    real.sort();
    if said != real {
        run.report.broke(format!("the plan says {said:?}, the rings differ in {real:?}"));
    }
    let asked = Instant::now();
    let done = async || {
        // As an operator would: a move that was not possible, or was overtaken, is planned again. A
        // plan without changes says that the ring is in force.
        let output = run.region(at).run(&["ring", "plan", "--json"]).await?;
        let plan: Value = serde_json::from_slice(&output.stdout).context("a plan")?;
        let lists = ["moves", "regions_added", "regions_removed"];
        if lists.iter().all(|list| plan[*list].as_array().is_some_and(Vec::is_empty)) {
            return Ok(Some(()));
        }
        let epoch = plan["epoch"].as_u64().context("the plan names its epoch")?.to_string();
        let words = ["ring", "apply", "--expect-epoch", &epoch, "--yes", "--actor", "drill"];
        let output = run.region(at).run(&words).await?;
        run.tried(&words, &output, String::from_utf8_lossy(&output.stderr).contains("plan again"))
    };
    wait::for_some("the ring to be in force", ASKED_WITHIN, done).await?;
    run.field.set_ring(to.clone());
    Ok(Moved { from, to, asked, done: Instant::now() })
}

/// Writes a ring file with these weights. Returns the rings before and after.
fn write_ring(run: &Run<'_>, weights: &[u32]) -> Result<(Arc<Ring>, Arc<Ring>)> {
    let names: Vec<RegionName> = run.deployment.regions.iter().map(|region| region.name.clone()).collect();
    let from = run.field.ring();
    files::write(run.deployment.dir(), "ring.toml", &files::ring(&names, weights, files::FAILOVER))?;
    let file = RingFile::read(run.deployment.dir())?;
    // A ring takes time to build; clients and the links between regions run on meanwhile.
    let to = tokio::task::block_in_place(|| file.ring())?;
    run.note(format!("ring.toml: weights {weights:?}"));
    Ok((from, to))
}

/// Checks every probe around a move against the rings. Before the move the old owner ran the key,
/// after it the new owner. A key that does not move was never answered with `moving`.
fn check_runners(run: &mut Run<'_>, probes: &[Probe], moved: &Moved) {
    let near = |probe: &&Probe| {
        probe.exchange.done > moved.asked - STANDS && probe.exchange.sent < moved.done + STANDS / 2
    };
    let (mut misplaced, mut moving) = (0_u64, 0_u64);
    let mut disturbed: Vec<String> = Vec::new();
    for probe in probes.iter().filter(near) {
        let owner = |ring| run.field.order_in(ring, &probe.key).first().copied();
        let (before, after) = (owner(&moved.from), owner(&moved.to));
        moving += u64::from(before != after);
        if before == after && probe.exchange.received.is(503, "moving") {
            let name = |number: Option<usize>| number.map_or("nobody", |number| &run.field.names[number]);
            let since = probe.exchange.sent.saturating_duration_since(moved.asked).as_millis();
            let via = name(Some(probe.exchange.via));
            disturbed.push(format!("a key of {} at {via}, {since} ms after the command", name(before)));
        }
        let Some(answer) = probe.exchange.received.success() else { continue };
        let ran_by =
            |number: Option<usize>| number.is_some_and(|number| run.field.names[number] == answer.by);
        let fits = match (probe.exchange.done < moved.asked, probe.exchange.sent > moved.done) {
            (true, _) => ran_by(before),
            (_, true) => ran_by(after),
            (false, false) => ran_by(before) || ran_by(after),
        };
        misplaced += u64::from(!fits);
    }
    run.report.numbers.insert("probes_of_moving_keys", moving.into());
    if misplaced > 0 {
        run.report.broke(format!("{misplaced} keys ran where neither the plan nor the ring before has them"));
    }
    if let Some(first) = disturbed.first() {
        let count = disturbed.len();
        run.report.broke(format!("{count} keys that do not move were told that they move: {first}"));
    }
}

fn hold_pauses(run: &mut Run<'_>, probes: &[Probe]) {
    for (bucket, pause) in pauses(probes, &run.field.names) {
        if pause >= PAUSE && run.settings.timed {
            run.report.broke(format!("keys of {bucket} paused for {:.0} ms", millis(pause)));
        }
        run.report.pauses.insert(bucket, millis(pause));
    }
}

/// Asks until the command succeeds: exit code 3 says that it is not possible yet.
pub async fn until_done(run: &Run<'_>, at: usize, words: &[&str]) -> Result<()> {
    let done = async || {
        run.note(format!("onceway {}", words.join(" ")));
        run.tried(words, &run.region(at).operate(words).await?, false)
    };
    wait::for_some(&format!("`onceway {}`", words.join(" ")), ASKED_WITHIN, done).await
}
