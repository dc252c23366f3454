//! Finds chosen views, and adopts them, durably before anything follows from it.
//!
//! A view counts if a majority of the voters shows it: no message is believed, nor one acceptor
//! alone (docs/protocol.md#rule-16). Full rounds would keep real changes from ending: one runs only
//! if no majority shows a view.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use super::propose;
use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::Written;
use crate::ports::{Acceptors, Authority as _, Clock, KeyStore, Peers, Ports};
use crate::protocol::authority::GateState;
use crate::protocol::bounds::{self, Known, near_epoch};
use crate::protocol::confirm::{self, Shown};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Accepted, Ballot, Message, Reply, chosen, has_released};
use crate::protocol::view::{AcceptorId, View};

const TRIES: usize = 8;

/// The state of acceptors as they showed it, by name.
pub type Read = BTreeMap<RegionName, Held>;

pub struct Held {
    pub id: AcceptorId,
    pub promised: Option<Ballot>,
    pub accepted: Accepted,
    /// Regions whose leases run by its grants.
    pub running: BTreeSet<RegionName>,
}

/// Asks a peer for views that this region does not know, and follows those that a majority shows.
pub async fn from_peer<P: Ports>(gateway: &Arc<Gateway<P>>, peer: &RegionName) {
    let views = views_of(gateway, peer).await;
    follow(gateway, views).await;
}

