//! `onceway region drain | resume | status | rebuild`, `onceway takeover`, and `onceway
//! break-glass`: going on without a majority.
//!
//! `gateway::authority` performs, and refuses while another way is open. Nothing is forced that was
//! not named twice.

use std::io::{IsTerminal, Write};

use clap::Args;
use serde_json::{Value, json};

use super::authority;
use super::http::{Admin, Approval};
use super::key::{Who, Why};
use super::process::{Failure, tell};
use super::rehearsal::Dry;
use super::table::{list, word, words};
use crate::protocol::region::RegionName;

/// Take a region out of service: its keys move to their next regions, without a gap in the record.
///
/// The region stops taking its keys, lets running attempts finish for a moment (drain_limit in
/// ring.toml), and hands over; nothing is run twice and nothing is lost. It goes on forwarding and
/// replaying, and stays out until `onceway region resume`. Any gateway can be asked.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway region drain eu-west --reason 'Postgres upgrade, OPS-12'
  onceway region drain eu-west --dry-run                                   what would move, and what hinders it
  onceway region drain eu-west --force --confirm eu-west --reason '...'    although too few regions would be left (min_serving)

The last region that serves cannot be drained.

Exit codes: 0 done; 1 refused, or the gateway does not answer; 2 wrong arguments; 3 not possible yet: run it again.")]
pub struct Drain {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    who: Who,
    /// Reason, journalled with the act.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Drain it although fewer than min_serving regions would be left; asks for the region's name
    /// once more, and for a reason.
    #[arg(long, requires = "reason")]
    force: bool,
    /// The region's name once more, if there is no terminal to type it at.
    #[arg(long, value_name = "REGION", requires = "force")]
    confirm: Option<String>,
    #[command(flatten)]
    dry: Dry,
}

/// Bring a drained region back: it takes its keys home as soon as it has everything that was
/// written meanwhile.
///
/// A lost region needs no command: it comes back by itself once it has been well for a while
/// (stable_for in ring.toml).
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway region resume eu-west

Exit codes: 0 done; 1 refused, or the gateway does not answer; 2 wrong arguments; 3 not possible yet: run it again.")]
pub struct Resume {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    dry: Dry,
}

/// Answer "does this region serve, and what does it wait for?": its standing and state, since when,
/// why, and what to do.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway region status eu-west
  until onceway region status eu-west; do sleep 1; done      wait until it serves

What keys wait for is known by the gateway that gained them, so ask that one (--admin).

Exit codes: 0 it serves; 1 the gateway does not answer; 2 wrong arguments, or no such region; 3 it does not serve.")]
pub struct Status {
    #[command(flatten)]
    which: Which,
}

/// Give a region an empty store in place of one that is gone, forgot what it had written, or is to
/// be replaced.
///
/// The old store is retired: its rows in the other regions stay, and the new store fetches them
/// before it serves. A region whose Postgres was restored from an old copy says so
/// (`onceway status`) and serves nothing until this was done.
///
/// A lost region may have rows that no other region has: they are gone then, and keys whose rows
/// never left it may run a second time. You have to accept that with --accept-risk, and it is
/// journalled. A drained region has given everything away: once its gateways are stopped, nothing
/// is at risk.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway region rebuild eu-west --accept-risk --reason 'disks are gone, OPS-14'
  onceway region rebuild eu-west --reason 'drained for Postgres 17, OPS-15'

Ask a gateway of a region that serves. It prints what to do next: an empty database, `generation` in the region file, `onceway store
init` in every region, and the gateway's start.

Exit codes: 0 done, or done before; 1 refused, or the gateway does not answer; 2 wrong arguments; 3 not possible yet: run it again.")]
pub struct Rebuild {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    why: Why,
    /// Go on although rows that never left the old store are gone.
    #[arg(long)]
    accept_risk: bool,
    #[command(flatten)]
    approval: Approval,
    #[command(flatten)]
    dry: Dry,
}

/// The region, and the gateway to ask.
#[derive(Args)]
struct Which {
    /// The region.
    #[arg(value_parser = RegionName::parse)]
    region: RegionName,
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Declare a region lost by hand, or open its keys elsewhere before the window says so.
///
/// Without --accept-risk: with failover = "manual", this starts a takeover. The region must be
/// stopped: its lease must have run out, or nothing happens. Its successors then wait their window,
/// as after any loss.
///
/// With --accept-risk its successors also open at once. Keys whose last rows never left the region
/// are then run again: make sure first, at the upstream's own ledger, that this is better than
/// waiting. Your name and reason are journalled. The region may have a new store by now
/// (`onceway region rebuild`). Then this accepts the loss of the old store, and leaves the region
/// as it is.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway takeover eu-west --reason 'site is down, its machines are switched off, OPS-13'
  onceway takeover eu-west --accept-risk --reason 'disks are gone; checked the provider up to 14:05, OPS-13'

Ask a gateway of a region that serves; `onceway status` says there what its keys wait for.

Exit codes: 0 done; 1 refused, or the gateway does not answer; 2 wrong arguments; 3 not possible yet, as while its lease runs or no
majority of the voters answers: run it again.")]
pub struct Takeover {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    why: Why,
    /// Open its keys elsewhere without waiting, although some may run a second time.
    #[arg(long)]
    accept_risk: bool,
    #[command(flatten)]
    approval: Approval,
    #[command(flatten)]
    dry: Dry,
}

impl Drain {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { which, who, reason, force, confirm, dry } = self;
        if *force && !dry.dry_run {
            confirmed(&which.region, confirm.as_deref())?;
        }
        let act = json!({
            "region": which.region.as_str(), "force": force, "actor": who.actor, "reason": reason,
        });
        let done = which.gateway.target()?.act("/v1/admin/region/drain", &dry.mark(act))?;
        which.say(dry, &done, &format!("{} is drained: epoch {}", which.region, word(&done["epoch"])))
    }
}

