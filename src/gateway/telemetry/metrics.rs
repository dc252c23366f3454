//! Counting: thin functions over the names in `ports::observe`, whose help says what each counts.
//!
//! [`prepare`] gives every series that the configuration names a zero. No label may hold a client's
//! text: tenants are verified, and bounded by [`super::labels`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use metrics::{Counter, Gauge, SharedString, counter, gauge, histogram};
use tracing::{Instrument, trace_span};

use super::labels::{OTHER, tenant_label};
use crate::gateway::policy::route::Routes;
use crate::gateway::request::problems::{Problem, codes};
use crate::ports::audit::Counted;
use crate::ports::jobs::JobLoad;
pub use crate::ports::observe;
use crate::ports::observe::{Kind, SPANS};
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

pub fn count(name: &'static str) {
    counter!(name).increment(1);
}

/// Counts one more, with one label.
pub fn count_by(name: &'static str, label: &'static str, value: impl Into<SharedString>) {
    counter!(name, label => value.into()).increment(1);
}

pub fn count_of(name: &'static str, route: &Arc<str>, tenant: &Tenant) {
    counter!(name, "route" => route.clone(), "tenant" => tenant_label(tenant)).increment(1);
}

pub fn set(name: &'static str, value: f64) {
    gauge!(name).set(value);
}

/// Shows if this is true.
pub fn tell(name: &'static str, is: bool) {
    gauge!(name).set(f64::from(u8::from(is)));
}

pub fn answer(route: &Arc<str>, tenant: &Tenant, verdict: &'static str) {
    let tenant = tenant_label(tenant);
    counter!(observe::ANSWERS, "route" => route.clone(), "tenant" => tenant, "verdict" => verdict)
        .increment(1);
}

pub fn duplicate(tenant: &Tenant) {
    counter!(observe::DUPLICATES, "tenant" => tenant_label(tenant)).increment(1);
}

pub fn refused(problem: &Problem) {
    counter!(observe::REFUSALS, "code" => problem.code()).increment(1);
}

pub fn weak_key(route: &str, tenant: &Tenant, weakness: Weakness) {
    let (route, tenant, kind) = (route.to_owned(), tenant_label(tenant), weakness.name());
    counter!(observe::WEAK_KEYS, "route" => route, "tenant" => tenant, "kind" => kind).increment(1);
}

/// The counters of requests that pass. Looked up once, as each such request moves one.
#[derive(Debug)]
pub struct Passed([Counter; 3]);

impl Default for Passed {
    fn default() -> Self {
        let counters =
            ["answered", "not_sent", "unknown"].map(|result| counter!(observe::PASSED, "result" => result));
        counters.iter().for_each(|counter| counter.absolute(0));
        Self(counters)
    }
}

impl Passed {
    pub fn count(&self, answered: &Result<Response<Body>, SendError>) {
        let [ok, not_sent, unknown] = &self.0;
        let counter = match answered {
            Ok(_) => ok,
            Err(SendError::NotSent(_)) => not_sent,
            Err(SendError::Unknown(_) | SendError::Late(_)) => unknown,
        };
        counter.increment(1);
    }
}

/// Counts a shadow verdict on one request; `code` is that of a refusal, else `-`.
pub fn shadow(route: &Arc<str>, verdict: &'static str, code: &'static str) {
    counter!(observe::SHADOW, "route" => route.clone(), "verdict" => verdict, "code" => code).increment(1);
}

pub fn quota_exceeded(tenant: &Tenant, of: &'static str) {
    counter!(observe::QUOTA_EXCEEDED, "tenant" => tenant_label(tenant), "quota" => of).increment(1);
}

/// Shows a tenant's number of keys; not for tenants that share a label, which would overwrite it.
pub fn live_keys(tenant: &Tenant, keys: u64) {
    let label = tenant_label(tenant);
    if label.as_ref() != OTHER {
        gauge!(observe::LIVE_KEYS, "tenant" => label).set(keys as f64);
    }
}

pub fn forward(to: &RegionName, result: &'static str) {
    counter!(observe::FORWARDS, "to" => to.to_string(), "result" => result).increment(1);
}

pub fn attempt(route: &str, outcome: &'static str) {
    counter!(observe::ATTEMPTS, "route" => route.to_owned(), "outcome" => outcome).increment(1);
}

pub fn upstream(route: &str, took: Duration) {
    histogram!(observe::UPSTREAM_SECONDS, "route" => route.to_owned()).record(took.as_secs_f64());
}