async fn views_of<P: Ports>(gateway: &Gateway<P>, peer: &RegionName) -> Vec<Arc<View>> {
    let after = gateway.view().epoch();
    match gateway.ports.peers().ask(peer, Question::Views { after }, propose::WITHIN).await {
        Ok(PeerReply::Views(views)) => views,
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// Follows reported views that a majority shows. If none, a round finishes a half-agreed one.
async fn follow<P: Ports>(gateway: &Arc<Gateway<P>>, claimed: Vec<Arc<View>>) {
    let newer = |view: &Arc<View>| view.epoch() > gateway.view().epoch();
    let claimed: Vec<Arc<View>> = claimed.into_iter().filter(newer).collect();
    if claimed.is_empty() {
        return;
    }
    let views = confirmed(gateway, &claimed).await;
    if views.is_empty() {
        tracing::info!(epochs = ?claimed.iter().map(|view| view.epoch()).collect::<Vec<_>>(), "views that were told are not shown by a majority: not followed");
        if gateway.view().epoch() > 0 {
            self::newer(gateway).await;
        }
        return;
    }
    if let Err(error) = gateway.store().keep_views(&views).await {
        tracing::warn!(%error, "views that were learned could not be kept");
    }
    for view in &views {
        gateway.install_view(view);
    }
}

/// Finds the founding that the own acceptor holds: its founder may have died.
pub async fn founding<P: Ports>(gateway: &Arc<Gateway<P>>) {
    let (me, clock) = (&gateway.settings.me, gateway.ports.clock());
    if gateway.view().epoch() > 0 || gateway.authority.gathered.lock().is_doubted(me, clock.now()) {
        return;
    }
    let own = gateway.store().acceptor().await.ok();
    if let Some(accepted) = own.and_then(|(_, acceptor)| acceptor.accepted) {
        follow(gateway, vec![accepted.view]).await;
    }
    gateway.authority.gathered.lock().doubt(me, gateway.view().epoch() == 0, clock.now());
}

/// Handles a report that this view was chosen. Asks also for the views before it: proofs by escrow
/// need the list without a gap.
pub async fn caught_up<P: Ports>(gateway: &Arc<Gateway<P>>, from: &RegionName, view: &Arc<View>) {
    let known = gateway.view().epoch();
    if view.epoch() <= known {
        return;
    }
    let mut claimed = Vec::new();
    if view.epoch() - known > 1 {
        claimed = views_of(gateway, from).await;
        claimed.retain(|other| other.epoch() < view.epoch());
    }
    claimed.push(view.clone());
    follow(gateway, claimed).await;
}

/// The state of all voters of that view that answer.
pub async fn read<P: Ports>(gateway: &Arc<Gateway<P>>, view: &View) -> Read {
    let mut replies = propose::send(gateway, view, &Message::Read, propose::WITHIN);
    let mut held = Read::new();
    while let Some((voter, _, reply)) = replies.recv().await {
        if let Reply::Holds { id, promised, accepted, running } = reply {
            held.insert(voter, Held { id, promised, accepted, running });
        }
    }
    held
}

pub fn ids<'a>(held: impl Iterator<Item = (&'a RegionName, &'a Held)>) -> BTreeMap<RegionName, AcceptorId> {
    held.map(|(name, held)| (name.clone(), held.id)).collect()
}

/// Finds out if a newer view is chosen that an acceptor holds. True if one is half agreed on that
/// takes keys from this region.
pub async fn newer<P: Ports>(gateway: &Arc<Gateway<P>>) -> bool {
    let known = gateway.view();
    let held = read(gateway, &known).await;
    if gateway.view().epoch() > known.epoch() {
        // Another task of this process learned it meanwhile: the read says nothing about that view.
        return false;
    }
    let reported = held.iter().map(|(name, held)| (name, held.id, &held.accepted));
    if let Some(accepted) = chosen(reported)
        && accepted.view.epoch() > known.epoch()
    {
        // Its own voters hold it. The voters of the view known here must hold it, too: otherwise
        // one acceptor could name itself the only voter.
        let shown = held.iter().map(|(name, held)| (name.clone(), held.accepted.view.clone())).collect();
        let newest = std::slice::from_ref(&accepted.view);
        if let Some(view) = judge(gateway, &known, newest, &shown).pop() {
            gateway.install_view(&view);
            return false;
        }
    }
    let me = &gateway.settings.me;
    let unfinished = held
        .values()
        .map(|held| &held.accepted)
        .filter(|accepted| accepted.view.epoch() > known.epoch())
        // A view out of bounds is not a real proposal.
        .filter(|accepted| near_epoch(accepted.view.epoch(), known.epoch()).is_ok());
    let Some(unfinished) = unfinished.max_by(|a, b| a.ballot.cmp(&b.ballot)) else { return false };
    let now = gateway.now();
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

pub enum Follows {
    Newest,
    /// The gate does not follow it yet: the next look may be soon.
    NotYet,
    /// The gate cannot be read: an early look is of no use.
    Unread,
}

pub async fn adopt<P: Ports>(gateway: &Arc<Gateway<P>>) -> Follows {
    for _ in 0..TRIES {
        let view = gateway.view();
        let read = gateway.store().gate().await;
        gateway.authority.gathered.lock().log_unread(read.as_ref().err());
        let Ok(gate) = read else { return Follows::Unread };
        gateway.install_gate(gate.clone());
        if !gate.is_open() {
            return Follows::NotYet;
        }
        let next = match &gate.state {
            Some(state) if state.view.epoch() >= view.epoch() => return Follows::Newest,
            // One view after the other: behind a skipped view everything counts as gained.
            Some(state) => state.adopt(gateway.known_view(state.view.epoch() + 1).unwrap_or(view)),
            None if view.epoch() == 0 => return Follows::Newest,
            None => first(gateway, &view),
        };
        match gateway.store().set_gate(gate.version, &next).await {
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

/// The state of a gate that follows no view yet: a store from the founding is empty, a later one
/// has everything to catch up with.
fn first<P: Ports>(gateway: &Gateway<P>, newest: &Arc<View>) -> GateState {
    let views = gateway.snapshot().views.clone();
    let founded =
        |oldest: &&Arc<View>| oldest.serves(&gateway.settings.me) && oldest.is_present(&gateway.origin);
    match views.values().next().filter(founded) {
        Some(oldest) => GateState::founded(oldest.clone()),
        None => GateState::joined(newest.clone()),
    }
}

/// Learns the views and promises of a majority. Boxed: acceptors read one another for it.
pub fn catch_up<P: Ports>(gateway: &Arc<Gateway<P>>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let gateway = gateway.clone();
    Box::pin(async move {
        confirmed(&gateway, &[]).await;
        newer(&gateway).await;
    })
}

/// Those of the reported views that a majority shows, oldest first. Returns when the newest is
/// confirmed, or all acceptors have answered or were given up. They are asked by name, not by id:
/// one that was made anew shows its state, too.
async fn confirmed<P: Ports>(gateway: &Arc<Gateway<P>>, reported: &[Arc<View>]) -> Vec<Arc<View>> {
    let known = gateway.view();
    let mut names: BTreeSet<RegionName> = known.voters().keys().cloned().collect();
    names.extend(reported.iter().flat_map(|view| view.voters().keys()).cloned());
    let (into, mut replies) = mpsc::unbounded_channel();
    for name in names {
        let (gateway, into) = (gateway.clone(), into.clone());
        tokio::spawn(async move {
            if let Some(reply) = propose::ask(&gateway, &name, None, Message::Read, propose::WITHIN).await {
                // A closed channel is fine: enough acceptors have answered.
                let _ = into.send((name, reply));
            }
        });
    }
    drop(into);
    let (mut shown, mut promised) = (Shown::new(), Vec::new());
    let mut found = Vec::new();
    while let Some((name, reply)) = replies.recv().await {
        let Reply::Holds { promised: ballot, accepted, .. } = reply else { continue };
        if known.voters().contains_key(&name) {
            promised.push(ballot.map_or(0, |ballot| ballot.counter));
        }
        shown.insert(name, accepted.view);
        found = judge(gateway, &known, reported, &shown);
        if !found.is_empty() && found.last() == reported.last() {
            break;
        }
    }
    let reached = bounds::reached(promised, known.voters().len());
    gateway.authority.proposals.reached.fetch_max(reached, Ordering::SeqCst);
    found
}

fn judge<P: Ports>(
    gateway: &Gateway<P>,
    known: &View,
    reported: &[Arc<View>],
    shown: &Shown,
) -> Vec<Arc<View>> {
    let health = gateway.health();
    // A newcomer counts the voters that its files name; a forced view takes a region's word.
    let named = |name: &RegionName| {
        *name == gateway.settings.me
            || health.peers.contains_key(name)
            || (known.epoch() == 0 && gateway.settings.failover.witnesses.contains(name))
    };
    confirm::confirmed(known, reported, shown, &named)
}

impl<P: Ports> Gateway<P> {
    /// The numbers known here. Messages to the own acceptor are compared with them.
    pub(in crate::gateway) fn bounds(&self) -> Known {
        let counter = self.authority.proposals.reached.load(Ordering::SeqCst);
        Known { counter, epoch: self.view().epoch() }
    }
}
