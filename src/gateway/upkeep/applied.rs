//! The heartbeat up to which each region's rows are applied: the only reader of heartbeats and
//! imports.
//!
//! A heartbeat counts only once every row that its region committed before is here. Its own may
//! come minutes earlier, as Postgres copies tables one by one (docs/protocol.md#rule-29).

use crate::ports::Replica;
use crate::ports::store::StoreError;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::snapshot::Applied;

pub async fn applied(store: &impl Replica) -> Result<Applied, StoreError> {
    let mut found = Applied::default();
    // In this order: a copy that begins between the two calls turns earlier rows into imported
    // ones, which still count.
    for beat in store.heartbeats().await? {
        found.written.insert(beat.origin.clone(), beat.seq);
        if beat.whole || is_disabled(Check::WholeEpoch) {
            found.epochs.insert(beat.origin.clone(), beat.epoch);
        }
        if beat.whole {
            found.dates.insert(beat.origin.clone(), beat.date);
        }
        if beat.whole || is_disabled(Check::WholeRows) {
            found.rows.insert(beat.origin, beat.seq);
        }
    }
    for memory in store.recall().await?.into_iter().filter(|memory| memory.imported > 0) {
        let here = found.rows.entry(memory.origin).or_default();
        *here = memory.imported.max(*here);
    }
    Ok(found)
}
