//! Attached duplicates: requests that wait for a running attempt's outcome.
//!
//! An attempt that ends in this process wakes them at once; one poller finds the others, and closes
//! the gap between reading a record and joining. The lock is held over nothing slow.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::ports::lock::Lock;
use crate::protocol::key::KeyId;
use crate::protocol::record::Row;

/// The waiting requests of one attempt. They are woken in the order of their arrival. A `watch`
/// would wake them at random, and a seed of the simulation would not replay.
#[derive(Default)]
struct Place {
    rows: OnceLock<Vec<Row>>,
    ended: Notify,
}

#[derive(Default)]
pub struct Attached {
    waiting: Lock<BTreeMap<KeyId, Arc<Place>>>,
    joined: Notify,
}

impl Attached {
    pub fn join(self: &Arc<Self>, id: &KeyId) -> Waiter {
        let place = self.waiting.lock().entry(id.clone()).or_default().clone();
        self.joined.notify_one();
        Waiter { attached: self.clone(), id: id.clone(), place: Some(place) }
    }

    pub fn wake(&self, id: &KeyId, rows: Vec<Row>) {
        let place = self.waiting.lock().remove(id);
        if let Some(place) = place {
            // Set once: later requests wait at another place.
            place.rows.get_or_init(|| rows);
            place.ended.notify_waiters();
        }
    }

    pub fn keys(&self) -> Vec<KeyId> {
        self.waiting.lock().keys().cloned().collect()
    }

    /// Completes when a request joined since the last call.
    pub async fn somebody_joined(&self) {
        self.joined.notified().await;
    }
}

pub struct Waiter {
    attached: Arc<Attached>,
    id: KeyId,
    /// Empty once the request has left.
    place: Option<Arc<Place>>,
}

impl Waiter {
    pub async fn ended(&mut self) -> Vec<Row> {
        let Some(place) = &self.place else { return std::future::pending().await };
        loop {
            let mut ended = pin!(place.ended.notified());
            ended.as_mut().enable();
            if let Some(rows) = place.rows.get() {
                return rows.clone();
            }
            ended.await;
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.attached.waiting.lock();
        let Some(left) = self.place.take() else { return };
        // Requests come and leave under the lock: alone, the map's copy and this one are all.
        let alone = |place: &Arc<Place>| Arc::ptr_eq(place, &left) && Arc::strong_count(place) == 2;
        if waiting.get(&self.id).is_some_and(alone) {
            waiting.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::key::{Key, Tenant};

    fn id(key: &str) -> KeyId {
        KeyId::new(Tenant::parse("acme").unwrap(), Key::parse(key).unwrap())
    }

    #[tokio::test]
    async fn every_waiter_wakes_and_nothing_stays_behind() {
        let attached = Arc::new(Attached::default());
        let (mut one, mut two, other) =
            (attached.join(&id("k")), attached.join(&id("k")), attached.join(&id("l")));
        attached.wake(&id("k"), Vec::new());
        assert!(one.ended().await.is_empty());
        assert!(two.ended().await.is_empty());
        assert_eq!(attached.keys(), [id("l")]);
        drop(other);
        assert_eq!(attached.keys(), []);
    }

    #[test]
    fn the_last_waiter_clears_only_its_own_wait() {
        let attached = Arc::new(Attached::default());
        let one = attached.join(&id("k"));
        attached.wake(&id("k"), Vec::new());
        let two = attached.join(&id("k"));
        drop(one);
        assert_eq!(attached.keys(), [id("k")], "the older waiter must not end the newer wait");
        drop(two);
        assert_eq!(attached.keys(), []);
    }
}
