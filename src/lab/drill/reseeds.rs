//! The drill on first copies: a region loses its slots, is killed and taken over, and comes back.
//! Meanwhile its records are copied anew, and its heartbeats arrive at once.
//!
//! `schedule` runs it, `cluster_slots` drops slots and delays copies, `verdict` counts effects. No
//! other region knows the keys that ran shortly before the loss, so they may run again; each such
//! run must be marked. It must not let a copy end before the retries had their answers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

use super::load::PLAIN;
use super::losses::lose;
use super::run::Run;
use crate::cluster_slots::HeldUp;
use crate::gateway::Action;
use crate::region::Part;
use crate::{files, wait};

/// Time in which keys run while their rows reach no other region. The lag measured meanwhile makes
/// the window. It is longer than the twenty heartbeats that a region may be behind when it seals.
const UNSEEN: Duration = Duration::from_secs(8);
/// Time limit for a slot to be dropped, and for a copy to end.
const WITHIN: Duration = Duration::from_secs(60);
/// Time that the region gets to be counted as heard of, which must not happen.
const SEALS: Duration = Duration::from_secs(5);
/// The time that a retry waits for its answer.
const PATIENCE: Duration = Duration::from_secs(8);

/// Drops the slots, kills the region, lets others take over, and starts it. Others follow it anew
/// while the copy of its records waits. Then its keys are sent again.
pub async fn reseed(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let (name, readers) = (run.name(victim), run.others(victim));
    for reader in &readers {
        let slot = run.region(*reader).cluster.subscription_from(files::DATABASE, &name).await?;
        run.note(format!("slot {slot} at {name} is dropped"));
        run.region(victim).cluster.drop_slot(files::DATABASE, &slot, WITHIN).await?;
    }
    let unseen = run.prober("unseen", vec![victim], vec![victim], PLAIN);
    wait::pause(UNSEEN).await;
    let unseen = unseen.end().await?;
    lose(run, victim, Action::Kill, Part::Both).await?;
    run.act(victim, Action::Start, Part::Both).await?;
    let mut held = Vec::new();
    for reader in &readers {
        held.push(follows_anew(run, *reader).await?);
    }
    run.note(format!("the records of {name} wait to be copied, its heartbeats do not"));
    let until = Instant::now() + SEALS;
    let mut sealed = false;
    while Instant::now() < until && !sealed {
        sealed = readers.iter().any(|reader| run.standing(*reader, &name).is_some_and(|now| now != "lost"));
        wait::pause(Duration::from_millis(100)).await;
    }
    let mut ran = 0_u64;
    let known: Vec<_> = unseen.iter().filter(|probe| probe.exchange.received.success().is_some()).collect();
    for (number, probe) in known.iter().enumerate() {
        let via = readers[number % readers.len()];
        let output = run.field.ask(via, probe.class, &probe.key, PATIENCE).await.received;
        ran += u64::from(output.success().is_some());
    }
    run.note(format!("{} keys of {name} were sent again, {ran} were answered", known.len()));
    run.report.numbers.insert("sent_again_while_copied", known.len().into());
    run.report.numbers.insert("answered_while_copied", ran.into());
    if known.is_empty() {
        run.report.broke("no key ran before the loss: the drill shows nothing");
    }
    if sealed {
        run.report.broke(format!("{name} counts as heard of, though its records are not copied yet"));
    }
    run.probes.extend(unseen);
    for copy in held {
        copy.end().await?;
    }
    for reader in &readers {
        copied(run, *reader, &name).await?;
    }
    run.mended = Some(Instant::now());
    run.note(format!("the records of {name} are copied"));
    Ok(())
}

/// Runs `onceway store reseed` in a region, and delays the copy of the victim's records.
async fn follows_anew(run: &Run<'_>, reader: usize) -> Result<HeldUp> {
    let (name, region) = (run.name(run.victim), run.region(reader));
    let subscription = region.cluster.subscription_from(files::DATABASE, &name).await?;
    let words = ["store", "reseed", "--from", &name];
    let (output, held) = region.cluster.hold_copy(files::DATABASE, &subscription, region.run(&words)).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Exit code 3: the copy runs.
    ensure!(output.status.code() == Some(3), "`onceway store reseed` ended with {}: {said}", output.status);
    run.note(format!("onceway store reseed --from {name} in {}", run.name(reader)));
    Ok(held)
}

/// Waits until a region's copy of another one's tables is whole.
async fn copied(run: &Run<'_>, reader: usize, from: &str) -> Result<()> {
    let by = run.name(reader);
    let ready = async || {
        let status = run.watching.last(&by);
        let all = status["subscriptions"].as_array().cloned().unwrap_or_default();
        Ok(all.iter().any(|one| one["from"] == from && one["ready"] == true).then_some(()))
    };
    let waited = wait::for_some("the records to be copied", WITHIN, ready).await;
    waited.with_context(|| format!("{from} to {by}"))
}
