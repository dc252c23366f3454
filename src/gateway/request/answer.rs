//! Answers to admitted requests, each from a task of its own: a client that hangs up cancels
//! nothing.
//!
//! [`super::serve`] answers here, [`super::forward`] from elsewhere. This file must not look at a
//! key itself.

use std::pin::Pin;
use std::sync::Arc;

use http::Response;
use tracing::Instrument;

use super::ask::Ask;
use super::finish::finish;
use super::forward;
use super::problems::Kind;
use super::reply::Reply;
use super::serve::{Served, serve};
use crate::gateway::instance::{Gateway, InFlight};
use crate::ports::{Body, Ports};

/// Answers an admitted client's request: here if this region owns the key, else from the local copy
/// or from the owner.
pub(in crate::gateway) async fn answer<P: Ports>(gateway: &Arc<Gateway<P>>, ask: Arc<Ask>) -> Response<Body> {
    detached(gateway, ask, |gateway, ask| {
        Box::pin(async move {
            match serve(&gateway, &ask).await {
                Served::Reply(reply) => finish(&gateway, &ask, reply),
                Served::Elsewhere(owner) => Box::pin(forward::answer(&gateway, &ask, owner)).await,
            }
        })
    })
    .await
}

/// Answers a request that was forwarded to this region. It is never forwarded again.
pub(in crate::gateway) async fn answer_here<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: Arc<Ask>,
) -> Response<Body> {
    detached(gateway, ask, |gateway, ask| {
        Box::pin(async move {
            let reply = match serve(&gateway, &ask).await {
                Served::Reply(reply) => reply,
                Served::Elsewhere(_) => Reply::Refused(gateway.moving(), None),
            };
            finish(&gateway, &ask, reply)
        })
    })
    .await
}

/// Runs the work in a task of its own, and counts it. Neither a client that hangs up nor a stop
/// cuts it short. It comes in a box, since a task moves its future several times.
async fn detached<P, F, W>(gateway: &Arc<Gateway<P>>, ask: Arc<Ask>, work: F) -> Response<Body>
where
    P: Ports,
    F: FnOnce(Arc<Gateway<P>>, Arc<Ask>) -> Pin<Box<W>> + std::marker::Send + 'static,
    W: Future<Output = Response<Body>> + std::marker::Send + 'static,
{
    // Counted before the look: if a stop saw nothing in flight, this request sees the stop.
    let begun = InFlight::begin(gateway.clone());
    if gateway.is_stopping() {
        return finish(gateway, &ask, Reply::Refused(gateway.later(Kind::Stopping), None));
    }
    let task = {
        let (gateway, ask) = (gateway.clone(), ask.clone());
        let work = async move {
            let response = work(gateway, ask).await;
            drop(begun);
            response
        };
        tokio::spawn(work.in_current_span())
    };
    match task.await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, key = %ask.id.digest(), "a request's task ended before its answer");
            finish(gateway, &ask, gateway.unknown(None))
        }
    }
}
