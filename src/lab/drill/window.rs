//! The effect of the window: doubles on a route without escrow, measured and predicted, for several
//! multiples of the observed lag. No wait restores rows that a region loses with its death.
//! Each row has a deployment of its own, because the multiple stands in the ring file. The
//! replication link of the dying region stands still, while its peer calls are as fast as before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::load::Field;
use super::plan::Settings;
use super::prober::{Aim, Prober, first_run_elsewhere};
use super::report::{RingFile, millis};
use crate::cluster_sql::{self, Noted};
use crate::deployment::{Deployment, Options};
use crate::gateway::Action;
use crate::region::Part;
use crate::wait;

/// Multiples, in hundredths; true if the file must say `unsafe_multiple`.
const MULTIPLES: [(u32, bool); 4] = [(0, true), (100, true), (200, false), (400, false)];
/// Time that the link has stood still when the region dies: the lag that its successors observe.
const STANDS_STILL: Duration = Duration::from_secs(2);
/// Time from the death to the arrival of late rows: after a lease and one such lag, before a lease
/// and two. Together with the standstill it is shorter than Postgres's patience with a silent link.
/// After that nothing arrives at all.
const ARRIVE_AFTER: Duration = Duration::from_millis(6_500);
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// Keys of the dying region per second, all on a route without escrow.
const KEYS_PER_SECOND: f64 = 10.0;
const LOADED: Duration = Duration::from_secs(12);
const VICTIM: usize = 1;
/// Class of the keys: parked in doubt, no escrow.
const CLASS: usize = 2;
/// Longest wait for a takeover: a lease and four times the lag, with room.
const TAKEN_WITHIN: Duration = Duration::from_secs(90);

/// Fate of the last seconds' rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// The rows are on their way, and arrive when the link moves again, after the death.
    Late,
    /// The rows never left the region.
    Lost,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub multiple: f64,
    pub rows: Rows,
    /// Standstill of the link at the death, in milliseconds.
    pub stalled_ms: f64,
    /// Time from the death to the rows' arrival, in milliseconds; never, if none.
    pub arrived_ms: Option<f64>,
    pub keys: usize,
    /// Time from the death until the first key of the region ran elsewhere, in milliseconds.
    pub opened_ms: Option<f64>,
    /// Keys per second × the seconds whose rows a successor lacks when it opens.
    pub predicted: f64,
    /// Answered keys of which no survivor had a row then, by the stores.
    pub missing: usize,
    pub measured: usize,
    /// Doubles that some store lists after the region's return.
    pub listed: usize,
}

/// Measures all rows, one after the other. Each takes about a minute.
pub async fn table(options: &Options, settings: &Settings, say: &(dyn Fn(&str) + Sync)) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in [Rows::Late, Rows::Lost] {
        for (percent, unsafe_multiple) in MULTIPLES {
            say(&format!("window: multiple {}, rows {kind:?}", f64::from(percent) / 100.0));
            let mut failover = format!(
                "\n[failover]\nlease = \"3s\"\nfloor = \"0s\"\nbeyond = \"60s\"\nstable_for = \"5s\"\nmultiple = {}\n",
                f64::from(percent) / 100.0
            );
            if unsafe_multiple {
                failover.push_str("unsafe_multiple = true\n");
            }
            let options = Options { failover: Some(failover), ..options.clone() };
            let deployment = Deployment::start(&options, say).await?;
            let measured = measure(&deployment, settings, percent, kind).await;
            deployment.shut_down().await?;
            let row = measured?;
            say(&in_words(std::slice::from_ref(&row)));
            rows.push(row);
        }
    }
    Ok(rows)
}

async fn measure(deployment: &Deployment, settings: &Settings, percent: u32, rows: Rows) -> Result<Row> {
    let ring = RingFile::read(deployment.dir())?.ring()?;
    let field = Field::new(deployment, ring, format!("window-{percent}-{:x}", std::process::id()))?;
    let others = [0, 2];
    let answered = started(&field, deployment).await?;
    let victim = &deployment.regions[VICTIM];
    if rows == Rows::Late {
        // Late rows must have left. On a busy machine the senders lag behind, and die with the
        // region.
        victim.cluster.sent(SENT_WITHIN).await?;
    }
    let death = Instant::now();
    victim.act(Action::Kill, Part::Both).await?;
    let every = Duration::from_secs_f64(1.0 / settings.probes);
    let aim = Aim { word: "plain", homes: vec![VICTIM], via: others.to_vec(), class: CLASS, every };
    let prober = Prober::start(&field, aim);
    let retries = retried(&field, &answered);
    let first = async || Ok(first_run_elsewhere(&prober.list_probes(), &field.names, VICTIM, death));
    let opening = async {
        let opened = wait::for_some("the keys to run elsewhere", TAKEN_WITHIN, first).await.ok();
        missing(deployment, &field, &answered).await.map(|missing| (opened, missing))
    };
    let arriving = async {
        if rows == Rows::Lost {
            return Ok(());
        }
        wait::pause_until(death + ARRIVE_AFTER).await;
        others.iter().try_for_each(|other| deployment.links.heal(*other, VICTIM, false))
    };
    let (opening, arriving) = tokio::join!(opening, arriving);
    let ((opened, missing), ()) = (opening?, arriving?);
    wait::pause(Duration::from_secs(2)).await;
    prober.end().await?;
    retries.join_all().await;
    let twice = deployment.ledger.totals(None).into_iter().filter(|total| total.effects > 1);
    let doubles: Vec<String> = twice.map(|total| total.key).collect();
    for other in others {
        deployment.links.heal(other, VICTIM, false)?;
    }
    victim.act(Action::Start, Part::Both).await?;
    victim.serves().await.context("the region's return")?;
    let noted = cluster_sql::noted(&deployment.regions, field.mark()).await?;
    // Rows arrive all at once: a successor that opens before lacks all of them.
    let arrived = (rows == Rows::Late).then_some(ARRIVE_AFTER);
    let in_time = opened.zip(arrived).is_some_and(|(opened, arrived)| opened > arrived);
    let lacking = if in_time { Duration::ZERO } else { STANDS_STILL };
    Ok(Row {
        multiple: f64::from(percent) / 100.0,
        rows,
        stalled_ms: millis(STANDS_STILL),
        arrived_ms: arrived.map(millis),
        keys: answered.len(),
        opened_ms: opened.map(millis),
        predicted: KEYS_PER_SECOND * lacking.as_secs_f64(),
        missing,
        measured: doubles.len(),
        listed: doubles.iter().filter(|key| noted.get(*key).is_some_and(Noted::is_listed)).count(),
    })
}