/// The gauge of requests here at once, counted up and down: two that leave would set it wrongly.
pub fn at_once(of: &'static str) -> Gauge {
    let gauge = gauge!(observe::REQUESTS_AT_ONCE, "of" => of);
    gauge.set(0.0);
    gauge
}

pub fn in_flight() -> Gauge {
    let gauge = gauge!(observe::IN_FLIGHT);
    gauge.set(0.0);
    gauge
}

/// Shows by how much the database's clock moved ahead of the boot clock between two heartbeats.
pub fn clock_ahead((then, at): (Date, Moment), (date, now): (Date, Moment)) {
    let moved = date.as_millis().saturating_sub(then.as_millis()) as f64 / 1_000.0;
    set(observe::CLOCK_AHEAD, moved - now.since(at).as_secs_f64());
}

pub fn lease(left: Duration) {
    tell(observe::LEASE_HELD, !left.is_zero());
    set(observe::LEASE_SECONDS, left.as_secs_f64());
}

pub fn hindrances(missing: &[Hindrance]) {
    set(observe::HINDRANCES, missing.len() as f64);
    let for_operator = missing.iter().filter(|missing| missing.needs_operator()).count();
    set(observe::HINDRANCES_OPERATOR, for_operator as f64);
    let windows = missing.iter().filter_map(Hindrance::left);
    set(observe::WINDOW_LEFT_SECONDS, windows.max().unwrap_or_default().as_secs_f64());
}

pub fn view(view: &View) {
    set(observe::EPOCH, view.epoch() as f64);
    set(observe::PROTOCOL, f64::from(view.protocol()));
    for (name, member) in view.members() {
        let serving = f64::from(u8::from(member.standing.is_serving()));
        gauge!(observe::REGION_STANDING, "member" => name.to_string()).set(serving);
    }
}

/// Shows if this is true of a peer.
pub fn peer(name: &'static str, peer: &RegionName, is: bool) {
    gauge!(name, "peer" => peer.to_string()).set(f64::from(u8::from(is)));
}

pub fn round_trip(peer: &RegionName, took: Duration) {
    gauge!(observe::PEER_RTT_SECONDS, "peer" => peer.to_string()).set(took.as_secs_f64());
}

pub fn lag(peer: &RegionName, lag: &LagMeter, now: Moment) {
    if let Some(lag) = lag.current(now) {
        gauge!(observe::LAG_SECONDS, "origin" => peer.to_string()).set(lag.as_secs_f64());
    }
    if let Some(lag) = lag.maximum(now) {
        gauge!(observe::LAG_MAX_SECONDS, "origin" => peer.to_string()).set(lag.as_secs_f64());
    }
}

/// Times a store call and counts its failure.
pub async fn store<T>(
    op: &'static str,
    route: &Arc<str>,
    clock: &impl Clock,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let span = trace_span!(target: SPANS, "store", otel.name = op, otel.kind = "client", op);
    let begun = clock.now();
    let result = call.instrument(span).await;
    let took = clock.now().since(begun).as_secs_f64();
    histogram!(observe::STORE_SECONDS, "op" => op, "route" => route.clone()).record(took);
    failure(op, &result);
    result
}

