//! Tests that `scenarios/swarm.toml` is a complete reference: every setting with its default,
//! commented-out ones included.
//!
//! No key is listed here: every question goes to the reader that plays use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onceway::config::Errors;
use onceway::config::reader::{Problems, Source};
use simulation::scenario::find::{self, has, path};
use simulation::scenario::kept::{entry, file, read};
use simulation::scenario::{Scenario, of};

/// A key that no reader knows, and that resembles none.
const STRANGE: &str = "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz = 1";

/// Reads a text as if it were beside the scenarios of the harness.
pub fn scenario(text: &str) -> Result<Scenario, Errors> {
    let path = find::find("swarm").unwrap().with_file_name("text.toml");
    of(Source::of(&path, text.to_owned()), &path, &[], Problems::default())
}

fn text(name: &str) -> String {
    let path = format!("{}/simulation/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// A line that opens a table or sets a key, commented out or not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Table(String),
    Key(String),
}

fn line(text: &str) -> Option<Line> {
    let text = text.strip_prefix("# ").unwrap_or(text);
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
    if let Some(name) = text.strip_prefix('[') {
        let name = name.split(']').next()?.trim_start_matches('[');
        return is_name(name).then(|| Line::Table(name.to_owned()));
    }
    let (key, _) = text.split_once(" = ")?;
    is_name(key).then(|| Line::Key(key.to_owned()))
}

/// The text with all commented-out settings in force.
fn open(text: &str) -> String {
    let opened = |text: &str| {
        if line(text).is_some() {
            text.strip_prefix("# ").unwrap_or(text).to_owned()
        } else {
            text.to_owned()
        }
    };
    text.lines().map(opened).collect::<Vec<_>>().join("\n")
}

/// Every table with its keys, and the top one also with the tables' names, each once.
fn written(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut table = String::new();
    for found in text.lines().filter_map(line) {
        match found {
            Line::Table(name) => {
                all.entry(String::new()).or_default().insert(name.clone());
                table = name;
            }
            Line::Key(key) => _ = all.entry(table.clone()).or_default().insert(key),
        }
    }
    all
}

/// The keys that the reader accepts in each table, as it lists them when it meets a strange key.
fn accepted(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let text = open(text);
    let mut places = vec![(String::new(), 0)];
    for (number, found) in text.lines().enumerate() {
        if let Some(Line::Table(name)) = line(found) {
            places.push((name, number + 1));
        }
    }
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, number) in places {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(number, STRANGE);
        let Err(Errors(said)) = scenario(&lines.join("\n")) else { panic!("{name:?} takes any key") };
        let lists = said.iter().filter_map(|problem| problem.text.split_once("known here are "));
        all.entry(name).or_default().extend(lists.flat_map(|(_, list)| list.split(", ").map(str::to_owned)));
    }
    all
}

#[test]
fn the_swarm_names_exactly_the_keys_of_scenarios() {
    let text = text("swarm");
    let (written, accepted) = (written(&text), accepted(&text));
    assert!(accepted.len() > 8 && accepted.values().all(|keys| !keys.is_empty()), "{accepted:?}");
    assert_eq!(written, accepted);
}

#[test]
fn a_key_that_the_swarm_left_out_would_be_noticed() {
    let text = text("swarm");
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("# near = "))
        .fold(String::new(), |all, line| all + line + "\n");
    assert!(without.len() < text.len());
    assert_ne!(written(&without), accepted(&without));
}

#[test]
fn the_swarms_commented_settings_are_valid() {
    if let Err(errors) = scenario(&open(&text("swarm"))) {
        panic!("{errors}");
    }
}

/// The default of a line's key: the value that counts without the key.
fn default_of(line: &str) -> Option<String> {
    let (setting, comment) = line.rsplit_once("# default")?;
    let said = comment.split(';').next()?.trim();
    let value = setting.split_once(" = ")?.1.trim();
    Some(if said.is_empty() { value.to_owned() } else { said.to_owned() })
}

#[test]
fn every_key_says_its_default_and_that_is_what_counts_without_it() {
    let text = open(&text("swarm"));
    let (mut table, mut met, mut compared) = (String::new(), BTreeSet::new(), 0);
    for (number, stands) in text.lines().enumerate() {
        match line(stands) {
            Some(Line::Table(name)) => table = name,
            Some(Line::Key(key)) if met.insert((table.clone(), key.clone())) => {
                let above =
                    number.checked_sub(1).and_then(|above| text.lines().nth(above)).unwrap_or_default();
                let says = |line: &str| line.contains("default");
                assert!(
                    says(stands) || (above.starts_with('#') && says(above)),
                    "[{table}] {key} says nothing of its default"
                );
                let Some(default) = default_of(stands) else { continue };
                let with = |line: &str| {
                    let mut lines: Vec<&str> = text.lines().collect();
                    lines[number] = line;
                    scenario(&lines.join("\n"))
                        .map(|scenario| format!("{scenario:?}"))
                        .unwrap_or_else(|errors| panic!("[{table}] {key}: {errors}"))
                };
                assert_eq!(with(""), with(&format!("{key} = {default}")), "[{table}] {key}");
                compared += 1;
            }
            Some(Line::Key(_)) | None => {}
        }
    }
    assert!(compared > 20, "{compared}");
}

/// The lines of blocks, each with true if a comment is above it. One comment is enough for
/// workloads, and for links, that follow one another.
fn explained(text: &str) -> Vec<(usize, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = Vec::new();
    let mut before = "";
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with('[')) {
        let above = number > 0 && lines[number - 1].starts_with('#');
        all.push((number + 1, above || ["[[workload]]", "[[link]]"].contains(line) && before == *line));
        before = line;
    }
    all
}

#[test]
fn every_block_of_every_scenario_says_why_it_is_there() {
    assert_eq!(
        explained("a = 1\n\n[[fault]]\n# why\n[[workload]]\n[[workload]]\n[[fault]]\n"),
        [(3, false), (5, true), (6, true), (7, false)]
    );
    let mut lacking = Vec::new();
    for name in find::names() {
        let blocks = explained(&text(&name)).into_iter().filter(|(_, explained)| !explained);
        lacking.extend(blocks.map(|(line, _)| format!("{name}.toml:{line}")));
    }
    assert_eq!(lacking, Vec::<String>::new());
}

#[test]
fn a_path_may_climb_but_not_out() {
    assert!(has(&path("kept/../scenarios/swarm.toml")));
    for none in
        ["../swarm.toml", "scenarios", "scenarios/nothing.toml", "scenarios/../../scenarios/swarm.toml"]
    {
        assert!(!has(&path(none)), "{none}");
    }
    assert!(!has(Path::new("scenarios/swarm.toml")));
}

#[test]
fn an_added_seed_is_read_again() {
    let text = [("swarm", 7, "5: \"twice\""), ("region-loss", 8, "progress: a\nb")]
        .map(|(name, seed, broke)| entry(&find::find(name).unwrap(), seed, broke));
    let file = std::env::temp_dir().join(format!("onceway-kept-{}.toml", std::process::id()));
    std::fs::write(&file, text.concat()).unwrap();
    let all = read(&file);
    std::fs::remove_file(&file).unwrap();
    let all = all.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].seed, all[0].broke.as_str()), (7, "5: \"twice\""));
    assert_eq!(all[0].scenario, find::find("swarm").unwrap());
    assert_eq!((all[1].seed, all[1].broke.as_str()), (8, "progress: a\nb"));
}

#[test]
fn the_seeds_of_the_tree_can_be_read() {
    assert!(!read(&file()).unwrap().is_empty());
}
