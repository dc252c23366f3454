//! Judges if a fault mattered: something was seen, meanwhile or soon after, of a region it befell.
//!
//! An event elsewhere belongs to another fault. Two faults in one region both count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::region::RegionName;
use onceway::protocol::view::View;

use super::log::Asked;
use crate::deployment::Reply;
use crate::outcome::ViewSpan;

/// The time after its mending in which a fault may still matter.
const AFTERWARDS_MS: u64 = 1_000;

/// A request that was not answered at once, or a view that changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub from_ms: u64,
    pub to_ms: u64,
    /// The regions that it concerns.
    pub regions: BTreeSet<String>,
}

/// True if a fault at this place, a region or `from>to`, mattered.
pub fn mattered(place: &str, from_ms: u64, to_ms: u64, all: &[Seen]) -> bool {
    let late = to_ms.saturating_add(AFTERWARDS_MS);
    let then = |seen: &&Seen| seen.to_ms >= from_ms && seen.from_ms <= late;
    all.iter().filter(then).any(|seen| place.split('>').any(|region| seen.regions.contains(region)))
}

/// The regions that a request concerns: the one asked, the one that answered, and its key's home.
pub fn touched(asked: &Asked, home: Option<&RegionName>) -> BTreeSet<String> {
    let by = match &asked.reply {
        Reply::Answered { by, .. } if !by.is_empty() => Some(by.clone()),
        Reply::Answered { .. } | Reply::Broken | Reply::TimedOut => None,
    };
    [Some(asked.at.to_string()), by, home.map(ToString::to_string)].into_iter().flatten().collect()
}

/// The chosen views, each with the regions whose standing or weight it changes.
pub fn changes(spans: &[ViewSpan], views: &BTreeMap<u64, Arc<View>>) -> Vec<Seen> {
    let weights = |epoch: u64| -> BTreeMap<String, u32> {
        let regions = views.get(&epoch).map_or(&[][..], |view| view.ring().regions());
        regions.iter().map(|region| (region.name.to_string(), region.weight)).collect()
    };
    let change = |(before, after): (&ViewSpan, &ViewSpan)| {
        let (was, is) = (weights(before.epoch), weights(after.epoch));
        let names = before.standings.keys().chain(after.standings.keys());
        let other = |name: &&String| {
            before.standings.get(*name) != after.standings.get(*name) || was.get(*name) != is.get(*name)
        };
        Seen { from_ms: after.at_ms, to_ms: after.at_ms, regions: names.filter(other).cloned().collect() }
    };
    spans.iter().zip(spans.iter().skip(1)).map(change).collect()
}
