//! Counting: thin functions over the names in `ports::observe`, whose help says what each counts.
//!
//! First what clients get, and what became of their keys and attempts; then the region with its
//! settings, lease, view, clock and peers; then the store's calls, jobs, upkeep, and the search for
//! keys that ran twice. No label may hold a client's text: tenants are verified, and bounded by
//! [`super::labels`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use metrics::{Counter, Gauge, counter, gauge, histogram};
use tracing::{Instrument, trace_span};

use super::labels::{OTHER, route_label, tenant_label};
use crate::gateway::request::problems::Problem;
use crate::ports::audit::Counted;
use crate::ports::jobs::JobLoad;
use crate::ports::observe::{self, SPANS};
use crate::ports::store::{Slot, StoreError};
use crate::ports::upkeep::Reaped;
use crate::ports::upstream::SendError;
use crate::ports::{Body, Clock};
use crate::protocol::generator::Weakness;
use crate::protocol::key::Tenant;
use crate::protocol::lag::LagMeter;
use crate::protocol::opening::Hindrance;
use crate::protocol::region::RegionName;
use crate::protocol::speakers::Sender;
use crate::protocol::time::{Date, Moment};
use crate::protocol::view::View;

pub(in crate::gateway) fn answer(route: &Arc<str>, tenant: &Tenant, verdict: &'static str) {
    let (route, tenant) = (route_label(route), tenant_label(tenant));
    counter!(observe::ANSWERS, "route" => route, "tenant" => tenant, "verdict" => verdict).increment(1);
}

pub(in crate::gateway) fn duplicate(tenant: &Tenant) {
    counter!(observe::DUPLICATES, "tenant" => tenant_label(tenant)).increment(1);
}

pub(in crate::gateway) fn refused(problem: &Problem) {
    counter!(observe::REFUSALS, "code" => problem.code()).increment(1);
}

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

pub(in crate::gateway) fn shadow_diverged(route: &Arc<str>) {
    counter!(observe::SHADOW_DIVERGED, "route" => route_label(route)).increment(1);
}

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

pub(in crate::gateway) fn local_replay() {
    counter!(observe::LOCAL_REPLAYS).increment(1);
}

pub(in crate::gateway) fn attached(result: &'static str) {
    counter!(observe::ATTACHED, "result" => result).increment(1);
}

pub(in crate::gateway) fn attempt(route: &str, outcome: &'static str) {
    counter!(observe::ATTEMPTS, "route" => route.to_owned(), "outcome" => outcome).increment(1);
}

pub(in crate::gateway) fn probe(result: &'static str) {
    counter!(observe::PROBES, "result" => result).increment(1);
}

pub(in crate::gateway) fn claim_lost(route: &Arc<str>, tenant: &Tenant) {
    let (route, tenant) = (route_label(route), tenant_label(tenant));
    counter!(observe::CLAIMS_LOST, "route" => route, "tenant" => tenant).increment(1);
}

pub(in crate::gateway) fn claim_failed(route: &Arc<str>, tenant: &Tenant) {
    let (route, tenant) = (route_label(route), tenant_label(tenant));
    counter!(observe::CLAIMS_FAILED, "route" => route, "tenant" => tenant).increment(1);
}

pub(in crate::gateway) fn claim_unconfirmed() {
    counter!(observe::CLAIMS_UNCONFIRMED).increment(1);
}

pub(in crate::gateway) fn run_at_risk(route: &Arc<str>) {
    counter!(observe::RUNS_AT_RISK, "route" => route_label(route)).increment(1);
}

pub(in crate::gateway) fn late(route: &Arc<str>) {
    counter!(observe::LATE_ANSWERS, "route" => route_label(route)).increment(1);
}

pub(in crate::gateway) fn escrow(result: &'static str) {
    counter!(observe::ESCROWS, "result" => result).increment(1);
}

pub(in crate::gateway) fn send_refused() {
    counter!(observe::SENDS_REFUSED).increment(1);
}

