//! The files that come with the harness are found by their paths, and kept seeds can be read.
//!
//! `tests/long/harness.rs` replays the seeds.

use std::path::Path;

use simulation::scenario::find::{self, has, path};
use simulation::scenario::kept::{entry, file, read};

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
