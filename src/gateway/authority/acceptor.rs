//! The region's acceptor: answers messages of the register, one compare-and-set per message.
//!
//! `protocol::register` decides each answer. A reply leaves only when its promise is durable; if a
//! write may or may not have happened, no reply is sent. Must not answer from memory: other
//! gateways of the region write the same row.

use std::sync::Arc;

use super::evidence;
use crate::gateway::instance::Gateway;
use crate::ports::peers::Question;
use crate::ports::store::Written;
use crate::ports::{Acceptors, Clock, Ports};
use crate::protocol::bounds::within;
use crate::protocol::region::RegionName;
use crate::protocol::register::{Acceptor, Message, Reply};
use crate::protocol::view::AcceptorId;

/// Lost compare-and-sets per message, at most. After that the sender gets an error and asks again.
const TRIES: usize = 16;

/// Answers a peer's message for the acceptor `to`. If its numbers are far ahead of this region's,
/// the gateway reads the promises and views of a majority. It refuses the message if the numbers
/// are still out of bounds.
pub(super) async fn answer_peer<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    from: &RegionName,
    to: Option<AcceptorId>,
    message: &Message,
) -> Result<Reply, String> {
    let read = || gateway.ports.store().acceptor();
    let (_, acceptor) = read().await.map_err(|error| error.to_string())?;
    if within(&acceptor, message, &gateway.bounds()).is_err() {
        evidence::catch_up(gateway).await;
        let (_, acceptor) = read().await.map_err(|error| error.to_string())?;
        if let Err(why) = within(&acceptor, message, &gateway.bounds()) {
            let question = Question::Acceptor { to, message: message.clone() };
            gateway.out_of_bounds(from, question.kind(), &why.to_string());
            return Err(why.to_string());
        }
    }
    if let Message::Found { .. } = message
        && acceptor.accepted.is_none()
        && gateway.view().epoch() > 0
    {
        return Err("the register is founded: an acceptor that was made anew is no new deployment".to_owned());
    }
    answer(gateway, to, message).await
}

pub(super) async fn answer<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    to: Option<AcceptorId>,
    message: &Message,
) -> Result<Reply, String> {
    let store = gateway.ports.store();
    for _ in 0..TRIES {
        let (version, acceptor) = store.acceptor().await.map_err(|error| error.to_string())?;
        let now = observe(gateway, &acceptor);
        let (next, reply) = gateway.authority.watch().answer(&acceptor, to, message, now);
        let Some(next) = next else { return Ok(reply) };
        match store.set_acceptor(version, &next).await.map_err(|error| error.to_string())? {
            Written::Done => {
                // Observed after the write: a grant seems to begin later than it does, never
                // earlier.
                observe(gateway, &next);
                return Ok(reply);
            }
            Written::Lost => {}
            Written::GateMoved => {
                return Err(
                    "the store restarted and is not approved yet: it may have forgotten promises".into()
                );
            }
        }
    }
    Err("too many messages at a time".to_owned())
}

/// Reads the acceptor, so that its grants are watched.
pub(super) async fn look<P: Ports>(gateway: &Arc<Gateway<P>>) -> Option<Acceptor> {
    let (_, acceptor) = gateway.ports.store().acceptor().await.ok()?;
    observe(gateway, &acceptor);
    Some(acceptor)
}

fn observe<P: Ports>(gateway: &Gateway<P>, acceptor: &Acceptor) -> crate::protocol::time::Moment {
    let now = gateway.ports.clock().now();
    gateway.authority.watch().observe(acceptor, now);
    now
}
