//! The tool on a small crate: a check that a test notices, and checks that no test notices.
//!
//! These tests cover a whole run and the short form. Each module has the tests of its own rules.
//! This file must not need more than cargo and git.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::hunt::Bounds;
use crate::results::{Counts, Equivalents, Results, report};
use crate::suites::Suite;
use crate::tree::Tree;
use crate::{Work, changed, code, project};

const LIBRARY: &str = r#"//! A lease.
/// True if it may be relied on.
pub fn may_send(held: bool, now: u32, until: u32) -> bool {
    held && now < until
}
/// Nobody asks.
pub fn nobody(asks: &str) -> bool {
    asks.is_empty()
}
/// Is moved out of when left out, which does not compile.
pub fn moved(rows: Vec<u8>) -> usize {
    let given;
    given = rows;
    given.len()
}
#[cfg(test)]
mod tests {
    #[test]
    fn a_lease_is_needed() {
        assert!(super::may_send(true, 1, 3));
        assert!(!super::may_send(false, 1, 3));
        assert!(!super::may_send(true, 4, 3));
        assert_eq!(super::moved(vec![1]), 1);
    }
    #[test]
    fn this_one_fails_always() {
        panic!();
    }
}
"#;

const SUITE: [Suite; 1] =
    [Suite { name: "unit", binary: ("small", "lib"), tests: &[], program: None, real: false }];

fn small(top: &Path) {
    fs::create_dir_all(top.join("src")).unwrap();
    let manifest = "[package]\nname = \"small\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(top.join("Cargo.toml"), manifest).unwrap();
    fs::write(top.join("src/lib.rs"), LIBRARY).unwrap();
}

/// Tries all mutants of the small crate.
fn hunted(top: &Path, bounds: Bounds) -> (Counts, usize, String) {
    let tree = Tree { top: top.join("crate"), scratch: top.join("scratch") };
    let sites = tree.sites(&["src".to_owned()]).unwrap();
    let list = top.join("equivalent.toml");
    let equivalents = Equivalents::read(&list, &sites).unwrap();
    let path = top.join("results.jsonl");
    let mut results = Results::open(&path).unwrap();
    let work = Work { tree: &tree, packages: &["small"], suites: &SUITE, bounds };
    let left = work.all(&sites, &equivalents, &mut results).unwrap();
    (report(&sites, &results, &equivalents), left, fs::read_to_string(path).unwrap())
}

/// A file that moved, or a line that changed, is seen here, and not by the next hunt weeks later.
#[test]
fn the_projects_files_are_there_and_each_equivalence_belongs_to_a_mutant() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tree = Tree { top: top.to_owned(), scratch: top.join("target/mutation") };
    let sites = tree.sites(&project::PATHS.map(str::to_owned)).unwrap();
    assert!(project::PATHS.iter().all(|path| sites.iter().any(|site| site.file.starts_with(path))));
    Equivalents::read(&top.join("mutation/equivalent.toml"), &sites).unwrap();
}

#[test]
fn a_removed_check_is_noticed_or_told() {
    let top = tempfile::tempdir().unwrap();
    small(&top.path().join("crate"));
    let list = top.path().join("equivalent.toml");
    fs::write(&list, "").unwrap();
    let bounds = Bounds { until: None, at_most: Duration::from_secs(60) };
    let (counts, left, first) = hunted(top.path(), bounds);
    // Noticed: the lease's condition forced both ways, and each of its operands. Survived: its
    // boundary, which no test covers. Unreached: `nobody`, forced both ways. Refused: the
    // statement of `moved`, which cannot be left out.
    let wanted = Counts { refused: 1, noticed: 4, equivalent: 0, survived: 1, unreached: 2 };
    assert_eq!((counts, left), (wanted, 0), "{first}");
    assert_eq!(code(counts, left), 1);
    assert!(first.contains("a_lease_is_needed"), "{first}");
    assert!(!first.contains("this_one_fails_always"), "a failure that is not the mutant's: {first}");

    // No mutant is tried twice, and a known equivalent does not count as a survivor.
    let entry = "[[equivalent]]\nfile = \"src/lib.rs\"\nline = \"held && now < until\"\n\
                 change = \"now < until -> with <=\"\nreason = \"clocks are exact here\"\n";
    fs::write(&list, entry).unwrap();
    let (counts, _, second) = hunted(top.path(), bounds);
    assert_eq!((counts.equivalent, counts.survived), (1, 0));
    assert_eq!(first, second);

    // An entry that belongs to no mutant fails.
    fs::write(&list, entry.replace("held &&", "had &&")).unwrap();
    let tree = Tree { top: top.path().join("crate"), scratch: top.path().join("scratch") };
    let sites = tree.sites(&["src".to_owned()]).unwrap();
    let error = Equivalents::read(&list, &sites).err().expect("no such mutant").to_string();
    assert!(error.contains("had && now < until"), "{error}");
}

#[test]
fn the_time_that_is_over_is_told() {
    let top = tempfile::tempdir().unwrap();
    small(&top.path().join("crate"));
    fs::write(top.path().join("equivalent.toml"), "").unwrap();
    let over = Some(std::time::Instant::now());
    let (counts, left, _) = hunted(top.path(), Bounds { until: over, at_most: Duration::from_secs(60) });
    assert_eq!((counts.noticed, left, code(counts, left)), (0, 5, 3));
}

#[test]
fn only_changed_lines_are_looked_at() {
    let top = tempfile::tempdir().unwrap();
    small(top.path());
    let git = |words: &str| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words.split(' '));
        assert!(git.current_dir(top.path()).output().unwrap().status.success(), "git {words}");
    };
    git("init --quiet");
    git("add .");
    git("commit --quiet --message first");
    fs::write(top.path().join("src/lib.rs"), LIBRARY.replace("held && now", "held && 1 + now")).unwrap();
    let tree = Tree { top: top.path().to_owned(), scratch: top.path().join("target") };
    let changed = changed::since(top.path(), "HEAD").unwrap();
    let mut sites = tree.sites(&["src".to_owned()]).unwrap();
    sites.retain(|site| changed::has(&changed, site));
    assert!(!sites.is_empty() && sites.iter().all(|site| site.lines.0 == 4), "{sites:?}");
    assert!(changed::since(top.path(), "nowhere").is_err());
}
