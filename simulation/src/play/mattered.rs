//! Judges if a fault mattered: something was seen, while it lasted or soon after, of a region that
//! it happened to.
//!
//! An event elsewhere at the same time belongs to another fault. Two faults in one region both
//! count. It must not know kinds of faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::region::RegionName;
use onceway::protocol::view::View;

use super::log::Asked;
use crate::deployment::Reply;
use crate::outcome::ViewSpan;

/// The time after its mending in which a fault may still matter.
const AFTERWARDS_MS: u64 = 1_000;

/// An unusual event: a request that was not answered at once, or a view that changed something.
/// Times are since clients began to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub from_ms: u64,
    pub to_ms: u64,
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
        Reply::Told { by, .. } if !by.is_empty() => Some(by.clone()),
        Reply::Told { .. } | Reply::Broken | Reply::TimedOut => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::play::play;
    use crate::scenario::reference::scenario;

    fn seen(from_ms: u64, to_ms: u64, regions: &[&str]) -> Seen {
        Seen { from_ms, to_ms, regions: regions.iter().map(|region| (*region).to_owned()).collect() }
    }

    #[test]
    fn what_was_seen_elsewhere_or_at_another_time_is_not_its_doing() {
        let all = [seen(5_000, 6_000, &["us-east", "eu-west"])];
        assert!(mattered("eu-west", 5_500, 9_000, &all));
        assert!(mattered("us-east>ap-south", 5_500, 9_000, &all), "one end is enough");
        assert!(mattered("us-east", 1_000, 4_000, &all), "in the second after");
        assert!(!mattered("us-east", 1_000, 3_999, &all), "too early");
        assert!(!mattered("us-east", 6_001, 9_000, &all), "too late");
        assert!(!mattered("ap-south", 5_500, 9_000, &all), "elsewhere");
    }

    #[test]
    fn a_fault_that_nobody_could_notice_does_not_count_for_anothers() {
        let text = r#"
            title = "an upstream refuses, and far away nobody is asked about attempts"
            ring = "rings/three.toml"
            routes = "rings/routes.toml"
            length = "12s"
            [[workload]]
            name = "charges"
            path = "/v1/charges"
            rate = 10
            near = ["us-east"]
            again = 0
            at_two = 0
            [[fault]]
            kind = "probes-silent"
            region = "ap-south"
            at = "2s"
            lasts = "8s"
            [[fault]]
            kind = "upstream-refuses"
            region = "us-east"
            at = "3s"
            lasts = "5s"
        "#;
        let played = play(&Arc::new(scenario(text).unwrap()), 1, false).outcome;
        let mattered: BTreeMap<_, _> =
            played.faults.iter().map(|fault| (fault.kind.as_str(), fault.mattered)).collect();
        assert_eq!(mattered, [("probes-silent", false), ("upstream-refuses", true)].into());
        assert_eq!(played.breaches, []);
    }

    #[test]
    fn a_view_counts_for_the_regions_that_it_changes() {
        let text = r#"
            title = "one region is drained, and one has other weights"
            ring = "rings/three.toml"
            routes = "rings/routes.toml"
            length = "40s"
            [[workload]]
            name = "notes"
            path = "/v1/notes"
            rate = 0
            [[fault]]
            kind = "drain"
            region = "us-east"
            at = "2s"
            lasts = "3s"
            [[fault]]
            kind = "ring-change"
            region = "eu-west"
            at = "25s"
            lasts = "3s"
            [[fault]]
            kind = "clock-slow"
            region = "ap-south"
            at = "1s"
            lasts = "35s"
        "#;
        let played = play(&Arc::new(scenario(text).unwrap()), 1, false).outcome;
        let mattered: BTreeMap<_, _> =
            played.faults.iter().map(|fault| (fault.kind.as_str(), fault.mattered)).collect();
        assert_eq!(mattered, [("drain", true), ("ring-change", true), ("clock-slow", false)].into());
    }
}
