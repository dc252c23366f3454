//! The end of a keyed request: rendered, counted, logged. Also functions that several flows share.
//!
//! [`super::reply`] renders. This file must not decide anything: every reply was decided before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Response;

use super::admit::Ask;
use super::problems::{Kind, Problem};
use super::reply::{self, Reply};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics::Where;
use crate::gateway::telemetry::{metrics, spans, trace};
use crate::gateway::upkeep::key_habits;
use crate::ports::{Body, Clock, Dice, Ports};
use crate::protocol::record::{Reading, Row, resolve};
use crate::protocol::time::Date;

/// The reply to a request whose outcome is not known.
pub(in crate::gateway) fn unknown<P: Ports>(gateway: &Gateway<P>, expires: Option<Date>) -> Reply {
    Reply::Refused(later(gateway, Kind::OutcomeUnknown), expires)
}

/// A problem that may be over in a second or some.
pub(in crate::gateway) fn later<P: Ports>(gateway: &Gateway<P>, kind: Kind) -> Problem {
    kind.after(jittered(gateway, Duration::from_secs(1)))
}

/// The problem of a key whose owner is changing. A move takes well below a second.
pub(in crate::gateway) fn moving<P: Ports>(gateway: &Gateway<P>) -> Problem {
    const LEAST: Duration = Duration::from_millis(250);
    Kind::Moving.after(LEAST + gateway.ports.dice().jitter(LEAST * 2))
}

/// Reads the rows of a key as this gateway does. Its knowledge of other regions counts.
pub(in crate::gateway) fn read<P: Ports>(gateway: &Gateway<P>, rows: Vec<Row>) -> Reading {
    resolve(rows, &gateway.reader())
}

/// At least `span`, and up to as much again or three seconds more, so that refused clients do not
/// come back together. Whole seconds, each equally likely, since `Retry-After` has no others (RFC
/// 9110, section 10.2.3).
pub(in crate::gateway) fn jittered<P: Ports>(gateway: &Gateway<P>, span: Duration) -> Duration {
    const VALUES: u64 = 4;
    let least = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    let below = Duration::from_secs(least.max(VALUES)) - Duration::from_nanos(1);
    Duration::from_secs(least + gateway.ports.dice().jitter(below).as_secs())
}

/// Waits for others on behalf of a request: its overhead leaves that time out.
pub(in crate::gateway) async fn waits<P: Ports, T>(
    gateway: &Gateway<P>,
    ask: &Ask,
    others: impl Future<Output = T>,
) -> T {
    let clock = gateway.ports.clock();
    let begun = clock.now();
    let result = others.await;
    ask.waited.add(clock.now().since(begun));
    result
}

/// Renders, counts and logs the reply of this region: the one line per request.
pub(in crate::gateway) fn finish<P: Ports>(gateway: &Gateway<P>, ask: &Ask, reply: Reply) -> Response<Body> {
    finish_from(gateway, ask, reply, Where::Here)
}

/// Does the same for a request that may have been sent on.
pub(in crate::gateway) fn finish_from<P: Ports>(
    gateway: &Gateway<P>,
    ask: &Ask,
    reply: Reply,
    from: Where,
) -> Response<Body> {
    let (verdict, code) = (reply.verdict(), reply.code());
    if let Reply::Refused(problem, _) = &reply {
        metrics::refused(problem);
        if problem.kind == Kind::KeyReused {
            key_habits::mismatched(gateway, ask);
        }
    }
    gateway.give_back(ask, reply.is_retry());
    metrics::answer(&ask.route, ask.id.tenant(), verdict);
    let response = reply::render(reply, ask, &gateway.settings.me);
    let took = gateway.ports.clock().now().since(ask.arrived);
    if let Some(times) = &ask.times {
        times.request(verdict, response.status(), from, took);
        if from == Where::Here {
            times.overhead(took.saturating_sub(ask.waited.all()));
        }
    }
    spans::asked(ask, &gateway.settings.me, gateway.view().epoch());
    spans::answered(verdict, code, response.status().as_u16());
    tracing::info!(
        request = %ask.request_id, route = %ask.route, tenant = %ask.id.tenant(), key = %ask.id.digest(),
        region = %gateway.settings.me, verdict, code, status = response.status().as_u16(),
        epoch = gateway.view().epoch(), ms = took.as_millis() as u64, trace = %trace::of(&ask.headers),
        "answered"
    );
    response
}

/// A piece of work that a stop waits for: a request, or a look for jobs that are due.
pub(in crate::gateway) struct InFlight<P: Ports> {
    gateway: Arc<Gateway<P>>,
    is_look: bool,
}

impl<P: Ports> InFlight<P> {
    pub(in crate::gateway) fn begin(gateway: Arc<Gateway<P>>) -> Self {
        Self::of(gateway, false)
    }

    /// A look for due jobs. It is not shown, as no request may be behind it.
    pub(in crate::gateway) fn look(gateway: Arc<Gateway<P>>) -> Self {
        Self::of(gateway, true)
    }

    fn of(gateway: Arc<Gateway<P>>, is_look: bool) -> Self {
        gateway.in_flight.fetch_add(1, Ordering::SeqCst);
        if !is_look {
            gateway.requests.fetch_add(1, Ordering::SeqCst);
            gateway.requests_shown.increment(1.0);
        }
        Self { gateway, is_look }
    }
}

impl<P: Ports> Drop for InFlight<P> {
    fn drop(&mut self) {
        if !self.is_look {
            self.gateway.requests.fetch_sub(1, Ordering::SeqCst);
            self.gateway.requests_shown.decrement(1.0);
        }
        if self.gateway.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.gateway.idle.notify_waiters();
        }
    }
}
