//! The trace that a request belongs to (W3C Trace Context), and the spans of requests and jobs.
//!
//! It goes with the request to the owner, the upstream and a stored job. Without a collector the
//! client's `traceparent` goes on unchanged: no tracing backend would know another parent.
//! `server::spans` begins a span, this file records its steps. Keys are digests, as in the log.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::field::display;
use tracing::{Span, trace_span};

use crate::gateway::request::ask::Ask;
use crate::ports::jobs::{Content, Job};
use crate::ports::observe::SPANS;
use crate::protocol::key::KeyId;
use crate::protocol::record::RequestId;
use crate::protocol::region::RegionName;

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Length of the part that every version has: `00-<32 digits>-<16 digits>-01`.
const LENGTH: usize = 55;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub trace: u128,
    pub span: u64,
    pub sampled: bool,
}

/// A trace id; `-` without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace(Option<u128>);

pub const NONE: Trace = Trace(None);

impl fmt::Display for Trace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(out, "{id:032x}"),
            None => out.write_str("-"),
        }
    }
}

pub fn of(headers: &HeaderMap) -> Trace {
    Trace(parent(headers).map(|parent| parent.trace))
}

/// The span that these headers name.
pub fn parent(headers: &HeaderMap) -> Option<Parent> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    // With two lines, each reader may take another one.
    let (Some(line), None) = (lines.next(), lines.next()) else { return None };
    read(line.as_bytes())
}

/// Leaves the headers of a request that belongs to a trace. Otherwise begins one, named after the
/// request and *sampled*: samplers that follow the parent would otherwise record none.
pub fn follow(headers: &mut HeaderMap, request: RequestId) -> Trace {
    let theirs = of(headers);
    if theirs.0.is_some() {
        return theirs;
    }
    // The state of an unreadable trace is of no use (section 3.3 of the recommendation).
    headers.remove(TRACESTATE);
    // Neither id may be zero.
    let (id, parent) = (request.0.max(1), u128::from(request.0 as u64).max(1));
    let mut line = *b"00-00000000000000000000000000000000-0000000000000000-01";
    write_hex(&mut line[3..35], id);
    write_hex(&mut line[36..52], parent);
    let line = HeaderValue::from_bytes(&line);
    headers.insert(TRACEPARENT, line.expect("hex digits and dashes are visible ASCII"));
    Trace(Some(id))
}

/// Writes the last digits of a number. The formatter of the library costs a passed request more.
fn write_hex(digits: &mut [u8], mut number: u128) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 0xf) as usize];
        number >>= 4;
    }
}

pub fn alone(headers: &HeaderMap) -> HeaderMap {
    let lines = [TRACEPARENT, TRACESTATE].into_iter();
    let lines =
        lines.flat_map(|name| headers.get_all(&name).iter().map(move |line| (name.clone(), line.clone())));
    lines.collect()
}

/// Reads a header line (section 3.2). Later versions may add text after the known part.
fn read(line: &[u8]) -> Option<Parent> {
    let (known, more) = line.split_at_checked(LENGTH)?;
    let mut parts = known.split(|byte| *byte == b'-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lengths = [version.len(), trace.len(), parent.len(), flags.len()];
    let whole = match version {
        b"00" => more.is_empty(),
        b"ff" => false,
        _ => more.is_empty() || more.starts_with(b"-"),
    };
    if lengths != [2, 32, 16, 2] || !whole {
        return None;
    }
    hex(version)?;
    let (trace, span, sampled) = (hex(trace)?, hex(parent)? as u64, hex(flags)? & 1 == 1);
    (trace != 0 && span != 0).then_some(Parent { trace, span, sampled })
}

/// Reads lower-case digits only, as the recommendation has it.
fn hex(digits: &[u8]) -> Option<u128> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    digits.iter().try_fold(0, |number: u128, byte| Some(number << 4 | u128::from(digit(*byte)?)))
}

/// Begins a span in the trace that headers name, and has them name it.
pub type Begin = fn(&mut HeaderMap) -> Span;

pub fn upstream() -> Span {
    trace_span!(target: SPANS, "upstream", otel.kind = "client")
}

