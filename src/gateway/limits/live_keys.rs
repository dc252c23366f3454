//! The quota on live keys: a limit on one tenant's keys in the region's store.
//!
//! Each gateway counts there, adds the keys that it started since, and counts sooner if less is
//! left: the limit is approximate. Must not refuse a key that is stored, nor hold a request up for
//! a count.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::quota::MOST_TENANTS;
use crate::gateway::telemetry::metrics;
use crate::ports::lock::Lock;
use crate::ports::upkeep::KeyStretch;
use crate::protocol::key::{Key, Tenant};
use crate::protocol::time::Moment;

/// Keys in one look, as the reaper takes them: some milliseconds of work.
pub(super) const STRETCH: u32 = 500;
/// Time for which a count is trusted, even if keys were started since.
const FRESH: Duration = Duration::from_secs(1);
/// Time until a full tenant is counted again, and should ask again: keys go one by one.
const FULL: Duration = Duration::from_secs(30);
/// Part of a tenant's remaining keys: once so many were started here, it is counted again.
const PART: u64 = 16;

pub struct LiveKeys {
    most: u64,
    inner: Lock<Inner>,
}

#[derive(Default)]
struct Inner {
    tenants: BTreeMap<Tenant, Known>,
    /// Tenants to count, in turn: one look each. Each of them is in `tenants`.
    turns: VecDeque<Tenant>,
    /// True while a loop takes the turns.
    counting: bool,
    /// Moment when a full table was last searched for tenants that can go.
    swept: Option<Moment>,
}

#[derive(Default)]
struct Known {
    /// The store's last count, and its moment.
    counted: Option<(u64, Moment)>,
    /// Keys started here since then.
    started: u64,
    /// The count that runs, or waits for its first turn.
    count: Option<KeyStretch>,
}

impl Known {
    fn is_full(&self, most: u64) -> bool {
        self.counted.is_some_and(|(keys, _)| keys.saturating_add(self.started) >= most)
    }

    fn is_due(&self, most: u64, now: Moment) -> bool {
        let Some((keys, at)) = self.counted else { return true };
        let left = most.saturating_sub(keys);
        now >= at + if left == 0 { FULL } else { FRESH } && self.started >= left.div_ceil(PART)
    }
}

impl LiveKeys {
    pub fn new(most: NonZeroU32) -> Self {
        Self { most: most.get().into(), inner: Lock::default() }
    }

    /// If the tenant has all the keys that it may have: the time until it should ask again. Queues
    /// it if it is time to count, and gives the right to take the turns if no loop does.
    pub(super) fn look(
        self: &Arc<Self>,
        tenant: &Tenant,
        now: Moment,
    ) -> (Option<Duration>, Option<Counter>) {
        let mut inner = self.inner.lock();
        let Inner { tenants, turns, counting, swept } = &mut *inner;
        if tenants.len() >= MOST_TENANTS && !tenants.contains_key(tenant) {
            if swept.is_none_or(|swept| now >= swept + FRESH) {
                tenants.retain(|_, known| known.is_full(self.most) || known.count.is_some());
                *swept = Some(now);
            }
            if tenants.len() >= MOST_TENANTS {
                return (None, None);
            }
        }
        let known = tenants.entry(tenant.clone()).or_default();
        if known.count.is_none() && known.is_due(self.most, now) {
            known.count = Some(KeyStretch::default());
            turns.push_back(tenant.clone());
        }
        // While a count runs, the old number is not trusted for long.
        let again = if known.count.is_some() { FRESH } else { FULL };
        let begin = !*counting && !turns.is_empty();
        *counting |= begin;
        (known.is_full(self.most).then_some(again), begin.then(|| Counter(self.clone())))
    }

    pub(super) fn started(&self, tenant: &Tenant) {
        if let Some(known) = self.inner.lock().tenants.get_mut(tenant) {
            known.started += 1;
        }
    }

    /// The next tenant in turn, and the key after which to go on.
    pub(super) fn next(&self) -> Option<(Tenant, Option<Key>)> {
        let mut inner = self.inner.lock();
        let tenant = inner.turns.pop_front()?;
        let count = inner.tenants.get(&tenant)?.count.as_ref()?;
        let through = count.through.clone();
        Some((tenant, through))
    }

    /// Takes in the result of a turn. `None`, of a silent store: the stretch is looked at again.
    pub(super) fn add_stretch(&self, tenant: Tenant, stretch: Option<KeyStretch>, now: Moment) {
        let mut inner = self.inner.lock();
        let Some(known) = inner.tenants.get_mut(&tenant) else { return };
        let Some(count) = known.count.as_mut() else { return };
        if let Some(stretch) = stretch {
            count.keys += stretch.keys;
            count.through = stretch.through;
            if count.through.is_none() || count.keys >= self.most {
                metrics::live_keys(&tenant, count.keys);
                // Keys that were started meanwhile may be among them. They are not added: a tenant
                // with keys left is never refused.
                *known = Known { counted: Some((count.keys, now)), started: 0, count: None };
                return;
            }
        }
        inner.turns.push_back(tenant);
    }
}

/// The loop that takes the turns. When it is dropped, no loop does.
pub(super) struct Counter(pub(super) Arc<LiveKeys>);

