//! The state of replication here: the heartbeat up to which the rows of each region are applied.
//! The only reader of heartbeats and of imports.
//!
//! A heartbeat counts only once every row that its region committed before it is here. Its row can
//! arrive minutes before the records, as Postgres copies tables one by one
//! (docs/protocol.md#rule-29). Before it counts, it proves no absence, frontier, coverage or lag:
//! only that its region has written it. Must not judge the consequences.

use std::collections::BTreeMap;

use crate::ports::Replica;
use crate::ports::store::StoreError;
use crate::protocol::plant::{Plant, removed};
use crate::protocol::region::Origin;
use crate::protocol::time::Date;

/// The rows that are here of each origin, this region's own included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct Applied {
    /// All rows from before this heartbeat are here, by replication or import.
    pub(in crate::gateway) rows: BTreeMap<Origin, u64>,
    /// The epoch in the newest heartbeat that counts. Imported rows come without one.
    pub(in crate::gateway) epochs: BTreeMap<Origin, u64>,
    /// The newest heartbeat that is here, even if it does not count: its region has written it.
    pub(in crate::gateway) written: BTreeMap<Origin, u64>,
    /// The date of the newest heartbeat that counts, by its writer's clock.
    pub(in crate::gateway) dates: BTreeMap<Origin, Date>,
}

impl Applied {
    /// The heartbeat up to which an origin's rows are here; 0 if none counts.
    pub(in crate::gateway) fn rows(&self, origin: &Origin) -> u64 {
        self.rows.get(origin).copied().unwrap_or(0)
    }

    /// The newest heartbeat of an origin that is here; 0 if there is none.
    pub(in crate::gateway) fn written(&self, origin: &Origin) -> u64 {
        self.written.get(origin).copied().unwrap_or(0)
    }
}

pub(in crate::gateway) async fn applied(store: &impl Replica) -> Result<Applied, StoreError> {
    let mut found = Applied::default();
    // In this order: a copy that begins between the two calls turns earlier rows into imported
    // ones, which still count.
    for beat in store.heartbeats().await? {
        found.written.insert(beat.origin.clone(), beat.seq);
        if beat.whole || removed(Plant::WholeEpoch) {
            found.epochs.insert(beat.origin.clone(), beat.epoch);
        }
        if beat.whole {
            found.dates.insert(beat.origin.clone(), beat.date);
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
