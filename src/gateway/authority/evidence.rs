//! What acceptors hold, read by name: the evidence for views that somebody tells, and for numbers that are far ahead.
//!
//! Neighbours: `protocol::{confirm, bounds}` judge, [`super::learn`] follows the views, [`super::acceptor`] and [`super::propose`] go by
//! the numbers. Reading prepares nothing. It must not take anybody's word for a view: an acceptor speaks for itself only.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Authority, Gateway, asking, learn};
use crate::ports::Ports;
use crate::protocol::bounds::{self, Known};
use crate::protocol::confirm::{self, Shown};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Message, Reply};
use crate::protocol::time::Moment;
use crate::protocol::view::View;

/// How long a peer that told views in vain is not asked again: others may know more, and what keeps a majority from showing them may end.
const AGAIN: Duration = Duration::from_millis(300);

/// The views that count, of those that were told, oldest first, where a majority shows them. Returns as soon as the newest is confirmed, or once
/// everybody has answered or been given up.
pub(super) async fn confirmed<P: Ports>(gateway: &Arc<Gateway<P>>, told: &[Arc<View>]) -> Vec<Arc<View>> {
    let known = gateway.view();
    let mut names: BTreeSet<RegionName> = known.voters().keys().cloned().collect();
    names.extend(told.iter().flat_map(|view| view.voters().keys()).cloned());
    let mut replies = ask_all(gateway, names);
    let (mut shown, mut promised) = (Shown::new(), Vec::new());
    let mut found = Vec::new();
    while let Some((name, reply)) = replies.recv().await {
        let Reply::Holds { promised: ballot, accepted, .. } = reply else { continue };
        if known.voters().contains_key(&name) {
            promised.push(ballot.map_or(0, |ballot| ballot.counter));
        }
        shown.insert(name, accepted.view);
        found = judge(gateway, &known, told, &shown);
        if !found.is_empty() && found.last() == told.last() {
            break;
        }
    }
    gateway.authority.reached.fetch_max(bounds::reached(promised, known.voters().len()), Ordering::SeqCst);
    found
}

/// Whether what is shown confirms these views.
pub(super) fn judge<P: Ports>(
    gateway: &Gateway<P>,
    known: &View,
    told: &[Arc<View>],
    shown: &Shown,
) -> Vec<Arc<View>> {
    let health = gateway.health();
    let named = |name: &RegionName| *name == gateway.settings.me || health.peers.contains_key(name);
    let witness = |name: &RegionName| gateway.settings.failover.witnesses.contains(name);
    // A newcomer counts whom its files name as voters; a forced view takes a region's word.
    let named = |name: &RegionName| named(name) || (known.epoch() == 0 && witness(name));
    confirm::confirmed(known, told, shown, &named)
}

type Replies = mpsc::UnboundedReceiver<(RegionName, Reply)>;

/// Whichever acceptor has that name now: one that was made anew shows what it holds, too.
fn ask_all<P: Ports>(gateway: &Arc<Gateway<P>>, names: BTreeSet<RegionName>) -> Replies {
    let (into, replies) = mpsc::unbounded_channel();
    for name in names {
        let (gateway, into) = (gateway.clone(), into.clone());
        tokio::spawn(async move {
            if let Some(reply) = asking::ask(&gateway, &name, None, Message::Read, learn::WITHIN).await {
                // Nobody waits any more once enough have answered.
                let _ = into.send((name, reply));
            }
        });
    }
    replies
}

impl Authority {
    /// What this peer told was in vain, or was not.
    pub(super) fn doubt(&self, peer: &RegionName, in_vain: bool, now: Moment) {
        let mut doubted = self.doubted.lock().unwrap_or_else(PoisonError::into_inner);
        match in_vain {
            true => drop(doubted.insert(peer.clone(), now + AGAIN)),
            false => drop(doubted.remove(peer)),
        }
    }

    /// Whether a peer is not asked for views at `now`, as it told some in vain.
    pub(super) fn is_doubted(&self, peer: &RegionName, now: Moment) -> bool {
        let doubted = self.doubted.lock().unwrap_or_else(PoisonError::into_inner);
        doubted.get(peer).is_some_and(|until| now < *until)
    }
}

impl<P: Ports> Gateway<P> {
    /// What the own acceptor's messages are held against.
    pub(super) fn bounds(&self) -> Known {
        Known {
            counter: self.authority.reached.load(Ordering::SeqCst),
            epoch: self.view().epoch(),
            lease: self.settings.failover.lease,
        }
    }
}

/// Learns what a majority holds and has promised: a number is far ahead of what is known here. Boxed, as acceptors read one another for it.
pub(super) fn catch_up<P: Ports>(gateway: &Arc<Gateway<P>>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let gateway = gateway.clone();
    Box::pin(async move {
        confirmed(&gateway, &[]).await;
        learn::newer(&gateway).await;
    })
}
