//! Requests without a key: they pass to the upstream as they came, are counted, and have a log
//! line.
//!
//! If a client hangs up before the answer begins, there is no log line.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};

use super::problems::Kind;
use super::reply;
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::{Dialect, Matched, UNLISTED_TIMEOUT};
use crate::gateway::telemetry::times::{RouteTimes, Where};
use crate::gateway::telemetry::trace::{self, Trace};
use crate::ports::upstream::{CredentialRefused, SendError};
use crate::ports::{Body, Ports, Upstream};
use crate::protocol::time::Moment;

/// Facts about a request that passes, for its log line and its upstream.
pub struct Passing {
    pub times: Arc<RouteTimes>,
    trace: Trace,
    arrived: Moment,
    /// The upstream that gets it; `None` is the default one.
    pub upstream: Option<Arc<str>>,
    /// Time for which that may be silent.
    pub within: Duration,
}

impl Passing {
    /// A request of this trace that the routes matched so, and that came at this moment.
    pub fn of(times: Arc<RouteTimes>, matched: Matched<'_>, trace: Trace, arrived: Moment) -> Self {
        let (upstream, within) = match matched {
            Matched::Route(route) => (route.upstream().cloned(), route.terms.upstream_timeout),
            Matched::PassThrough | Matched::Refused(_) => (None, UNLISTED_TIMEOUT),
        };
        Self { times, trace, arrived, upstream, within }
    }
}

impl<P: Ports> Gateway<P> {
    pub(in crate::gateway) async fn pass(&self, passing: Passing, request: Request<Body>) -> Response<Body> {
        let upstream = passing.upstream.as_deref();
        let answered = self.ports.upstream().pass(upstream, request, passing.within).await;
        self.passed(&passing, answered)
    }

    /// Counts and logs the result of a pass: the one line per request.
    pub(in crate::gateway) fn passed(
        &self,
        passing: &Passing,
        answered: Result<Response<Body>, SendError>,
    ) -> Response<Body> {
        self.passes.count(&answered);
        let Passing { times, trace, arrived, .. } = passing;
        let route = times.route();
        let (region, epoch) = (&self.settings.me, self.view().epoch());
        let result = match answered {
            Ok(response) if response.extensions().get::<CredentialRefused>().is_some() => {
                Err(self.later(Kind::CredentialRefused))
            }
            Ok(response) => Ok(response),
            Err(error) => {
                tracing::warn!(%region, %error, %trace, "pass-through failed");
                Err(match error {
                    SendError::NotSent(_) => self.later(Kind::UpstreamUnavailable),
                    SendError::Unknown(_) => Kind::UpstreamBroke.problem(),
                    SendError::Late(_) => Kind::UpstreamSilent.problem(),
                })
            }
        };
        let (response, verdict, code) = match result {
            Ok(response) => (response, "passed", "-"),
            Err(problem) => (reply::refuse(&problem, Dialect::Plain), "refused", problem.code()),
        };
        let (status, took) = (response.status(), self.now().since(*arrived));
        times.request(verdict, status, Where::Here, took);
        let (status, ms) = (status.as_u16(), took.as_millis());
        trace::passed(route, region, epoch);
        trace::answered(verdict, code, status);
        tracing::info!(%route, %region, verdict, code, status, epoch, ms = ms as u64, %trace, "passed");
        response
    }
}
