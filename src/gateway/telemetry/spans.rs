//! Spans of requests, for a trace collector if one is configured; the log holds none of it.
//!
//! `server::spans` begins a span; this file records its steps and its end. Keys are digests.

use http::HeaderMap;
use tracing::field::display;
use tracing::{Span, trace_span};

use crate::gateway::request::ask::Ask;
use crate::ports::jobs::{Content, Job};
use crate::ports::observe::SPANS;
use crate::protocol::key::KeyId;
use crate::protocol::region::RegionName;

/// Begins a span in the trace that headers name, and has them name it.
pub type Begin = fn(&mut HeaderMap) -> Span;

pub(in crate::gateway) fn upstream() -> Span {
    trace_span!(target: SPANS, "upstream", otel.kind = "client")
}

pub(in crate::gateway) fn forward(owner: &RegionName) -> Span {
    trace_span!(target: SPANS, "forward", otel.kind = "client", %owner)
}

/// Begins the span of one run of a job, in the trace that its request's headers name.
pub(in crate::gateway) fn job(begin: Option<Begin>, job: &mut Job) -> Span {
    match (begin, &mut job.content) {
        (Some(begin), Content::Whole(request)) => begin(&mut request.headers),
        (Some(_), Content::Unreadable(_) | Content::Erased) | (None, _) => Span::none(),
    }
}

/// Records a keyed request, at the gateway that decides or forwards it.
pub(in crate::gateway) fn asked(ask: &Ask, region: &RegionName, epoch: u64) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("request", display(&ask.request_id)).record("route", &*ask.route);
    span.record("tenant", display(ask.id.tenant())).record("key", display(ask.id.digest()));
    span.record("region", display(region)).record("epoch", epoch);
}

pub(in crate::gateway) fn answered(verdict: &'static str, code: &'static str, status: u16) {
    Span::current().record("verdict", verdict).record("code", code).record("status", status);
}

pub(in crate::gateway) fn forwarded(owner: &RegionName) {
    Span::current().record("owner", display(owner));
}

/// Records a request that passes without a key.
pub(in crate::gateway) fn passed(route: &str, region: &RegionName, epoch: u64) {
    Span::current().record("route", route).record("region", display(region)).record("epoch", epoch);
}

pub(in crate::gateway) fn looked_up(id: &KeyId, region: &RegionName, epoch: u64) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("tenant", display(id.tenant())).record("key", display(id.digest()));
    span.record("region", display(region)).record("epoch", epoch);
}

pub(in crate::gateway) fn ran(
    job: &Job,
    route: &str,
    region: &RegionName,
    epoch: u64,
    result: &'static str,
    trouble: &str,
) {
    let (span, id) = (Span::current(), &job.taken.id);
    if span.is_disabled() {
        return;
    }
    span.record("request", display(&job.request_id)).record("route", route);
    span.record("tenant", display(id.tenant())).record("key", display(id.digest()));
    span.record("region", display(region)).record("epoch", epoch).record("runs", job.runs);
    span.record("result", result).record("trouble", trouble);
}
