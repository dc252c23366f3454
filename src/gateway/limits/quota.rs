//! Quotas of one tenant at this gateway, charged before a body is read or the store asked.
//!
//! The charges that do not apply are given back later. The algorithm is GCRA (ITU-T I.371) by the
//! `governor` crate, over the Clock port and a bounded table. The limit is one process's.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota as Rate, RateLimiter};

use crate::ports::lock::Lock;
use crate::ports::{Clock, Ports};
use crate::protocol::key::Tenant;

/// Tenants with a bucket of their own, at most. While all are in use, further ones share one.
pub(in crate::gateway) const MOST_TENANTS: usize = 10_000;
/// Pause between two searches of a full table for buckets that are full again: those can go.
const SWEEP_EVERY: u64 = 1_000_000_000;

/// Limits of a tenant; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Rate of new keys.
    pub new_keys: Option<Pace>,
    /// Rate of questions about stored keys: retries, and the status address.
    pub look_ups: Option<Pace>,
    /// Rate of questions at the status address about unknown keys.
    pub misses: Option<Pace>,
    /// Number of keys that the store of this gateway's region remembers, tombstones included.
    pub live_keys: Option<NonZeroU32>,
}

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The lasting rate.
    pub per_second: NonZeroU32,
    /// Number at once, after a pause.
    pub burst: NonZeroU32,
}

pub(in crate::gateway) struct Quotas {
    new_keys: Option<Limiter>,
    look_ups: Option<Limiter>,
    misses: Option<Limiter>,
}

/// Error: a tenant is over one of its quotas.
pub(in crate::gateway) struct Exceeded {
    /// The quota, for labels: `new_keys`, `look_ups` or `misses`.
    pub(in crate::gateway) of: &'static str,
    /// Time until something is left.
    pub(super) wait: Duration,
}

impl Quotas {
    /// Begins with full buckets.
    pub(in crate::gateway) fn new<P: Ports>(quota: Quota, ports: &Arc<P>) -> Self {
        let limiter = |of, pace: Option<Pace>| pace.map(|pace| Limiter::new(of, pace, ports));
        Self {
            new_keys: limiter("new_keys", quota.new_keys),
            look_ups: limiter("look_ups", quota.look_ups),
            misses: limiter("misses", quota.misses),
        }
    }

    /// Charges a look-up and a new key, or a miss if it is a question to the status address; both or
    /// nothing. One of them is given back at the end, by whether there was a key.
    pub(super) fn charge(&self, tenant: &Tenant, is_question: bool) -> Result<Charged, Exceeded> {
        let take = |limiter: &Limiter| limiter.take(tenant);
        let unless_found = if is_question { &self.misses } else { &self.new_keys };
        let charged = Charged { unless_found: unless_found.as_ref().map(take).transpose()?, look_ups: None };
        let look_ups = self.look_ups.as_ref().map(take).transpose();
        let look_ups = look_ups.inspect_err(|_| charged.give_back(tenant, true))?;
        Ok(Charged { look_ups, ..charged })
    }

    /// True if a keyed request can be over a quota.
    pub(in crate::gateway) fn limits_keys(&self) -> bool {
        self.new_keys.is_some() || self.look_ups.is_some()
    }
}

/// The buckets that a request was charged to. Empty if another gateway was asked first.
#[derive(Clone, Default)]
pub(in crate::gateway) struct Charged {
    /// That of a new key, or of a miss.
    unless_found: Option<Buckets>,
    look_ups: Option<Buckets>,
}

impl Charged {
    /// Gives back the charge that did not apply: by whether a stored key was found.
    pub(in crate::gateway) fn give_back(&self, tenant: &Tenant, found: bool) {
        if let Some(buckets) = if found { &self.unless_found } else { &self.look_ups } {
            buckets.give_back(tenant);
        }
    }
}

struct Limiter {
    of: &'static str,
    limiter: RateLimiter<Tenant, Buckets, PortClock, NoOpMiddleware<Nanos>>,
    buckets: Buckets,
}

impl Limiter {
    fn new<P: Ports>(of: &'static str, pace: Pace, ports: &Arc<P>) -> Self {
        let rate = Rate::per_second(pace.per_second).allow_burst(pace.burst);
        let buckets = Buckets::new(rate.replenish_interval(), MOST_TENANTS);
        let ports = ports.clone();
        let clock = PortClock(Box::new(move || Nanos::new(ports.clock().now().as_nanos())));
        Self { of, limiter: RateLimiter::new(rate, buckets.clone(), clock), buckets }
    }

