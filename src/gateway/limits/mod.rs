//! Limits of this gateway, each refused before anything is claimed, from top to bottom.
//!
//! 1. This file: places, charges, and the number of a tenant's keys, as requests meet them.
//! 2. [`concurrency`]: requests at once. [`live_keys`]: stored keys. [`quota`]: rates.
//!
//! A limit must not cut an attempt short.

pub mod concurrency;
pub(super) mod live_keys;
pub mod quota;

use std::sync::{Arc, Weak};
use std::time::Duration;

use self::concurrency::{Place, Whose};
use self::live_keys::{Counter, STRETCH};
use self::quota::{Charged, Exceeded};
use crate::gateway::instance::Gateway;
use crate::gateway::reloadable::Live;
use crate::gateway::request::problems::{Kind, Problem};
use crate::gateway::telemetry::metrics;
use crate::ports::{Ports, Upkeep};
use crate::protocol::key::Tenant;

/// Pause between two looks, in multiples of the last look's time.
const PAUSE: u32 = 4;
/// Pause after a look that failed.
const ONCE_MORE: Duration = Duration::from_secs(1);

impl<P: Ports> Gateway<P> {
    pub(in crate::gateway) fn place(&self, whose: Whose) -> Result<Place, Problem> {
        let most = self.live.load().most_at_once;
        self.crowd.place(whose, most).ok_or_else(|| self.overloaded())
    }

    /// Charges a request, or a question to the status address ([`quota::Quotas::charge`]).
    pub(in crate::gateway) fn charge(
        &self,
        live: &Live,
        tenant: &Tenant,
        is_question: bool,
    ) -> Result<Charged, Problem> {
        let Some(quotas) = &live.quotas else { return Ok(Charged::default()) };
        quotas.charge(tenant, is_question).map_err(|Exceeded { of, wait }| {
            // In shadow mode no request is refused.
            if self.shadow.is_none() {
                metrics::quota_exceeded(tenant, of);
            }
            Kind::QuotaExceeded.after(self.jittered(wait))
        })
    }

    /// Checks that the tenant may start a further key, else the time until it should ask again.
    /// Counts in the background when it is time.
    pub(in crate::gateway) fn may_start_a_key(self: &Arc<Self>, tenant: &Tenant) -> Result<(), Duration> {
        let live = self.live();
        let Some(keys) = &live.live_keys else { return Ok(()) };
        let (full, counter) = keys.look(tenant, self.now());
        if let Some(counter) = counter {
            let gateway = Arc::downgrade(self);
            tokio::spawn(async move { count_loop(gateway, &counter).await });
        }
        full.map_or(Ok(()), Err)
    }

    pub(in crate::gateway) fn started_a_key(&self, tenant: &Tenant) {
        if let Some(keys) = &self.live().live_keys {
            keys.started(tenant);
        }
    }
}

/// Counts for as long as a tenant waits for its turn and these are the live keys.
async fn count_loop<P: Ports>(gateway: Weak<Gateway<P>>, Counter(keys): &Counter) {
    while let Some(gateway) = gateway.upgrade() {
        let is_live = gateway.live().live_keys.as_ref().is_some_and(|live| Arc::ptr_eq(live, keys));
        if !is_live || gateway.is_stopping() {
            return;
        }
        let Some((tenant, after)) = keys.next() else { return };
        let begun = gateway.now();
        let stretch = gateway.store().live_keys(&tenant, after.as_ref(), STRETCH);
        let stretch = metrics::upkeep("count", stretch).await.ok();
        let ended = gateway.now();
        let pause = if stretch.is_some() { ended.since(begun) * PAUSE } else { ONCE_MORE };
        keys.add_stretch(tenant, stretch, ended);
        gateway.rest(ended + pause).await;
    }
}
