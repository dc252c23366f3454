//! Which of the views that somebody tells count: those that a majority was read to have accepted.
//!
//! Neighbours: `gateway::authority::learn` reads the acceptors and asks here; [`super::register::chosen`]
//! needs no teller, as all of a majority holds one value under one ballot. A letter alone is worth
//! nothing: any region could declare all others lost by one. Names count here, not acceptors' ids: a
//! voter that was made anew since still says what it holds. It must not look at a clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bounds::LEAP;
use super::change::STRIDE;
use super::region::RegionName;
use super::register::majority;
use super::view::View;

/// What acceptors were read to hold, by name.
pub type Shown = BTreeMap<RegionName, Arc<View>>;

/// Of views that were told, oldest first, those that count for a reader that goes by `known`; `named` says whom its files name. The newest that
/// was confirmed, and those before it that lead to it without a gap.
pub fn confirmed(
    known: &View,
    told: &[Arc<View>],
    shown: &Shown,
    named: &dyn Fn(&RegionName) -> bool,
) -> Vec<Arc<View>> {
    let newest = told.iter().rposition(|view| counts(known, view, shown, named));
    let Some(newest) = newest else { return Vec::new() };
    let mut chain = vec![told[newest].clone()];
    for before in told[..newest].iter().rev() {
        if before.epoch() <= known.epoch() || !leads_to(before, &chain[0]) {
            break;
        }
        chain.insert(0, before.clone());
    }
    chain
}

/// Whether a view may be the one before another.
fn leads_to(before: &View, next: &View) -> bool {
    let follows =
        before.epoch().checked_add(1) == Some(next.epoch()) && next.voters_before() == before.voters();
    follows || is_forced(before, next)
}

/// Whether `next` is what break-glass makes on top of `base`, or of a view soon after it.
fn is_forced(base: &View, next: &View) -> bool {
    let ahead = next.epoch().saturating_sub(base.epoch());
    ahead > STRIDE && ahead <= LEAP && next.voters_before() == next.voters()
}

fn counts(known: &View, told: &View, shown: &Shown, named: &dyn Fn(&RegionName) -> bool) -> bool {
    if told.epoch() <= known.epoch() {
        return false;
    }
    // Whoever accepted a later view had that one proposed on top of this.
    let shows = |name: &RegionName| {
        shown.get(name).is_some_and(|view| **view == *told || view.epoch() > told.epoch())
    };
    let exact = shown.values().any(|view| **view == *told);
    let voters = told.voters();
    let own = voters.keys().filter(|name| shows(name)).count() >= majority(voters.len());
    let anchored = match known.epoch() {
        // A newcomer knows whom its files name, and nobody else.
        0 => {
            let by = voters.keys().filter(|name| named(name) && shows(name));
            by.count() >= majority(voters.len())
        }
        _founded => {
            let before = known.voters();
            let by = before.keys().filter(|name| shows(name));
            by.count() >= majority(before.len()) || forced_by_a_region(known, told, &shows, named)
        }
    };
    exact && own && anchored
}

/// Whether break-glass left this view with voters of whom a region shows it. A majority of the voters before is stopped then, so nobody else can.
fn forced_by_a_region(
    known: &View,
    told: &View,
    shows: &dyn Fn(&RegionName) -> bool,
    named: &dyn Fn(&RegionName) -> bool,
) -> bool {
    let region = |name: &RegionName| known.ring().weight(name).is_some() || named(name);
    is_forced(known, told) && told.voters().keys().any(|name| region(name) && shows(name))
}

#[cfg(test)]
mod tests;
