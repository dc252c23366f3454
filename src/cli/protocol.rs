//! `onceway protocol raise`: makes the regions use the newest version that all of them speak.
//! [`Speech`] sets a process's versions.
//!
//! `gateway::authority` asks all regions and changes the view. There is no way back.

use clap::Args;
use serde_json::{Value, json};

use super::http::Admin;
use super::key::Who;
use super::process::{Failure, tell};
use super::rehearsal::Dry;
use super::table::{printable, table, word};
use crate::protocol::versions::{NEXT, Versions};

/// Have all regions go by the newest protocol version that each of them and each witness speaks.
/// Without --yes: a dry run.
///
/// This ends an upgrade. Until then every gateway can be put back to the onceway before. Afterwards
/// a gateway that does not speak the version serves nothing, and says why. Of several gateways of a
/// region one answers for all: look at `onceway status` of each first.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway protocol raise          who speaks what, and what would be raised; nothing is changed
  onceway protocol raise --yes    do it

Refused while a region of the ring or a witness does not answer. Asked again, it changes nothing.

Exit codes: 0 done, or compared; 1 refused, or the gateway does not answer, or somebody does not speak the version in force; 2 wrong
arguments; 3 somebody does not answer yet: run it again.")]
pub struct Raise {
    #[command(flatten)]
    gateway: Admin,
    #[command(flatten)]
    who: Who,
    /// Raise it.
    #[arg(long)]
    yes: bool,
    /// Show the version that would be in force and change nothing, as without --yes.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Raise {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { gateway, who, yes, dry_run, json } = self;
        let dry = Dry { dry_run: *dry_run || !yes };
        let act = dry.mark(json!({ "actor": who.actor }));
        let report = gateway.target()?.act("/v1/admin/protocol/raise", &act)?;
        tell(*json, &report, &picture(&report, dry.dry_run))?;
        left_behind(&report)
    }
}

fn picture(report: &Value, is_dry: bool) -> String {
    let speaks = report["speaks"].as_object();
    let rows = speaks.into_iter().flatten().map(|(name, speaks)| vec![name.clone(), word(speaks)]);
    let table = table("name|speaks", rows);
    let (now, epoch) = (word(&report["protocol"]), word(&report["epoch"]));
    let mut text = format!("{table}\nprotocol version {now} is in force since epoch {epoch} or before\n");
    if is_dry {
        if report["common"].as_u64() > report["protocol"].as_u64() {
            let common = word(&report["common"]);
            text.push_str(&format!("all speak {common}. To raise it:\n  onceway protocol raise --yes\n"));
        }
        text.push_str("\nNothing was changed.\n");
    }
    text
}

/// Fails if a region does not speak the version in force and so runs nothing: the upgrade is
/// raised, but not ended.
fn left_behind(report: &Value) -> Result<(), Failure> {
    let (now, common) = (report["protocol"].as_u64(), report["common"].as_u64());
    let Some(now) = now.filter(|now| common.is_some_and(|common| common < *now)) else { return Ok(()) };
    let lacks = |speaks: &Value| {
        let speaks = speaks.as_str().and_then(Versions::parse);
        u16::try_from(now).is_ok_and(|now| speaks.is_none_or(|speaks| !speaks.has(now)))
    };
    let all = report["speaks"].as_object().into_iter().flatten();
    let names: Vec<String> =
        all.filter(|(_, speaks)| lacks(speaks)).map(|(name, _)| printable(name)).collect();
    Err(Failure::Failed(format!(
        "version {now} is in force and not spoken by {}: run a onceway there that speaks it",
        names.join(", ")
    )))
}

#[derive(Args)]
pub(super) struct Speech {
    /// Speak these protocol versions only, such as 1-2. For tests of two versions side by side. It
    /// is a flag, because nobody types one by accident. With any value, the only possible harm is
    /// that more of the others refuse the process.
    #[arg(long, hide = true, value_name = "OLDEST-NEWEST", value_parser = versions)]
    speaks: Option<Versions>,
}

impl Speech {
    pub(super) fn versions(&self) -> Versions {
        self.speaks.unwrap_or(Versions::OURS)
    }
}

fn versions(text: &str) -> Result<Versions, String> {
    let versions = Versions::parse(text).filter(|versions| versions.newest() <= NEXT);
    versions.ok_or_else(|| format!("say two numbers from 1 to {NEXT}, such as 1-{NEXT}"))
}
