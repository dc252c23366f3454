//! The drill on promoted standbys: a region's primary dies with its machine, and Patroni promotes
//! its standby. Logical slots do not survive, so each region follows the other anew. The standby is
//! read before its promotion to count lost rows: later a gateway may have brought some back.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::load::PLAIN;
use super::prober::longest_pause;
use super::report::{HOME_WITHIN, millis};
use super::run::Run;
use crate::gateway::Action;
use crate::patroni::Pair;
use crate::region::Part;
use crate::{files, lock, wait};

const BEFORE: Duration = Duration::from_secs(3);
/// Time limit for a copy to end, and for rows to arrive.
const WITHIN: Duration = Duration::from_secs(60);

/// Hands the region's Postgres to Patroni, kills the primary, and takes back the promoted server.
pub async fn promote(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    run.act(victim, Action::Stop, Part::Postgres).await?;
    let pair = Pair::start(&run.region(victim).cluster).await?;
    run.note(format!("Patroni has the Postgres of {}, with a synchronous standby", run.name(victim)));
    let mut is_promoted = false;
    let done = killed(run, &pair, &mut is_promoted).await;
    pair.hand_back(&run.region(victim).cluster, is_promoted).await?;
    run.act(victim, Action::Start, Part::Postgres).await?;
    done
}

async fn killed(run: &mut Run<'_>, pair: &Pair, is_promoted: &mut bool) -> Result<()> {
    let (victim, others) = (run.victim, run.others(run.victim));
    // Patroni starts a server as a standby, and promotes it.
    follow_anew(run, others.iter().map(|other| (victim, *other)).collect()).await?;
    run.home(HOME_WITHIN).await?;
    let prober = run.prober(1.0, "promoted", vec![victim], others.clone(), PLAIN);
    wait::pause(BEFORE).await;
    let death = Instant::now();
    pair.kill_primary().await?;
    run.note(format!("the primary of {} is killed, and its Patroni", run.name(victim)));
    let lost = lost(run, pair).await?;
    pair.promoted().await?;
    *is_promoted = true;
    let promoted = millis(death.elapsed());
    run.note(format!("the standby is promoted {promoted:.0} ms after the death"));
    follow_anew(run, others.iter().flat_map(|other| [(*other, victim), (victim, *other)]).collect()).await?;
    run.home(HOME_WITHIN).await?;
    let probes = prober.end().await?;
    let refused = longest_pause(probes.iter().map(|probe| &probe.exchange).collect());
    run.probes.extend(probes);
    let missing = missing(run).await?;
    run.report.numbers.extend([
        ("rows_lost", lost.into()),
        ("rows_of_others_missing", missing.into()),
        ("without_store_ms", promoted.into()),
        ("without_service_ms", millis(refused).into()),
    ]);
    if lost + missing > 0 {
        run.report.broke(format!("{lost} rows were lost, {missing} of other regions did not arrive again"));
    }
    Ok(())
}

/// Keys that ran in the region, or were answered by it, and whose row the standby lacks.
async fn lost(run: &Run<'_>, pair: &Pair) -> Result<usize> {
    let name = run.name(run.victim);
    let standby = pair.at_rest(files::DATABASE).await?;
    let rows = "select convert_from(key, 'UTF8'), bool_or(state = 4) from onceway.records \
                 where starts_with(convert_from(key, 'UTF8'), $1) and starts_with(origin, $2) group by key";
    let (mut held, mut settled) = (BTreeSet::new(), BTreeSet::new());
    for row in standby.query(rows, &[&run.field.mark(), &name]).await? {
        let (key, is_settled): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
        if is_settled {
            settled.insert(key.clone());
        }
        held.insert(key);
    }
    let ran = run.deployment.ledger.totals(None).into_iter();
    let ran = ran.filter(|total| total.key.starts_with(run.field.mark()) && total.regions.contains(&name));
    let mut lost: BTreeSet<String> = ran.map(|total| total.key).filter(|key| !held.contains(key)).collect();
    for life in run.field.lives().iter() {
        let answers = life.exchanges.iter().filter_map(|exchange| exchange.received.success());
        if answers.into_iter().any(|answer| answer.by == name) && !settled.contains(&life.key) {
            lost.insert(life.key.clone());
        }
    }
    let (keys, ends) = (held.len(), settled.len());
    run.note(format!("the standby has {keys} keys of {name}, {ends} settled; it lacks {lost:?}"));
    Ok(lost.len())
}

/// Lets regions follow others anew, by number, and waits until all rows are copied.
async fn follow_anew(run: &Run<'_>, pairs: Vec<(usize, usize)>) -> Result<()> {
    for (reader, from) in &pairs {
        let name = run.name(*from);
        let words = ["store", "reseed", "--from", &name];
        let follows = async || {
            let output = run.region(*reader).run(&words).await?;
            drop(run.said(&words, &output));
            // It fails while the address does not lead to the promoted server yet.
            Ok(matches!(output.status.code(), Some(0 | 3)).then_some(()))
        };
        let waited = wait::for_some("a region to be followed anew", WITHIN, follows).await;
        waited.with_context(|| format!("{name} by {}", run.name(*reader)))?;
    }
    for (reader, _) in pairs {
        let words = ["store", "init", "--wait", "60s"];
        run.said(&words, &run.region(reader).run(&words).await?)?;
    }
    Ok(())
}

/// Number of keys of other regions whose rows do not arrive at the promoted store.
async fn missing(run: &Run<'_>) -> Result<usize> {
    let (here, mark) = (&run.region(run.victim).cluster, run.field.mark());
    let mut missing = 0;
    for other in run.others(run.victim) {
        let name = run.name(other);
        let theirs = run.region(other).cluster.written_by(&name, mark).await?;
        let lacking = Mutex::new(0);
        let arrived = async || {
            let lacks = theirs.difference(&here.written_by(&name, mark).await?).count();
            *lock(&lacking) = lacks;
            Ok((lacks == 0).then_some(()))
        };
        if wait::for_some("the rows of the others", WITHIN / 6, arrived).await.is_err() {
            missing += *lock(&lacking);
        }
    }
    Ok(missing)
}
