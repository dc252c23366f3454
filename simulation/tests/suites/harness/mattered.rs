//! A fault matters by what was seen of its own region, and at its own time.
//!
//! Scenarios that are written here play it.

use std::collections::BTreeMap;
use std::sync::Arc;

use simulation::play::mattered::{Seen, mattered};
use simulation::play::play;

use super::reference::scenario;

fn seen(from_ms: u64, to_ms: u64, regions: &[&str]) -> Seen {
    Seen { from_ms, to_ms, regions: regions.iter().map(|region| (*region).to_owned()).collect() }
}

#[test]
fn a_fault_matters_only_at_its_place_and_time() {
    let all = [seen(5_000, 6_000, &["us-east", "eu-west"])];
    assert!(mattered("eu-west", 5_500, 9_000, &all));
    assert!(mattered("us-east>ap-south", 5_500, 9_000, &all), "one end is enough");
    assert!(mattered("us-east", 1_000, 4_000, &all), "in the second after");
    assert!(!mattered("us-east", 1_000, 3_999, &all), "too early");
    assert!(!mattered("us-east", 6_001, 9_000, &all), "too late");
    assert!(!mattered("ap-south", 5_500, 9_000, &all), "elsewhere");
}

#[test]
fn an_unnoticed_fault_gets_no_credit_for_another() {
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
