//! The everyday fault: a gateway, a Postgres or a whole machine that starts again at once.
//!
//! `schedule` runs it and counts effects. Each of the four cases tells for how long keys of the
//! region were refused. A region that is back at once is waited for, not taken over. So its keys
//! may be refused for a lease, two seconds, and the time that the parts took to start. It must not
//! hold that bound where two regions of three are gone at once.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::bounds::{HOME_WITHIN, millis};
use super::load::PLAIN;
use super::prober::{Prober, longest_pause};
use super::run::Run;
use crate::gateway::Action;
use crate::region::Part;
use crate::wait;

/// Time beside the lease in which keys may be refused.
const BESIDE: Duration = Duration::from_secs(2);
/// Load between the return of the keys and the next case.
const BETWEEN: Duration = Duration::from_secs(1);

/// Restarts a gateway, its Postgres, both, and both in two regions at once.
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
            (*home, run.prober(word, vec![*home], vec![third], PLAIN))
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
            prober
                .list_probes()
                .iter()
                .any(|probe| probe.exchange.sent > back && probe.exchange.received.success().is_some())
        };
        let all = async || Ok(probers.iter().all(|(_, prober)| ran(prober)).then_some(()));
        wait::for_some("keys to run again", HOME_WITHIN, all).await?;
        run.home(HOME_WITHIN).await?;
        wait::pause(BETWEEN).await;
        let mut longest = Duration::ZERO;
        for (home, prober) in probers {
            let probes = prober.end().await?;
            let pause = longest_pause(probes.iter().map(|probe| &probe.exchange).collect());
            run.note(format!(
                "restart of {name}: keys of {} were refused for {:.0} ms",
                run.name(home),
                millis(pause)
            ));
            longest = longest.max(pause);
            run.probes.extend(probes);
        }
        let most = run.lease() + BESIDE + started;
        if run.settings.timed && victims.len() == 1 && longest > most {
            let what =
                format!("restart of {name}: keys were refused for {longest:.1?}, the bound is {most:.1?}");
            run.report.broke(what);
        }
        refused.insert(name.to_owned(), ((longest.as_secs_f64() * 100.0).round() / 100.0).into());
    }
    run.report.numbers.insert("refused_seconds", Value::Object(refused));
    Ok(())
}
