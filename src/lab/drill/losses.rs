//! Drills that take a region away: killed, restarted, cut off, dead with its disk, or back while
//! its records are copied. `schedule` mends after them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::ask::Exchange;
use super::load::{LODGED, PATIENCE, PLAIN};
use super::moves::until_done;
use super::prober::{Probe, Prober, first_run_elsewhere, longest_pause};
use super::report::{FirstRun, HOME_WITHIN, Takeover, millis};
use super::run::Run;
use crate::cluster_sql::HeldUp;
use crate::gateway::Action;
use crate::region::Part;
use crate::{files, wait};

/// Longer than any bound: after this time a takeover counts as missing.
const TAKEN_WITHIN: Duration = Duration::from_secs(40);
const LOST_WITHIN: Duration = Duration::from_secs(30);
/// Time that a dead part stays dead after its keys run elsewhere.
const STAYS_DEAD: Duration = Duration::from_secs(3);
/// Time beside the lease in which keys may be refused.
const BESIDE: Duration = Duration::from_secs(2);
/// Load between the return of the keys and the next case.
const BETWEEN: Duration = Duration::from_secs(1);
/// Time in which keys run while their rows reach no other region. The lag measured meanwhile makes
/// the window. It is longer than the twenty heartbeats that a region may be behind when it seals.
const UNSEEN: Duration = Duration::from_secs(8);
/// Time limit for a slot to be dropped, and for a copy to end.
const WITHIN: Duration = Duration::from_secs(60);
/// Time that the region gets to be counted as heard of, which must not happen.
const SEALS: Duration = Duration::from_secs(5);

/// A measured loss: probes for keys of one home through the other regions.
struct Loss {
    victim: usize,
    plain: Prober,
    lodged: Prober,
    window_before: Duration,
}

impl Loss {
    fn expect(run: &Run<'_>) -> Loss {
        let (victim, via) = (run.victim, run.others(run.victim));
        let lags = via.iter().map(|number| {
            let status = run.watching.last(&run.name(*number));
            status["peers"][run.name(victim)]["lag_max_ms"].as_f64().unwrap_or(0.0)
        });
        // The window that successors will compute, unless the lag grows until the death.
        let lag = Duration::from_secs_f64(lags.fold(0.0, f64::max) / 1e3);
        let rule = &run.file.failover;
        let window_before = lag.mul_f64(rule.multiple).max(rule.floor);
        let plain = run.prober(1.0, "plain", vec![victim], via.clone(), PLAIN);
        let lodged = run.prober(1.0, "lodged", vec![victim], via, LODGED);
        Loss { victim, plain, lodged, window_before }
    }

    /// Waits until keys that began after `death` run elsewhere, and records the time that it took.
    async fn measured(self, run: &mut Run<'_>, death: Instant) -> Result<()> {
        let names = run.field.names.clone();
        let first = |prober: &Prober| first_run_elsewhere(&prober.list_probes(), &names, self.victim, death);
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
        let output = run.watching.longest_wait("window", &names[self.victim]);
        let window = output.unwrap_or_default().max(self.window_before);
        let bound = Takeover::of(&run.file, window, run.settings.rtt);
        let first_run = FirstRun { ms: plain.map(millis), escrow_ms: lodged.map(millis), bound };
        run.report.first_run = Some(first_run);
        Ok(())
    }
}

/// Kills gateway and Postgres (SIGKILL), and measures until the region's keys run elsewhere.
async fn lose(run: &mut Run<'_>) -> Result<()> {
    let loss = Loss::expect(run);
    wait::pause(Duration::from_secs(1)).await;
    let death = Instant::now();
    run.act(run.victim, Action::Kill, Part::Both).await?;
    loss.measured(run, death).await
}

/// Starts a killed region when its keys run elsewhere.
pub async fn kill(run: &mut Run<'_>) -> Result<()> {
    lose(run).await?;
    wait::pause(run.span(STAYS_DEAD)).await;
    run.act(run.victim, Action::Start, Part::Both).await
}

/// Cuts both links of a region. Its clients go on talking to it, and it must refuse them.
pub async fn isolate(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let loss = Loss::expect(run);
    let inside = run.prober(1.0, "inside", vec![victim], vec![victim], PLAIN);
    wait::pause(Duration::from_secs(1)).await;
    let death = Instant::now();
    for other in run.others(victim) {
        run.note(format!("link {} – {} cut", run.name(victim), run.name(other)));
        run.deployment.links.cut(victim, other, false)?;
    }
    loss.measured(run, death).await?;
    wait::pause(run.span(Duration::from_secs(3))).await;
    let inside = inside.end().await?;
    // Validity counts from before the last renewal was sent, so no request sent a lease later may
    // run.
    let over = death + run.lease();
    let late = |exchange: &Exchange| exchange.sent > over && exchange.received.success().is_some();
    let ran = inside.iter().filter(|probe| late(&probe.exchange)).count() as u64;
    let what = format!("{ran} keys ran in the region that was cut off, after its lease");
    run.report.none("ran_inside_after_the_lease", ran, what);
    run.probes.extend(inside);
    for other in run.others(victim) {
        run.note(format!("link {} – {} healed", run.name(victim), run.name(other)));
        run.mended = Some(Instant::now());
        run.deployment.links.heal(victim, other, false)?;
    }
    Ok(())
}

