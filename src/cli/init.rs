//! `onceway init`: founds a deployment's register, once.
//!
//! The gateway's own files must be those of the region file: others would not describe the running
//! deployment.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::http::{Local, Target};
use super::process::{Failure, block_on};
use super::rehearsal::Dry;
use super::ring::escrow;
use super::table::{word, words};
use crate::config::{Config, span};

/// Time between two tries.
const AGAIN: Duration = Duration::from_secs(1);

/// Found the deployment: from now on its regions run keys. Once, when all of them are up.
///
/// Proposes the first view to every voter: all regions of ring.toml, and its witnesses. Each of
/// them must answer and be empty. If one cannot be reached, or is not empty, it is named, and
/// nothing runs. If a founding was cut short, run it again: it completes the first one.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway init --config config/us-east.toml          in any one of the regions, after `onceway serve` runs in all of them
  onceway init --config config/us-east.toml --wait 60s     some voters may have been started just now
  onceway init --config config/us-east.toml --dry-run     do all voters answer, and are they empty?
  onceway init --config config/us-east.toml --json

The gateway must run with the same ring.toml and routes.toml that the region file names. The first view has every region
serving, and the routes with escrow = \"claim\" or \"claim+answer\" under escrow; `onceway ring apply` changes both later.

If all voters were lost, and the register has to be founded again while records are left, the new epochs must be greater than
all old ones: --epoch-above takes the greatest that any region or log has ever shown. Until then no keys run anywhere.

Exit codes: 0 founded; 1 refused, or the gateway does not answer; 2 wrong arguments or configuration; 3 not possible yet, as when a voter
does not answer: run it again.")]
pub struct Init {
    #[command(flatten)]
    gateway: Local,
    /// Begin above this epoch; only for founding again after the register was lost.
    #[arg(long, value_name = "N")]
    epoch_above: Option<u64>,
    /// Span to try again while a voter does not answer.
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = span::parse, conflicts_with = "dry_run")]
    wait: Duration,
    #[command(flatten)]
    dry: Dry,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Init {
    pub fn run(&self) -> Result<(), Failure> {
        let (config, target) = self.gateway.load()?;
        same_files(&config, &target)?;
        let escrow = escrow(&config);
        let act = self.dry.mark(json!({ "escrow": escrow, "epoch_above": self.epoch_above }));
        let report = self.found(&target, &act)?;
        self.dry.tell(self.json, &report, &picture(&report, &escrow))
    }

    /// Asks the gateway, and asks again while it is too early and time is left.
    fn found(&self, target: &Target, act: &Value) -> Result<Value, Failure> {
        let until = Instant::now() + self.wait;
        loop {
            match target.act("/v1/admin/init", act) {
                Err(Failure::Incomplete(_)) if Instant::now() < until => {}
                other => return other,
            }
            block_on(async {
                tokio::time::sleep_until(until.min(Instant::now() + AGAIN)).await;
                Ok::<_, Failure>(())
            })?;
        }
    }
}

/// Checks that the gateway runs these files: it proposes its own ring.
fn same_files(config: &Config, target: &Target) -> Result<(), Failure> {
    let status = target.get("/v1/status")?;
    let (region, shared, view) = (&status["region"], &status["shared"], &status["view"]);
    if *region != config.me.as_str() {
        return Err(Failure::Bad(format!(
            "the gateway that answers is of region {}, the file of {}: ask the right one",
            word(region),
            config.me
        )));
    }
    let founded = status["epoch"].as_u64().is_some_and(|epoch| epoch > 0);
    // Once it is founded, its view is the register's; the gateway checks that itself.
    if !founded && *view != config.shared.view().digest().to_string() {
        return Err(differs("ring.toml"));
    }
    if *shared != config.shared.digest.to_string() {
        return Err(differs("ring.toml or routes.toml"));
    }
    Ok(())
}

fn differs(what: &str) -> Failure {
    Failure::Failed(format!(
        "the gateway was started with another {what} than the region file names now: restart it first"
    ))
}

fn picture(report: &Value, escrow: &[String]) -> String {
    let escrow = if escrow.is_empty() { "none".to_owned() } else { escrow.join(", ") };
    format!(
        "founded at epoch {}; all regions serve\nvoters         {}\nunder escrow   {escrow}\n",
        word(&report["epoch"]),
        words(&report["voters"])
    )
}
