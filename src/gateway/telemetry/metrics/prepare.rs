//! The first scrape: every series that the configuration names has its HELP, its TYPE and a zero.
//!
//! Those of a tenant begin with its first request. This file must not count anything.

use metrics::{counter, gauge};

use super::region::{
    config_current, heartbeat, hindrances, peer_disagrees, peer_foreign, peer_up, upstream_sick,
};
use super::store::{doubts, job_load, store_up};
use crate::gateway::policy::route::Routes;
use crate::gateway::request::problems::codes;
use crate::gateway::telemetry::labels::route_label;
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

pub(in crate::gateway) fn prepare(me: &RegionName, routes: &Routes, in_shadow: bool, view: &View) {
    for metric in observe::ALL {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
    prepare_risks();
    prepare_routes(routes);
    job_load(&JobLoad::default());
    for code in codes() {
        counter!(observe::REFUSALS, "code" => code).absolute(0);
    }
    let by_result: [(&'static str, &[&'static str]); 6] = [
        (observe::OTLP_SPANS, &["exported", "dropped", "failed"]),
        (observe::CONFIG_RELOADS, &["ok", "failed"]),
        (observe::ATTACHED, &["replayed", "waited_out"]),
        (observe::PROBES, &["happened", "did_not_happen", "too_early", "cannot_say"]),
        (observe::REAPED, &["expired", "forgotten", "kept"]),
        (observe::SWEPT, &["abandoned", "settled", "released"]),
    ];
    for (name, results) in by_result {
        results.iter().for_each(|result| counter!(name, "result" => *result).absolute(0));
    }
    config_current(true);
    prepare_store();
    for name in LOOPS {
        counter!(observe::LOOP_DIED, "loop" => name).absolute(0);
    }
    for sender in Sender::ALL {
        counter!(observe::PEER_REFUSED, "sender" => sender.word()).absolute(0);
    }
    let plain = [
        observe::LOCAL_REPLAYS,
        observe::CLAIMS_UNCONFIRMED,
        observe::SENDS_REFUSED,
        observe::SETTLES_RETRIED,
        observe::LOG_DROPPED,
    ];
    for name in plain {
        counter!(name).absolute(0);
    }
    view.members().keys().filter(|name| *name != me).for_each(prepare_peer);
    // Shadow mode asks neither store nor peers, so it must not report them as silent.
    if !in_shadow {
        store_up(false);
        counter!(observe::AUDIT_PASSES).absolute(0);
        view.members().keys().filter(|name| *name != me).for_each(|peer| peer_up(peer, false));
    }
    gauge!(observe::EPOCH).set(view.epoch() as f64);
    gauge!(observe::PROTOCOL).set(f64::from(view.protocol()));
    doubts(0);
    heartbeat(0);
    hindrances(&[]);
}

fn prepare_peer(peer: &RegionName) {
    for result in ["answered", "not_sent", "unknown", "not_owner", "silent", "version"] {
        counter!(observe::FORWARDS, "to" => peer.to_string(), "result" => result).absolute(0);
    }
    peer_foreign(peer, false);
    peer_disagrees(peer, false);
}

fn prepare_store() {
    const OPS: [&str; 13] = [
        "claim", "accept", "settle", "release", "doubt", "look_up", "reap", "sweep", "count", "take",
        "lodge", "late", "audit",
    ];
    for calls in ["reads", "writes"] {
        gauge!(observe::STORE_BREAKER, "calls" => calls).set(0.0);
        counter!(observe::STORE_SPARED, "calls" => calls).absolute(0);
    }
    for op in OPS {
        for kind in ["definite", "unknown"] {
            counter!(observe::STORE_ERRORS, "op" => op, "kind" => kind).absolute(0);
        }
    }
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

fn prepare_risks() {
    counter!(observe::DRAINED_BY_HEALTH).absolute(0);
    upstream_sick(false);
    for result in ["lodged", "alone", "refused", "stale", "unavailable", "answer_lodged", "answer_failed"] {
        counter!(observe::ESCROWS, "result" => result).absolute(0);
    }
}
