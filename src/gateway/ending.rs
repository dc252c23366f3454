//! How a keyed request ends: rendered, counted, logged; and what more than one flow needs for that.
//!
//! Neighbours: every flow of the gateway ends here; [`super::reply`] renders. It must not decide anything: what is told was
//! decided before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Response;

use super::admit::Ask;
use super::problems::Problem;
use super::reply::{self, Reply};
use super::{Gateway, generators, metrics, spans, trace};
use crate::ports::{Body, Clock, Dice, Ports};
use crate::protocol::record::{Reading, Row, resolve};
use crate::protocol::time::Date;

/// The reply to a request whose outcome is not known.
pub(super) fn unknown<P: Ports>(gateway: &Gateway<P>, expires: Option<Date>) -> Reply {
    let after = jittered(gateway, Duration::from_secs(1));
    Reply::Refused(Problem::OutcomeUnknown { upstream: None, after }, expires)
}

/// What the rows of a key mean, read from here, by a clock that is trusted or not, and by what is known of other regions.
pub(super) fn read<P: Ports>(gateway: &Gateway<P>, mut rows: Vec<Row>) -> Reading {
    gateway.distrust(&mut rows);
    resolve(rows, &gateway.reader())
}

/// At least `span`, and up to as much again or three seconds more, so that those who were refused together do not come back together: in whole
/// seconds, each as likely, since `Retry-After` has no others (RFC 9110, section 10.2.3).
pub(super) fn jittered<P: Ports>(gateway: &Gateway<P>, span: Duration) -> Duration {
    const VALUES: u64 = 4;
    let least = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    let below = Duration::from_secs(least.max(VALUES)) - Duration::from_nanos(1);
    Duration::from_secs(least + gateway.ports.dice().jitter(below).as_secs())
}

/// When to ask again for a key that is just moving: a move takes well below a second.
pub(super) fn shortly<P: Ports>(gateway: &Gateway<P>) -> Duration {
    const LEAST: Duration = Duration::from_millis(250);
    LEAST + gateway.ports.dice().jitter(LEAST * 2)
}

/// Renders, counts and logs the reply: the one line per request.
pub(super) fn finish<P: Ports>(gateway: &Gateway<P>, ask: &Ask, reply: Reply) -> Response<Body> {
    let (verdict, code) = (reply.verdict(), reply.code());
    if let Reply::Refused(problem, _) = &reply {
        metrics::refused(problem);
        if matches!(problem, Problem::KeyReused { .. }) {
            generators::mismatched(gateway, ask);
        }
    }
    gateway.give_back(ask, reply.is_retry());
    metrics::answer(&ask.route, ask.id.tenant(), verdict);
    let response = reply::render(reply, &ask.echo, ask.request_id, &gateway.settings.me);
    let took = gateway.ports.clock().now().since(ask.arrived);
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

/// One piece of work that a stop waits for.
pub(super) struct InFlight<P: Ports>(Arc<Gateway<P>>);

impl<P: Ports> InFlight<P> {
    pub(super) fn begin(gateway: Arc<Gateway<P>>) -> Self {
        metrics::in_flight(gateway.in_flight.fetch_add(1, Ordering::SeqCst) + 1);
        Self(gateway)
    }
}

impl<P: Ports> Drop for InFlight<P> {
    fn drop(&mut self) {
        let left = self.0.in_flight.fetch_sub(1, Ordering::SeqCst) - 1;
        metrics::in_flight(left);
        if left == 0 {
            self.0.idle.notify_waiters();
        }
    }
}
