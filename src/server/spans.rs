//! Spans of requests, forwards and runs of jobs at this gateway (feature `otlp`).
//!
//! A span continues the trace that the headers name, and later spans continue this one. A sampled
//! span replaces the parent in the headers: then a collector has seen it. Otherwise the headers
//! stay as they came. `gateway::telemetry::trace` fills spans in; `adapters::otlp` exports them.

use http::{HeaderMap, HeaderValue};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::gateway::telemetry::trace::Begin;
use crate::gateway::telemetry::trace::{self, TRACEPARENT, TRACESTATE};
use crate::ports::observe::SPANS;

/// Begins the span of a request with these headers, and writes it into them.
pub(super) fn request(name: &'static str, headers: &mut HeaderMap) -> Span {
    begin(name, "server", headers)
}

/// Makes the span of one run of a job, from the headers of the accepted request.
///
/// The client does not wait for the job, so the kind is consumer (OpenTelemetry, trace API,
/// SpanKind). The span handles that one request and no span surrounds it. So the request's span may
/// be its parent (semantic conventions for messaging, "Process" spans).
pub(super) const JOB: Option<Begin> = Some(|headers| begin("job", "consumer", headers));

fn begin(name: &'static str, kind: &'static str, headers: &mut HeaderMap) -> Span {
    let span = tracing::trace_span!(
        target: SPANS, "request", otel.name = name, otel.kind = kind, request = Empty, route = Empty, tenant = Empty, key = Empty,
        region = Empty, owner = Empty, verdict = Empty, code = Empty, status = Empty, epoch = Empty, runs = Empty, result = Empty, trouble = Empty
    );
    let parent = trace::parent(headers);
    if let Some(parent) = &parent {
        let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let (trace, id) =
            (TraceId::from_bytes(parent.trace.to_be_bytes()), SpanId::from_bytes(parent.span.to_be_bytes()));
        let caller = SpanContext::new(trace, id, flags, true, TraceState::default());
        // This fails if nothing is exported. Then there is no span.
        drop(span.set_parent(Context::new().with_remote_span_context(caller)));
    }
    let context = span.context();
    let own = context.span().span_context().clone();
    if !own.is_valid() || (parent.is_some() && !own.is_sampled()) {
        return span;
    }
    if parent.is_none() {
        headers.remove(TRACESTATE);
    }
    let flags = u8::from(own.is_sampled());
    let line = format!("00-{}-{}-{flags:02x}", own.trace_id(), own.span_id());
    headers
        .insert(TRACEPARENT, HeaderValue::from_str(&line).expect("hex digits and dashes are visible ASCII"));
    span
}
