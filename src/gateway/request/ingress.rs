//! The two ways into a gateway: a client's request, and one that a peer forwarded.
//!
//! [`crate::gateway::limits::concurrency`] gives each a place, and [`super::admit`] reads it.
//! [`super::forward`] answers keyed requests, [`super::passthrough`] streams the others.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response};

use super::admit::Admitted;
use super::forward::answer;
use super::problems::Problem;
use super::{address, admit, problems, reply};
use crate::gateway::instance::Gateway;
use crate::gateway::limits::concurrency::{Place, Whose};
use crate::gateway::policy::route::{Dialect, NO_ROUTE};
use crate::gateway::shadow;
use crate::gateway::telemetry::times::{RouteTimes, Where};
use crate::gateway::telemetry::{metrics, trace};
use crate::ports::peers::{Forward, ForwardReply};
use crate::ports::{Body, Ports};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Here;
use crate::protocol::time::Moment;

/// The sender's address, as the listener wrote it: a client's own such header is not passed on.
fn sender(headers: &HeaderMap) -> Option<IpAddr> {
    headers.get("x-forwarded-for")?.to_str().ok()?.parse().ok()
}

impl<P: Ports> Gateway<P> {
    /// Answers a client's request. Once a key is admitted, dropping the future cancels nothing.
    pub async fn handle(self: &Arc<Self>, request: Request<Body>) -> Response<Body> {
        if let Some(shadow) = &self.shadow {
            return Box::pin(shadow::pass::pass(self, shadow, request)).await;
        }
        let arrived = self.now();
        match self.place(Whose::Client) {
            Ok(place) => {
                place.keeps(request.extensions().get());
                self.placed(request, &place, arrived).await.map(|body| place.until_sent(body))
            }
            Err(problem) => {
                let response = self.refused(&problem, Dialect::Plain, &trace::of(request.headers()));
                self.timed("refused", None, Where::Here, arrived, response)
            }
        }
    }

    // Boxes: a request that passes would move the room for all that the others may hold.
    async fn placed(
        self: &Arc<Self>,
        request: Request<Body>,
        place: &Place,
        arrived: Moment,
    ) -> Response<Body> {
        let page = |response| self.timed("looked_up", None, Where::Here, arrived, response);
        if request.uri().path() == problems::PAGE {
            return page(reply::problems_page());
        }
        if address::is_asked(request.method(), request.uri().path()) {
            return Box::pin(address::answer(self, request, arrived)).await;
        }
        if request.uri().path() == problems::PUBLICATION
            && [Method::GET, Method::HEAD].contains(request.method())
        {
            return page(reply::publication(self.live().publication.clone()));
        }
        let trace = trace::of(request.headers());
        match admit::admit(self, request, place, arrived).await {
            Admitted::Pass(request, passing) if place.has_no_key(sender(request.headers())) => {
                self.pass(passing, *request).await
            }
            Admitted::Pass(_, passing) => {
                let response = self.refused(&self.overloaded(), Dialect::Plain, &trace);
                self.timed("refused", Some(&passing.times), Where::Here, arrived, response)
            }
            Admitted::Refused(problem, dialect, echo, times) => {
                let response = self.refused(&problem, dialect, &trace);
                let mut response = self.timed("refused", Some(&times), Where::Here, arrived, response);
                if let Some(echo) = echo {
                    response.headers_mut().insert(reply::KEY, echo);
                }
                response
            }
            Admitted::Keyed(ask) => {
                self.generators.admitted(&ask, self.ports.clock());
                answer(self, ask, true).await
            }
        }
    }

    /// Records the time of a client's request up to this answer. Without a route, none took it.
    pub(in crate::gateway) fn timed(
        &self,
        verdict: &'static str,
        route: Option<&RouteTimes>,
        from: Where,
        arrived: Moment,
        response: Response<Body>,
    ) -> Response<Body> {
        let (live, took) = (self.live.load(), self.now().since(arrived));
        let times = route.unwrap_or_else(|| live.times(NO_ROUTE));
        times.request(verdict, response.status(), from, took);
        response
    }

    /// Refuses a request that was not admitted; counts and logs it.
    pub(in crate::gateway) fn refused(
        &self,
        problem: &Problem,
        dialect: Dialect,
        trace: &impl fmt::Display,
    ) -> Response<Body> {
        metrics::refused(problem);
        let response = reply::refuse(problem, dialect);
        let (region, code, status) = (&self.settings.me, problem.code(), response.status().as_u16());
        tracing::info!(%region, code, status, epoch = self.view().epoch(), %trace, "not admitted");
        trace::answered("refused", code, status);
        response
    }

    /// Takes a place for a request that a peer forwards, with room for so many bytes, before its
    /// body is read. An error is the reply to the peer: nothing was stored or sent.
    pub fn place_for_forward(&self, head: &Forward, bytes: usize) -> Result<Place, Box<ForwardReply>> {
        let place = self.place(Whose::Peer).and_then(|place| {
            let has = place.is_of(Some(head.id.tenant())) && place.has_room_for(bytes);
            has.then_some(place).ok_or_else(|| self.overloaded())
        });
        let refused =
            |problem| ForwardReply::Answer(self.refused(&problem, Dialect::Plain, &trace::of(&head.headers)));
        place.map_err(|problem| Box::new(refused(problem)))
    }

    /// Answers a request that a peer forwarded, and keeps its place until the answer was sent.
    pub async fn serve_forward(
        self: &Arc<Self>,
        from: RegionName,
        forward: Forward,
        place: Place,
    ) -> ForwardReply {
        if matches!(self.here(&forward.id), Here::Elsewhere(_) | Here::Nobody) {
            tracing::warn!(%from, key = %forward.id.digest(), their_epoch = forward.epoch, epoch = self.view().epoch(), "refused a forward: not the owner");
            return ForwardReply::NotOwner { epoch: self.view().epoch() };
        }
        let response = match address::is_asked(&forward.method, forward.target.path()) {
            // The called function logs the line of this request.
            true => address::answer_peer(self, &forward).await,
            false => {
                let trace = trace::of(&forward.headers);
                match admit::admit_forward(self, forward, &place) {
                    Ok(ask) => answer(self, Arc::new(ask), false).await,
                    Err((problem, dialect)) => self.refused(&problem, dialect, &trace),
                }
            }
        };
        ForwardReply::Answer(response.map(|body| place.until_sent(body)))
    }
}
