//! Answers to admitted requests, here or from the key's owner, each from a task of its own.
//!
//! A client that hangs up cancels nothing. A settled record is final, so any copy of it may be
//! replayed. Else the owner is asked, over one hop: not twice, nor over an outage.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tracing::Instrument;

use super::ask::Ask;
use super::finish::{finish, forwarded_verdict};
use super::follow::{Served, local_copy, serve};
use super::problems::Kind;
use super::reply::{self, Reply};
use crate::gateway::authority::register::learn;
use crate::gateway::instance::{Gateway, InFlight};
use crate::gateway::telemetry::times::Where;
use crate::gateway::telemetry::{metrics, trace};
use crate::ports::peers::{ForwardReply, PeerError};
use crate::ports::{Body, Clock, Peers, Ports};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Here;

/// Time that the sender waits longer than the owner, for both ways.
const ON_THE_WAY: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Answers from the local copy if it is settled, else from the owner. A peer that does not own the
/// key may know a newer view, which is learned then.
async fn elsewhere<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, owner: RegionName) -> Response<Body> {
    if let Some(reply) = local_copy(gateway, ask).await {
        return finish(gateway, ask, reply, Where::Here);
    }
    let epoch = match hop(gateway, ask, &owner).await {
        Ok(response) => return response,
        Err(epoch) => epoch,
    };
    if epoch > gateway.view().epoch() {
        learn::from_peer(gateway, &owner).await;
    }
    let moving = || finish(gateway, ask, Reply::Refused(gateway.moving(), None), Where::Forwarded);
    let next = match gateway.here(&ask.id) {
        Here::Elsewhere(next) if next == owner => return moving(),
        Here::Elsewhere(next) => next,
        Here::Run(_) | Here::Closed(_) | Here::Nobody | Here::Unfit(_) => match serve(gateway, ask).await {
            Served::Reply(reply) => return finish(gateway, ask, reply, Where::Here),
            Served::Elsewhere(next) => next,
        },
    };
    hop(gateway, ask, &next).await.unwrap_or_else(|_epoch| moving())
}

/// The owner's answer, or the refusal if it cannot be asked. An error: the epoch of a view by which
/// it does not own the key.
async fn hop<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    owner: &RegionName,
) -> Result<Response<Body>, u64> {
    let refuse = |result, reply| {
        metrics::forward(owner, result);
        Ok(finish(gateway, ask, reply, Where::Forwarded))
    };
    if gateway.is_silent(owner) {
        return refuse("silent", unavailable(gateway, "the peer answers no pings"));
    }
    let forward = ask.forward(gateway.view().epoch());
    let asked = gateway.ports.peers().forward(owner, forward).instrument(trace::forward(owner));
    let answer = tokio::select! {
        biased;
        answer = asked => answer,
        is_silent = given_up(gateway, ask, owner) => return match is_silent {
            true => refuse("silent", unavailable(gateway, "no answer, and the peer answers no pings")),
            false => refuse("unknown", gateway.unknown(None)),
        },
    };
    match answer {
        Ok(ForwardReply::Answer(response)) => {
            metrics::forward(owner, "answered");
            ask.charged.give_back(ask.id.tenant(), response.headers().contains_key(&reply::REPLAYED));
            forwarded(gateway, ask, owner, &response);
            Ok(response)
        }
        Ok(ForwardReply::NotOwner { epoch }) => {
            metrics::forward(owner, "not_owner");
            tracing::warn!(%owner, their_epoch = epoch, epoch = gateway.view().epoch(), "the regions do not agree on a key's owner");
            Err(epoch)
        }
        Err(PeerError::NotSent(why)) => refuse("not_sent", unavailable(gateway, &why)),
        Err(error @ PeerError::Versions { .. }) => {
            refuse("version", unavailable(gateway, &error.to_string()))
        }
        Err(PeerError::Unknown(why)) => {
            tracing::warn!(%owner, why, "a forward broke after it was sent");
            refuse("unknown", gateway.unknown(None))
        }
    }
}

fn forwarded<P: Ports>(gateway: &Gateway<P>, ask: &Ask, owner: &RegionName, response: &Response<Body>) {
    let (verdict, code) = forwarded_verdict(ask.id.key(), &ask.policy.outcomes, response);
    if let Some(times) = &ask.times {
        let took = gateway.now().since(ask.arrived);
        times.request(verdict, response.status(), Where::Forwarded, took);
    }
    let (status, epoch) = (response.status().as_u16(), gateway.view().epoch());
    trace::asked(ask, &gateway.settings.me, epoch);
    trace::forwarded(owner);
    trace::answered(verdict, code, status);
    tracing::info!(
        request = %ask.request_id, route = %ask.route, tenant = %ask.id.tenant(), key = %ask.id.digest(),
        region = %gateway.settings.me, %owner, verdict, code, status, epoch, trace = %trace::of(&ask.request.headers),
        "forwarded"
    );
}

/// Completes when waiting has no use any more: the peer fell silent (`true`), or time is over.
async fn given_up<P: Ports>(gateway: &Gateway<P>, ask: &Ask, owner: &RegionName) -> bool {
    let clock = gateway.ports.clock();
    let begun = clock.now();
    let end = begun + ask.deadline + ON_THE_WAY;
    clock.sleep_until(begun + gateway.settings.timings.silent_after).await;
    loop {
        let now = clock.now();
        if now >= end {
            return false;
        }
        if gateway.is_silent(owner) {
            return true;
        }
        clock.sleep_until(now + LOOK_EVERY).await;
    }
}

fn unavailable<P: Ports>(gateway: &Gateway<P>, why: &str) -> Reply {
    tracing::warn!(why, "refused: the home region cannot be reached");
    Reply::Refused(gateway.later(Kind::HomeUnavailable), None)
}

/// Answers a request here, or has the owner answer it. A peer's forward is not forwarded again.
/// Neither a client that hangs up nor a stop cuts it short.
pub async fn answer<P: Ports>(gateway: &Arc<Gateway<P>>, ask: Arc<Ask>, may_forward: bool) -> Response<Body> {
    // Counted before the look: if a stop saw nothing in flight, this request sees the stop.
    let begun = InFlight::begin(gateway.clone());
    if gateway.is_stopping() {
        return finish(gateway, &ask, Reply::Refused(gateway.later(Kind::Stopping), None), Where::Here);
    }
    let work = {
        let (gateway, ask) = (gateway.clone(), ask.clone());
        async move {
            let response = match serve(&gateway, &ask).await {
                Served::Reply(reply) => finish(&gateway, &ask, reply, Where::Here),
                Served::Elsewhere(owner) if may_forward => Box::pin(elsewhere(&gateway, &ask, owner)).await,
                Served::Elsewhere(_) => {
                    finish(&gateway, &ask, Reply::Refused(gateway.moving(), None), Where::Here)
                }
            };
            drop(begun);
            response
        }
    };
    // A box, since a task moves its future several times.
    match tokio::spawn(Box::pin(work).in_current_span()).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, key = %ask.id.digest(), "a request's task ended before its answer");
            finish(gateway, &ask, gateway.unknown(None), Where::Here)
        }
    }
}
