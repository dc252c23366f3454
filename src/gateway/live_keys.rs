//! The quota on live keys: how many keys of one tenant the region's store may remember, so that one that makes keys without end does not fill it.
//!
//! Neighbours: [`super::quota`] has the quotas on rates, [`super::request`] asks here before a claim of a key that is new, `ports::upkeep` counts. The
//! region's gateways share a store, so each counts there, adds what it started itself since, and counts anew the sooner the less is left; what
//! the others started since is not known to it. It must not refuse a key that stands in the store, nor hold a request up for a count.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ending::jittered;
use super::problems::Problem;
use super::quota::MOST_TENANTS;
use super::{Gateway, metrics};
use crate::ports::{Clock, Ports, Upkeep};
use crate::protocol::key::Tenant;
use crate::protocol::time::Moment;

/// A tenant is not counted twice within this.
const AT_LEAST: Duration = Duration::from_secs(1);
/// Keys in one look.
const STRETCH: u32 = 5_000;
/// Between two looks, and between two counts of one tenant, this many times what they took passes.
const PAUSE: u32 = 4;
/// A tenant is counted anew once this part of what was left to it was started here.
const PART: u64 = 16;

/// When to ask again, at the least: keys are forgotten one by one.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// How many keys each tenant has, as far as it is known here.
pub(super) struct LiveKeys {
    most: u64,
    tenants: Mutex<BTreeMap<Tenant, Known>>,
    /// One tenant is being counted: the others wait for their turn.
    counting: AtomicBool,
}

/// What is known of one tenant.
#[derive(Clone, Copy, Default)]
struct Known {
    /// What the store said last; `None` before it was asked.
    counted: Option<u64>,
    /// Started here since that count.
    started: u64,
    /// Before this it is not counted again.
    rests_until: Option<Moment>,
}

impl Known {
    fn is_full(&self, most: u64) -> bool {
        self.counted.is_some_and(|counted| counted.saturating_add(self.started) >= most)
    }

    fn is_due(&self, most: u64, now: Moment) -> bool {
        let rested = self.rests_until.is_none_or(|until| until <= now);
        rested
            && self.counted.is_none_or(|counted| self.started >= most.saturating_sub(counted).div_ceil(PART))
    }
}

impl LiveKeys {
    pub(super) fn new(most: NonZeroU32) -> Self {
        Self { most: most.get().into(), tenants: Mutex::default(), counting: AtomicBool::new(false) }
    }

    /// A key was started here.
    fn started(&self, tenant: &Tenant) {
        if let Some(known) = self.lock().get_mut(tenant) {
            known.started += 1;
        }
    }

    /// Whether the tenant has as many as it may, and whether it is time to count.
    fn look(&self, tenant: &Tenant, now: Moment) -> (bool, bool) {
        let mut tenants = self.lock();
        if tenants.len() >= MOST_TENANTS && !tenants.contains_key(tenant) {
            tenants.retain(|_, known| known.is_full(self.most));
            // None but full ones: each is counted again when it asks.
            if tenants.len() >= MOST_TENANTS {
                tenants.clear();
            }
        }
        let known = tenants.entry(tenant.clone()).or_default();
        (known.is_full(self.most), known.is_due(self.most, now))
    }

