//! Messages to acceptors and their replies: each voter by itself, at the same time. The region's
//! own acceptor answers here, by one compare-and-set per message.
//!
//! `protocol::register` decides each answer. It leaves only when its promise is durable, and is
//! never taken from memory: other gateways of the region write the same row. `ports::peers` carries
//! the other messages, once. Nothing is known of a voter that does not answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::Written;
use crate::ports::{Acceptors, Clock, Peers, Ports};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Acceptor, Message, Reply};
use crate::protocol::round::Outbox;
use crate::protocol::time::Moment;
use crate::protocol::view::{AcceptorId, View};

/// Time limit for a peer to report its views, and for an acceptor to show its state.
pub const WITHIN: Duration = Duration::from_secs(1);
/// Lost compare-and-sets per message, at most. After that the sender gets an error and asks again.
const TRIES: usize = 16;

/// Replies in the order of their arrival, each with the acceptor that was asked. Closed when all
/// have answered or were given up.
pub type Replies = mpsc::UnboundedReceiver<(RegionName, AcceptorId, Reply)>;

/// Sends each message; gives a voter up after `within`.
pub fn send<P: Ports>(gateway: &Arc<Gateway<P>>, outbox: Outbox, within: Duration) -> Replies {
    let (into, replies) = mpsc::unbounded_channel();
    send_into(gateway, outbox, within, &into);
    replies
}

/// Like [`send`], into an existing channel.
pub fn send_into<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    outbox: Outbox,
    within: Duration,
    into: &mpsc::UnboundedSender<(RegionName, AcceptorId, Reply)>,
) {
    for (voter, id, message) in outbox {
        let (gateway, into) = (gateway.clone(), into.clone());
        tokio::spawn(async move {
            if let Some(reply) = ask(&gateway, &voter, Some(id), message, within).await {
                // A closed channel is fine: the sender already has enough replies.
                let _ = into.send((voter, id, reply));
            }
        });
    }
}

pub async fn ask<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    voter: &RegionName,
    to: Option<AcceptorId>,
    message: Message,
    within: Duration,
) -> Option<Reply> {
    if *voter == gateway.settings.me {
        let answered = answer(gateway, to, &message).await;
        return answered.inspect_err(|why| tracing::debug!(why, "the own acceptor does not answer")).ok();
    }
    match gateway.ports.peers().ask(voter, Question::Acceptor { to, message }, within).await {
        Ok(PeerReply::Acceptor(reply)) => return Some(reply),
        Ok(other) => tracing::debug!(%voter, ?other, "an acceptor does not answer"),
        Err(error) => tracing::debug!(%voter, %error, "an acceptor cannot be reached"),
    }
    None
}

pub fn to_all(view: &View, message: &Message) -> Outbox {
    view.voters().iter().map(|(name, id)| (name.clone(), *id, message.clone())).collect()
}

/// The own acceptor's answer. If a write may or may not have happened, there is none.
pub async fn answer<P: Ports>(
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

/// Reads the own acceptor, so that its grants are watched.
pub async fn look<P: Ports>(gateway: &Arc<Gateway<P>>) -> Option<Acceptor> {
    let (_, acceptor) = gateway.ports.store().acceptor().await.ok()?;
    observe(gateway, &acceptor);
    Some(acceptor)
}

fn observe<P: Ports>(gateway: &Gateway<P>, acceptor: &Acceptor) -> Moment {
    let now = gateway.ports.clock().now();
    gateway.authority.watch().observe(acceptor, now);
    now
}