/// Kills a region and its Postgres' disk. Replaces the old store by an empty one, with the commands
/// of docs/operate/replace-a-store.md.
pub async fn disk_lost(run: &mut Run<'_>) -> Result<()> {
    lose(run).await?;
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
        run.said(&words, &run.region(number).run(&words).await?).map(drop)
    };
    // At once: each waits for objects that the others have to make.
    tokio::try_join!(init(0), init(1), init(2))?;
    run.act(victim, Action::Start, Part::Both).await
}

/// The everyday fault: a gateway, its Postgres, both, and both in two regions start again at once.
/// Each case tells for how long keys of the region were refused. A region that is back at once is
/// waited for, not taken over. So its keys may be refused for a lease, two seconds, and the time
/// that the parts took to start. Where two regions of three are gone at once, no bound is held.
pub async fn restart(run: &mut Run<'_>) -> Result<()> {
    let (one, two, third) = (run.victim, (run.victim + 1) % 3, (run.victim + 2) % 3);
    // One for each prober, so that no two of them send the same key.
    let mut words = ["restart-1", "restart-2", "restart-3", "restart-4", "restart-5"].into_iter();
    let cases = [
        ("gateway", Part::Gateway, vec![one]),
        ("postgres", Part::Postgres, vec![one]),
        ("both", Part::Both, vec![one]),
        ("both, in two regions", Part::Both, vec![one, two]),
    ];
    let mut refused = Map::new();
    for (name, part, victims) in cases {
        let prober = |home: &usize| {
            let word = words.next().unwrap_or_default();
            (*home, run.prober(1.0, word, vec![*home], vec![third], PLAIN))
        };
        let probers: Vec<(usize, Prober)> = victims.iter().map(prober).collect();
        wait::pause(BETWEEN).await;
        let begun = Instant::now();
        for victim in &victims {
            run.act(*victim, Action::Kill, part).await?;
        }
        for victim in &victims {
            run.act(*victim, Action::Start, part).await?;
        }
        let started = begun.elapsed();
        let back = Instant::now();
        let ran = |prober: &Prober| {
            let ran_since =
                |probe: &Probe| probe.exchange.sent > back && probe.exchange.received.success().is_some();
            prober.list_probes().iter().any(ran_since)
        };
        let all = async || Ok(probers.iter().all(|(_, prober)| ran(prober)).then_some(()));
        wait::for_some("keys to run again", HOME_WITHIN, all).await?;
        run.home(HOME_WITHIN).await?;
        wait::pause(BETWEEN).await;
        let mut longest = Duration::ZERO;
        for (home, prober) in probers {
            let probes = prober.end().await?;
            let pause = longest_pause(probes.iter().map(|probe| &probe.exchange).collect());
            let (home, pause_ms) = (run.name(home), millis(pause));
            run.note(format!("restart of {name}: keys of {home} were refused for {pause_ms:.0} ms"));
            longest = longest.max(pause);
            run.probes.extend(probes);
        }
        let most = run.lease() + BESIDE + started;
        if run.settings.timed && victims.len() == 1 && longest > most {
            run.report.broke(format!(
                "restart of {name}: keys were refused for {longest:.1?}, the bound is {most:.1?}"
            ));
        }
        refused.insert(name.to_owned(), ((longest.as_secs_f64() * 100.0).round() / 100.0).into());
    }
    run.report.numbers.insert("refused_seconds", Value::Object(refused));
    Ok(())
}

/// Drops a region's slots, kills it, lets others take over, and starts it. Others follow it anew:
/// its heartbeats arrive at once, and the copy of its records waits. Then its keys are sent again.
///
/// No other region knows the keys that ran shortly before the loss, so they may run again; each
/// such run must be marked. No copy ends before the retries had their answers.
pub async fn reseed(run: &mut Run<'_>) -> Result<()> {
    let victim = run.victim;
    let (name, readers) = (run.name(victim), run.others(victim));
    for reader in &readers {
        let slot = run.region(*reader).cluster.subscription_from(&name).await?;
        run.note(format!("slot {slot} at {name} is dropped"));
        run.region(victim).cluster.drop_slot(&slot, WITHIN).await?;
    }
    let unseen = run.prober(1.0, "unseen", vec![victim], vec![victim], PLAIN);
    wait::pause(UNSEEN).await;
    let unseen = unseen.end().await?;
    lose(run).await?;
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
    let subscription = region.cluster.subscription_from(&name).await?;
    let words = ["store", "reseed", "--from", &name];
    let (output, held) = region.cluster.hold_copy(&subscription, region.run(&words)).await?;
    // Exit code 3: the copy runs.
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3), "`onceway store reseed` ended with {}: {said}", output.status);
    run.note(format!("onceway store reseed --from {name} in {}", run.name(reader)));
    Ok(held)
}

async fn copied(run: &Run<'_>, reader: usize, from: &str) -> Result<()> {
    let by = run.name(reader);
    let ready = async || {
        let all = run.watching.last(&by)["subscriptions"].as_array().cloned().unwrap_or_default();
        Ok(all.iter().any(|one| one["from"] == from && one["ready"] == true).then_some(()))
    };
    wait::for_some("the records to be copied", WITHIN, ready).await.with_context(|| format!("{from} to {by}"))
}
