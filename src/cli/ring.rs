//! `onceway ring show | explain`: shares of the regions, and the reason for a key's place. `onceway
//! ring plan | apply`: changes that the ring file would make in the register's ring.
//!
//! The file is a proposal: nothing moves until it is applied with --yes, and `onceway status` shows
//! the ring in force. Of a key only the digest is printed, so pasting it reveals nothing.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::http::Local;
use super::key::Who;
use super::process::{Failure, print, tell};
use super::rehearsal::{Dry, moves};
use super::table::{bar, list, pairs, share, table, thousands, word, words};
use crate::config::ring::RingFile;
use crate::config::{Config, load_ring};
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::ring::ARCS;
use crate::protocol::ring_spec::{PlaceBy, RegionSpec};

/// Show each region's share of the keys as a picture.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway ring show --ring config/ring.toml
  onceway ring show --ring config/ring.toml --json

Exit codes: 0 shown; 2 wrong arguments, or the ring file is wrong.")]
pub struct Show {
    /// The ring file.
    #[arg(long, env = "ONCEWAY_RING", value_name = "FILE")]
    ring: PathBuf,
    /// Print JSON instead of a picture.
    #[arg(long)]
    json: bool,
}

/// Explain the place of a key, and the rule behind it.
///
/// Prints the key's arc, the regions in order of preference (home first) and the rule: a pin of the
/// tenant, or the arc. The key itself is not printed, only its digest as it stands in the logs.
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway ring explain acme order-1001 --ring config/ring.toml

Exit codes: 0 explained; 2 wrong arguments, or the ring file is wrong.")]
pub struct Explain {
    /// The tenant.
    tenant: String,
    /// The idempotency key, without quotes.
    key: String,
    /// The ring file.
    #[arg(long, env = "ONCEWAY_RING", value_name = "FILE")]
    ring: PathBuf,
    /// Print JSON: tenant, digest, arc, place_by, pinned, order, home.
    #[arg(long)]
    json: bool,
}

/// Width of the longest bar.
const BAR: usize = 40;

impl Show {
    pub fn run(&self) -> Result<(), Failure> {
        let said = view(&load_ring(&self.ring)?);
        tell(self.json, &said, &picture(&said))
    }
}

fn view(file: &RingFile) -> Value {
    let region = |region: &RegionSpec| {
        let share = file.ring.share(&region.name);
        // A share is a number of arcs over 65,536, which a f64 holds exactly.
        let arcs = (share * f64::from(ARCS)) as u64;
        json!({ "name": region.name, "weight": region.weight, "arcs": arcs, "share": share })
    };
    json!({
        "deployment": file.deployment,
        "place_by": file.ring.place_by(),
        "digest": file.ring.digest().to_string(),
        "arcs": ARCS,
        "regions": file.ring.regions().iter().map(region).collect::<Vec<_>>(),
        "pins": file.pins,
    })
}

fn picture(said: &Value) -> String {
    let regions = list(&said["regions"]);
    let number = |region: &Value, field: &str| region[field].as_u64().unwrap_or_default();
    let most = regions.iter().map(|region| number(region, "arcs")).max().unwrap_or(1).max(1);
    let row = |name: String, weight: u64, arcs: u64, last: String| {
        let part = share(&json!(arcs as f64 / f64::from(ARCS)));
        vec![name, weight.to_string(), part, thousands(arcs), last]
    };
    let mut rows = Vec::new();
    for region in regions {
        let (weight, arcs) = (number(region, "weight"), number(region, "arcs"));
        let last = match weight {
            0 => "edge: forwards, owns nothing".to_owned(),
            1.. => bar(arcs as f64 / most as f64, BAR),
        };
        rows.push(row(word(&region["name"]), weight, arcs, last));
    }
    let sum = |field: &str| regions.iter().map(|region| number(region, field)).sum();
    rows.push(row("total".to_owned(), sum("weight"), sum("arcs"), String::new()));
    let [deployment, place_by, digest] = ["deployment", "place_by", "digest"].map(|field| word(&said[field]));
    let table = table("region|>weight|>share|>arcs|", rows);
    let mut text = format!("ring of {deployment}, place_by = \"{place_by}\", digest {digest:.16}\n\n{table}");
    let pins = list(&said["pins"]);
    if !pins.is_empty() {
        let pins: Vec<_> = pins.iter().map(|pin| (word(&pin["tenant"]), chain(&pin["regions"]))).collect();
        text.push_str("\npinned tenants, home first\n");
        text.push_str(&pairs(pins.iter().map(|(tenant, regions)| (tenant.as_str(), regions.clone()))));
    }
    text
}

impl Explain {
    pub fn run(&self) -> Result<(), Failure> {
        let tenant = Tenant::parse(&self.tenant).map_err(|error| Failure::Bad(format!("TENANT: {error}")))?;
        let key = Key::parse(&self.key).map_err(|error| Failure::Bad(format!("KEY: {error}")))?;
        let file = load_ring(&self.ring)?;
        let id = KeyId::new(tenant, key);
        let order = file.ring.order(&id);
        let hashed = match file.ring.place_by() {
            PlaceBy::Tenant => "the tenant",
            PlaceBy::Key => "tenant and key",
        };
        let pinned = file.pins.iter().any(|pin| pin.tenant == *id.tenant());
        let arc = file.ring.arc(&id).0;
        let said = json!({
            "tenant": id.tenant(), "digest": id.digest().to_string(), "arc": arc, "pinned": pinned,
            "place_by": file.ring.place_by(), "order": order.names().collect::<Vec<_>>(), "home": order.home(),
        });
        let rule = match pinned {
            true => {
                format!("the pin of tenant {}: these regions and no others, whatever the arc", id.tenant())
            }
            false => "the arc's order: weighted rendezvous over all regions with a weight above 0".to_owned(),
        };
        let (all, by) = (thousands(ARCS.into()), word(&said["place_by"]));
        let rows = [
            ("tenant", id.tenant().to_string()),
            ("key", format!("digest {}", id.digest())),
            ("arc", format!("{arc} of {all}, by {hashed} (place_by = \"{by}\")")),
            ("rule", rule),
            ("order", chain(&said["order"])),
            ("home", order.home().to_string()),
        ];
        tell(self.json, &said, &pairs(rows))
    }
}

fn chain(regions: &Value) -> String {
    list(regions).iter().map(word).collect::<Vec<_>>().join(" > ")
}

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
        tell(self.json, &plan, &changes(&plan))
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
            tell(self.json, &plan, &changes(&plan))?;
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

fn changes(plan: &Value) -> String {
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

    use super::changes;

    #[test]
    fn a_plan_is_a_table_of_what_moves() {
        let plan = json!({
            "epoch": 7, "moves": [{ "from": "a", "to": "b", "arcs": 13107, "share": 0.2 }], "pins": ["acme"],
            "regions_added": ["b"], "regions_removed": [], "escrow_added": [], "escrow_removed": ["pay\u{1b}outs"],
        });
        let text = changes(&plan);
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
        let text = changes(&json!({ "epoch": 7, "moves": [] }));
        assert_eq!(text, "nothing would change: the files say what is in force at epoch 7\n");
    }
}
