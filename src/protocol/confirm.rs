//! Views told by a peer that count: a majority was read to have accepted them
//! (docs/protocol.md#rule-16).
//!
//! A peer's message alone is worth nothing: any region could declare all others lost by one. Names
//! count here, not acceptors' ids: a voter that was made anew since then still shows its view. A
//! witness never asks, so it counts the letters that regions send it by themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bounds::LEAP;
use super::change::STRIDE;
use super::region::RegionName;
use super::register::majority;
use super::view::{View, Voters};

/// Views that acceptors were read to hold, by acceptor's name.
pub type Shown = BTreeMap<RegionName, Arc<View>>;

/// Of the told views, oldest first, those that count for a reader whose newest view is `known`: the
/// newest confirmed one, and those before it that lead to it without a gap. `named` is true for
/// names that the reader's files contain.
pub fn confirmed(
    known: &View,
    reported: &[Arc<View>],
    shown: &Shown,
    named: &dyn Fn(&RegionName) -> bool,
) -> Vec<Arc<View>> {
    let newest = reported.iter().rposition(|view| counts(known, view, shown, named));
    let Some(newest) = newest else { return Vec::new() };
    let mut chain = vec![reported[newest].clone()];
    for before in reported[..newest].iter().rev() {
        if before.epoch() <= known.epoch() || !leads_to(before, &chain[0]) {
            break;
        }
        chain.insert(0, before.clone());
    }
    chain
}

/// True if a view may be the one before another.
fn leads_to(before: &View, next: &View) -> bool {
    let follows =
        before.epoch().checked_add(1) == Some(next.epoch()) && next.voters_before == *before.voters();
    follows || is_forced(before, next)
}

/// True if break-glass may have made `next` from `base`, or from a view soon after it.
fn is_forced(base: &View, next: &View) -> bool {
    let ahead = next.epoch().saturating_sub(base.epoch());
    ahead > STRIDE && ahead <= LEAP && next.voters_before == *next.voters()
}

fn counts(known: &View, reported: &View, shown: &Shown, named: &dyn Fn(&RegionName) -> bool) -> bool {
    if reported.epoch() <= known.epoch() {
        return false;
    }
    // An acceptor of a later view accepted one that was proposed on top of this.
    let shows = |name: &RegionName| {
        shown.get(name).is_some_and(|view| **view == *reported || view.epoch() > reported.epoch())
    };
    let exact = shown.values().any(|view| **view == *reported);
    let most = |voters: &Voters, show: &dyn Fn(&RegionName) -> bool| {
        voters.keys().filter(|name| show(name)).count() >= majority(voters.len())
    };
    let voters = reported.voters();
    let own = most(voters, &shows);
    let anchored = match known.epoch() {
        // A newcomer knows the members that its files name, and no others.
        0 => most(voters, &|name| named(name) && shows(name)),
        _founded => most(known.voters(), &shows) || forced_by_a_region(known, reported, &shows),
    };
    exact && own && anchored
}

/// True if break-glass left this view with voters of which a region of the known ring shows it. A
/// majority of the former voters is stopped then, so no other acceptor can show it. Whoever left
/// the ring, or is about to join, has no glass to break.
fn forced_by_a_region(known: &View, reported: &View, shows: &dyn Fn(&RegionName) -> bool) -> bool {
    let region = |name: &RegionName| known.ring().weight(name).is_some();
    is_forced(known, reported) && reported.voters().keys().any(|name| region(name) && shows(name))
}

/// The view that a witness may take for chosen, by each region's last letter: a majority of the
/// regions that it hears told this very view. One that is lost, and silent, is not waited for.
pub fn chosen_by_letters<'h>(
    letters: &Shown,
    heard: impl Iterator<Item = &'h RegionName>,
) -> Option<Arc<View>> {
    let heard: Vec<&RegionName> = heard.collect();
    let counts = |view: &Arc<View>| {
        let tell =
            heard.iter().filter(|name| letters.get(**name).is_some_and(|reported| **reported == **view));
        tell.count() >= majority(heard.len())
    };
    letters.values().filter(|view| counts(view)).max_by_key(|view| view.epoch()).cloned()
}

#[cfg(test)]
mod tests;
