//! Finds chosen views, and adopts them. Adopting is durable before anything follows from it.
//!
//! A reported view counts if a majority of the voters shows it ([`super::evidence`]). Without a
//! report, a plain read shows the view that a majority accepted under one ballot. Learning by full
//! rounds would keep real changes from ending, so a round runs only if no majority shows a view.
//! Must not believe one message, or one acceptor alone (docs/protocol.md#rule-16).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::install::{install_gate, install_view};
use super::{asking, evidence, propose};
use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::Written;
use crate::ports::{Acceptors, Authority as _, Clock, KeyStore, Peers, Ports};
use crate::protocol::authority::GateState;
use crate::protocol::bounds::near_epoch;
use crate::protocol::region::RegionName;
use crate::protocol::register::{Accepted, Message, Reply, chosen, has_released};
use crate::protocol::view::{AcceptorId, View};

/// Conflicts with other writers of the gate, at most, per adoption.
const TRIES: usize = 8;

/// Asks a peer for views that this region does not know, and follows those that a majority shows.
pub(in crate::gateway) async fn from_peer<P: Ports>(gateway: &Arc<Gateway<P>>, peer: &RegionName) {
    let views = told_by(gateway, peer).await;
    follow(gateway, views).await;
}

async fn told_by<P: Ports>(gateway: &Gateway<P>, peer: &RegionName) -> Vec<Arc<View>> {
    let after = gateway.view().epoch();
    match gateway.ports.peers().ask(peer, Question::Views { after }, asking::WITHIN).await {
        Ok(PeerReply::Views(views)) => views,
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// Follows those of the reported views (oldest first) that a majority shows. If no majority shows
/// one, a view may be half agreed on: a round finishes it.
async fn follow<P: Ports>(gateway: &Arc<Gateway<P>>, claimed: Vec<Arc<View>>) {
    let newer = |view: &Arc<View>| view.epoch() > gateway.view().epoch();
    let claimed: Vec<Arc<View>> = claimed.into_iter().filter(newer).collect();
    if claimed.is_empty() {
        return;
    }
    let views = evidence::confirmed(gateway, &claimed).await;
    if views.is_empty() {
        tracing::info!(epochs = ?claimed.iter().map(|view| view.epoch()).collect::<Vec<_>>(), "views that were told are not shown by a majority: not followed");
        if gateway.view().epoch() > 0 {
            self::newer(gateway).await;
        }
        return;
    }
    if let Err(error) = gateway.ports.store().keep_views(&views).await {
        tracing::warn!(%error, "views that were learned could not be kept");
    }
    for view in &views {
        install_view(gateway, view);
    }
}

/// Finds the founding that the own acceptor holds, if no view is known here: its founder may have
/// died before it told anybody.
pub(in crate::gateway) async fn founding<P: Ports>(gateway: &Arc<Gateway<P>>) {
    let (me, clock) = (&gateway.settings.me, gateway.ports.clock());
    if gateway.view().epoch() > 0 || gateway.authority.gathered().is_doubted(me, clock.now()) {
        return;
    }
    let own = gateway.ports.store().acceptor().await.ok();
    if let Some(accepted) = own.and_then(|(_, acceptor)| acceptor.accepted) {
        follow(gateway, vec![accepted.view]).await;
    }
    gateway.authority.gathered().doubt(me, gateway.view().epoch() == 0, clock.now());
}

/// Handles a peer's report that this view was chosen. Asks also for the views between it and the
/// own one: proofs by escrow need the list without a gap.
pub(in crate::gateway) async fn caught_up<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    from: &RegionName,
    view: &Arc<View>,
) {
    let known = gateway.view().epoch();
    if view.epoch() <= known {
        return;
    }
    let mut claimed = Vec::new();
    if view.epoch() - known > 1 {
        claimed = told_by(gateway, from).await;
        claimed.retain(|other| other.epoch() < view.epoch());
    }
    claimed.push(view.clone());
    follow(gateway, claimed).await;
}

/// The state of all acceptors, by name.
pub(in crate::gateway) async fn read<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    view: &View,
) -> BTreeMap<RegionName, (AcceptorId, Accepted, std::collections::BTreeSet<RegionName>)> {
    let mut replies = asking::send(gateway, asking::to_all(view, &Message::Read), asking::WITHIN);
    let mut held = BTreeMap::new();
    while let Some((voter, _, reply)) = replies.recv().await {
        if let Reply::Holds { id, promised: _, accepted, running } = reply {
            held.insert(voter, (id, accepted, running));
        }
    }
    held
}

