//! Spans: what a request is told of to a collector, where one is configured.
//!
//! Neighbours: `server::spans` begins the span of a request or a run of a job; its end and what it waits for are told here. Nothing of it is in the log, and without
//! a collector nobody looks at it: the level and target of these spans are in no usual filter. It must not decide anything, nor tell what the log
//! would not tell: keys are digests.

use http::HeaderMap;
use tracing::field::display;
use tracing::{Span, trace_span};

use super::admit::Ask;
use crate::ports::jobs::{Content, Job};
use crate::ports::observe::SPANS;
use crate::protocol::key::KeyId;
use crate::protocol::region::RegionName;

/// Begins a span in the trace that headers name, and has them name it.
pub type Begin = fn(&mut HeaderMap) -> Span;

/// A call of the store.
pub(super) fn store(op: &'static str) -> Span {
    trace_span!(target: SPANS, "store", otel.name = op, otel.kind = "client", op)
}

/// A request to the upstream under a claim.
pub(super) fn upstream() -> Span {
    trace_span!(target: SPANS, "upstream", otel.kind = "client")
}

/// A hop to the owner.
pub(super) fn forward(owner: &RegionName) -> Span {
    trace_span!(target: SPANS, "forward", otel.kind = "client", %owner)
}

/// One run of a job, in the trace of the request that was accepted. Without its headers nobody knows which.
pub(super) fn job(begin: Option<Begin>, job: &mut Job) -> Span {
    match (begin, &mut job.content) {
        (Some(begin), Content::Whole(request)) => begin(&mut request.headers),
        (Some(_), Content::Unreadable(_) | Content::Erased) | (None, _) => Span::none(),
    }
}

/// What a keyed request asks, where it is decided or sent on.
pub(super) fn asked(ask: &Ask, region: &RegionName, epoch: u64) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("request", display(&ask.request_id)).record("route", &*ask.route);
    span.record("tenant", display(ask.id.tenant())).record("key", display(ask.id.digest()));
    span.record("region", display(region)).record("epoch", epoch);
}

/// What became of a request here.
pub(super) fn answered(verdict: &'static str, code: &'static str, status: u16) {
    Span::current().record("verdict", verdict).record("code", code).record("status", status);
}

/// Who answered it.
pub(super) fn forwarded(owner: &RegionName) {
    Span::current().record("owner", display(owner));
}

/// What passes without a key.
pub(super) fn passed(route: &str, region: &RegionName, epoch: u64) {
    Span::current().record("route", route).record("region", display(region)).record("epoch", epoch);
}

/// Which key's state is asked for.
pub(super) fn looked_up(id: &KeyId, region: &RegionName, epoch: u64) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("tenant", display(id.tenant())).record("key", display(id.digest()));
    span.record("region", display(region)).record("epoch", epoch);
}

/// What a run of a job came to.
pub(super) fn ran(
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
