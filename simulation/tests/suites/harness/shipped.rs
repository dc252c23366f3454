//! The files that come with the harness are those of the tree, and kept seeds can be read.
//!
//! `tests/long/harness.rs` replays the seeds. It must not play any.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use simulation::scenario::find;
use simulation::scenario::kept::{entry, file, read};
use simulation::scenario::shipped::{FILES, has, path};

#[test]
fn every_file_of_the_tree_is_here_as_it_is_there() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("simulation");
    let mut there = BTreeSet::new();
    for folder in ["scenarios", "scenarios/rings", "kept"] {
        for entry in fs::read_dir(tree.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".toml") {
                there.insert(format!("{folder}/{name}"));
            }
        }
    }
    let here: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(here, there);
    for (name, text) in FILES {
        assert_eq!(fs::read_to_string(tree.join(name)).unwrap(), *text, "{name}");
    }
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
fn what_is_added_is_read_again() {
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
