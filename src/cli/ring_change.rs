//! `onceway ring plan | apply`: changes that the ring file would make in the register's ring.
//!
//! `gateway::authority::acts::admin_ops` compares and performs. The file is a proposal: nothing
//! moves until it is applied with --yes.

use clap::Args;
use serde_json::{Value, json};

use super::http::Local;
use super::key::Who;
use super::process::{Failure, print, tell};
use super::rehearsal::{Dry, moves};
use super::table::{list, pairs, word, words};
use crate::config::Config;
use crate::protocol::ring_spec::PlaceBy;

/// Show the changes that ring.toml and routes.toml would make to the state in force: arcs that
/// move, pins, regions, escrow. Changes nothing.
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway ring plan --config config/us-east.toml

The gateway may run with older files: it is told the new ones. Seed and place_by can never be changed.

Exit codes: 0 compared; 1 refused, or the gateway does not answer; 2 wrong arguments or configuration.")]
pub struct Plan {
    #[command(flatten)]
    gateway: Local,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Put ring.toml and the escrow of routes.toml in force, in all regions at once. Without --yes: a
/// dry run.
///
/// Each region that loses keys stops taking them and records which ones it gives up, and the others
/// go on from there. Keys that move pause for less than a second, all others not at all.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway ring apply --config config/us-east.toml --expect-epoch 7         what would move; nothing is changed
  onceway ring apply --config config/us-east.toml --expect-epoch 7 --dry-run   would it be taken now? nothing is changed
  onceway ring apply --config config/us-east.toml --expect-epoch 7 --yes   do it

The epoch is the one that `onceway ring plan` compared with: if anything has changed since, nothing is done. Afterwards bring the same
files to all regions.

Exit codes: 0 in force, or compared; 1 refused, or the gateway does not answer; 2 wrong arguments or configuration; 3 not possible yet:
run it again.")]
pub struct Apply {
    #[command(flatten)]
    gateway: Local,
    #[command(flatten)]
    who: Who,
    /// The epoch that the plan was compared with.
    #[arg(long, value_name = "N")]
    expect_epoch: u64,
    /// Apply it.
    #[arg(long)]
    yes: bool,
    /// Ask whether it would be accepted now, what would move and what hinders it, in place of the
    /// plan; change nothing. The exit code is that of --yes.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Plan {
    pub fn run(&self) -> Result<(), Failure> {
        let (config, target) = self.gateway.load()?;
        let plan = target.act("/v1/admin/ring/plan", &proposal(&config))?;
        tell(self.json, &plan, &picture(&plan))
    }
}

impl Apply {
    pub fn run(&self) -> Result<(), Failure> {
        let (config, target) = self.gateway.load()?;
        let mut proposal = proposal(&config);
        if self.dry_run {
            proposal["dry_run"] = true.into();
        } else if !self.yes {
            let plan = target.act("/v1/admin/ring/plan", &proposal)?;
            tell(self.json, &plan, &picture(&plan))?;
            return self.dry(&plan);
        }
        proposal["expect_epoch"] = self.expect_epoch.into();
        proposal["actor"] = self.who.actor.clone().into();
        let done = target.act("/v1/admin/ring/apply", &proposal)?;
        let dry = Dry { dry_run: self.dry_run };
        dry.tell(self.json, &done, &format!("in force: epoch {}\n", word(&done["epoch"])))
    }

    /// After a dry run: the command to type, or the reason why it would be refused.
    fn dry(&self, plan: &Value) -> Result<(), Failure> {
        if plan["epoch"] != self.expect_epoch {
            return Err(Failure::Failed(format!(
                "the register is at epoch {}, not {}: if the plan above is what you want, expect that epoch",
                word(&plan["epoch"]),
                self.expect_epoch
            )));
        }
        if self.json || is_empty(plan) {
            return Ok(());
        }
        print(&format!(
            "\nNothing was changed. To put it in force:\n  onceway ring apply --config {} --expect-epoch {} --yes\n",
            self.gateway.config.display(),
            self.expect_epoch
        ))
    }
}

pub fn place_by(place_by: PlaceBy) -> &'static str {
    match place_by {
        PlaceBy::Tenant => "tenant",
        PlaceBy::Key => "key",
    }
}

/// The ring and the escrow of the files, in the admin listener's form.
fn proposal(config: &Config) -> Value {
    json!({ "ring": config.shared.ring.spec(), "escrow": escrow(config) })
}

pub fn escrow(config: &Config) -> Vec<String> {
    config.shared.escrow().iter().map(ToString::to_string).collect()
}

/// The lists of a plan, each with its name for people.
const LISTS: [(&str, &str); 6] = [
    ("regions_added", "regions that join"),
    ("regions_removed", "regions that leave"),
    ("pins", "tenants whose pin changes"),
    ("escrow_added", "routes that come under escrow"),
    ("escrow_removed", "routes that leave escrow"),
    ("escrow_changed", "routes under escrow that mean something else"),
];

fn is_empty(plan: &Value) -> bool {
    list(&plan["moves"]).is_empty() && LISTS.iter().all(|(name, _)| list(&plan[*name]).is_empty())
}

fn picture(plan: &Value) -> String {
    let epoch = word(&plan["epoch"]);
    if is_empty(plan) {
        return format!("nothing would change: the files say what is in force at epoch {epoch}\n");
    }
    let mut text = format!("compared with epoch {epoch}\n\n");
    match list(&plan["moves"]) {
        [] => text.push_str("no arc changes its home\n"),
        _ => text.push_str(&moves(&plan["moves"])),
    }
    let lists = LISTS.iter().filter(|(name, _)| !list(&plan[*name]).is_empty());
    let lists = pairs(lists.map(|(name, what)| (*what, words(&plan[*name]))));
    if !lists.is_empty() {
        text.push_str(&format!("\n{lists}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::picture;

    #[test]
    fn a_plan_is_a_table_of_what_moves() {
        let plan = json!({
            "epoch": 7, "moves": [{ "from": "a", "to": "b", "arcs": 13107, "share": 0.2 }], "pins": ["acme"],
            "regions_added": ["b"], "regions_removed": [], "escrow_added": [], "escrow_removed": ["pay\u{1b}outs"],
        });
        let text = picture(&plan);
        for line in [
            "compared with epoch 7",
            "a     b   13,107  20.00 %",
            "regions that join          b",
            "tenants whose pin changes  acme",
            "routes that leave escrow   pay outs",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} in\n{text}");
        }
        assert!(!text.contains("regions that leave"));
        let text = picture(&json!({ "epoch": 7, "moves": [] }));
        assert_eq!(text, "nothing would change: the files say what is in force at epoch 7\n");
    }
}
