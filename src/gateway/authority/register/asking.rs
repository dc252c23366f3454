//! Messages to acceptors and their replies: each voter by itself, at the same time.
//!
//! [`super::acceptor`] answers for the own region, `ports::peers` carries the other messages.
//! Nothing is known of a voter that does not answer. This file must not send anything twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::acceptor;
use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::{Peers, Ports};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Message, Reply};
use crate::protocol::round::Outbox;
use crate::protocol::view::{AcceptorId, View};

/// Time limit for a peer to report its views, and for an acceptor to show its state.
pub(in crate::gateway) const WITHIN: Duration = Duration::from_secs(1);

/// Replies in the order of their arrival, each with the acceptor that was asked. Closed when all
/// have answered or were given up.
pub(in crate::gateway) type Replies = mpsc::UnboundedReceiver<(RegionName, AcceptorId, Reply)>;

/// Sends each message; gives a voter up after `within`.
pub(in crate::gateway) fn send<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    outbox: Outbox,
    within: Duration,
) -> Replies {
    let (into, replies) = mpsc::unbounded_channel();
    send_into(gateway, outbox, within, &into);
    replies
}

/// Like [`send`], into an existing channel.
pub(in crate::gateway) fn send_into<P: Ports>(
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

pub(in crate::gateway) async fn ask<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    voter: &RegionName,
    to: Option<AcceptorId>,
    message: Message,
    within: Duration,
) -> Option<Reply> {
    if *voter == gateway.settings.me {
        return match acceptor::answer(gateway, to, &message).await {
            Ok(reply) => Some(reply),
            Err(why) => {
                tracing::debug!(why, "the own acceptor does not answer");
                None
            }
        };
    }
    match gateway.ports.peers().ask(voter, Question::Acceptor { to, message }, within).await {
        Ok(PeerReply::Acceptor(reply)) => Some(reply),
        Ok(other) => {
            tracing::debug!(%voter, ?other, "an acceptor does not answer");
            None
        }
        Err(error) => {
            tracing::debug!(%voter, %error, "an acceptor cannot be reached");
            None
        }
    }
}

pub(in crate::gateway) fn to_all(view: &View, message: &Message) -> Outbox {
    view.voters().iter().map(|(name, id)| (name.clone(), *id, message.clone())).collect()
}