/// Counts the failure of a store call that no request waits for.
pub async fn upkeep<T>(
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

pub fn job(route: &str, result: &'static str) {
    counter!(observe::JOBS, "route" => route.to_owned(), "result" => result).increment(1);
}

pub fn job_load(load: &JobLoad) {
    set(observe::JOBS_WAITING, load.waiting as f64);
    set(observe::JOBS_DEAD, load.dead as f64);
    set(observe::JOBS_OLDEST_SECONDS, load.oldest.as_secs_f64());
}

pub fn reaped(reaped: &Reaped) {
    let results = [("expired", reaped.expired), ("forgotten", reaped.forgotten), ("kept", reaped.kept)];
    for (result, count) in results {
        counter!(observe::REAPED, "result" => result).increment(count);
    }
}

/// Shows the own server's replication slots; of `known` those that were dropped hold nothing.
pub fn slots(known: &mut BTreeSet<String>, slots: &[Slot]) {
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

/// Counts the doubles in the region's journal, from the first look at it. A series that began with
/// zero would seem to grow when a gateway starts.
pub fn doubles(counted: &Counted) {
    counter!(observe::DOUBLES).absolute(counted.doubles);
    counter!(observe::UNEXPLAINED).absolute(counted.unexplained);
}

/// Names of the loops, as the log and `onceway_loop_died_total` spell them.
pub const LOOPS: [&str; 16] = [
    "heartbeat",
    "poll",
    "ping",
    "gate",
    "renew",
    "takeover",
    "return",
    "voters",
    "upstream",
    "waiters",
    "jobs",
    "job-load",
    "reaper",
    "audit",
    "doubles",
    "sweep",
];

/// Counters with one label, and the values of it that are known beforehand.
const BY_LABEL: [(&str, &str, &[&str]); 9] = [
    (observe::OTLP_SPANS, "result", &["exported", "dropped", "failed"]),
    (observe::CONFIG_RELOADS, "result", &["ok", "failed"]),
    (observe::ATTACHED, "result", &["replayed", "waited_out"]),
    (observe::PROBES, "result", &["happened", "did_not_happen", "too_early", "cannot_say"]),
    (observe::REAPED, "result", &["expired", "forgotten", "kept"]),
    (observe::SWEPT, "result", &["abandoned", "settled", "released"]),
    (observe::ESCROWS, "result", &ESCROWS),
    (observe::STORE_SPARED, "calls", &CALLS),
    (observe::LOOP_DIED, "loop", &LOOPS),
];
const ESCROWS: [&str; 7] =
    ["lodged", "alone", "refused", "stale", "unavailable", "answer_lodged", "answer_failed"];
const CALLS: [&str; 2] = ["reads", "writes"];
const PLAIN: [&str; 6] = [
    observe::DRAINED_BY_HEALTH,
    observe::LOCAL_REPLAYS,
    observe::CLAIMS_UNCONFIRMED,
    observe::SENDS_REFUSED,
    observe::SETTLES_RETRIED,
    observe::LOG_DROPPED,
];
const OPS: [&str; 13] = [
    "claim", "accept", "settle", "release", "doubt", "look_up", "reap", "sweep", "count", "take", "lodge",
    "late", "audit",
];

pub fn prepare(me: &RegionName, routes: &Routes, in_shadow: bool, view: &View) {
    for metric in observe::ALL {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    for (name, label, values) in BY_LABEL {
        values.iter().for_each(|value| counter!(name, label => *value).absolute(0));
    }
    PLAIN.into_iter().for_each(|name| counter!(name).absolute(0));
    codes().for_each(|code| counter!(observe::REFUSALS, "code" => code).absolute(0));
    let senders = Sender::ALL.into_iter().map(Sender::word);
    senders.for_each(|sender| counter!(observe::PEER_REFUSED, "sender" => sender).absolute(0));
    CALLS.into_iter().for_each(|calls| gauge!(observe::STORE_BREAKER, "calls" => calls).set(0.0));
    for (op, kind) in OPS.iter().flat_map(|op| ["definite", "unknown"].map(|kind| (*op, kind))) {
        counter!(observe::STORE_ERRORS, "op" => op, "kind" => kind).absolute(0);
    }
    prepare_routes(routes);
    job_load(&JobLoad::default());
    tell(observe::UPSTREAM_SICK, false);
    tell(observe::CONFIG_CURRENT, true);
    for name in view.members().keys().filter(|name| *name != me) {
        for result in ["answered", "not_sent", "unknown", "not_owner", "silent", "version"] {
            counter!(observe::FORWARDS, "to" => name.to_string(), "result" => result).absolute(0);
        }
        peer(observe::PEER_FOREIGN, name, false);
        peer(observe::PEER_DISAGREES, name, false);
        // Shadow mode asks no peers, so it must not report them as silent.
        if !in_shadow {
            peer(observe::PEER_UP, name, false);
        }
    }
    // Nor does it ask the store.
    if !in_shadow {
        tell(observe::STORE_UP, false);
        counter!(observe::AUDIT_PASSES).absolute(0);
    }
    set(observe::EPOCH, view.epoch() as f64);
    set(observe::PROTOCOL, f64::from(view.protocol()));
    set(observe::DOUBTS, 0.0);
    set(observe::HEARTBEAT, 0.0);
    hindrances(&[]);
}

pub fn prepare_routes(routes: &Routes) {
    for route in routes.0.iter().map(|route| &route.name) {
        for outcome in ["final", "nothing_happened", "unknown"] {
            counter!(observe::ATTEMPTS, "route" => route.to_string(), "outcome" => outcome).absolute(0);
        }
        for name in [observe::RUNS_AT_RISK, observe::LATE_ANSWERS] {
            counter!(name, "route" => route.clone()).absolute(0);
        }
    }
    for route in routes.0.iter().map(|route| &*route.name).chain(["unknown"]) {
        for result in ["accepted", "settled", "retried", "waited", "dead"] {
            counter!(observe::JOBS, "route" => route.to_owned(), "result" => result).absolute(0);
        }
    }
}