async fn missing(deployment: &Deployment, field: &Field, answered: &[String]) -> Result<usize> {
    let mut here = BTreeSet::new();
    for number in [0, 2] {
        let cluster = &deployment.regions[number].cluster;
        here.extend(cluster.written_by(&field.names[VICTIM], field.mark()).await?);
    }
    Ok(answered.iter().filter(|key| !here.contains(*key)).count())
}

/// Starts keys at their home, at a steady rate, until the death. Returns the answered ones.
async fn started(field: &Arc<Field>, deployment: &Deployment) -> Result<Vec<String>> {
    let every = Duration::from_secs_f64(1.0 / KEYS_PER_SECOND);
    let aim = Aim { word: "key", homes: vec![VICTIM], via: vec![VICTIM], class: CLASS, every };
    let prober = Prober::start(field, aim);
    wait::pause(LOADED - STANDS_STILL).await;
    for other in [0, 2] {
        deployment.links.freeze_rows(other, VICTIM)?;
    }
    wait::pause(STANDS_STILL).await;
    let probes = prober.end().await?.into_iter();
    Ok(probes.filter(|probe| probe.exchange.received.success().is_some()).map(|probe| probe.key).collect())
}

/// Acts as clients that all lost their answer, and ask other regions until they have one.
fn retried(field: &Arc<Field>, answered: &[String]) -> JoinSet<()> {
    let mut retries = JoinSet::new();
    for (number, key) in answered.iter().cloned().enumerate() {
        let (field, until) = (field.clone(), Instant::now() + TAKEN_WITHIN);
        retries.spawn(async move {
            let mut via = if number.is_multiple_of(2) { 0 } else { 2 };
            while Instant::now() < until {
                if field.ask(via, CLASS, &key, Duration::from_secs(5)).await.received.success().is_some() {
                    return;
                }
                via = 2 - via;
                wait::pause(Duration::from_millis(250)).await;
            }
        });
    }
    retries
}

pub fn in_words(rows: &[Row]) -> String {
    let mut text = String::from(
        "multiple  rows  stalled    arrive after  opened after  keys  predicted  rows missing  doubles  listed\n",
    );
    for row in rows {
        let after = |ms: Option<f64>| ms.map_or("never".to_owned(), |ms| format!("{ms:.0} ms"));
        let (opened, arrived) = (after(row.opened_ms), after(row.arrived_ms));
        let rows = match row.rows {
            Rows::Late => "late",
            Rows::Lost => "lost",
        };
        text.push_str(&format!(
            "{:>8}  {rows:<4}  {:>4.0} ms  {arrived:>14}  {opened:>12}  {:>4}  {:>9.1}  {:>12}  {:>7}  {:>6}\n",
            row.multiple, row.stalled_ms, row.keys, row.predicted, row.missing, row.measured, row.listed
        ));
    }
    text
}

/// Faults of a table: doubles that no store lists, and a multiple of at least 2 that does not cover
/// rows that arrive.
pub fn broken(rows: &[Row]) -> Vec<String> {
    let mut broken = Vec::new();
    for row in rows {
        let what = format!("multiple {}, rows {:?}", row.multiple, row.rows);
        if row.listed < row.measured {
            broken.push(format!("{what}: {} doubles that no store lists", row.measured - row.listed));
        }
        if row.rows == Rows::Late && row.multiple >= 2.0 && row.measured > 0 {
            let doubles = row.measured;
            broken.push(format!("{what}: {doubles} doubles although every row arrived within the window"));
        }
        if row.opened_ms.is_none() {
            broken.push(format!("{what}: the keys never ran elsewhere"));
        }
    }
    broken
}
