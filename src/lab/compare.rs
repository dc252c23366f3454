//! Runs the same clients against onceway and the naive design at once, while one region dies. Each
//! key comes to the same regions, at the same moments, with the same retries. The route may not run
//! twice: at onceway it is `park` with escrow.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::deployment::Deployment;
use super::files::keyed;
use super::gateway::Action;
use super::ledger::Totals;
use super::naive::{BODY, Design, Naive, PATH, PATIENCE, Served};
use super::region::Part;
use super::wait;

const RETRIES: Duration = Duration::from_secs(20);
const BETWEEN_RETRIES: Duration = Duration::from_millis(300);
/// Answers "in doubt" until a client leaves the key to an operator: longer than a takeover.
const DOUBTED_ENOUGH: u32 = 20;

#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Keys per second, in all regions together.
    pub rate: f64,
    pub span: Duration,
    pub victim: usize,
    pub killed_after: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub keys: u64,
    pub effects: u64,
    pub doubles: u64,
    /// Their clients learned that the outcome is unknown, and left them to an operator.
    pub in_doubt: u64,
    pub unanswered: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    pub naive: Counts,
    pub onceway: Counts,
}

struct Onceway {
    regions: Vec<String>,
}

impl Design for Onceway {
    async fn serve(&self, via: usize, key: &str) -> Served {
        let Ok(answer) = keyed(&self.regions[via], PATH, key, BODY).send(PATIENCE).await else {
            return Served::Failed;
        };
        match (answer.status.as_u16(), answer.json()["code"].as_str()) {
            (200..300, _) => Served::Answered,
            (_, Some("in-progress")) => Served::Busy,
            (_, Some("outcome-unknown")) => Served::InDoubt,
            (_, _) => Served::Failed,
        }
    }
}

/// Runs the workload through both designs, and kills one region's gateway and Postgres once. Then
/// starts the region again and counts. `mark` makes the keys of this run new.
pub async fn run(deployment: &Deployment, workload: &Workload, mark: &str) -> Result<Compared> {
    let naive = Naive::start(deployment).await?;
    let ended = under_load(deployment, &naive, workload, mark).await;
    deployment.regions[workload.victim].act(Action::Start, Part::Both).await?;
    let theirs = naive.end(deployment).await?;
    let (at_naive, at_onceway) = ended?;
    let ours = deployment.ledger.totals(None);
    let counts = |ends: Counts, totals: &[Totals]| {
        let of_run = totals.iter().filter(|total| total.key.starts_with(mark));
        let effects: Vec<u64> = of_run.map(|total| total.effects).collect();
        let doubles = effects.iter().filter(|effects| **effects > 1).count() as u64;
        Counts { effects: effects.iter().sum(), doubles, ..ends }
    };
    Ok(Compared { naive: counts(at_naive, &theirs), onceway: counts(at_onceway, &ours) })
}

/// Runs all clients. Returns their ends, without any effects.
async fn under_load(
    deployment: &Deployment,
    naive: &Naive,
    workload: &Workload,
    mark: &str,
) -> Result<(Counts, Counts)> {
    let (death, died) = watch::channel(false);
    let regions: Vec<String> = deployment.regions.iter().map(|region| region.public()).collect();
    let count = regions.len();
    let (theirs, ours) = (Arc::new(naive.design(workload.victim, died)), Arc::new(Onceway { regions }));
    let period = Duration::from_secs_f64(1.0 / workload.rate);
    let (begun, mut number, mut killed) = (Instant::now(), 0_usize, false);
    let (mut at_theirs, mut at_ours) = (JoinSet::new(), JoinSet::new());
    loop {
        let due = begun + period * u32::try_from(number)?;
        if due > begun + workload.span {
            break;
        }
        wait::pause_until(due).await;
        if !killed && due >= begun + workload.killed_after {
            killed = true;
            death.send_replace(true);
            deployment.regions[workload.victim].act(Action::Kill, Part::Both).await?;
        }
        let key = format!("{mark}-{number}");
        at_theirs.spawn(client(theirs.clone(), count, key.clone(), number));
        at_ours.spawn(client(ours.clone(), count, key, number));
        number += 1;
    }
    Ok((ends(at_theirs).await?, ends(at_ours).await?))
}

async fn ends(mut clients: JoinSet<Served>) -> Result<Counts> {
    let mut ends = Counts::default();
    while let Some(end) = clients.join_next().await {
        ends.keys += 1;
        match end.context("a client")? {
            Served::Answered => {}
            Served::InDoubt => ends.in_doubt += 1,
            Served::Busy | Served::Failed => ends.unanswered += 1,
        }
    }
    Ok(ends)
}

/// Runs a client that retries through the next region. Some send twice at once, or lose their
/// answer and ask elsewhere. Returns its best answer.
async fn client<D: Design>(design: Arc<D>, regions: usize, key: String, number: usize) -> Served {
    let until = Instant::now() + RETRIES;
    let mut via = number % regions;
    if number.is_multiple_of(7) {
        tokio::join!(design.serve(via, &key), design.serve((via + 1) % regions, &key));
    }
    let (mut answers, mut doubts, mut last) = (0, 0, Served::Failed);
    while Instant::now() < until && doubts < DOUBTED_ENOUGH {
        last = design.serve(via, &key).await;
        match last {
            Served::Answered => answers += 1,
            Served::InDoubt => doubts += 1,
            Served::Busy | Served::Failed => {}
        }
        // One in three loses its answer, and asks once more in another region.
        if answers > usize::from(number.is_multiple_of(3)) {
            break;
        }
        if last != Served::Answered {
            wait::pause(BETWEEN_RETRIES).await;
        }
        via = (via + 1) % regions;
    }
    if answers > 0 { Served::Answered } else { last }
}
