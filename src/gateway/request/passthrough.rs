//! Requests without a key: they pass to the upstream as they came, are counted, and have a log
//! line.
//!
//! Only the client waits for such a request: if it hangs up before the answer begins, there is no
//! log line. This file must not look at a key, nor hold a body.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use super::problems::Kind;
use super::reply;
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::{Dialect, Matched, UNLISTED_TIMEOUT};
use crate::gateway::telemetry::spans;
use crate::gateway::telemetry::times::{RouteTimes, Where};
use crate::gateway::telemetry::trace::Trace;
use crate::ports::upstream::{CredentialRefused, SendError};
use crate::ports::{Body, Clock, Ports, Upstream};
use crate::protocol::time::Moment;

/// Facts for the log line of a request that passes.
pub struct Passing {
    times: Arc<RouteTimes>,
    trace: Trace,
    arrived: Moment,
    /// The upstream that gets it, and the time for which that may be silent.
    pub(in crate::gateway) to: To,
}

/// The upstream of a request that passes.
pub(in crate::gateway) struct To {
    /// Its name; `None` is the default one.
    pub(in crate::gateway) upstream: Option<Arc<str>>,
    /// Time for which it may be silent.
    pub(in crate::gateway) within: Duration,
}

/// The upstream of a request that passes.
pub(in crate::gateway) fn to(matched: Matched<'_>) -> To {
    match matched {
        Matched::Route(route) => To { upstream: route.upstream().cloned(), within: route.upstream_timeout() },
        Matched::PassThrough | Matched::Refused(_) => To { upstream: None, within: UNLISTED_TIMEOUT },
    }
}

impl Passing {
    /// A request of this trace, on this route, that came at this moment.
    pub(in crate::gateway) fn of(times: Arc<RouteTimes>, to: To, trace: Trace, arrived: Moment) -> Self {
        Self { times, trace, arrived, to }
    }

    /// The series of its route.
    pub(in crate::gateway) fn times(&self) -> &RouteTimes {
        &self.times
    }
}

impl<P: Ports> Gateway<P> {
    pub(in crate::gateway) async fn pass(&self, passing: Passing, request: Request<Body>) -> Response<Body> {
        let To { upstream, within } = &passing.to;
        let answered = self.ports.upstream().pass(upstream.as_deref(), request, *within).await;
        self.passed(&passing, answered)
    }

    /// Counts and logs the result of a pass: the one line per request.
    pub(in crate::gateway) fn passed(
        &self,
        passing: &Passing,
        answered: Result<Response<Body>, SendError>,
    ) -> Response<Body> {
        self.passes.count(&answered);
        let Passing { times, trace, arrived, to: _ } = passing;
        let route = times.route();
        let (region, epoch) = (&self.settings.me, self.view().epoch());
        let (response, verdict, code) = match answered {
            Ok(response) if response.extensions().get::<CredentialRefused>().is_some() => {
                let problem = self.later(Kind::CredentialRefused);
                (reply::refuse(&problem, Dialect::Plain), "refused", problem.code())
            }
            Ok(response) => (response, "passed", "-"),
            Err(error) => {
                tracing::warn!(%region, %error, %trace, "pass-through failed");
                let problem = match error {
                    SendError::NotSent(_) => self.later(Kind::UpstreamUnavailable),
                    SendError::Unknown(_) => Kind::UpstreamBroke.problem(),
                    SendError::Late(_) => Kind::UpstreamSilent.problem(),
                };
                (reply::refuse(&problem, Dialect::Plain), "refused", problem.code())
            }
        };
        let (status, took) = (response.status(), self.ports.clock().now().since(*arrived));
        times.request(verdict, status, Where::Here, took);
        let (status, ms) = (status.as_u16(), took.as_millis());
        spans::passed(route, region, epoch);
        spans::answered(verdict, code, status);
        tracing::info!(%route, %region, verdict, code, status, epoch, ms = ms as u64, %trace, "passed");
        response
    }
}
