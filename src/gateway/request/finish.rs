//! The end of a keyed request: rendered, counted, logged.
//!
//! [`super::reply`] renders. This file must not decide anything: every reply was decided before.

use http::Response;

use super::ask::Ask;
use super::problems::Kind;
use super::reply::{self, Reply};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::times::Where;
use crate::gateway::telemetry::{metrics, spans, trace};
use crate::ports::{Body, Clock, Ports};

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
            gateway.generators.mismatched(ask, gateway.ports.clock());
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
