//! Answers to admitted requests, each from a task of its own: a client that hangs up cancels
//! nothing.
//!
//! [`super::serve`] answers here, [`super::forward`] from elsewhere.

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

/// Answers an admitted request: here if this region owns the key, else from the local copy or from
/// the owner. What a peer forwarded is never forwarded again. Neither a client that hangs up nor a
/// stop cuts it short.
pub async fn answer<P: Ports>(gateway: &Arc<Gateway<P>>, ask: Arc<Ask>, may_forward: bool) -> Response<Body> {
    // Counted before the look: if a stop saw nothing in flight, this request sees the stop.
    let begun = InFlight::begin(gateway.clone());
    if gateway.is_stopping() {
        return finish(gateway, &ask, Reply::Refused(gateway.later(Kind::Stopping), None));
    }
    let work = {
        let (gateway, ask) = (gateway.clone(), ask.clone());
        async move {
            let response = match serve(&gateway, &ask).await {
                Served::Reply(reply) => finish(&gateway, &ask, reply),
                Served::Elsewhere(owner) if may_forward => {
                    Box::pin(forward::answer(&gateway, &ask, owner)).await
                }
                Served::Elsewhere(_) => finish(&gateway, &ask, Reply::Refused(gateway.moving(), None)),
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
            finish(gateway, &ask, gateway.unknown(None))
        }
    }
}
