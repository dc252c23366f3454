//! Attached duplicates: requests that wait for a running attempt's outcome instead of being told to come back.
//!
//! Neighbours: [`super::request`] joins and wakes. An attempt that ends in this process wakes its duplicates at once; those that end
//! in another gateway of the region are found by one poller, which also closes the gap between reading a record and joining.
//! It must not hold its lock over anything slow.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::protocol::key::KeyId;
use crate::protocol::record::Row;

type Outcome = Option<Arc<Vec<Row>>>;

/// All keys that requests of this process wait for.
#[derive(Default)]
pub struct Attached {
    waiting: Mutex<BTreeMap<KeyId, watch::Sender<Outcome>>>,
    joined: Notify,
}

impl Attached {
    /// Joins those that wait for the key.
    pub fn join(self: &Arc<Self>, id: &KeyId) -> Waiter {
        let receiver = match self.lock().entry(id.clone()) {
            Entry::Occupied(entry) => entry.get().subscribe(),
            Entry::Vacant(entry) => entry.insert(watch::channel(None).0).subscribe(),
        };
        self.joined.notify_one();
        Waiter { attached: self.clone(), id: id.clone(), receiver: Some(receiver) }
    }

    /// Tells all that wait for the key what its rows say now.
    pub fn wake(&self, id: &KeyId, rows: Vec<Row>) {
        if let Some(sender) = self.lock().remove(id) {
            sender.send_replace(Some(Arc::new(rows)));
        }
    }

    /// The keys that are waited for.
    pub fn keys(&self) -> Vec<KeyId> {
        self.lock().keys().cloned().collect()
    }

    /// Completes when somebody joined since the last call.
    pub async fn somebody_joined(&self) {
        self.joined.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<KeyId, watch::Sender<Outcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request's place among those that wait.
pub struct Waiter {
    attached: Arc<Attached>,
    id: KeyId,
    receiver: Option<watch::Receiver<Outcome>>,
}

impl Waiter {
    /// Completes with the key's rows once its attempt has ended.
    pub async fn ended(&mut self) -> Vec<Row> {
        let Some(receiver) = &mut self.receiver else { return std::future::pending().await };
        loop {
            let rows = receiver.borrow_and_update().clone();
            if let Some(rows) = rows {
                return rows.to_vec();
            }
            if receiver.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.attached.lock();
        self.receiver = None;
        if waiting.get(&self.id).is_some_and(|sender| sender.receiver_count() == 0) {
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
    async fn all_who_wait_are_woken_and_nothing_is_left_behind() {
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
    fn who_leaves_last_clears_the_key_and_no_newer_wait() {
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
