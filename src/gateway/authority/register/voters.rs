//! Maintains the voters: the acceptors of the ring's regions and the witnesses, each with its
//! present id. Each region tells a new witness by itself that it votes: one letter is not enough.
//!
//! The first serving region does this, one voter at a time; majorities of both sets agree. An
//! acceptor that was made anew has another id, and is no voter before the voters change
//! (docs/protocol.md#rule-17). Must not drop a voter because it is silent: only if it left the ring
//! or was made anew.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{acceptor, asking, propose, protocol_version};
use crate::gateway::instance::Gateway;
use crate::ports::peers::Question;
use crate::ports::{Acceptors, Clock, Peers, Ports};
use crate::protocol::change::Change;
use crate::protocol::region::RegionName;
use crate::protocol::register::{Message, Reply};
use crate::protocol::view::{AcceptorId, View};

const LOOK: Duration = Duration::from_secs(1);
/// Time limit for an acceptor to say its id.
const ASK_WITHIN: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(3);

pub(in crate::gateway) async fn voters_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(strong) = gateway.upgrade() {
        let now = strong.ports.clock().now();
        admit(&strong).await;
        strong.agree_on_lives(&strong.live().routes).await;
        let view = strong.view();
        tell_witnesses(&strong, &view).await;
        let first = view.serving().next() == Some(&strong.settings.me);
        if first && strong.holds_lease(now) {
            look(&strong, &view).await;
        }
        strong.rest(now + LOOK).await;
    }
}

/// Admits the own acceptor: it may answer once it has been a voter, and silent, for one longest
/// lease.
async fn admit<P: Ports>(gateway: &Arc<Gateway<P>>) {
    let Ok((version, own)) = gateway.ports.store().acceptor().await else { return };
    let now = gateway.ports.clock().now();
    let view = gateway.view();
    let due = gateway.authority.gathered().admission.due(&own, &gateway.settings.me, &view, now);
    if let Some(admitted) = due {
        match gateway.ports.store().set_acceptor(version, &admitted).await {
            Ok(written) => tracing::info!(?written, "the own acceptor is a voter from now on"),
            Err(error) => tracing::warn!(%error, "the own acceptor could not be admitted yet"),
        }
        acceptor::look(gateway).await;
    }
}

/// Reads each witness, which so knows that this region is there, and tells the view to one that
/// votes by it and holds nothing yet. It believes a majority of the regions that it hears, also of
/// those that are drained and renew nothing (docs/protocol.md#rule-16).
async fn tell_witnesses<P: Ports>(gateway: &Arc<Gateway<P>>, view: &Arc<View>) {
    for name in &gateway.settings.failover.witnesses {
        let reply = asking::ask(gateway, name, None, Message::Read, ASK_WITHIN).await;
        if matches!(reply, Some(Reply::NotFounded(id)) if view.voters().get(name) == Some(&id)) {
            let question = Question::Adopt { view: view.clone() };
            if let Err(error) = gateway.ports.peers().ask(name, question, ASK_WITHIN).await {
                tracing::debug!(%name, %error, "a new witness was not told that it votes");
            }
        }
    }
}

/// Proposes the first change of the voters that is due.
async fn look<P: Ports>(gateway: &Arc<Gateway<P>>, view: &Arc<View>) {
    let Some((name, id)) = due(gateway, view).await else { return };
    let mut voters = view.voters().clone();
    match id {
        Some(id) => voters.insert(name.clone(), id),
        None => voters.remove(&name),
    };
    let Ok(next) = view.next(&Change::Voters(voters)) else { return };
    tracing::warn!(%name, joins = id.is_some(), "changing a voter");
    if let Err(why) = propose::propose(gateway, view, Arc::new(next), WITHIN).await {
        tracing::info!(why, "the voters could not be changed yet");
    }
}

/// A voter to add or replace, with its id, or to remove.
async fn due<P: Ports>(gateway: &Arc<Gateway<P>>, view: &View) -> Option<(RegionName, Option<AcceptorId>)> {
    let in_ring = |name: &RegionName| view.ring().regions().iter().any(|region| region.name == *name);
    let witnesses = &gateway.settings.failover.witnesses;
    if let Some(gone) = view.voters().keys().find(|name| !in_ring(name) && !witnesses.contains(name)) {
        return Some((gone.clone(), None));
    }
    // A region votes once it is complete: before, its store may still be filled.
    let regions = view
        .ring()
        .regions()
        .iter()
        .map(|region| &region.name)
        .filter(|name| view.serves(name) || view.voters().contains_key(*name));
    for name in regions.chain(witnesses) {
        let reply = asking::ask(gateway, name, None, Message::Read, ASK_WITHIN).await;
        let id = match reply {
            Some(Reply::Holds { id, .. } | Reply::NotFounded(id)) => id,
            Some(_) | None => continue,
        };
        if view.voters().get(name) != Some(&id) {
            // An acceptor that cannot vote would only raise the majority that is needed.
            if protocol_version::would_speak(gateway, name, view).await {
                return Some((name.clone(), Some(id)));
            }
            tracing::debug!(%name, "it would vote, but does not speak the protocol version of the view");
        }
    }
    None
}
