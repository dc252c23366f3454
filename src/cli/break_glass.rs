//! `onceway break-glass`: going on without a majority.
//!
//! `gateway::authority` refuses while another way is open. Nobody does it by accident: the operator
//! names the stopped regions, attests, and confirms.

use clap::Args;
use serde_json::json;

use super::http::{Admin, Approval};
use super::key::Who;
use super::process::Failure;
use super::rehearsal::Dry;
use super::table::word;
use crate::protocol::region::RegionName;

/// Go on without a majority: the regions and witnesses that are left decide alone.
///
/// Without a majority of the voters no region runs keys, because no region can know whether the
/// others still do. You may know: their machines are switched off, and stay off until they can
/// reach those that are left. Then you can say so here. From then on they are lost and vote no
/// more; their keys run elsewhere after the window, as after any loss. If your attestation is not
/// true, keys run twice, and nothing can notice it. Your name and attestation are journalled before
/// anything is done.
///
/// With --poisoned-above: ballots or epochs of the register are so large that nothing can follow
/// them, although the regions run. Name the last epoch that the regions agreed on. `onceway status`
/// of a region that was not reached shows it, or its log. The regions go on from its view, above
/// the poison.
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway break-glass --stopped eu-west --stopped ap-south --confirm eu-west,ap-south \\
      --attest 'both sites without power since 14:02; breakers locked by J. Doe, OPS-13'
  onceway break-glass --poisoned-above 41 --confirm 41 --attest 'epoch 9000000000000000000 was written by nobody of us, OPS-14'

Without --poisoned-above refused while a majority answers (then `onceway takeover` is enough), and while one that is named answers. Regions that were stopped come
back as after any loss, and vote again once they are complete.

Exit codes: 0 done; 1 refused, or the gateway does not answer; 2 wrong arguments; 3 one that is left does not answer: run it again.")]
pub struct BreakGlass {
    /// A region or witness that is stopped; repeat it for each.
    #[arg(long, required_unless_present = "poisoned_above", value_name = "NAME", value_parser = RegionName::parse)]
    stopped: Vec<RegionName>,
    /// The register was poisoned: go on from the view of this epoch, the last one that is genuine.
    #[arg(long, value_name = "EPOCH")]
    poisoned_above: Option<u64>,
    /// The reason why you know that they are stopped, and that they stay so.
    #[arg(long, value_name = "TEXT")]
    attest: String,
    /// The same names, and the epoch, once more, separated by commas.
    #[arg(long, required_unless_present = "dry_run", value_name = "NAMES", value_delimiter = ',')]
    confirm: Vec<String>,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    approval: Approval,
    #[command(flatten)]
    dry: Dry,
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl BreakGlass {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { stopped, poisoned_above, attest, confirm, who, approval, dry, gateway, json } = self;
        if attest.trim().is_empty() {
            return Err(Failure::Bad("--attest must say how you know: it is journalled".to_owned()));
        }
        let sorted = |names: Vec<String>| std::collections::BTreeSet::from_iter(names);
        let names = sorted(stopped.iter().map(ToString::to_string).collect());
        let mut meant = names.clone();
        meant.extend(poisoned_above.map(|epoch| epoch.to_string()));
        if !dry.dry_run && meant != sorted(confirm.clone()) {
            let meant: Vec<String> = meant.into_iter().collect();
            let why = format!("--confirm must name it once more: --confirm {}", meant.join(","));
            return Err(Failure::Bad(why));
        }
        let mut act = json!({ "stopped": names, "actor": who.actor, "attest": attest });
        if let Some(above) = poisoned_above {
            act["poisoned_above"] = json!(above);
        }
        let done = gateway.target()?.approved(approval).act("/v1/admin/break-glass", &dry.mark(act))?;
        let epoch = word(&done["epoch"]);
        let text = match poisoned_above {
            Some(above) => format!("the regions go on from the view of epoch {above}: epoch {epoch}\n"),
            None => {
                let names: Vec<String> = names.into_iter().collect();
                format!("{} are lost and vote no more: epoch {epoch}\n", names.join(", "))
            }
        };
        dry.tell(*json, &done, &text)
    }
}
