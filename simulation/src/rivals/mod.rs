//! What else could be built: the two designs that are built first, behind the same clients, networks, upstreams and faults as onceway.
//!
//! Neighbours: [`crate::deployment`] runs their processes in the place of gateways, `compare` sets them beside onceway. [`table`] is a region's
//! store of theirs, [`gateway`] their request path. They do all that a careful engineer does within one region: the claim is durable before
//! anything is sent, a key has one attempt at a time, answers are replayed, what may have happened goes by the route's `recovery`. They must
//! not be made worse than that, and must not be used by the product.

pub mod gateway;
pub mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceway::protocol::region::RegionName;

use crate::cluster::Cluster;
use table::Table;

/// Who protects the upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Design {
    /// The real gateways.
    #[default]
    Onceway,
    /// Each region runs what arrives there, unless its own store shows the key; stores are replicated without waiting.
    Local,
    /// Each key goes to its home region, at once to the next on the ring while that cannot be reached; stores are replicated without waiting.
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

    /// Lets everything arrive at a region's store that has by now, and puts an empty one in its place if its cluster is a new one.
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

    /// Does something on a region's store as it is.
    fn with<T>(&self, region: &RegionName, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut tables = self.tables();
        let Some(table) = tables.get_mut(region) else { panic!("no store of {region}: it is in no ring") };
        act(table)
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<RegionName, Table>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
