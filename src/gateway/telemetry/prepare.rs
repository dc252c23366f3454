//! The first scrape: every series that the configuration names has its HELP, its TYPE and a zero.
//!
//! Those of a tenant begin with its first request.

use metrics::{counter, gauge};

use super::labels::route_label;
use super::metrics::{
    config_current, doubts, heartbeat, hindrances, job_load, peer, store_up, upstream_sick,
};
use crate::gateway::policy::route::Routes;
use crate::gateway::request::problems::codes;
use crate::ports::jobs::JobLoad;
use crate::ports::observe::{self, Kind};
use crate::protocol::region::RegionName;
use crate::protocol::speakers::Sender;
use crate::protocol::view::View;

/// Names of the loops, as the log and `onceway_loop_died_total` spell them.
pub(in crate::gateway) const LOOPS: [&str; 16] = [
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

pub(in crate::gateway) fn prepare(me: &RegionName, routes: &Routes, in_shadow: bool, view: &View) {
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
    for name in PLAIN {
        counter!(name).absolute(0);
    }
    for code in codes() {
        counter!(observe::REFUSALS, "code" => code).absolute(0);
    }
    for sender in Sender::ALL {
        counter!(observe::PEER_REFUSED, "sender" => sender.word()).absolute(0);
    }
    for calls in CALLS {
        gauge!(observe::STORE_BREAKER, "calls" => calls).set(0.0);
    }
    for (op, kind) in OPS.iter().flat_map(|op| ["definite", "unknown"].map(|kind| (*op, kind))) {
        counter!(observe::STORE_ERRORS, "op" => op, "kind" => kind).absolute(0);
    }
    prepare_routes(routes);
    job_load(&JobLoad::default());
    upstream_sick(false);
    config_current(true);
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
        store_up(false);
        counter!(observe::AUDIT_PASSES).absolute(0);
    }
    gauge!(observe::EPOCH).set(view.epoch() as f64);
    gauge!(observe::PROTOCOL).set(f64::from(view.protocol()));
    doubts(0);
    heartbeat(0);
    hindrances(&[]);
}

pub(in crate::gateway) fn prepare_routes(routes: &Routes) {
    for route in routes.0.iter().map(|route| &route.name) {
        for outcome in ["final", "nothing_happened", "unknown"] {
            counter!(observe::ATTEMPTS, "route" => route.to_string(), "outcome" => outcome).absolute(0);
        }
        for name in [observe::RUNS_AT_RISK, observe::LATE_ANSWERS] {
            counter!(name, "route" => route_label(route)).absolute(0);
        }
    }
    for route in routes.0.iter().map(|route| &*route.name).chain(["unknown"]) {
        for result in ["accepted", "settled", "retried", "waited", "dead"] {
            counter!(observe::JOBS, "route" => route.to_owned(), "result" => result).absolute(0);
        }
    }
}
