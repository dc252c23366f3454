//! What passes to the upstream without a key: it goes as it came, is counted, and has its line in the log.
//!
//! Neighbours: [`super::admit`] says what passes, [`super::entry`] lets it, [`super::shadow`] passes everything. Nobody waits for it but its client: one
//! that hangs up before the answer begins takes the line along. It must not look at a key, nor hold a body.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};

use super::ending::jittered;
use super::problems::Problem;
use super::route::{Matched, UNLISTED_TIMEOUT};
use super::trace::{self, Trace};
use super::{Gateway, metrics, reply, spans};
use crate::ports::upstream::SendError;
use crate::ports::{Body, Clock, Ports, Upstream};
use crate::protocol::time::Moment;

/// What stands for the route of a request that none takes.
pub(super) const NO_ROUTE: &str = "-";

/// What the line of a request that passes says of it.
pub struct Passing {
    route: Arc<str>,
    trace: Trace,
    arrived: Moment,
    /// How long the upstream may be silent.
    pub(super) within: Duration,
}

/// How long the upstream may be silent about a request that passes.
pub(super) fn within(matched: Matched<'_>) -> Duration {
    match matched {
        Matched::Route(route) => route.upstream_timeout(),
        Matched::PassThrough | Matched::Refused(_) => UNLISTED_TIMEOUT,
    }
}

impl Passing {
    /// A request with these headers, on this route.
    pub(super) fn of<P: Ports>(
        gateway: &Gateway<P>,
        route: Arc<str>,
        within: Duration,
        headers: &HeaderMap,
    ) -> Self {
        Self { route, trace: trace::of(headers), arrived: gateway.ports.clock().now(), within }
    }
}

impl<P: Ports> Gateway<P> {
    pub(super) async fn pass(&self, passing: Passing, request: Request<Body>) -> Response<Body> {
        let answered = self.ports.upstream().pass(request, passing.within).await;
        self.passed(&passing, answered)
    }

    /// What came of it, counted and logged: the one line per request.
    pub(super) fn passed(
        &self,
        passing: &Passing,
        answered: Result<Response<Body>, SendError>,
    ) -> Response<Body> {
        metrics::passed(&answered);
        let Passing { route, trace, arrived, within: _ } = passing;
        let (region, epoch) = (&self.settings.me, self.view().epoch());
        let (response, verdict, code) = match answered {
            Ok(response) => (response, "passed", "-"),
            Err(error) => {
                tracing::warn!(%region, %error, %trace, "pass-through failed");
                let problem = match error {
                    SendError::NotSent(_) => {
                        Problem::UpstreamUnavailable { after: jittered(self, Duration::from_secs(1)) }
                    }
                    SendError::Unknown(_) => Problem::UpstreamBroke,
                    SendError::Late(_) => Problem::UpstreamSilent,
                };
                (reply::refuse(&problem), "refused", problem.code())
            }
        };
        let (status, ms) = (response.status().as_u16(), self.ports.clock().now().since(*arrived).as_millis());
        spans::passed(route, region, epoch);
        spans::answered(verdict, code, status);
        tracing::info!(%route, %region, verdict, code, status, epoch, ms = ms as u64, %trace, "passed");
        response
    }
}