    fn take(&self, tenant: &Tenant) -> Result<Buckets, Exceeded> {
        let over = |wait| Exceeded { of: self.of, wait };
        let checked = self.limiter.check_key(tenant);
        checked.map_err(|until| over(until.wait_time_from(self.limiter.clock().now())))?;
        Ok(self.buckets.clone())
    }
}

/// The level of each tenant's bucket. Cheap to clone; all clones are the same buckets.
#[derive(Clone)]
struct Buckets {
    inner: Arc<Lock<Inner>>,
    interval: u64,
    most: usize,
}

/// A bucket: when it is full again, in nanoseconds since the limiter began.
#[derive(Default)]
struct Inner {
    own: BTreeMap<Tenant, u64>,
    shared: Option<u64>,
    swept: Option<u64>,
}

impl Buckets {
    fn new(interval: Duration, most: usize) -> Self {
        let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { inner: Arc::default(), interval, most }
    }

    /// Gives a charge back. The shared bucket gets none: its charges are not known by tenant.
    fn give_back(&self, tenant: &Tenant) {
        if let Some(full_at) = self.inner.lock().own.get_mut(tenant) {
            *full_at = full_at.saturating_sub(self.interval);
        }
    }
}

impl StateStore for Buckets {
    type Key = Tenant;

    fn measure_and_replace<T, F, E>(&self, tenant: &Tenant, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut inner = self.inner.lock();
        if let Some(full_at) = inner.own.get_mut(tenant) {
            let (passed, next) = decide(Some(Nanos::new(*full_at)))?;
            *full_at = next.as_u64();
            return Ok(passed);
        }
        // A bucket that was never used is full, so this passes, and is full again one interval from
        // now.
        let (passed, next) = decide(None)?;
        let (next, now) = (next.as_u64(), next.as_u64().saturating_sub(self.interval));
        let rested = inner.swept.is_none_or(|swept| now.saturating_sub(swept) >= SWEEP_EVERY);
        if inner.own.len() >= self.most && rested {
            inner.own.retain(|_, full_at| *full_at > now);
            inner.swept = Some(now);
        }
        if inner.own.len() < self.most {
            inner.own.insert(tenant.clone(), next);
            return Ok(passed);
        }
        let (passed, next) = decide(inner.shared.map(Nanos::new))?;
        inner.shared = Some(next.as_u64());
        Ok(passed)
    }
}

/// The Clock port as the limiter reads it.
struct PortClock(Box<dyn Fn() -> Nanos + Send + Sync>);

impl GovernorClock for PortClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// One key per second and no burst: asks as the limiter does, `at` in nanoseconds.
    fn ask(buckets: &Buckets, tenant: &str, at: u64) -> bool {
        let tenant = Tenant::parse(tenant).unwrap();
        let decide = |full_at: Option<Nanos>| match full_at.map_or(at, Nanos::as_u64) {
            full_at if at < full_at => Err(()),
            full_at => Ok(((), Nanos::new(full_at.max(at) + SECOND))),
        };
        buckets.measure_and_replace(&tenant, decide).is_ok()
    }

    fn buckets(most: usize) -> Buckets {
        Buckets::new(Duration::from_nanos(SECOND), most)
    }

    #[test]
    fn a_returned_quota_token_can_be_taken_once() {
        let buckets = buckets(9);
        assert_eq!([ask(&buckets, "a", 0), ask(&buckets, "a", 0)], [true, false]);
        buckets.give_back(&Tenant::parse("a").unwrap());
        buckets.give_back(&Tenant::parse("b").unwrap());
        assert_eq!([ask(&buckets, "a", 0), ask(&buckets, "a", 0)], [true, false]);
        assert_eq!([ask(&buckets, "b", 0), ask(&buckets, "b", 0)], [true, false]);
    }

    #[test]
    fn excess_tenants_share_one_separate_bucket() {
        let buckets = buckets(2);
        assert!(ask(&buckets, "a", 0) && ask(&buckets, "b", 0));
        assert_eq!([ask(&buckets, "c", 0), ask(&buckets, "d", 0)], [true, false], "two in one bucket");
        assert!(!ask(&buckets, "a", 0), "a has its own still");
        assert!(ask(&buckets, "e", 2 * SECOND), "a and b are full again, and went");
        assert_eq!(buckets.inner.lock().own.len(), 1);
        assert!(ask(&buckets, "a", 2 * SECOND));
    }
}
