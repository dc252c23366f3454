//! The regions that could start keys at this moment, even if no key comes. No two may start the
//! same key, and each needs grants of a majority.
//!
//! Effects show faults of leases late or never, because a window stands behind them.

use std::collections::BTreeSet;

use onceway::protocol::key::{Key, KeyId};
use onceway::protocol::region::RegionName;

use crate::checker::{Checker, Invariant};
use crate::deployment::Deployment;
use crate::scenario::workload::tenant;
use crate::words;

/// The number of keys that are looked at, so that each region is home to some.
const KEYS: u32 = 24;

/// The findings so far.
pub struct Starters {
    ids: Vec<KeyId>,
    /// Findings that are already reported. Each is reported once, however long it lasts.
    answer: BTreeSet<(Invariant, BTreeSet<RegionName>)>,
}

impl Default for Starters {
    fn default() -> Self {
        let id = |number: u32| Some(KeyId::new(tenant(0), Key::parse(&format!("starter-{number}")).ok()?));
        Self { ids: (0..KEYS).filter_map(id).collect(), answer: BTreeSet::new() }
    }
}

impl Starters {
    /// The faults of this moment that were not reported before.
    pub fn look(&mut self, deployment: &Deployment, checker: &Checker) -> Vec<(Invariant, String)> {
        let now = deployment.world.elapsed();
        let mut wrong = Vec::new();
        let mut holders: Vec<(&RegionName, u64)> = Vec::new();
        for region in deployment.regions() {
            let node = deployment.node(region);
            let Some(epoch) = node.gateway.held_under().filter(|_| !node.process.is_dead()) else { continue };
            if !checker.is_granted(region, now) {
                let text = format!("{region} holds a lease while grants of no majority run for it");
                wrong.push((Invariant::GrantedWhenSent, [region.clone()].into(), text));
            }
            holders.push((region, epoch));
        }
        // Under one view each key has one owner.
        if holders.iter().any(|(_, epoch)| *epoch != holders[0].1) {
            let starts = |region: &RegionName, id: &KeyId| {
                let gateway = &deployment.node(region).gateway;
                // Under another gate than its store's current one no claim passes any more.
                gateway.may_start(id) && gateway.gate() == deployment.world.cluster.gate(region)
            };
            for id in &self.ids {
                let all: BTreeSet<RegionName> =
                    holders.iter().map(|(region, _)| (*region).clone()).filter(|at| starts(at, id)).collect();
                if all.len() > 1 {
                    let text =
                        format!("{} may all start {} now", words::joined(&all, " and "), words::key(id));
                    wrong.push((Invariant::OneSender, all, text));
                }
            }
        }
        wrong.retain(|(invariant, regions, _)| self.answer.insert((*invariant, regions.clone())));
        wrong.into_iter().map(|(invariant, _, text)| (invariant, text)).collect()
    }
}
