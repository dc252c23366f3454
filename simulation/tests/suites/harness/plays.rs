//! Findings of one play: a fault matters by what was seen of its own region and at its own time; a
//! dead loop and regions that may both start a key are seen; a breach is found in its own story.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::plant::{Check, planted};
use simulation::play::judge::Judge;
use simulation::play::log::Log;
use simulation::play::mattered::{Seen, mattered};
use simulation::play::{Played, play};
use simulation::scenario::as_it_is;
use simulation::{Deployment, Point};
use tokio::time::{Instant, sleep};

use super::reference::scenario;
use crate::shared;

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

/// Plays three regions with one workload and these faults: each has a kind, a region, its time and
/// how long it lasts. Returns the kinds, each with true if it mattered.
fn faults(length: &str, workload: &str, faults: &[[&str; 4]]) -> BTreeMap<String, bool> {
    let mut text = format!(
        "title = \"some faults\"\nring = \"rings/three.toml\"\nroutes = \"rings/routes.toml\"\n\
         length = \"{length}\"\n[[workload]]\n{workload}\n"
    );
    for [kind, region, at, lasts] in faults {
        text += &format!("[[fault]]\nkind = \"{kind}\"\nregion = \"{region}\"\n");
        text += &format!("at = \"{at}\"\nlasts = \"{lasts}\"\n");
    }
    let played = play(&Arc::new(scenario(&text).unwrap()), 1, false).outcome;
    assert_eq!(played.breaches, []);
    played.faults.into_iter().map(|fault| (fault.kind, fault.mattered)).collect()
}

/// An upstream refuses, and far away nobody is asked about attempts.
#[test]
fn an_unnoticed_fault_gets_no_credit_for_another() {
    let charges = "name = \"charges\"\npath = \"/v1/charges\"\nrate = 10\nnear = [\"us-east\"]\n\
                   again = 0\nat_two = 0";
    let both = [["probes-silent", "ap-south", "2s", "8s"], ["upstream-refuses", "us-east", "3s", "5s"]];
    let mattered = [("probes-silent".into(), false), ("upstream-refuses".into(), true)];
    assert_eq!(faults("12s", charges, &both), mattered.into());
}

#[test]
fn a_view_counts_for_the_regions_that_it_changes() {
    let notes = "name = \"notes\"\npath = \"/v1/notes\"\nrate = 0";
    let all = [
        ["drain", "us-east", "2s", "3s"],
        ["ring-change", "eu-west", "25s", "3s"],
        ["clock-slow", "ap-south", "1s", "35s"],
    ];
    let mattered = [("drain".into(), true), ("ring-change".into(), true), ("clock-slow".into(), false)];
    assert_eq!(faults("40s", notes, &all), mattered.into());
}

#[test]
fn the_death_of_a_loop_is_a_breach_once() {
    let scenario = as_it_is("swarm").unwrap();
    shared::play(async {
        let deployment = Deployment::start(&scenario, 1).await.unwrap();
        let mut judge = Judge::new(deployment.clone(), Arc::new(Log::default()), Instant::now(), false);
        judge.look();
        assert_eq!(judge.breaches(), []);

        deployment.node(&deployment.regions()[0]).process.panics_at(&[Point::Reap]);
        sleep(Duration::from_secs(60)).await;
        judge.look();
        judge.look();
        let broke: Vec<_> =
            judge.breaches().iter().map(|breach| (&*breach.invariant, &*breach.text)).collect();
        let first = &deployment.regions()[0];
        assert_eq!(broke, [("panic", &*format!("the loop `reaper` of a gateway of {first} died"))]);
        deployment.world.network.unplug_all();
    });
}

/// The breaches of a scenario's first seed without a check.
fn broken(scenario: &str, without: Check) -> Vec<String> {
    let scenario = as_it_is(scenario).unwrap();
    let played = planted(without, || play(&scenario, 0, false));
    played
        .outcome
        .breaches
        .into_iter()
        .map(|breach| format!("{}: {}", breach.invariant, breach.text))
        .collect()
}

#[test]
fn the_checker_sees_double_owners_and_ungranted_leases() {
    let all = broken("stale-view", Check::NothingNewer);
    let both = "one-sender (rule 9): ap-south and us-east may all start";
    assert!(all.iter().any(|text| text.starts_with(both)), "{all:?}");
    let all = broken("long-pause", Check::BootClock);
    let alone = "granted-when-sent (rule 23): us-east holds a lease while grants of no majority run for it";
    assert!(all.iter().any(|text| text == alone), "{all:?}");
}

#[test]
fn a_breach_is_found_in_its_own_story() {
    let scenario = as_it_is("second-lease").unwrap();
    let played = |with_story| planted(Check::GrantOnAccept, || play(&scenario, 0, with_story));
    let Played { outcome, story } = played(true);
    assert_eq!(played(false).outcome, outcome, "nothing changes by being told");

    let breach = outcome.breaches.first().unwrap();
    assert_eq!((breach.invariant.as_str(), breach.name()), ("one-sender (rule 9)", "one-sender"));
    let of = |tag: &str| -> Vec<&String> {
        story.iter().filter(|line| line.split_whitespace().nth(1) == Some(tag)).collect()
    };
    let answer = of("BREACH")[0];
    assert_eq!(of("BREACH").len(), outcome.breaches.len());
    assert!(answer.ends_with(&format!("BREACH     one-sender (rule 9): {}", breach.text)), "{answer}");
    // The breach has the same names and times as all other lines.
    let (key, at) = (breach.text.split(' ').next().unwrap(), answer.split_whitespace().next().unwrap());
    assert!(breach.text.contains(&format!(" at {at} ")), "{answer}");
    assert!(
        of("UPSTREAM").iter().any(|line| line.contains(&format!("{at} ")) && line.contains(key)),
        "{answer}"
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
