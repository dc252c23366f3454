//! The two rival designs that are built first, behind the same clients, networks, upstreams and
//! faults as onceway.
//!
//! [`crate::deployment`] runs their processes in the place of gateways. [`table`] is their store in
//! a region, [`gateway`] their request path. They do all that a careful engineer does within one
//! region. The claim is durable before anything is sent, and a key has one attempt at a time.
//! Answers are replayed, and doubts go by the route's `recovery`. They must not be made worse than
//! that, and must not be used by the product.

pub mod gateway;
pub mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceway::protocol::region::RegionName;

use crate::cluster::Cluster;
use table::Table;

/// A design that protects the upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Design {
    /// The real gateways.
    #[default]
    Onceway,
    /// Each region runs the keys that arrive there, unless its own store shows them. Stores are
    /// replicated without waiting.
    Local,
    /// Each key goes to its home region, or at once to the next on the ring while that cannot be
    /// reached. Stores are replicated without waiting.
    Sticky,
}

/// The stores of all regions.
pub(crate) struct Rivals {
    cluster: Cluster,
    tables: Mutex<BTreeMap<RegionName, Table>>,
}

impl Rivals {
    /// Empty stores in the clusters of these regions.
    pub(crate) fn new(cluster: Cluster, regions: &[RegionName]) -> Arc<Self> {
        let table = |region: &RegionName| (region.clone(), Table::new(cluster.origin(region).generation));
        let tables = Mutex::new(regions.iter().map(table).collect());
        Arc::new(Self { cluster, tables })
    }

    /// Applies all rows that have arrived at a region's store by now. Replaces the store by an
    /// empty one if its cluster is a new one.
    fn arrive(&self, region: &RegionName) {
        let mut tables = self.tables();
        let generation = self.cluster.origin(region).generation;
        let own = tables.remove(region).filter(|table| table.generation() == generation);
        let mut own = own.unwrap_or_else(|| Table::new(generation));
        for (from, other) in tables.iter() {
            own.take_over(from, other, self.cluster.reached(from, region));
        }
        tables.insert(region.clone(), own);
    }

    /// Acts on a region's store in its current state.
    fn with<T>(&self, region: &RegionName, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut tables = self.tables();
        let Some(table) = tables.get_mut(region) else { panic!("no store of {region}: it is in no ring") };
        act(table)
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<RegionName, Table>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::play::play_design;
    use crate::scenario::{Scenario, find, load};

    fn played(design: Design, change: impl FnOnce(&mut Scenario)) -> Outcome {
        let mut scenario = load(&find::find("region-loss").unwrap(), &[]).unwrap();
        scenario.length = std::time::Duration::from_secs(30);
        change(&mut scenario);
        play_design(&Arc::new(scenario), 7, design, false).outcome
    }

    fn calm(scenario: &mut Scenario) {
        (scenario.faults, scenario.swarm) = (Vec::new(), None);
    }

    #[test]
    fn with_nothing_broken_a_sticky_hash_runs_every_key_once_and_answers_it() {
        let outcome = played(Design::Sticky, calm);
        let keys = &outcome.keys;
        assert!(keys.begun > 100 && keys.answered == keys.begun, "{keys:?}");
        assert_eq!((keys.doubles, keys.given_up, keys.in_doubt), (0, 0, 0));
        assert!(outcome.requests.replayed > 0 && outcome.hops > 50, "{:?}", outcome.requests);
        assert_eq!(outcome, played(Design::Sticky, calm));
    }

    #[test]
    fn a_store_per_region_runs_a_key_once_in_each_region_that_does_not_know_it_yet() {
        let alone = |scenario: &mut Scenario| {
            calm(scenario);
            for workload in &mut scenario.workloads {
                (workload.again, workload.at_two) = (0, 0);
            }
        };
        assert_eq!(played(Design::Local, alone).keys.doubles, 0);
        let at_two = |scenario: &mut Scenario| {
            alone(scenario);
            scenario.workloads.iter_mut().for_each(|workload| workload.at_two = 100);
        };
        let outcome = played(Design::Local, at_two);
        assert!(outcome.keys.doubles * 3 > outcome.keys.begun, "{:?}", outcome.keys);
        assert_eq!(outcome.hops, 0);
    }

    #[test]
    fn what_may_have_happened_goes_by_the_routes_rule_in_a_rival_too() {
        use crate::scenario::fault::{Fault, Happens, How, Kind};
        let drops = |scenario: &mut Scenario| {
            calm(scenario);
            let kind = Kind::all().into_iter().find(|kind| kind.name() == "upstream-effect-then-drop");
            let Some(Kind::Region(kind)) = kind else { panic!("there is such a fault") };
            let span = std::time::Duration::from_secs(8);
            let regions = scenario.shared.ring.regions().iter().map(|region| region.name.clone());
            let fault = |region| Fault {
                what: Happens::Region(kind, region),
                how: How::default(),
                at: span,
                lasts: span,
            };
            scenario.faults = regions.map(fault).collect();
        };
        let outcome = played(Design::Sticky, drops);
        let [charges, payouts] = ["charges", "payouts"].map(|route| &outcome.routes[route]);
        assert_eq!(
            (charges.doubles, payouts.doubles),
            (0, 0),
            "no attempt that may have happened is made again"
        );
        assert_eq!(charges.in_doubt, 0, "the upstream was asked");
        assert!(payouts.in_doubt > 0, "left to an operator");
    }
}
