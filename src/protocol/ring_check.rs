//! Problems of a ring's spec: one pass finds all of them, so that a file is mended in one go.
//!
//! This file must not mend or guess anything.

use std::collections::{BTreeMap, BTreeSet};

use super::placement_score::Score;
use super::region::RegionName;
use super::ring::{MAX_REGIONS, RingSpec};

/// All problems, one line each; empty if the spec is sound.
pub fn problems(spec: &RingSpec) -> Vec<String> {
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
