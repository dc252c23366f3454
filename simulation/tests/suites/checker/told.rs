//! A breach can be looked up by name, rule, key and time.
//!
//! Name and rule are in the table of docs/simulation.md, the key and the time in a story.

use super::*;

#[test]
fn the_page_names_each_invariant() {
    let page = include_str!("../../../../docs/simulation.md");
    let (_, table) = page.split_once("\n## The invariants\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | [rule "));
    let known: BTreeSet<String> = rows
        .map(|(name, rest)| {
            let (rule, demands) = rest.split_once("](protocol.md#rule-").unwrap();
            assert!(demands.starts_with(&format!("{rule}) | ")) && demands.len() > 20, "{name}: {demands}");
            format!("{name} (rule {rule})")
        })
        .collect();
    let mut all: BTreeSet<String> = Invariant::ALL.iter().map(ToString::to_string).collect();
    all.insert(simulation::play::answers::SAME_ANSWER.to_owned());
    assert_eq!(known, all);
}

#[test]
fn a_breach_names_its_key_and_its_time_as_a_story_does() {
    let mut checker = Checker::new(BTreeSet::new(), RULE).counting_from(ms(10));
    let (id, token) = (key(&first()), token(1, 1));
    let history = founded().into_iter().chain([arrives([sent(30, "a", &id, token)])]);
    let breaches: Vec<Breach> = history.flat_map(|news| checker.judge(news)).collect();
    let broken = breaches.iter().find(|breach| breach.invariant == Invariant::ClaimedBeforeSent).unwrap();
    let name = format!("{}/{}", id.tenant(), id.key().as_str());
    assert_eq!(broken.text, format!("{name} {token} by a at 0.020000 was sent without a claim"));
}
