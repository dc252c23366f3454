//! One run of a drill, from a healthy deployment to a verdict: load, faults and repairs, the ends
//! of all keys, the count. The run mends every fault before it brings keys to their ends, and
//! counts also if the middle failed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::time::Instant;

use super::load::{self, Field, Load};
use super::plan::{Drill, Settings};
use super::prober::Probe;
use super::report::{HOME_WITHIN, Report, RingFile, millis};
use super::run::Run;
use super::soaked::Soaked;
use super::verdict::{self, Allowed, Remains};
use super::watching::Watching;
use super::{losses, moves, promotes, soak, soaked};
use crate::deployment::Deployment;
use crate::region::Region;
use crate::{cluster_sql, wait};
use onceway_client::Ask;

/// Load before the first fault: caches, connections and lags of a running deployment.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(2);
/// Time limit for keys to end when everything is well: the longest hold, a probe, and room.
const ENDS_WITHIN: Duration = Duration::from_secs(45);
const ASKED_AGAIN: usize = 400;

const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// Runs a drill once. Errors are the fleet's own; faults of gateways stand in the report.
pub async fn once(
    deployment: &Deployment,
    drill: Drill,
    number: u32,
    settings: &Settings,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Report> {
    let file = RingFile::read(deployment.dir())?;
    let start = Instant::now();
    let mark = format!("{}-{number}-{:x}", drill.name(), std::process::id());
    let field = Field::new(deployment, file.ring()?, mark)?;
    let watching = Watching::start(deployment);
    let mut run = Run {
        deployment,
        field: field.clone(),
        watching,
        file,
        settings,
        victim: usize::try_from(number)? % deployment.regions.len(),
        allowed: Allowed::default(),
        probes: Vec::new(),
        say,
        mended: None,
        report: Report { drill: drill.name(), run: number, ..Report::default() },
        start,
    };
    run.home(HOME_WITHIN).await.context("before the run")?;
    let load = Load::start(&field, settings.rate);
    wait::pause(BEFORE).await;
    let mut soaked = None;
    if let Err(error) = middle(drill, &mut run, &mut soaked).await {
        run.note(format!("the drill could not go on: {error:#}"));
        run.report.broke(format!("the drill could not go on: {error:#}"));
    }
    run.mend().await?;
    let mended = run.mended.unwrap_or_else(Instant::now);
    match run.home(HOME_WITHIN).await {
        Ok(()) if mended.elapsed() > HOME_WITHIN => {
            run.report.broke(format!("home again after {:?} only", mended.elapsed()));
        }
        Ok(()) => run.report.home_again_ms = Some(millis(mended.elapsed())),
        Err(error) => run.report.broke(format!("not home again within {HOME_WITHIN:?}: {error:#}")),
    }
    wait::pause(AFTER).await;
    load.end(ENDS_WITHIN).await?;
    // A refused probe must run now, once. The outcome of a probe without an answer must be found
    // out.
    let probed = std::mem::take(&mut run.probes).into_iter().map(Probe::life).collect();
    load::bring_all(&field, probed, ENDS_WITHIN).await;
    run.note("every key has its end");
    load::ask_again(&field, ASKED_AGAIN).await;
    let broken = run.report.broken.join("; ");
    // An error of the count may come from an earlier fault.
    finish(run, soaked).await.with_context(|| format!("the count, after: {broken}"))
}

async fn middle(drill: Drill, run: &mut Run<'_>, soaked: &mut Option<Soaked>) -> Result<()> {
    match drill {
        Drill::Kill => losses::kill(run).await,
        Drill::Restart => losses::restart(run).await,
        Drill::Isolate => losses::isolate(run).await,
        Drill::Drain => moves::drain(run).await,
        Drill::Ring => moves::ring(run).await,
        Drill::DiskLost => losses::disk_lost(run).await,
        Drill::Reseed => losses::reseed(run).await,
        Drill::Promote => promotes::promote(run).await,
        Drill::Soak => soak::soak(run, soaked).await,
        Drill::Window => bail!("this drill has machines of its own"),
    }
}

async fn finish(mut run: Run<'_>, soaked: Option<Soaked>) -> Result<Report> {
    let noted = cluster_sql::noted(&run.deployment.regions, run.field.mark()).await?;
    let mut audited = BTreeMap::new();
    for region in &run.deployment.regions {
        if let Err(error) = add_audit(&mut audited, region, run.field.mark()).await {
            run.report.broke(format!("{error:#}"));
        }
    }
    let totals = run.deployment.ledger.totals(None);
    let mut report = std::mem::take(&mut run.report);
    report.numbers.insert("keys_held_back", run.field.held_back().into());
    {
        let lives = run.field.lives();
        let (mark, start) = (run.field.mark(), run.start);
        let (lives, totals) = (&lives[..], &totals[..]);
        let remains = Remains { lives, totals, noted: &noted, audited: &audited, mark, start };
        verdict::judge(&mut report, &run.allowed, &remains);
    }
    if let Some(left) = soaked {
        soaked::hold(&left, &run, &audited, &mut report).await?;
    }
    let line = |event: &super::watching::Event| {
        format!("{:7.3} s  {}", (event.at - run.start).as_secs_f64(), event.what)
    };
    report.timeline = run.watching.events().iter().map(line).collect();
    report.held = report.broken.is_empty();
    Ok(report)
}

/// Adds the keys that begin with `mark` and are listed by this region's audit, asked as an operator
/// does. The value is true if the key ran twice, or perhaps did.
async fn add_audit(keys: &mut BTreeMap<String, bool>, region: &Region, mark: &str) -> Result<()> {
    let mut after = String::new();
    loop {
        let url = format!("{}/v1/audit?limit=1000{after}", region.admin());
        let answer = Ask::get(url).send(ASKED_WITHIN).await?;
        ensure!(answer.status == 200, "the audit of {} was answered {}", region.name, answer.text());
        let page = answer.json();
        let runs = page["runs"].as_array().context("an audit lists runs")?;
        for run in runs {
            let key = run["key"].as_str().context("a run has a key")?;
            if key.starts_with(mark) {
                *keys.entry(key.to_owned()).or_default() |= run["verdict"] != "clean";
            }
        }
        let Some(last) = runs.last().filter(|_| page["more"] == true) else { return Ok(()) };
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        after = format!("&after={}%2F{}", text("tenant"), text("key"));
    }
}
