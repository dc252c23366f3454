//! The state of replication here: up to which heartbeat the rows of each region are. The only
//! reader of heartbeats and of imports.
//!
//! A heartbeat counts only once every row that its region committed before it is here. Postgres
//! copies tables one by one, so the one row of the heartbeat is there minutes before the records
//! (docs/protocol.md#rule-29). What does not count is no proof of absence, no frontier, no coverage
//! and no lag; it shows only that its region has written it. Neighbours: `ports::store` says of
//! each heartbeat whether it is whole; [`super::heartbeat`] and [`super::authority`] ask here. It
//! must not judge what follows.

use std::collections::BTreeMap;

use super::Gateway;
use crate::ports::store::StoreError;
use crate::ports::{Ports, Replica};
use crate::protocol::plant::{Plant, removed};
use crate::protocol::region::Origin;

/// The rows that are here of each origin, this region's own included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// All rows from before this heartbeat are here, by replication or import.
    pub(super) rows: BTreeMap<Origin, u64>,
    /// The epoch in the newest heartbeat of which that is true. Imported rows come without one.
    pub(super) epochs: BTreeMap<Origin, u64>,
    /// The newest heartbeat that stands here, whether or not it counts: its region has written it.
    pub(super) written: BTreeMap<Origin, u64>,
}

impl Applied {
    /// Up to which heartbeat the rows of an origin are here; 0 if none counts.
    pub(super) fn rows(&self, origin: &Origin) -> u64 {
        self.rows.get(origin).copied().unwrap_or(0)
    }

    /// The newest heartbeat of an origin that stands here; 0 if there is none.
    pub(super) fn written(&self, origin: &Origin) -> u64 {
        self.written.get(origin).copied().unwrap_or(0)
    }
}

/// Reads what is here now.
pub(super) async fn applied<P: Ports>(gateway: &Gateway<P>) -> Result<Applied, StoreError> {
    let store = gateway.ports.store();
    let mut found = Applied::default();
    // In this order: a copy that begins between the two calls turns what stood here into imported
    // rows, which count on.
    for beat in store.heartbeats().await? {
        found.written.insert(beat.origin.clone(), beat.seq);
        if beat.whole || removed(Plant::WholeEpoch) {
            found.epochs.insert(beat.origin.clone(), beat.epoch);
        }
        if beat.whole || removed(Plant::WholeRows) {
            found.rows.insert(beat.origin, beat.seq);
        }
    }
    for memory in store.recall().await?.into_iter().filter(|memory| memory.imported > 0) {
        let here = found.rows.entry(memory.origin).or_default();
        *here = memory.imported.max(*here);
    }
    Ok(found)
}