    /// Begins a count, unless one is running.
    fn begin(self: &Arc<Self>, tenant: &Tenant) -> Option<Count> {
        if self.counting.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Count { keys: self.clone(), tenant: tenant.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Tenant, Known>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A count that runs. Dropped, it runs no more.
struct Count {
    keys: Arc<LiveKeys>,
    tenant: Tenant,
}

impl Count {
    /// Takes what the store said, if it said something; and when it may be asked again.
    fn end(self, counted: Option<u64>, rests_until: Moment) {
        if let Some(known) = self.keys.lock().get_mut(&self.tenant) {
            known.rests_until = Some(rests_until);
            if counted.is_some() {
                // What was started meanwhile may be among them. It is not added: nobody is refused who has some left.
                (known.counted, known.started) = (counted, 0);
            }
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.keys.counting.store(false, Ordering::Release);
    }
}

impl<P: Ports> Gateway<P> {
    /// Whether the tenant has as many keys in the store as it may, as far as that is known. Counts in the background when it is time.
    pub(super) fn has_all_its_keys(self: &Arc<Self>, tenant: &Tenant) -> bool {
        let live = self.live();
        let Some(keys) = live.live_keys() else { return false };
        let (full, due) = keys.look(tenant, self.ports.clock().now());
        if due && let Some(count) = keys.begin(tenant) {
            let gateway = self.clone();
            tokio::spawn(async move { gateway.count_keys(count).await });
        }
        full
    }

    async fn count_keys(&self, count: Count) {
        let clock = self.ports.clock();
        let begun = clock.now();
        let counted = self.count_all(&count.tenant, count.keys.most).await;
        let now = clock.now();
        count.end(counted, now + AT_LEAST.max(now.since(begun) * PAUSE));
    }

    /// The tenant's keys in the store, or as many as it may have; `None` if the store did not say.
    async fn count_all(&self, tenant: &Tenant, most: u64) -> Option<u64> {
        let (mut counted, mut after) = (0, None);
        while !self.is_stopping() {
            let begun = self.ports.clock().now();
            let stretch = self.ports.store().live_keys(tenant, after.as_ref(), STRETCH);
            let stretch = metrics::upkeep("count", stretch).await.ok()?;
            counted += stretch.keys;
            if stretch.through.is_none() || counted >= most {
                return Some(counted);
            }
            after = stretch.through;
            let ended = self.ports.clock().now();
            self.ports.clock().sleep_until(ended + ended.since(begun) * PAUSE).await;
        }
        None
    }

    /// The refusal of a key that would be one too many: until some are forgotten, which is a matter of retention and not of seconds.
    pub(super) fn has_too_many_keys(&self, tenant: &Tenant) -> Problem {
        metrics::quota_exceeded(tenant, "live_keys");
        Problem::QuotaExceeded { after: jittered(self, ASK_AGAIN) }
    }

    /// A key that was new was started.
    pub(super) fn started_a_key(&self, tenant: &Tenant) {
        if let Some(keys) = self.live().live_keys() {
            keys.started(tenant);
        }
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

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_less_is_left_the_sooner_it_counts_again_and_never_before_it_rested() {
        let (keys, a) = (keys(132), tenant("a"));
        assert_eq!(keys.look(&a, at(0)), (false, true), "nothing is known");
        keys.begin(&a).unwrap().end(Some(100), at(1));
        assert_eq!(keys.look(&a, at(1)), (false, false), "32 are left");
        keys.started(&a);
        assert_eq!(keys.look(&a, at(1)), (false, false), "one of them was started");
        keys.started(&a);
        assert_eq!(
            (keys.look(&a, at(0)), keys.look(&a, at(1))),
            ((false, false), (false, true)),
            "a sixteenth"
        );
        for _ in 2..32 {
            keys.started(&a);
        }
        assert_eq!(
            (keys.look(&a, at(0)), keys.look(&a, at(1))),
            ((true, false), (true, true)),
            "all of them"
        );
        keys.begin(&a).unwrap().end(None, at(3));
        assert_eq!((keys.look(&a, at(2)), keys.look(&a, at(3))), ((true, false), (true, true)), "no news");
        keys.begin(&a).unwrap().end(Some(120), at(4));
        assert_eq!(keys.look(&a, at(4)), (false, false), "some were forgotten");
    }

    #[test]
    fn what_was_started_while_it_counted_is_not_counted_twice() {
        let (keys, a) = (keys(4), tenant("a"));
        keys.look(&a, at(0));
        keys.started(&a);
        let count = keys.begin(&a).unwrap();
        assert!(keys.begin(&tenant("b")).is_none(), "one at a time");
        keys.started(&a);
        count.end(Some(2), at(1));
        keys.started(&a);
        assert_eq!(keys.look(&a, at(1)), (false, true), "three");
        keys.started(&a);
        assert!(keys.look(&a, at(1)).0, "four");
        drop(keys.begin(&tenant("b")).unwrap());
        assert!(keys.begin(&a).is_some(), "a count that was given up runs no more");
    }

    #[test]
    fn too_many_tenants_forget_those_that_have_some_left() {
        let keys = keys(1);
        let full = tenant("full");
        keys.look(&full, at(0));
        keys.begin(&full).unwrap().end(Some(1), at(1));
        for number in 1..MOST_TENANTS {
            keys.look(&tenant(&format!("t{number}")), at(0));
        }
        assert_eq!(keys.lock().len(), MOST_TENANTS);
        keys.look(&tenant("one-more"), at(0));
        assert_eq!(keys.lock().len(), 2);
        assert!(keys.look(&full, at(0)).0);
    }
}
