//! Quotas of one tenant at this gateway, charged before a body is read or the store asked.
//!
//! The charges that do not apply are given back later. The algorithm is GCRA (ITU-T I.371), over a
//! bounded table. The limit is one process's.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::ports::lock::Lock;
use crate::protocol::key::Tenant;
use crate::protocol::time::Moment;

/// Tenants with a bucket of their own, at most. While all are in use, further ones share one.
pub(in crate::gateway) const MOST_TENANTS: usize = 10_000;
/// In nanoseconds. Also the pause between two searches of a full table for buckets that are full
/// again: those can go.
const SECOND: u64 = 1_000_000_000;

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
    new_keys: Option<Buckets>,
    look_ups: Option<Buckets>,
    misses: Option<Buckets>,
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
    pub(in crate::gateway) fn new(quota: Quota) -> Self {
        let buckets = |of, pace: Option<Pace>| pace.map(|pace| Buckets::new(of, pace, MOST_TENANTS));
        Self {
            new_keys: buckets("new_keys", quota.new_keys),
            look_ups: buckets("look_ups", quota.look_ups),
            misses: buckets("misses", quota.misses),
        }
    }

    /// Charges a look-up and a new key, or a miss if it is a question to the status address; both or
    /// nothing. One of them is given back at the end, by whether there was a key.
    pub(super) fn charge(
        &self,
        tenant: &Tenant,
        is_question: bool,
        now: Moment,
    ) -> Result<Charged, Exceeded> {
        let take = |buckets: &Buckets| buckets.take(tenant, now.as_nanos()).map(|()| buckets.clone());
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

/// The bucket of each tenant. Cheap to clone; all clones are the same buckets.
#[derive(Clone)]
struct Buckets {
    of: &'static str,
    inner: Arc<Lock<Inner>>,
    /// Nanoseconds for which one charge counts.
    interval: u64,
    /// Nanoseconds that all charges of a burst count, but its last.
    tolerance: u64,
    most: usize,
}

/// A bucket: when it is full again, in nanoseconds of the clock.
#[derive(Default)]
struct Inner {
    own: BTreeMap<Tenant, u64>,
    shared: u64,
    swept: Option<u64>,
}

impl Buckets {
    fn new(of: &'static str, pace: Pace, most: usize) -> Self {
        let interval = (SECOND / u64::from(pace.per_second.get())).max(1);
        let tolerance = interval * u64::from(pace.burst.get() - 1);
        Self { of, inner: Arc::default(), interval, tolerance, most }
    }

    fn take(&self, tenant: &Tenant, now: u64) -> Result<(), Exceeded> {
        let mut inner = self.inner.lock();
        let Inner { own, shared, swept } = &mut *inner;
        let is_known = own.contains_key(tenant);
        let rested = swept.is_none_or(|swept| now.saturating_sub(swept) >= SECOND);
        if !is_known && own.len() >= self.most && rested {
            own.retain(|_, full_at| *full_at > now);
            *swept = Some(now);
        }
        let has_own = is_known || own.len() < self.most;
        let full_at = if has_own { own.entry(tenant.clone()).or_default() } else { shared };
        let wait = full_at.saturating_sub(self.tolerance).saturating_sub(now);
        if wait > 0 {
            return Err(Exceeded { of: self.of, wait: Duration::from_nanos(wait) });
        }
        *full_at = now.max(*full_at) + self.interval;
        Ok(())
    }

    /// Gives a charge back. The shared bucket gets none: its charges are not known by tenant.
    fn give_back(&self, tenant: &Tenant) {
        if let Some(full_at) = self.inner.lock().own.get_mut(tenant) {
            *full_at = full_at.saturating_sub(self.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(buckets: &Buckets, tenant: &str, at: u64) -> bool {
        buckets.take(&Tenant::parse(tenant).unwrap(), at).is_ok()
    }

    /// One key per second and no burst.
    fn buckets(most: usize) -> Buckets {
        Buckets::new("new_keys", Pace { per_second: NonZeroU32::MIN, burst: NonZeroU32::MIN }, most)
    }

    #[test]
    fn a_burst_is_followed_by_its_lasting_rate() {
        let [per_second, burst] = [4, 3].map(|number| NonZeroU32::new(number).unwrap());
        let buckets = Buckets::new("new_keys", Pace { per_second, burst }, 9);
        let at =
            |at: u64| buckets.take(&Tenant::parse("a").unwrap(), at).map_err(|over| over.wait.as_nanos());
        assert_eq!([at(7), at(7), at(7), at(7)], [Ok(()), Ok(()), Ok(()), Err(250_000_000)]);
        assert_eq!([at(250_000_006), at(250_000_007)], [Err(1), Ok(())]);
        assert_eq!([at(9 * SECOND), at(9 * SECOND), at(9 * SECOND)], [Ok(()); 3], "it is full again");
        assert_eq!(at(9 * SECOND), Err(250_000_000));
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