/// Finds out if a view is chosen that an acceptor holds and that is newer than this region's. True
/// if one is half agreed on that takes keys from this region.
pub(in crate::gateway) async fn newer<P: Ports>(gateway: &Arc<Gateway<P>>) -> bool {
    let known = gateway.view();
    let held = read(gateway, &known).await;
    if gateway.view().epoch() > known.epoch() {
        // Another task of this process learned it meanwhile: the read says nothing about that view.
        return false;
    }
    let reported = held.iter().map(|(name, (id, accepted, _))| (name, *id, accepted));
    if let Some(accepted) = chosen(reported)
        && accepted.view.epoch() > known.epoch()
    {
        // Its own voters hold it. The voters of the view known here must hold it, too: otherwise
        // one acceptor could name itself the only voter.
        let shown =
            held.iter().map(|(name, (_, accepted, _))| (name.clone(), accepted.view.clone())).collect();
        if let Some(view) =
            evidence::judge(gateway, &known, std::slice::from_ref(&accepted.view), &shown).pop()
        {
            install_view(gateway, &view);
            return false;
        }
    }
    let me = &gateway.settings.me;
    let unfinished = held
        .values()
        .map(|(_, accepted, _)| accepted)
        .filter(|accepted| accepted.view.epoch() > known.epoch())
        // A view out of bounds is not a real proposal.
        .filter(|accepted| near_epoch(accepted.view.epoch(), known.epoch()).is_ok());
    let Some(unfinished) = unfinished.max_by(|a, b| a.ballot.cmp(&b.ballot)) else { return false };
    let now = gateway.ports.clock().now();
    let loses = known.loses(&unfinished.view, me) && !has_released(me, &unfinished.view);
    if loses {
        // Further renewals would block this view, and the half-agreed view would keep this region
        // from a majority. No region would serve (docs/protocol.md#rule-23).
        tracing::warn!(
            epoch = unfinished.view.epoch(),
            "a view that takes keys from this region is half agreed on: not renewing"
        );
        gateway.authority.with_lease(|lease| lease.wait_for_newer(now));
    }
    propose::finish_later(gateway);
    loses
}

pub(in crate::gateway) enum Follows {
    /// The gate follows the newest view.
    Newest,
    /// The gate does not follow it yet: the next look may be soon.
    NotYet,
    /// The gate cannot be read: an early look is of no use.
    Unread,
}

/// Makes the gate follow the newest view that is known.
pub(in crate::gateway) async fn adopt<P: Ports>(gateway: &Arc<Gateway<P>>) -> Follows {
    for _ in 0..TRIES {
        let view = gateway.view();
        let read = gateway.ports.store().gate().await;
        gateway.authority.gathered().log_unread(read.as_ref().err());
        let Ok(gate) = read else { return Follows::Unread };
        install_gate(gateway, gate.clone());
        if !gate.is_open() {
            return Follows::NotYet;
        }
        let next = match &gate.state {
            Some(state) if state.view.epoch() >= view.epoch() => return Follows::Newest,
            // One view after the other: behind a skipped view everything counts as gained.
            Some(state) => state.adopt(after(gateway, state.view.epoch(), &view)),
            None if view.epoch() == 0 => return Follows::Newest,
            None => first(gateway, &view),
        };
        match gateway.ports.store().set_gate(gate.version, &next).await {
            Ok(Written::Done) => {
                tracing::info!(epoch = next.view.epoch(), open = next.is_open(), "adopted a view");
                gateway.authority.wakes.renewal.notify_one();
            }
            Ok(Written::Lost) => {}
            Ok(Written::GateMoved) => return Follows::NotYet,
            Err(error) => {
                tracing::warn!(%error, "a view could not be adopted yet");
                return Follows::NotYet;
            }
        }
    }
    Follows::NotYet
}

/// The view after `epoch`, or the newest if that one is not known here.
fn after<P: Ports>(gateway: &Gateway<P>, epoch: u64, newest: &Arc<View>) -> Arc<View> {
    gateway.known_view(epoch + 1).unwrap_or_else(|| newest.clone())
}

/// The state of a gate that follows no view yet. A store that was present at the founding is empty
/// and begins with the first view. A later store has everything to catch up with.
fn first<P: Ports>(gateway: &Gateway<P>, newest: &Arc<View>) -> GateState {
    let views = gateway.known_views();
    let founded =
        |oldest: &&Arc<View>| oldest.serves(&gateway.settings.me) && oldest.is_present(&gateway.origin);
    match views.values().next().filter(founded) {
        Some(oldest) => GateState::founded(oldest.clone()),
        None => GateState::joined(newest.clone()),
    }
}

/// Learns the views and promises of a majority, as a number is far ahead of those known here.
/// Boxed: acceptors read one another for it.
pub(in crate::gateway) fn catch_up<P: Ports>(
    gateway: &Arc<Gateway<P>>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let gateway = gateway.clone();
    Box::pin(async move {
        evidence::confirmed(&gateway, &[]).await;
        newer(&gateway).await;
    })
}
