//! A story that is read from its end: the breach, its key's life, and the views of the regions by
//! then.
//!
//! `tests/long/harness.rs` plays stories in two processes.

use std::sync::Arc;

use onceway::protocol::plant::{Check, planted};
use simulation::play;
use simulation::scenario::{self, find};

#[test]
fn a_breach_is_found_in_its_own_story() {
    let scenario = Arc::new(scenario::load(&find::find("second-lease").unwrap(), &[]).unwrap());
    let plant = Check::ALL.iter().copied().find(|plant| plant.name() == "grant-on-accept").unwrap();
    let played = |with_story| planted(plant, || play::play(&scenario, 0, with_story));
    let play::Played { outcome, story } = played(true);
    assert_eq!(played(false).outcome, outcome, "nothing changes by being told");

    let breach = outcome.breaches.first().unwrap();
    assert_eq!((breach.invariant.as_str(), breach.name()), ("one-sender (rule 9)", "one-sender"));
    let of = |tag: &str| -> Vec<&String> {
        story.iter().filter(|line| line.split_whitespace().nth(1) == Some(tag)).collect()
    };
    let told = of("BREACH")[0];
    assert_eq!(of("BREACH").len(), outcome.breaches.len());
    assert!(told.ends_with(&format!("BREACH     one-sender (rule 9): {}", breach.text)), "{told}");
    // The breach has the same names and times as all other lines.
    let (key, at) = (breach.text.split(' ').next().unwrap(), told.split_whitespace().next().unwrap());
    assert!(breach.text.contains(&format!(" at {at} ")), "{told}");
    assert!(
        of("UPSTREAM").iter().any(|line| line.contains(&format!("{at} ")) && line.contains(key)),
        "{told}"
    );
    let last = &story[story.len() - outcome.breaches.len()..];
    assert_eq!(last[0], format!("BROKE      one-sender (rule 9) at {at}"));
    assert!(last.iter().all(|line| line.starts_with("BROKE ")));

    // The reasons: the lost region, the running lease and its acceptors, and the waits of the
    // others.
    let is_told = |tag: &str, text: &str| of(tag).iter().any(|line| line.contains(text));
    assert!(is_told("VIEW", "us-east is lost, was serving since view"));
    assert!(is_told("LEASE", ": is granted under view 1") && is_told("LEASE", ": is renewed under view"));
    assert!(is_told("WAITS", "the window after the loss of us-east runs for "));
    assert!(is_told("WAITS", "nothing is missing any more"));
}
