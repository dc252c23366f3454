//! Drills on a region's memory: an acceptor's disk replaced, a Postgres restored from an old copy,
//! a disk lost.
//!
//! `schedule` runs them, `cluster_audit` replaces the acceptor. Gateways must notice that a store
//! has forgotten promises before they ask it for one. These drills must not repair a fault that the
//! gateways have to notice, and must replace a store by the product's own commands only.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

use super::bounds;
use super::losses::lose;
use super::moves::until_done;
use super::schedule::Run;
use crate::fleet::region::{Action, Part};
use crate::fleet::{files, wait};

/// Time until the new acceptor has been silent for a lease and is a voter again.
const ADMITTED: Duration = Duration::from_secs(12);
/// Time that a restored region is watched: it must not serve in all that time.
const WATCHED: Duration = Duration::from_secs(15);
/// Time limit until the others report it lost.
const LOST_WITHIN: Duration = Duration::from_secs(30);
/// Time that the region runs on after the copy.
const RUNS_ON: Duration = Duration::from_secs(10);

/// Makes the acceptor of one region anew. The others must admit it without a vote that it could
/// contradict. Then another region dies, so that its vote is needed.
pub async fn acceptor_replaced(run: &mut Run<'_>) -> Result<()> {
    let (replaced, dies) = (run.victim, (run.victim + 1) % 3);
    run.note(format!("the acceptor of {} is made anew", run.name(replaced)));
    run.region(replaced).cluster.replace_acceptor(files::DATABASE).await?;
    wait::pause(run.span(ADMITTED)).await;
    lose(run, dies, Action::Kill, Part::Both).await?;
    run.act(dies, Action::Start, Part::Both).await
}

/// Copies a region's Postgres cold, lets it run on, kills it, and brings it back as the copy.
pub async fn restored(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let data = run.region(victim).cluster.data();
    let copy = data.with_extension("copy");
    run.act(victim, Action::Stop, Part::Both).await?;
    copy_folder(&data, &copy).await?;
    run.act(victim, Action::Start, Part::Both).await?;
    run.home(bounds::HOME_WITHIN).await?;
    wait::pause(run.span(RUNS_ON)).await;
    run.act(victim, Action::Kill, Part::Both).await?;
    tokio::fs::remove_dir_all(&data).await.with_context(|| format!("cannot remove {}", data.display()))?;
    copy_folder(&copy, &data).await?;
    run.note("its Postgres is the old copy");
    run.stays_out = true;
    run.act(victim, Action::Start, Part::Both).await?;
    let (name, until) = (run.name(victim), Instant::now() + WATCHED);
    let mut served = 0_u32;
    while Instant::now() < until {
        served += u32::from(run.watching.last(&name)["readiness"]["serves"] == true);
        wait::pause(Duration::from_millis(100)).await;
    }
    let reasons = run.watching.last(&name)["readiness"]["reasons"].clone();
    run.report.numbers.insert("reasons", reasons);
    if served > 0 {
        run.report.broke("the restored region served again, though it had forgotten claims");
    }
    run.stays_out = false;
    replaced(run).await
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
        let told = run.region(number).run(&words).await?;
        run.said(&words, &told).map(drop)
    };
    // At once: each waits for objects that the others have to make.
    tokio::try_join!(init(0), init(1), init(2))?;
    run.act(victim, Action::Start, Part::Both).await
}

async fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let copied = tokio::process::Command::new("cp").arg("-a").arg(from).arg(to).output().await;
    let copied = copied.with_context(|| format!("cannot copy {}", from.display()))?;
    ensure!(copied.status.success(), "cp: {}", String::from_utf8_lossy(&copied.stderr));
    Ok(())
}