impl Resume {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { which, who, dry } = self;
        let act = json!({ "region": which.region.as_str(), "actor": who.actor });
        let done = which.gateway.target()?.act("/v1/admin/region/resume", &dry.mark(act))?;
        which.say(dry, &done, &format!("{} serves again: epoch {}", which.region, word(&done["epoch"])))
    }
}

impl Status {
    pub fn run(&self) -> Result<(), Failure> {
        let Which { region, gateway, json } = &self.which;
        let status = gateway.get("/v1/status")?;
        let authority = &status["authority"];
        let found = list(&authority["regions"]).iter().find(|one| one["name"] == region.as_str());
        let Some(found) = found else {
            return Err(Failure::Bad(format!("{region} is no region of this deployment")));
        };
        let opening = list(&authority["opening"]);
        let peer = &status["peers"][region.as_str()];
        let whole = json!({ "epoch": authority["epoch"], "region": found, "opening": opening, "peer": peer });
        tell(*json, &whole, &authority::one(authority, found))?;
        let [standing, state] = ["standing", "state"].map(|field| word(&found[field]));
        match found["standing"].as_str() {
            Some("serving") if found["state"].as_str().is_none_or(|state| state == "runs keys") => Ok(()),
            Some("serving") => {
                Err(Failure::Incomplete(format!("{region} should serve, and does not: {state}")))
            }
            Some(_) | None => Err(Failure::Incomplete(format!("{region} is {standing}"))),
        }
    }
}

impl Rebuild {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { which, why, accept_risk, approval, dry } = self;
        let done = which.explained("/v1/admin/region/rebuild", why, *accept_risk, approval, dry)?;
        let region = &which.region;
        let (epoch, generation) = (word(&done["epoch"]), word(&done["generation"]));
        let begun = if done["again"] == true {
            format!("{region} waits for its store of generation {generation} already (epoch {epoch}).")
        } else {
            format!("{region} gets a new store, generation {generation} (epoch {epoch}).")
        };
        which.say(
            dry,
            &done,
            &format!(
                "{begun} Now:
  1. give it an empty database, and write `generation = {generation}` under [store] in the region file of its gateways
  2. run `onceway store init` there, then in every other region, then there again with --wait 60s, until all say complete
  3. start its gateways: they fetch what the others have, and take its keys home unless it was drained (`onceway region resume`)"
            ),
        )
    }
}

impl Takeover {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { which, why, accept_risk, approval, dry } = self;
        let done = which.explained("/v1/admin/takeover", why, *accept_risk, approval, dry)?;
        let waived = words(&done["waived"]);
        let lost = format!("{} is lost since epoch {}", which.region, word(&done["epoch"]));
        let text = match (accept_risk, waived.is_empty()) {
            (false, _) => format!("{lost}; its keys open elsewhere after the window (`onceway status`)"),
            (true, false) => format!("{lost}; without waiting its keys open in {waived}"),
            (true, true) => lost,
        };
        which.say(dry, &done, &text)?;
        match *accept_risk && waived.is_empty() {
            true => {
                Err(Failure::Incomplete("no region has accepted the risk yet: run this again".to_owned()))
            }
            false => Ok(()),
        }
    }
}

impl Which {
    /// Asks for an act with a reason, which may accept a risk.
    fn explained(
        &self,
        path: &str,
        why: &Why,
        accept_risk: bool,
        approval: &Approval,
        dry: &Dry,
    ) -> Result<Value, Failure> {
        if why.reason.trim().is_empty() {
            return Err(Failure::Bad("--reason must say why: it is journalled".to_owned()));
        }
        let act = json!({
            "region": self.region.as_str(), "accept_risk": accept_risk, "actor": why.who.actor, "reason": why.reason,
        });
        self.gateway.target()?.approved(approval).act(path, &dry.mark(act))
    }

    /// Prints for a person, or for a program.
    fn say(&self, dry: &Dry, done: &Value, text: &str) -> Result<(), Failure> {
        dry.tell(self.json, done, &format!("{text}\n"))
    }
}

/// Checks that a step that breaks a safety rule is named twice: by --confirm, or typed at the
/// terminal.
fn confirmed(region: &RegionName, given: Option<&str>) -> Result<(), Failure> {
    let typed = match given {
        Some(given) => given.to_owned(),
        None if std::io::stdin().is_terminal() => {
            // To stderr: stdout is for results.
            let asked = write!(std::io::stderr(), "This breaks a safety rule. Type {region} to go on: ");
            let mut line = String::new();
            asked.and_then(|()| std::io::stdin().read_line(&mut line))?;
            line
        }
        None => {
            return Err(Failure::Bad(format!("--force breaks a safety rule: add --confirm {region}")));
        }
    };
    if typed.trim() == region.as_str() {
        return Ok(());
    }
    Err(Failure::Bad(format!("{:?} is not {region}: nothing was done", typed.trim())))
}

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
