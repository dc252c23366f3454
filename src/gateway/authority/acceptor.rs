//! The region's acceptor: answers messages of the register, one compare-and-set per message.
//!
//! Neighbours: `protocol::register` decides what it answers, `ports::authority` keeps it, [`super::told`] brings messages of peers in, [`super::asking`]
//! those of this process. A reply leaves only when what it promises is durable; what may or may not be written gets no reply. It must not
//! answer from memory: other gateways of the region write the same row.

use std::sync::{Arc, MutexGuard, PoisonError};

use super::{Gateway, evidence};
use crate::ports::peers::Question;
use crate::ports::store::Written;
use crate::ports::{Acceptors, Clock, Ports};
use crate::protocol::bounds::within;
use crate::protocol::grants::GrantWatch;
use crate::protocol::region::RegionName;
use crate::protocol::register::{Acceptor, Message, Reply};
use crate::protocol::view::AcceptorId;

/// How often one message may lose against others before its sender is left to ask again.
const TRIES: usize = 16;

/// Answers a message of a peer meant for `to`. One whose numbers are far ahead of what is known here is looked into: what a majority has
/// promised and accepted is read, and the message refused if it is still out of bounds.
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

/// Answers a message meant for `to`; an error says why there is no answer.
pub(super) async fn answer<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    to: Option<AcceptorId>,
    message: &Message,
) -> Result<Reply, String> {
    let store = gateway.ports.store();
    for _ in 0..TRIES {
        let (version, acceptor) = store.acceptor().await.map_err(|error| error.to_string())?;
        let now = observe(gateway, &acceptor);
        let (next, reply) = {
            let watch = watch(gateway);
            acceptor.answer(to, message, &|region, grant| watch.is_over(region, grant, now))
        };
        let Some(next) = next else { return Ok(reply) };
        match store.set_acceptor(version, &next).await.map_err(|error| error.to_string())? {
            Written::Done => {
                // Observed after it was written: a grant seems to begin later than it does, never earlier.
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
    watch(gateway).observe(acceptor, now);
    now
}

pub(super) fn watch<P: Ports>(gateway: &Gateway<P>) -> MutexGuard<'_, GrantWatch> {
    gateway.authority.watch.lock().unwrap_or_else(PoisonError::into_inner)
}
