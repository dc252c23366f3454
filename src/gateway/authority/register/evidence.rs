//! Reads acceptors by name: the evidence for views that a peer reports, and for numbers that are
//! far ahead.
//!
//! `protocol::{confirm, bounds}` judge the evidence. Reading prepares nothing. This file must not
//! take a peer's word for a view: an acceptor speaks for itself only.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::asking;
use crate::gateway::instance::Gateway;
use crate::ports::Ports;
use crate::protocol::bounds::{self, Known};
use crate::protocol::confirm::{self, Shown};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Message, Reply};
use crate::protocol::view::View;

/// Those of the reported views that count because a majority shows them, oldest first. Returns when
/// the newest is confirmed, or when all acceptors have answered or were given up.
pub(in crate::gateway) async fn confirmed<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    reported: &[Arc<View>],
) -> Vec<Arc<View>> {
    let known = gateway.view();
    let mut names: BTreeSet<RegionName> = known.voters().keys().cloned().collect();
    names.extend(reported.iter().flat_map(|view| view.voters().keys()).cloned());
    let mut replies = ask_all(gateway, names);
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
    gateway.authority.proposals.saw_reached(bounds::reached(promised, known.voters().len()));
    found
}

/// The views that the shown ones confirm.
pub(in crate::gateway) fn judge<P: Ports>(
    gateway: &Gateway<P>,
    known: &View,
    reported: &[Arc<View>],
    shown: &Shown,
) -> Vec<Arc<View>> {
    let health = gateway.health();
    let named = |name: &RegionName| *name == gateway.settings.me || health.peers.contains_key(name);
    let witness = |name: &RegionName| gateway.settings.failover.witnesses.contains(name);
    // A newcomer counts the voters that its files name; a forced view takes a region's word.
    let named = |name: &RegionName| named(name) || (known.epoch() == 0 && witness(name));
    confirm::confirmed(known, reported, shown, &named)
}

type Replies = mpsc::UnboundedReceiver<(RegionName, Reply)>;

/// Asks acceptors by region, not by id: an acceptor that was made anew shows its state, too.
fn ask_all<P: Ports>(gateway: &Arc<Gateway<P>>, names: BTreeSet<RegionName>) -> Replies {
    let (into, replies) = mpsc::unbounded_channel();
    for name in names {
        let (gateway, into) = (gateway.clone(), into.clone());
        tokio::spawn(async move {
            if let Some(reply) = asking::ask(&gateway, &name, None, Message::Read, asking::WITHIN).await {
                // A closed channel is fine: enough acceptors have answered.
                let _ = into.send((name, reply));
            }
        });
    }
    replies
}

impl<P: Ports> Gateway<P> {
    /// The numbers known here. Messages to the own acceptor are compared with them.
    pub(in crate::gateway) fn bounds(&self) -> Known {
        Known { counter: self.authority.proposals.reached(), epoch: self.view().epoch() }
    }
}
