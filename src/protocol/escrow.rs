//! Escrow: when the absence of a claim proves that it was never sent (docs/protocol.md#rule-38).
//!
//! A gateway asks before it runs an unknown key inside a window. No clock is used: even unbounded
//! drift cannot run such keys twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::authority::Facts;
use super::digest::Digest32;
use super::key::KeyId;
use super::plant::{Check, is_disabled};
use super::region::Origin;
use super::view::View;

/// Digests of the meanings of a gateway's routes, by name. Each region reads routes from its own
/// files, again and again while it runs: equal names alone do not agree on a meaning.
pub type Meanings = BTreeMap<Arc<str>, Digest32>;

/// True if a claim on this route is lodged. If `mine` differ from the routes for which the view was
/// made, every claim is lodged: another region may take any of these requests for one under escrow.
pub fn lodges(view: &View, route: &str, mine: &Meanings) -> bool {
    view.escrow().contains_key(route) || !view.escrow().keys().all(|agreed| is_meant(view, agreed, mine))
}

/// True if a route under escrow means here what it means in the view.
fn is_meant(view: &View, route: &str, mine: &Meanings) -> bool {
    let agreed = view.escrow().get(route);
    agreed.is_some_and(|agreed| is_disabled(Check::EscrowMeaning) || mine.get(route) == Some(agreed))
}

/// True if absence proves that the region of the lost store never sent the key with it (ii, iv).
/// It says nothing of a store that the region had before. `mine` are the meanings of this gateway's
/// routes with which the request was matched.
///
/// The adopted view has lost the region (i), so this gate refuses every older escrow. The list of
/// views must be unbroken, from an epoch `f` that the lost store's heartbeat has reached to the last
/// epoch before its loss: claims of older epochs are rows here (iii). In each of the views:
///
/// - the lost region, with that store, owned the key;
/// - this region, with its present store, was the target;
/// - the route was under escrow and meant the same as here.
pub(super) fn proves_absence(
    facts: &Facts<'_>,
    lost: &Origin,
    id: &KeyId,
    (route, mine): (&str, &Meanings),
) -> bool {
    let region = &lost.region;
    let heartbeat_epoch = facts.epochs.get(lost).copied().unwrap_or(0);
    let Some((_, at)) = facts.view.lost().find(|(name, _)| *name == region) else { return false };
    let holds = |view: &View| {
        view.owner(id) == Some(region)
            // Heartbeats of a store that replaced the lost one say nothing of its claims.
            && view.origin(region).as_ref() == Some(lost)
            && view.target(id) == Some(facts.me)
            && view.origin(facts.me) == facts.view.origin(facts.me)
            && is_meant(view, route, mine)
    };
    // Backwards from the loss, to an epoch that the lost store's heartbeat has reached.
    let known = (0..at).rev().map_while(|epoch| Some((epoch, facts.views.get(&epoch)?)));
    let mut held = known.take_while(|(_, view)| holds(view));
    held.any(|(epoch, _)| epoch <= heartbeat_epoch || is_disabled(Check::HeartbeatOfEpoch))
}

#[cfg(test)]
pub(super) mod tests;
