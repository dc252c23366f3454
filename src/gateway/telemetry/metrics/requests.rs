//! Counts of requests: their answers, and what became of their keys and attempts.
//!
//! This file must not decide anything.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use metrics::{Counter, Gauge, counter, gauge, histogram};

use crate::gateway::request::problems::Problem;
use crate::gateway::telemetry::labels::{OTHER, route_label, tenant_label};
use crate::ports::Body;
use crate::ports::observe;
use crate::ports::upstream::SendError;
use crate::protocol::generator::Weakness;
use crate::protocol::key::Tenant;
use crate::protocol::region::RegionName;

pub(in crate::gateway) fn answer(route: &Arc<str>, tenant: &Tenant, verdict: &'static str) {
    let (route, tenant) = (route_label(route), tenant_label(tenant));
    counter!(observe::ANSWERS, "route" => route, "tenant" => tenant, "verdict" => verdict).increment(1);
}

/// One request that met a record of its key.
pub(in crate::gateway) fn duplicate(tenant: &Tenant) {
    counter!(observe::DUPLICATES, "tenant" => tenant_label(tenant)).increment(1);
}

pub(in crate::gateway) fn refused(problem: &Problem) {
    counter!(observe::REFUSALS, "code" => problem.code()).increment(1);
}

/// One key that is part of a bad habit.
pub(in crate::gateway) fn weak_key(route: &str, tenant: &Tenant, weakness: Weakness) {
    let (route, tenant, kind) = (route.to_owned(), tenant_label(tenant), weakness.name());
    counter!(observe::WEAK_KEYS, "route" => route, "tenant" => tenant, "kind" => kind).increment(1);
}

/// The counters of requests that pass. Looked up once, as each such request moves one.
#[derive(Debug)]
pub(in crate::gateway) struct Passed {
    answered: Counter,
    not_sent: Counter,
    unknown: Counter,
}

impl Default for Passed {
    fn default() -> Self {
        let [answered, not_sent, unknown] = ["answered", "not_sent", "unknown"].map(|result| {
            let counter = counter!(observe::PASSED, "result" => result);
            counter.absolute(0);
            counter
        });
        Self { answered, not_sent, unknown }
    }
}

impl Passed {
    pub(in crate::gateway) fn count(&self, answered: &Result<Response<Body>, SendError>) {
        let counter = match answered {
            Ok(_) => &self.answered,
            Err(SendError::NotSent(_)) => &self.not_sent,
            Err(SendError::Unknown(_) | SendError::Late(_)) => &self.unknown,
        };
        counter.increment(1);
    }
}

/// Counts a shadow verdict on one request; `code` is that of a refusal, else `-`.
pub(in crate::gateway) fn shadow(route: &Arc<str>, verdict: &'static str, code: &'static str) {
    counter!(observe::SHADOW, "route" => route_label(route), "verdict" => verdict, "code" => code)
        .increment(1);
}

/// One copy of a request with another final status than an earlier one.
pub(in crate::gateway) fn shadow_diverged(route: &Arc<str>) {
    counter!(observe::SHADOW_DIVERGED, "route" => route_label(route)).increment(1);
}

/// One request refused because its tenant was over that quota.
pub(in crate::gateway) fn quota_exceeded(tenant: &Tenant, of: &'static str) {
    counter!(observe::QUOTA_EXCEEDED, "tenant" => tenant_label(tenant), "quota" => of).increment(1);
}

/// Shows a tenant's number of keys when they were counted. Not for tenants that share a label: the
/// next would overwrite the last.
pub(in crate::gateway) fn live_keys(tenant: &Tenant, keys: u64) {
    let label = tenant_label(tenant);
    if label.as_ref() != OTHER {
        gauge!(observe::LIVE_KEYS, "tenant" => label).set(keys as f64);
    }
}

pub(in crate::gateway) fn forward(to: &RegionName, result: &'static str) {
    counter!(observe::FORWARDS, "to" => to.to_string(), "result" => result).increment(1);
}

/// One decision by another region's record, from the local copy.
pub(in crate::gateway) fn local_replay() {
    counter!(observe::LOCAL_REPLAYS).increment(1);
}

/// Counts one end of a duplicate's wait.
pub(in crate::gateway) fn attached(result: &'static str) {
    counter!(observe::ATTACHED, "result" => result).increment(1);
}

pub(in crate::gateway) fn attempt(route: &str, outcome: &'static str) {
    counter!(observe::ATTEMPTS, "route" => route.to_owned(), "outcome" => outcome).increment(1);
}

pub(in crate::gateway) fn probe(result: &'static str) {
    counter!(observe::PROBES, "result" => result).increment(1);
}

/// One outcome that found no claim of its token.
pub(in crate::gateway) fn claim_lost(route: &Arc<str>, tenant: &Tenant) {
    let (route, tenant) = (route_label(route), tenant_label(tenant));
    counter!(observe::CLAIMS_LOST, "route" => route, "tenant" => tenant).increment(1);
}

/// One request refused because the store did not take its claim.
pub(in crate::gateway) fn claim_failed(route: &Arc<str>, tenant: &Tenant) {
    let (route, tenant) = (route_label(route), tenant_label(tenant));
    counter!(observe::CLAIMS_FAILED, "route" => route, "tenant" => tenant).increment(1);
}

pub(in crate::gateway) fn claim_unconfirmed() {
    counter!(observe::CLAIMS_UNCONFIRMED).increment(1);
}

/// One claim of a key that a lost region may have run without a trace here.
pub(in crate::gateway) fn run_at_risk(route: &Arc<str>) {
    counter!(observe::RUNS_AT_RISK, "route" => route_label(route)).increment(1);
}

/// One answer to an attempt that was taken over meanwhile.
pub(in crate::gateway) fn late(route: &Arc<str>) {
    counter!(observe::LATE_ANSWERS, "route" => route_label(route)).increment(1);
}

/// One claim or answer that was to be lodged with another region.
pub(in crate::gateway) fn escrow(result: &'static str) {
    counter!(observe::ESCROWS, "result" => result).increment(1);
}

/// One claim released because the right to send it was over.
pub(in crate::gateway) fn send_refused() {
    counter!(observe::SENDS_REFUSED).increment(1);
}

pub(in crate::gateway) fn settle_retried() {
    counter!(observe::SETTLES_RETRIED).increment(1);
}

/// Records the duration of one attempt.
pub(in crate::gateway) fn upstream(route: &str, took: Duration) {
    histogram!(observe::UPSTREAM_SECONDS, "route" => route.to_owned()).record(took.as_secs_f64());
}

/// The gauge of requests that are here at once. It is counted up and down: two requests that leave
/// at once would set it in the wrong order.
pub(in crate::gateway) fn at_once(of: &'static str) -> Gauge {
    let gauge = gauge!(observe::REQUESTS_AT_ONCE, "of" => of);
    gauge.set(0.0);
    gauge
}

/// The gauge of keyed requests, counted likewise.
pub(in crate::gateway) fn in_flight() -> Gauge {
    let gauge = gauge!(observe::IN_FLIGHT);
    gauge.set(0.0);
    gauge
}
