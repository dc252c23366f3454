//! `onceway demo`: a whole deployment to try, and a guided tour of it.
//!
//! It prints one line when everything is ready, and then one line per event. It leaves no process
//! and, without `--data`, no file behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::control;
use super::deployment::{Deployment, Options};
use super::tour::{self, Narrator};
use super::wait::{self, Leave};

const CALLS_END_WITHIN: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub struct Demo {
    /// Ends the demo after the tour.
    pub exit: bool,
    pub tour: bool,
    pub json: bool,
    pub rtt: Duration,
    pub port_base: u16,
    /// Folder of the data; a scratch folder if `None`.
    pub data: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every effect happened once.
    Well,
    /// Some effect happened twice, or a claim of the tour was false.
    Badly,
}

/// Runs the demo until its tour or a signal ends it. Then all that it started has ended.
pub async fn run(demo: Demo) -> Result<Ended> {
    let mut leave = Leave::heard()?;
    let program = std::env::current_exe().context("where is the onceway binary?")?;
    let (port_base, data, rtt) = (demo.port_base, demo.data.clone(), demo.rtt);
    let options = Options { program, port_base, data, rtt, ..Options::default() };
    let say = |text: &str| {
        if !demo.json {
            eprintln!("  … {text}");
        }
    };
    let deployment = tokio::select! {
        biased;
        () = leave.asked() => return Ok(Ended::Well),
        started = Deployment::start(&options, &say) => Arc::new(started?),
    };
    let ended = tokio::select! {
        biased;
        () = leave.asked() => Ok(verdict(&deployment)),
        ended = guide(&demo, &deployment) => ended,
    };
    say("cleaning up");
    // Only a running control call may still hold the deployment.
    let alone = async || Ok((Arc::strong_count(&deployment) == 1).then_some(()));
    wait::for_some("the last control call to end", CALLS_END_WITHIN, alone).await?;
    match Arc::try_unwrap(deployment) {
        Ok(deployment) => deployment.shut_down().await?,
        Err(_shared) => anyhow::bail!("a control call began while all was ending; the janitor cleans up"),
    }
    ended
}

async fn guide(demo: &Demo, deployment: &Arc<Deployment>) -> Result<Ended> {
    let (events, mut heard) = mpsc::unbounded_channel();
    let _control = control::listen(deployment, events).await?;
    announce(demo, deployment);
    let narrator = Narrator { json: demo.json };
    if demo.tour {
        let shown = tour::show(deployment, &narrator).await;
        if let Err(error) = &shown {
            narrator.failed(&format!("{error:#}"));
        }
        if shown.is_err() && demo.exit {
            tour::totals(deployment, &narrator);
            return Ok(Ended::Badly);
        }
    }
    if demo.tour || demo.exit {
        tour::totals(deployment, &narrator);
    }
    if demo.exit {
        return Ok(verdict(deployment));
    }
    if !demo.json {
        println!("\nEverything stays up. Ctrl-C ends it.");
    }
    while let Some(event) = heard.recv().await {
        narrator.tell(&event, format_args!("  · {}", in_words(&event)));
    }
    std::future::pending().await
}

fn announce(demo: &Demo, deployment: &Deployment) {
    let control = format!("http://127.0.0.1:{}", deployment.ports.control);
    let regions = control::shown(deployment);
    if demo.json {
        println!("{}", json!({ "ready": true, "control": control, "regions": regions }));
        return;
    }
    println!("\nonceway: three regions are up, {:?} apart.\n", demo.rtt);
    for region in &deployment.regions {
        let shown = region.show();
        println!(
            "  {:<9} public {}   admin {}   upstream {}",
            shown.name, shown.public, shown.admin, shown.upstream
        );
    }
    println!("  control   {control}   (GET /regions, GET /ledger, POST /regions/eu-west/kill, …)\n");
}

/// Keyless calls share one row of the ledger, which therefore does not count.
fn verdict(deployment: &Deployment) -> Ended {
    let twice = deployment.ledger.totals(None).iter().any(|total| !total.key.is_empty() && total.effects > 1);
    if twice { Ended::Badly } else { Ended::Well }
}

fn in_words(event: &Value) -> String {
    let word = |name: &str| event[name].as_str().unwrap_or("?").to_owned();
    match event["event"].as_str() {
        Some("region") => format!("{} {} ({})", word("action"), word("region"), word("part")),
        Some("endpoint") => {
            format!("{} endpoint {} of {}'s upstream", word("action"), word("number"), word("region"))
        }
        Some("link") => format!("link {} – {}: {}", word("from"), word("to"), word("action")),
        Some(_) | None => event.to_string(),
    }
}
