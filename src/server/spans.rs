//! The span of a request at this gateway, and of each run of a job (feature `otlp`): it continues the trace that the headers name, and what goes
//! on from here continues it.
//!
//! Neighbours: `super::run` begins one per request and per forward, and has the gateway begin one per run of a job; `gateway::spans` fills it in and
//! makes its children, `adapters::otlp` exports them. The parent in the headers is replaced by this span where it is sampled: then a collector has
//! seen it. What is not sampled goes on as it came. It must not decide anything about a request.

use http::{HeaderMap, HeaderValue};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::gateway::trace::{self, TRACEPARENT, TRACESTATE};
use crate::ports::observe::SPANS;

/// Begins the span of a request with these headers, and has them name it.
pub(super) fn request(name: &'static str, headers: &mut HeaderMap) -> Span {
    begin(name, "server", headers)
}

/// The same for one run of a job, by the headers of the request that was accepted. Whoever asked does not wait for it, which makes it a consumer
/// (OpenTelemetry, trace API, SpanKind); it handles that one request and nothing is around it, so the request's span may be its parent
/// (semantic conventions for messaging, "Process" spans).
pub(super) fn job(headers: &mut HeaderMap) -> Span {
    begin("job", "consumer", headers)
}

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
        // It fails where nothing is exported: then there is no span.
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