pub(in crate::gateway) fn settle_retried() {
    counter!(observe::SETTLES_RETRIED).increment(1);
}

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

pub(in crate::gateway) fn in_flight() -> Gauge {
    let gauge = gauge!(observe::IN_FLIGHT);
    gauge.set(0.0);
    gauge
}

pub(in crate::gateway) fn loop_died(name: &'static str) {
    counter!(observe::LOOP_DIED, "loop" => name).increment(1);
}

pub(in crate::gateway) fn upstream_sick(sick: bool) {
    gauge!(observe::UPSTREAM_SICK).set(f64::from(u8::from(sick)));
}

pub(in crate::gateway) fn drained_by_health() {
    counter!(observe::DRAINED_BY_HEALTH).increment(1);
}

pub(in crate::gateway) fn config_reload(ok: bool) {
    let result = if ok { "ok" } else { "failed" };
    counter!(observe::CONFIG_RELOADS, "result" => result).increment(1);
}

pub(in crate::gateway) fn config_loaded(at: Date) {
    gauge!(observe::CONFIG_LOADED).set(at.as_millis() as f64 / 1_000.0);
}

pub(in crate::gateway) fn config_current(current: bool) {
    gauge!(observe::CONFIG_CURRENT).set(f64::from(u8::from(current)));
}

/// Shows by how much the database's clock moved ahead of the boot clock between two heartbeats.
pub(in crate::gateway) fn clock_ahead((then, at): (Date, Moment), (date, now): (Date, Moment)) {
    let moved = date.as_millis().saturating_sub(then.as_millis()) as f64 / 1_000.0;
    gauge!(observe::CLOCK_AHEAD).set(moved - now.since(at).as_secs_f64());
}

pub(in crate::gateway) fn lease(left: Duration) {
    gauge!(observe::LEASE_HELD).set(f64::from(u8::from(!left.is_zero())));
    gauge!(observe::LEASE_SECONDS).set(left.as_secs_f64());
}

pub(in crate::gateway) fn hindrances(missing: &[Hindrance]) {
    gauge!(observe::HINDRANCES).set(missing.len() as f64);
    let for_operator = missing.iter().filter(|missing| missing.needs_operator()).count();
    gauge!(observe::HINDRANCES_OPERATOR).set(for_operator as f64);
    let windows = missing.iter().filter_map(Hindrance::left);
    gauge!(observe::WINDOW_LEFT_SECONDS).set(windows.max().unwrap_or_default().as_secs_f64());
}

pub(in crate::gateway) fn view(view: &View) {
    gauge!(observe::EPOCH).set(view.epoch() as f64);
    gauge!(observe::PROTOCOL).set(f64::from(view.protocol()));
    for (name, member) in view.members() {
        let serving = f64::from(u8::from(member.standing.is_serving()));
        gauge!(observe::REGION_STANDING, "member" => name.to_string()).set(serving);
    }
}

pub(in crate::gateway) fn heartbeat(seq: u64) {
    gauge!(observe::HEARTBEAT).set(seq as f64);
}

/// Shows if this is true of a peer.
pub(in crate::gateway) fn peer(name: &'static str, peer: &RegionName, is: bool) {
    gauge!(name, "peer" => peer.to_string()).set(f64::from(u8::from(is)));
}

pub(in crate::gateway) fn round_trip(peer: &RegionName, took: Duration) {
    gauge!(observe::PEER_RTT_SECONDS, "peer" => peer.to_string()).set(took.as_secs_f64());
}

pub(in crate::gateway) fn peer_refused(sender: Sender) {
    counter!(observe::PEER_REFUSED, "sender" => sender.word()).increment(1);
}

pub(in crate::gateway) fn lag(peer: &RegionName, lag: &LagMeter, now: Moment) {
    if let Some(lag) = lag.current(now) {
        gauge!(observe::LAG_SECONDS, "origin" => peer.to_string()).set(lag.as_secs_f64());
    }
    if let Some(lag) = lag.maximum(now) {
        gauge!(observe::LAG_MAX_SECONDS, "origin" => peer.to_string()).set(lag.as_secs_f64());
    }
}

