//! Members of the ring: conditions for joining and leaving, checked before a move begins.
//!
//! `protocol::change` judges legality, this file safety and good sense. Must not change anything.

use super::act_error::{ActError, not_yet, refused};
use crate::gateway::instance::Gateway;
use crate::ports::Ports;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::ring::Ring;
use crate::protocol::view::View;

/// Number of regions that would own keys under that ring if `gone` no longer served.
pub fn owners(view: &View, ring: &Ring, gone: Option<&RegionName>) -> usize {
    view.serving().filter(|name| Some(*name) != gone && owns(ring, name)).count()
}

/// True if that ring lets a region own keys. An edge forwards only.
pub fn owns(ring: &Ring, name: &RegionName) -> bool {
    ring.weight(name).is_some_and(|weight| weight > 0)
}

/// Checks that this ring may replace the one in force.
pub fn may_apply<P: Ports>(gateway: &Gateway<P>, base: &View, ring: &Ring) -> Result<(), ActError> {
    let leaves = |name: &&RegionName| ring.weight(name).is_none();
    if let Some(serves) = base.serving().find(leaves) {
        return refused(format!(
            "region {serves} still serves and owns keys: `onceway region drain {serves}` first, then apply this ring"
        ));
    }
    let (before, after) = (owners(base, base.ring(), None), owners(base, ring, None));
    let least = gateway.settings.failover.min_serving;
    if after == 0 {
        return refused("no region that serves would own keys: never the last region");
    }
    if after < before && after < least {
        return refused(format!(
            "only {after} regions that serve would own keys, min_serving is {least}: resume or add another first"
        ));
    }
    for spec in ring.regions().iter().filter(|spec| base.ring().weight(&spec.name).is_none()) {
        may_join(gateway, base, &spec.name)?;
    }
    Ok(())
}

/// Checks that a new region answers, and exchanges rows both ways with all that serve. Otherwise it
/// would wait for ever, or get requests that no region can forward.
fn may_join<P: Ports>(gateway: &Gateway<P>, base: &View, name: &RegionName) -> Result<(), ActError> {
    let not_yet = |why: String| not_yet(format!("region {name} cannot join yet: {why}"));
    let me = &gateway.settings.me;
    if gateway.is_silent(name) && name != me {
        return not_yet(format!(
            "its gateway does not answer {me}: start it, and restart the gateways of {me} with the files that name {name}"
        ));
    }
    let health = gateway.health();
    let pong = |of: &RegionName| health.peers.get(of).and_then(|peer| peer.pong.as_ref());
    if let Some(trouble) = health.peers.get(name).and_then(|peer| peer.trouble.as_ref()) {
        return not_yet(trouble.clone());
    }
    let (goes_by, speaks) = (base.protocol(), pong(name).map(|pong| pong.speaks));
    if let Some(speaks) = speaks.filter(|speaks| !speaks.has(goes_by)) {
        return not_yet(format!(
            "the regions go by protocol version {goes_by} and it speaks {speaks}: run a onceway there that speaks it"
        ));
    }
    let applied = |by: &RegionName, of: &RegionName| match by == me {
        true => health.peers.get(of).map(|peer| peer.applied.unwrap_or(0)),
        false => pong(by).and_then(|pong| pong.applied.get(&origin_of(base, of)).copied()),
    };
    for other in base.serving().filter(|other| *other != name) {
        for (by, of) in [(other, name), (name, other)] {
            match applied(by, of) {
                None => {
                    return not_yet(format!(
                        "{by} does not know {of}: restart its gateways with the files that name {of}"
                    ));
                }
                Some(0) => {
                    return not_yet(format!(
                        "no row of {of} has arrived at {by}: run `onceway store init` in both until nothing is pending"
                    ));
                }
                Some(_) => {}
            }
        }
    }
    let origin = pong(name).and_then(|pong| pong.origin.as_ref());
    if origin.is_some_and(|origin| *origin != origin_of(base, name)) {
        let should = origin_of(base, name);
        return not_yet(format!(
            "its store is not {should}: `generation` in its region file is wrong, or its store is another one"
        ));
    }
    // A region that left must return with the same store: another one has forgotten its runs.
    let beat = pong(name).and_then(|pong| pong.beat).map_or(u64::MAX, |beat| beat.seq);
    match base.members().get(name) {
        Some(member) if beat < member.mark => refused(format!(
            "region {name} was a member before and sealed heartbeat {}, its store is at {beat}: it is another one, and has to take another name",
            member.mark
        )),
        Some(_) | None => Ok(()),
    }
}

/// The origin of a region that is about to join: that of a first store.
pub fn origin_of(view: &View, name: &RegionName) -> Origin {
    view.origin(name).unwrap_or_else(|| Origin { region: name.clone(), generation: 1 })
}
