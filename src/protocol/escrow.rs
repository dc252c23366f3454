//! Escrow: when the absence of a claim proves that it was never sent (docs/protocol.md#rule-38).
//!
//! Neighbours: [`super::view`] names the target, `ports::escrow` lodges claims, `gateway::request` asks before it runs an unknown key inside a
//! window. No clock is used: on such keys even unbounded drift cannot run anything twice. It must not look at rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::digest::Digest32;
use super::key::KeyId;
use super::plant::{Plant, removed};
use super::region::RegionName;
use super::view::View;

/// Digests of what each route of a gateway means, by name. Routes stand in files that every region
/// has of its own, and that it reads again while it runs: a name alone is not agreed on.
pub type Meanings = BTreeMap<Arc<str>, Digest32>;

/// True if a claim on this route is lodged. Where `mine` are other routes than the view was made
/// for, all are: another region may take any of these requests for one under escrow.
pub fn lodges(view: &View, route: &str, mine: &Meanings) -> bool {
    view.escrow().contains_key(route)
        || !view.escrow().keys().all(|agreed| means_the_same(view, agreed, mine))
}

/// True if a route under escrow means what the view says; surely not where the view does not say.
fn is_meant(view: &View, route: &str, mine: &Meanings) -> bool {
    let agreed = view.escrow().get(route);
    agreed.is_some_and(|agreed| {
        removed(Plant::EscrowMeaning) || agreed.is_some() && *agreed == mine.get(route).copied()
    })
}

/// True if nothing says that a route under escrow means something else here. A view of an older
/// version does not say: its proofs count for nothing, and its claims are lodged by name.
fn means_the_same(view: &View, route: &str, mine: &Meanings) -> bool {
    view.escrow().get(route).is_none_or(Option::is_none) || is_meant(view, route, mine)
}

/// What a region knows about a lost one, for one key.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// All chosen views known here, by epoch.
    pub views: &'a BTreeMap<u64, Arc<View>>,
    /// The adopted view: it has lost the region (i), so this gate refuses every escrow of an older epoch.
    pub view: &'a View,
    /// This region.
    pub me: &'a RegionName,
    /// The lost region.
    pub lost: &'a RegionName,
    /// The epoch in the newest heartbeat of the lost region that is applied here: claims of older epochs are rows here (iii).
    pub heartbeat_epoch: u64,
    /// The route of the request.
    pub route: &'a str,
    /// The meanings of this gateway's routes that the request was matched with.
    pub mine: &'a Meanings,
}

/// Whether absence proves that the lost region never sent the key: in the unbroken list of views from some epoch `f`, that the lost
/// region's heartbeat has reached, to the last before its loss, it owned the key, this region was the target with its present store, and
/// the route was under escrow and meant what it means here (ii, iv).
pub fn proves_absence(facts: &Facts<'_>, id: &KeyId) -> bool {
    let Some((_, at)) = facts.view.lost().find(|(region, _)| *region == facts.lost) else { return false };
    let generation = |view: &View, of| view.members().get(of).map(|member| member.generation);
    let same = |view: &View, of| generation(view, of) == generation(facts.view, of);
    let holds = |view: &View| {
        view.owner(id) == Some(facts.lost)
            && view.target(id) == Some(facts.me)
            && same(view, facts.me)
            // The heartbeats of a store that took the lost one's place say nothing of the lost one's claims.
            && same(view, facts.lost)
            && is_meant(view, facts.route, facts.mine)
    };
    let mut epoch = at;
    // Backwards from the loss: the proof begins where a heartbeat has come from an epoch at or after the earliest view that holds.
    while epoch > 0 {
        epoch -= 1;
        match facts.views.get(&epoch) {
            Some(view) if holds(view) => {
                if epoch <= facts.heartbeat_epoch || removed(Plant::HeartbeatOfEpoch) {
                    return true;
                }
            }
            Some(_) | None => return false,
        }
    }
    false
}

#[cfg(test)]
pub(super) mod tests;