pub fn forward(owner: &RegionName) -> Span {
    trace_span!(target: SPANS, "forward", otel.kind = "client", %owner)
}

/// Begins the span of one run of a job, in the trace that its request's headers name.
pub fn job(begin: Option<Begin>, job: &mut Job) -> Span {
    match (begin, &mut job.content) {
        (Some(begin), Content::Whole(request)) => begin(&mut request.headers),
        (Some(_), Content::Unreadable(_) | Content::Erased) | (None, _) => Span::none(),
    }
}

/// Records a keyed request, at the gateway that decides or forwards it.
pub(in crate::gateway) fn asked(ask: &Ask, region: &RegionName, epoch: u64) {
    Span::current().record("request", display(&ask.request_id)).record("route", &*ask.route);
    of_key(&ask.id, region, epoch);
}

pub fn answered(verdict: &'static str, code: &'static str, status: u16) {
    Span::current().record("verdict", verdict).record("code", code).record("status", status);
}

pub fn forwarded(owner: &RegionName) {
    Span::current().record("owner", display(owner));
}

pub fn passed(route: &str, region: &RegionName, epoch: u64) {
    Span::current().record("route", route).record("region", display(region)).record("epoch", epoch);
}

pub fn of_key(id: &KeyId, region: &RegionName, epoch: u64) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("tenant", display(id.tenant())).record("key", display(id.digest()));
    span.record("region", display(region)).record("epoch", epoch);
}

pub fn ran(job: &Job, route: &str, region: &RegionName, epoch: u64, result: &'static str, trouble: &str) {
    let span = Span::current();
    span.record("request", display(&job.request_id)).record("route", route);
    of_key(&job.taken.id, region, epoch);
    span.record("runs", job.runs).record("result", result).record("trouble", trouble);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const ID: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;

    #[test]
    fn a_header_line_names_a_trace_or_none() {
        let later = [
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
        ];
        for line in [GOOD, later[0], later[1]] {
            let parent = Parent { trace: ID, span: 0x00f0_67aa_0ba9_02b7, sampled: true };
            assert_eq!(read(line.as_bytes()), Some(parent), "{line}");
        }
        let unsampled = GOOD.replace("-01", "-02");
        assert!(!read(unsampled.as_bytes()).unwrap().sampled, "another flag");
        for line in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902bg-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47-3600f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
        ] {
            assert_eq!(read(line.as_bytes()), None, "{line:?}");
        }
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let one = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(one).collect()
    }

    #[test]
    fn a_clients_trace_goes_on_as_it_came() {
        let before = headers(&[("traceparent", GOOD), ("tracestate", "vendor=1")]);
        let mut after = before.clone();
        follow(&mut after, RequestId(7));
        assert_eq!((of(&after), after), (Trace(Some(ID)), before));
    }

    #[test]
    fn only_the_trace_headers_are_forwarded() {
        let lines = [
            ("tracestate", "a=1"),
            ("authorization", "Bearer t"),
            ("traceparent", GOOD),
            ("tracestate", "b=2"),
        ];
        let mut map = HeaderMap::new();
        for (name, line) in lines {
            map.append(name, HeaderValue::from_static(line));
        }
        let left = alone(&map);
        let states: Vec<&str> = left.get_all(TRACESTATE).iter().map(|line| line.to_str().unwrap()).collect();
        assert_eq!((left.len(), of(&left), states), (3, Trace(Some(ID)), vec!["a=1", "b=2"]));
    }

    #[test]
    fn a_missing_or_unreadable_trace_begins_a_new_one() {
        let none: [&[_]; 4] = [
            &[],
            &[("tracestate", "vendor=1")],
            &[("traceparent", "rubbish"), ("tracestate", "vendor=1")],
            &[("traceparent", GOOD), ("traceparent", GOOD)],
        ];
        for lines in none {
            let mut map = headers(lines);
            assert_eq!(of(&map).to_string(), "-");
            follow(&mut map, RequestId(0xab << 64));
            let begun =
                headers(&[("traceparent", "00-00000000000000ab0000000000000000-0000000000000001-01")]);
            assert_eq!(map, begun, "{lines:?}");
            assert_eq!(of(&map).to_string(), "00000000000000ab0000000000000000");
        }
    }
}
