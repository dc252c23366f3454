//! Settings that may be replaced while a gateway runs, all at once. A request keeps those of its
//! beginning.
//!
//! Ownership, leases, windows and clocks are not here: none may move a key or end a hold early.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::gateway::credentials::Credentials;
use crate::gateway::limits::concurrency::MostAtOnce;
use crate::gateway::limits::live_keys::LiveKeys;
use crate::gateway::limits::quota::{Quota, Quotas};
use crate::gateway::policy::route::{NO_ROUTE, Route, Routes};
use crate::gateway::telemetry::publication;
use crate::gateway::telemetry::times::RouteTimes;
use crate::ports::Ports;
use crate::protocol::digest::Digest32;
use crate::protocol::escrow::Meanings;

/// Settings from one reading of the files.
#[derive(Debug)]
pub struct Reload {
    /// Routes: requests that need a key, and how each is performed.
    pub routes: Routes,
    /// Credentials.
    pub credentials: Arc<Credentials>,
    /// Limits of each tenant: keys started per time, and keys stored.
    pub quota: Option<Quota>,
    /// Requests that it has at once, at most.
    pub most_at_once: MostAtOnce,
    /// Digest of the settings that all regions must share, as they are once this is live.
    pub shared: Digest32,
    /// Settings in the files that wait for a restart, one line each.
    pub restart: Vec<String>,
}

/// The settings that requests go by now.
pub(super) struct Live {
    pub(super) routes: Routes,
    pub(super) meanings: Arc<Meanings>,
    pub(super) credentials: Arc<Credentials>,
    pub(super) quotas: Option<Arc<Quotas>>,
    pub(super) live_keys: Option<Arc<LiveKeys>>,
    pub(super) publication: Bytes,
    times: BTreeMap<Arc<str>, Arc<RouteTimes>>,
    /// For requests that no route takes.
    unlisted: Arc<RouteTimes>,
    pub(super) shared: Digest32,
    pub(super) most_at_once: MostAtOnce,
    quota: Option<Quota>,
}

impl Live {
    pub(super) fn of<P: Ports>(reload: Reload, ports: &Arc<P>) -> Self {
        let Reload { routes, credentials, quota, most_at_once, shared, restart: _ } = reload;
        let quotas = quota.map(|quota| Arc::new(Quotas::new(quota, ports)));
        let live_keys = quota.and_then(|quota| Some(Arc::new(LiveKeys::new(quota.live_keys?))));
        let limited = live_keys.is_some() || quotas.as_ref().is_some_and(|quotas| quotas.limits_keys());
        let series = |route: &Route| (route.name.clone(), Arc::new(RouteTimes::new(route.name.clone())));
        Self {
            meanings: Arc::new(routes.meanings()),
            publication: publication::document(&routes, limited).into(),
            times: routes.0.iter().map(series).collect(),
            unlisted: Arc::new(RouteTimes::new(NO_ROUTE.into())),
            routes,
            credentials,
            quotas,
            live_keys,
            shared,
            most_at_once,
            quota,
        }
    }

    /// The settings that follow these. Observations stay, and so do counts whose quota is the same.
    pub(super) fn next<P: Ports>(&self, reload: Reload, ports: &Arc<P>) -> Self {
        let mut next = Self::of(reload, ports);
        if next.quota == self.quota {
            next.quotas = self.quotas.clone();
        }
        let most = |live: &Self| live.quota.and_then(|quota| quota.live_keys);
        if most(&next) == most(self) {
            next.live_keys = self.live_keys.clone();
        }
        for (route, times) in &mut next.times {
            if let Some(before) = self.times.get(route) {
                *times = before.clone();
            }
        }
        next
    }

    /// The series of this route's requests.
    pub(super) fn times(&self, route: &str) -> &Arc<RouteTimes> {
        self.times.get(route).unwrap_or(&self.unlisted)
    }

    pub(super) fn typical(&self, route: &str) -> Option<Duration> {
        *self.times.get(route)?.typical.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn observe_latency(&self, route: &str, took: Duration) {
        if let Some(times) = self.times.get(route) {
            let mut typical = times.typical.lock().unwrap_or_else(PoisonError::into_inner);
            *typical = Some(typical.map_or(took, |before| (before * 7 + took) / 8));
        }
    }
}

/// Comparison of the running settings with the files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConfigStatus {
    /// Moment when the files in force were read, milliseconds since 1970; absent until it is known.
    pub loaded_ms: Option<i64>,
    /// True if all settings in the files are running.
    pub current: bool,
    /// Problems of the present files. If there are any, none of their settings are running.
    pub problems: Vec<String>,
    /// Settings in the files that wait for a restart.
    pub restart: Vec<String>,
}
