//! Requests whose key another region owns: replayed from the local copy, or forwarded, one hop, to
//! the owner.
//!
//! A settled record is final, so any copy of it may be replayed at any time, whether the home is up
//! or not. A forward must not be sent twice, nor held over an outage. If the owner cannot be
//! reached, the request is refused, and the same key may be sent again.

use crate::gateway::authority::register::learn;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tracing::Instrument;

use super::ask::Ask;
use super::finish::{finish, finish_from};
use super::forwarded_verdict;
use super::problems::Kind;
use super::reply::{self, Reply};
use super::serve::{Served, local_copy, serve};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::times::Where;
use crate::gateway::telemetry::{metrics, spans, trace};
use crate::ports::peers::{Forward, ForwardReply, PeerError};
use crate::ports::{Body, Clock, Peers, Ports};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Here;

/// Time that the sender waits longer than the owner, for both ways.
const ON_THE_WAY: Duration = Duration::from_secs(2);
/// Pause between two looks at a silent peer's pings.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Answers from the local copy if it is settled, else from the owner. A peer that does not own the
/// key may know a newer view. This region then learns that view, and the owner under it answers.
pub(in crate::gateway) async fn answer<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    owner: RegionName,
) -> Response<Body> {
    if let Some(reply) = local_copy(gateway, ask).await {
        return finish(gateway, ask, reply);
    }
    let epoch = match hop(gateway, ask, &owner).await {
        Hop::Answered(response) => return response,
        Hop::Refused(reply) => return finish_from(gateway, ask, reply, Where::Forwarded),
        Hop::NotOwner { epoch } => epoch,
    };
    if epoch > gateway.view().epoch() {
        learn::from_peer(gateway, &owner).await;
    }
    let next = match gateway.here(&ask.id) {
        Here::Elsewhere(next) if next == owner => {
            return finish_from(gateway, ask, Reply::Refused(gateway.moving(), None), Where::Forwarded);
        }
        Here::Elsewhere(next) => next,
        Here::Run(_) | Here::Closed(_) | Here::Nobody | Here::Unfit(_) => match serve(gateway, ask).await {
            Served::Reply(reply) => return finish(gateway, ask, reply),
            Served::Elsewhere(next) => next,
        },
    };
    match hop(gateway, ask, &next).await {
        Hop::Answered(response) => response,
        Hop::Refused(reply) => finish_from(gateway, ask, reply, Where::Forwarded),
        Hop::NotOwner { .. } => {
            finish_from(gateway, ask, Reply::Refused(gateway.moving(), None), Where::Forwarded)
        }
    }
}

enum Hop {
    Answered(Response<Body>),
    Refused(Reply),
    /// The peer does not own the key under its view.
    NotOwner {
        epoch: u64,
    },
}

async fn hop<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, owner: &RegionName) -> Hop {
    if gateway.is_silent(owner) {
        metrics::forward(owner, "silent");
        return Hop::Refused(unavailable(gateway, "the peer answers no pings"));
    }
    let forward = Forward {
        id: ask.id.clone(),
        principal: ask.principal,
        method: ask.method.clone(),
        target: ask.target.clone(),
        headers: ask.headers.clone(),
        body: ask.body.clone(),
        request_id: ask.request_id,
        epoch: gateway.view().epoch(),
        deadline: ask.deadline,
    };
    let asked = gateway.ports.peers().forward(owner, forward).instrument(spans::forward(owner));
    let answer = tokio::select! {
        biased;
        answer = asked => Ok(answer),
        given_up = given_up(gateway, ask, owner) => Err(given_up),
    };
    let reply = match answer {
        Ok(Ok(ForwardReply::Answer(response))) => {
            metrics::forward(owner, "answered");
            gateway.give_back(ask, response.headers().contains_key(&reply::REPLAYED));
            forwarded(gateway, ask, owner, &response);
            return Hop::Answered(response);
        }
        Ok(Ok(ForwardReply::NotOwner { epoch })) => {
            metrics::forward(owner, "not_owner");
            tracing::warn!(%owner, their_epoch = epoch, epoch = gateway.view().epoch(), "the regions do not agree on a key's owner");
            return Hop::NotOwner { epoch };
        }
        Ok(Err(PeerError::NotSent(why))) => {
            metrics::forward(owner, "not_sent");
            unavailable(gateway, &why)
        }
        Ok(Err(error @ PeerError::Versions { .. })) => {
            metrics::forward(owner, "version");
            unavailable(gateway, &error.to_string())
        }
        Ok(Err(PeerError::Unknown(why))) => {
            metrics::forward(owner, "unknown");
            tracing::warn!(%owner, why, "a forward broke after it was sent");
            gateway.unknown(None)
        }
        Err(GivenUp::Silent) => {
            metrics::forward(owner, "silent");
            unavailable(gateway, "no answer, and the peer answers no pings")
        }
        Err(GivenUp::OutOfTime) => {
            metrics::forward(owner, "unknown");
            gateway.unknown(None)
        }
    };
    Hop::Refused(reply)
}

/// Times a request that the owner answered, and logs its line.
fn forwarded<P: Ports>(gateway: &Gateway<P>, ask: &Ask, owner: &RegionName, response: &Response<Body>) {
    let (verdict, code) = forwarded_verdict::verdict(ask.id.key(), &ask.policy.outcomes, response);
    if let Some(times) = &ask.times {
        let took = gateway.ports.clock().now().since(ask.arrived);
        times.request(verdict, response.status(), Where::Forwarded, took);
    }
    let (status, epoch) = (response.status().as_u16(), gateway.view().epoch());
    spans::asked(ask, &gateway.settings.me, epoch);
    spans::forwarded(owner);
    spans::answered(verdict, code, status);
    tracing::info!(
        request = %ask.request_id, route = %ask.route, tenant = %ask.id.tenant(), key = %ask.id.digest(),
        region = %gateway.settings.me, %owner, verdict, code, status, epoch, trace = %trace::of(&ask.headers),
        "forwarded"
    );
}

enum GivenUp {
    Silent,
    OutOfTime,
}

/// Completes when waiting for the answer has no use any more: the peer fell silent, or the time is
/// over.
async fn given_up<P: Ports>(gateway: &Gateway<P>, ask: &Ask, owner: &RegionName) -> GivenUp {
    let clock = gateway.ports.clock();
    let begun = clock.now();
    let end = begun + ask.deadline + ON_THE_WAY;
    clock.sleep_until(begun + gateway.settings.timings.silent_after).await;
    loop {
        let now = clock.now();
        if now >= end {
            return GivenUp::OutOfTime;
        }
        if gateway.is_silent(owner) {
            return GivenUp::Silent;
        }
        clock.sleep_until(now + LOOK_EVERY).await;
    }
}

fn unavailable<P: Ports>(gateway: &Gateway<P>, why: &str) -> Reply {
    tracing::warn!(why, "refused: the home region cannot be reached");
    Reply::Refused(gateway.later(Kind::HomeUnavailable), None)
}
