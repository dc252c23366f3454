//! `onceway ring show | explain`: shares of the regions, and the reason for a key's place.
//!
//! The picture is of the file: `onceway status` shows the ring in force. Of a key only the digest
//! is printed, so that pasting it into a ticket reveals nothing.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::process::{Failure, print};
use super::ring_change::place_by;
use super::table::{bar, pairs, table, thousands};
use crate::config::load_ring;
use crate::config::ring::RingFile;
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::region::RegionName;
use crate::protocol::ring::ARCS;
use crate::protocol::ring_spec::PlaceBy;

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
        let file = load_ring(&self.ring)?;
        if self.json { print(&as_json(&file)) } else { print(&picture(&file)) }
    }
}

/// The regions with their weights and the number of arcs that each is home of.
fn homes(file: &RingFile) -> Vec<(&RegionName, u32, u64)> {
    let regions = file.ring.regions().iter();
    // A share is a number of arcs over 65,536, which a f64 holds exactly.
    regions
        .map(|region| (&region.name, region.weight, (file.ring.share(&region.name) * f64::from(ARCS)) as u64))
        .collect()
}

fn picture(file: &RingFile) -> String {
    let homes = homes(file);
    let most = homes.iter().map(|(_, _, arcs)| *arcs).max().unwrap_or(1).max(1);
    let share = |arcs: u64| format!("{:.2} %", arcs as f64 * 100.0 / f64::from(ARCS));
    let row = |name: &str, weight: String, arcs: u64, last: String| {
        vec![name.to_owned(), weight, share(arcs), thousands(arcs), last]
    };
    let mut rows = Vec::new();
    for (name, weight, arcs) in &homes {
        let last = match weight {
            0 => "edge: forwards, owns nothing".to_owned(),
            1.. => bar(*arcs as f64 / most as f64, BAR),
        };
        rows.push(row(name.as_str(), weight.to_string(), *arcs, last));
    }
    let weights: u32 = homes.iter().map(|(_, weight, _)| weight).sum();
    rows.push(row("total", weights.to_string(), homes.iter().map(|(_, _, arcs)| arcs).sum(), String::new()));
    let mut text = format!(
        "ring of {}, place_by = \"{}\", digest {:.16}\n\n{}",
        file.deployment,
        place_by(file.ring.place_by()),
        file.ring.digest().to_string(),
        table("region|>weight|>share|>arcs|", rows)
    );
    if !file.pins.is_empty() {
        text.push_str("\npinned tenants, home first\n");
        let pins = file.pins.iter().map(|pin| (pin.tenant.as_str(), chain(pin.regions.iter())));
        text.push_str(&pairs(pins));
    }
    text
}

fn as_json(file: &RingFile) -> String {
    let regions = homes(file);
    let regions = regions.iter().map(|(name, weight, arcs)| {
        json!({ "name": name, "weight": weight, "arcs": arcs, "share": file.ring.share(name) })
    });
    let whole = json!({
        "deployment": file.deployment,
        "place_by": file.ring.place_by(),
        "digest": file.ring.digest().to_string(),
        "arcs": ARCS,
        "regions": regions.collect::<Vec<_>>(),
        "pins": file.pins,
    });
    format!("{whole}\n")
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
        if self.json {
            let said = json!({
                "tenant": id.tenant(), "digest": id.digest().to_string(), "arc": file.ring.arc(&id).0, "pinned": pinned,
                "place_by": file.ring.place_by(), "order": order.names().collect::<Vec<_>>(), "home": order.home(),
            });
            return print(&format!("{said}\n"));
        }
        let rule = match pinned {
            true => {
                format!("the pin of tenant {}: these regions and no others, whatever the arc", id.tenant())
            }
            false => "the arc's order: weighted rendezvous over all regions with a weight above 0".to_owned(),
        };
        let (arc, all, by) = (file.ring.arc(&id), thousands(ARCS.into()), place_by(file.ring.place_by()));
        let rows = [
            ("tenant", id.tenant().to_string()),
            ("key", format!("digest {}", id.digest())),
            ("arc", format!("{arc} of {all}, by {hashed} (place_by = \"{by}\")")),
            ("rule", rule),
            ("order", chain(order.names())),
            ("home", order.home().to_string()),
        ];
        print(&pairs(rows))
    }
}

fn chain<'a>(names: impl Iterator<Item = &'a RegionName>) -> String {
    names.map(RegionName::as_str).collect::<Vec<_>>().join(" > ")
}
