//! Requests of a gateway in shadow mode, passed through; beside them their trials.
//!
//! `Gateway::handle` calls it first if the region file says `shadow = true`. [`super::memory`]
//! remembers keys, [`super::tee`] copies bodies as they stream. This file must not touch the store
//! or a peer.

use std::sync::{Arc, Mutex};

use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Request, Response};

use super::counts::{Report, Shadow, Verdict};
use super::tee::tee;
use super::trial::Trial;
use crate::gateway::instance::Gateway;
use crate::gateway::limits::quota::Quotas;
use crate::gateway::policy::route::{Matched, NO_ROUTE, Policy};
use crate::gateway::reloadable::Live;
use crate::gateway::request::admit::identify;
use crate::gateway::request::passthrough::Passing;
use crate::gateway::request::problems::Problem;
use crate::gateway::telemetry::trace;
use crate::ports::upstream::SendError;
use crate::ports::{Body, Clock, Ports, Upstream};
use crate::protocol::digest::digest;
use crate::protocol::outcome::Outcome;

impl<P: Ports> Gateway<P> {
    /// The expected decisions; `None` if this gateway is not in shadow mode.
    pub fn shadow_report(&self) -> Option<Report> {
        let inner = self.shadow.as_ref()?.lock();
        let (remembered, forgotten) = inner.memory.size();
        let seconds = self.ports.clock().now().since(self.begun).as_secs();
        let region = self.settings.me.to_string();
        let routes = inner.routes.iter().map(|(route, counts)| (route.to_string(), counts.clone())).collect();
        Some(Report { region, seconds, remembered, forgotten, routes })
    }
}

/// Passes a request, and counts its expected result.
pub async fn pass<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    shadow: &Arc<Shadow>,
    request: Request<Body>,
) -> Response<Body> {
    let arrived = gateway.ports.clock().now();
    let (head, body) = request.into_parts();
    let (method, path) = (&head.method, head.uri.path());
    let live = gateway.live();
    let matched = live.routes.find(method, path, &head.headers);
    let with_key = matched.has_key(&head.headers);
    gateway.coverage.saw(method, path, matched, with_key, false);
    let route = match matched {
        Matched::Route(route) => route.name.clone(),
        Matched::PassThrough | Matched::Refused(_) => NO_ROUTE.into(),
    };
    let policy = match matched {
        Matched::Refused(why) => {
            shadow.judge(&route, None, Verdict::refused(Problem::from(why).kind));
            None
        }
        Matched::Route(found) => found.policy_for(with_key).cloned(),
        Matched::PassThrough => None,
    };
    // The trace stays the client's: the request goes as it came.
    let times = live.times(&route).clone();
    let passing = Passing::of(times, matched, trace::of(&head.headers), arrived);
    let trial = match policy {
        Some(policy) => try_out(gateway, &live, shadow, route, policy, &head),
        None => {
            if !method.is_safe() && !matches!(matched, Matched::Refused(_)) {
                shadow.judge(&route, None, Verdict::Unprotected);
            }
            None
        }
    };
    match trial {
        Some(trial) => watch(gateway, trial, &passing, head, body).await,
        None => gateway.pass(passing, Request::from_parts(head, body)).await,
    }
}

/// Judges a keyed request before its body; `None` if it would have been refused for its head alone.
fn try_out<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    live: &Live<P>,
    shadow: &Arc<Shadow>,
    route: Arc<str>,
    policy: Arc<Policy>,
    head: &Parts,
) -> Option<Trial> {
    let (id, principal, _) = match identify(gateway, live, &policy, head) {
        Ok(identified) => identified,
        Err(problem) => {
            shadow.judge(&route, None, Verdict::refused(problem.kind));
            return None;
        }
    };
    let charged = match gateway.charge(live, id.tenant(), Quotas::charge) {
        Ok(charged) => charged,
        Err(problem) => {
            shadow.judge(&route, Some(&id), Verdict::refused(problem.kind));
            return None;
        }
    };
    let key = digest("onceway/shadow/1", &[id.tenant().as_bytes(), id.key().as_str().as_bytes()]);
    Some(Trial {
        shadow: shadow.clone(),
        charged,
        route,
        policy,
        id,
        principal,
        key,
        stage: Mutex::default(),
    })
}

/// Passes a keyed request whose body is copied as it streams by.
async fn watch<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    trial: Trial,
    passing: &Passing,
    head: Parts,
    body: Body,
) -> Response<Body> {
    let trial = Arc::new(trial);
    let at_end = {
        let (trial, ports) = (trial.clone(), gateway.ports.clone());
        let (method, target, headers) = (head.method.clone(), head.uri.clone(), head.headers.clone());
        move |copied| trial.came(copied, (&method, &target, &headers), ports.clock().now())
    };
    let body = tee(body, trial.policy.body_limit, at_end);
    let (request, upstream) = (Request::from_parts(head, body), passing.upstream.as_deref());
    let answered = gateway.ports.upstream().pass(upstream, request, passing.within).await;
    let answer = match &answered {
        Ok(response) => {
            let status = response.status().as_u16();
            let told_when = response.headers().contains_key(RETRY_AFTER);
            (trial.policy.outcomes.classify(status, told_when), Some(status))
        }
        Err(SendError::NotSent(_)) => (Outcome::NothingHappened, None),
        Err(SendError::Unknown(_) | SendError::Late(_)) => (Outcome::Unknown, None),
    };
    trial.answered(answer, gateway.ports.clock().now());
    gateway.passed(passing, answered)
}