/// Times a store call and counts its failure.
pub(in crate::gateway) async fn store<T>(
    op: &'static str,
    route: &Arc<str>,
    clock: &impl Clock,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let span = trace_span!(target: SPANS, "store", otel.name = op, otel.kind = "client", op);
    let begun = clock.now();
    let result = call.instrument(span).await;
    let took = clock.now().since(begun).as_secs_f64();
    histogram!(observe::STORE_SECONDS, "op" => op, "route" => route_label(route)).record(took);
    failure(op, &result);
    result
}

/// Counts the failure of a store call that no request waits for.
pub(in crate::gateway) async fn upkeep<T>(
    op: &'static str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let result = call.await;
    failure(op, &result);
    result
}

fn failure<T>(op: &'static str, result: &Result<T, StoreError>) {
    let Err(error) = result else { return };
    let kind = match error {
        StoreError::Definite(_) => "definite",
        StoreError::Unknown(_) => "unknown",
    };
    counter!(observe::STORE_ERRORS, "op" => op, "kind" => kind).increment(1);
    tracing::warn!(op, %error, "a store call failed");
}

pub(in crate::gateway) fn store_up(up: bool) {
    gauge!(observe::STORE_UP).set(f64::from(u8::from(up)));
}

pub(in crate::gateway) fn job(route: &str, result: &'static str) {
    counter!(observe::JOBS, "route" => route.to_owned(), "result" => result).increment(1);
}

pub(in crate::gateway) fn job_load(load: &JobLoad) {
    gauge!(observe::JOBS_WAITING).set(load.waiting as f64);
    gauge!(observe::JOBS_DEAD).set(load.dead as f64);
    gauge!(observe::JOBS_OLDEST_SECONDS).set(load.oldest.as_secs_f64());
}

pub(in crate::gateway) fn reaped(reaped: &Reaped) {
    let results = [("expired", reaped.expired), ("forgotten", reaped.forgotten), ("kept", reaped.kept)];
    for (result, count) in results {
        counter!(observe::REAPED, "result" => result).increment(count);
    }
}

pub(in crate::gateway) fn swept(result: &'static str) {
    counter!(observe::SWEPT, "result" => result).increment(1);
}

pub(in crate::gateway) fn doubts(count: u64) {
    gauge!(observe::DOUBTS).set(count as f64);
}

/// Shows the replication slots of this region's server. `known` are those shown before: one that
/// was dropped holds nothing any more.
pub(in crate::gateway) fn slots(known: &mut BTreeSet<String>, slots: &[Slot]) {
    for gone in known.iter().filter(|name| slots.iter().all(|slot| slot.name != **name)) {
        slot(gone, 0, false);
    }
    for found in slots {
        slot(&found.name, found.retained, found.lost);
    }
    *known = slots.iter().map(|slot| slot.name.clone()).collect();
}

fn slot(name: &str, retained: u64, lost: bool) {
    gauge!(observe::SLOT_RETAINED_BYTES, "slot" => name.to_owned()).set(retained as f64);
    gauge!(observe::SLOT_LOST, "slot" => name.to_owned()).set(f64::from(u8::from(lost)));
}

/// Counts the doubles in the region's journal: the same number at every gateway of the region, and
/// over restarts. The series begins with the first look at the journal. One that began with zero
/// would seem to grow when a gateway starts.
pub(in crate::gateway) fn doubles(counted: &Counted) {
    counter!(observe::DOUBLES).absolute(counted.doubles);
    counter!(observe::UNEXPLAINED).absolute(counted.unexplained);
}

pub(in crate::gateway) fn audit_age(age: Duration) {
    gauge!(observe::AUDIT_AGE).set(age.as_secs_f64());
}

pub(in crate::gateway) fn audit_pass() {
    counter!(observe::AUDIT_PASSES).increment(1);
}
