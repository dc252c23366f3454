//! The spec of a ring, and its problems: one pass finds all of them.
//!
//! `ring` builds a ring from its spec.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::key::Tenant;
use super::placement_score::Score;
use super::region::RegionName;

/// The most regions a ring takes; with more, 65,536 arcs would no longer balance well.
pub const MAX_REGIONS: usize = 64;

/// The part of a key that places it. Fixed at bootstrap: else keys would move without arcs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceBy {
    /// All keys of a tenant in one arc: a customer's writes stay together.
    Tenant,
    /// Each key by itself: the finest spread.
    Key,
}

/// A region and its part of the ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionSpec {
    /// The region.
    pub name: RegionName,
    /// Its part, relative to the others', at most 10,000. 0: an edge, which owns nothing.
    pub weight: u32,
}

/// A tenant whose keys may be run in these regions only, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The tenant.
    pub tenant: Tenant,
    /// Home first; at least one, each with a weight above 0.
    pub regions: Vec<RegionName>,
}

/// Everything that decides the placement of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingSpec {
    /// The hash seed. Fixed at bootstrap, and secret: who reads it can choose keys of one arc.
    pub seed: u64,
    /// The part of a key that places it.
    pub place_by: PlaceBy,
    /// The regions, in any order.
    pub regions: Vec<RegionSpec>,
    /// The pins, in any order.
    pub pins: Vec<Pin>,
}

/// All problems, one line each; empty if the spec is sound.
pub(super) fn problems(spec: &RingSpec) -> Vec<String> {
    let mut problems = Vec::new();
    let mut weights: BTreeMap<&RegionName, u32> = BTreeMap::new();
    for region in &spec.regions {
        let (name, weight) = (&region.name, region.weight);
        if weights.insert(name, weight).is_some() {
            problems.push(format!("region {name} is listed twice: list each region once"));
        }
        if weight > Score::MAX_WEIGHT {
            problems.push(format!("region {name} has weight {weight}: use 0 to {}", Score::MAX_WEIGHT));
        }
    }
    if spec.regions.len() > MAX_REGIONS {
        problems.push(format!("{} regions are listed: use at most {MAX_REGIONS}", spec.regions.len()));
    }
    if weights.values().all(|weight| *weight == 0) {
        problems.push(
            "no region has a weight above 0: give at least one region a weight of 1 or more".to_owned(),
        );
    }
    let mut tenants = BTreeSet::new();
    for pin in &spec.pins {
        let tenant = &pin.tenant;
        if !tenants.insert(tenant) {
            problems.push(format!("tenant {tenant} is pinned twice: merge the two pins"));
        }
        if pin.regions.is_empty() {
            problems
                .push(format!("the pin of tenant {tenant} names no region: name at least one, home first"));
        }
        let mut seen = BTreeSet::new();
        for name in &pin.regions {
            if !seen.insert(name) {
                problems.push(format!("the pin of tenant {tenant} names region {name} twice: name it once"));
            }
            let pin = format!("the pin of tenant {tenant} names region {name}");
            match weights.get(name) {
                None => problems.push(format!("{pin}, which the ring does not have: add or drop it")),
                Some(0) => {
                    problems.push(format!("{pin}, whose weight is 0: raise it or name another region"))
                }
                Some(1..) => {}
            }
        }
    }
    problems
}