impl Drop for Counter {
    fn drop(&mut self) {
        self.0.inner.lock().counting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    fn keys(most: u32) -> Arc<LiveKeys> {
        Arc::new(LiveKeys::new(NonZeroU32::new(most).unwrap()))
    }

    /// The time until a tenant without keys left should ask again.
    fn full(keys: &Arc<LiveKeys>, tenant: &Tenant, now: Moment) -> Option<Duration> {
        keys.look(tenant, now).0
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn stretch_of(keys: u64, through: Option<&str>) -> Option<KeyStretch> {
        Some(KeyStretch { keys, through: through.map(|key| Key::parse(key).unwrap()) })
    }

    /// Takes the next turn, which must be this tenant's, with this result.
    fn turn(keys: &LiveKeys, who: &str, stretch: Option<KeyStretch>, now: Moment) -> Option<Key> {
        let (tenant, after) = keys.next().unwrap();
        assert_eq!(tenant.as_str(), who);
        keys.add_stretch(tenant, stretch, now);
        after
    }

    #[test]
    fn a_count_is_repeated_sooner_near_its_limit() {
        let (keys, a) = (keys(132), tenant("a"));
        let (first, again) = (keys.look(&a, at(0)), keys.look(&a, at(0)));
        assert!(matches!((first, again), ((None, Some(_)), (None, None))), "one counter, one turn");
        turn(&keys, "a", stretch_of(100, None), at(0));
        keys.started(&a);
        assert_eq!(full(&keys, &a, at(9)), None);
        assert!(keys.next().is_none(), "one of 32 that were left was started");
        keys.started(&a);
        assert_eq!(full(&keys, &a, at(0)), None);
        assert!(keys.next().is_none(), "the count is fresh");
        keys.look(&a, at(1));
        turn(&keys, "a", stretch_of(120, None), at(1));
        for _ in 0..12 {
            keys.started(&a);
        }
        assert_eq!(full(&keys, &a, at(1)), Some(FULL), "all that was left");
        assert_eq!(full(&keys, &a, at(2)), Some(FRESH), "which is looked at");
        turn(&keys, "a", stretch_of(132, None), at(3));
        assert_eq!(full(&keys, &a, at(32)), Some(FULL));
        assert!(keys.next().is_none(), "it is not forgotten so soon");
        assert_eq!(full(&keys, &a, at(33)), Some(FRESH));
        turn(&keys, "a", stretch_of(131, None), at(34));
        assert_eq!(full(&keys, &a, at(34)), None, "some were forgotten");
    }

    #[test]
    fn interrupted_counts_take_turns_and_resume() {
        let (keys, most) = (keys(1_200), STRETCH.into());
        for name in ["a", "b"] {
            keys.look(&tenant(name), at(0));
        }
        assert_eq!(turn(&keys, "a", stretch_of(most, Some("k5")), at(0)), None);
        turn(&keys, "b", stretch_of(3, None), at(0));
        assert_eq!(turn(&keys, "a", None, at(0)).unwrap().as_bytes(), b"k5");
        assert_eq!(
            turn(&keys, "a", stretch_of(most, Some("k8")), at(0)).unwrap().as_bytes(),
            b"k5",
            "once more"
        );
        keys.started(&tenant("a"));
        assert_eq!(full(&keys, &tenant("a"), at(0)), None);
        assert_eq!(turn(&keys, "a", stretch_of(most, Some("k9")), at(0)).unwrap().as_bytes(), b"k8");
        assert!(keys.next().is_none(), "further keys make no difference");
        assert_eq!(full(&keys, &tenant("a"), at(0)), Some(FULL));
        assert_eq!(full(&keys, &tenant("b"), at(0)), None);
    }

    #[test]
    fn another_counter_follows_one_that_stops() {
        let keys = keys(9);
        let (_, counter) = keys.look(&tenant("a"), at(0));
        assert!(counter.is_some() && keys.look(&tenant("b"), at(0)).1.is_none());
        drop(counter);
        assert!(keys.look(&tenant("b"), at(0)).1.is_some());
    }

    #[test]
    fn a_full_tenant_table_forgets_tenants_with_keys_left() {
        let keys = keys(1);
        for (number, count) in [(0, 1), (1, 0)] {
            let name = format!("t{number}");
            keys.look(&tenant(&name), at(0));
            turn(&keys, &name, stretch_of(count, None), at(0));
        }
        for number in 2..MOST_TENANTS {
            keys.look(&tenant(&format!("t{number}")), at(0));
        }
        assert_eq!(keys.inner.lock().tenants.len(), MOST_TENANTS);
        keys.look(&tenant("more"), at(0));
        assert!(keys.inner.lock().tenants.contains_key(&tenant("more")), "in the place of who has some left");
        assert!(!keys.inner.lock().tenants.contains_key(&tenant("t1")));
        assert!(full(&keys, &tenant("t0"), at(0)).is_some());
        assert_eq!(full(&keys, &tenant("still-more"), at(0)), None, "all the others are being counted");
        assert_eq!(keys.inner.lock().tenants.len(), MOST_TENANTS);
    }
}
