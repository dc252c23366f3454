//! The stage of a play, and its parts that a fault or an operator takes hold of. No two of them
//! break or mend the same part at the same time.
//!
//! An operator who attests that a gateway is stopped keeps everybody from starting it meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use onceway::protocol::region::RegionName;

use super::log::Log;
use crate::deployment::Deployment;
use crate::peers::Letter;
use crate::process::locked;
use crate::scenario::fault::{Happens, How, OfLink, OfRegion};

/// Everything that clients, faults and operators of a play act on.
#[derive(Clone)]
pub struct Stage {
    pub deployment: Arc<Deployment>,
    pub log: Arc<Log>,
    pub organs: Arc<Organs>,
}

/// The taken parts.
#[derive(Debug, Default)]
pub struct Organs {
    /// The number of holders that share a part, or [`ALONE`].
    held: Mutex<BTreeMap<String, usize>>,
    beginning: tokio::sync::Mutex<()>,
}

/// Parts that are taken until this is dropped.
pub struct Taken<'a> {
    organs: &'a Organs,
    parts: Vec<Organ>,
}

#[derive(Clone, Debug)]
pub struct Organ {
    name: String,
    /// True if several may hold it: a link is as dead when both its ends are gone as when one is.
    shared: bool,
}

/// The mark of a holder that does not share.
const ALONE: usize = usize::MAX;

impl Organs {
    /// Takes hold of all of these; of none if one of them is taken.
    pub fn take(&self, parts: Vec<Organ>) -> Option<Taken<'_>> {
        let mut held = locked(&self.held);
        let is_free = |part: &Organ| held.get(&part.name).is_none_or(|by| part.shared && *by != ALONE);
        if !parts.iter().all(is_free) {
            return None;
        }
        for part in &parts {
            let by = held.entry(part.name.clone()).or_default();
            *by = if part.shared { *by + 1 } else { ALONE };
        }
        Some(Taken { organs: self, parts })
    }

    /// Waits until nobody attests that a gateway is stopped; nobody does while the guard lives.
    pub async fn may_begin(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.beginning.lock().await
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut held = locked(&self.organs.held);
        for part in &self.parts {
            match held.get_mut(&part.name) {
                Some(by) if part.shared && *by > 1 => *by -= 1,
                Some(_) | None => {
                    held.remove(&part.name);
                }
            }
        }
    }
}

/// A region's gateway process, and its clock.
pub fn process(region: &RegionName) -> Vec<Organ> {
    vec![named("process", region), named("clock", region)]
}

fn named(organ: &str, region: &RegionName) -> Organ {
    alone(format!("{organ} {region}"))
}

fn alone(name: String) -> Organ {
    Organ { name, shared: false }
}

/// The parts that a fault takes hold of, by name.
pub fn of(what: &Happens, how: &How, regions: &[RegionName]) -> Vec<Organ> {
    match what {
        Happens::Region(kind, region) => of_region(*kind, region, regions),
        Happens::Link(kind, from, to) => of_link(*kind, from, to, how),
        Happens::Anywhere(_) => Vec::new(),
    }
}

fn link(one: &RegionName, other: &RegionName) -> String {
    format!("link {} {}", one.min(other), one.max(other))
}

/// The parts of one fault, or those of all regions that are called `every-`.
fn of_region(kind: OfRegion, region: &RegionName, regions: &[RegionName]) -> Vec<Organ> {
    let links = |region: &RegionName| {
        let others = regions.iter().filter(|other| *other != region);
        others.map(|other| Organ { name: link(region, other), shared: true }).collect()
    };
    let of = |part: &str, region: &RegionName| match part {
        "links" => links(region),
        "process" => process(region),
        // One change of the view at a time, as operators work.
        "witnesses" | "operator" => vec![alone(part.to_owned())],
        part => vec![named(part, region)],
    };
    let all = |part: &str| match part.strip_prefix("every-") {
        Some(part) => regions.iter().flat_map(|region| of(part, region)).collect(),
        None => of(part, region),
    };
    kind.parts().split(' ').flat_map(all).collect()
}

fn of_link(kind: OfLink, from: &RegionName, to: &RegionName, how: &How) -> Vec<Organ> {
    match kind.parts() {
        "link" => vec![alone(link(from, to))],
        "letters" => {
            let organ = |letter: &Letter| alone(format!("letters {} {from}>{to}", letter.name()));
            how.letters.iter().map(organ).collect()
        }
        // Slot and pace do not depend on cuts: a region that dies loses the rows that it has not sent.
        part => vec![alone(format!("{part} {from}>{to}"))],
    }
}
