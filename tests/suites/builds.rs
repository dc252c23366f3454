//! One build serves `cargo run -- demo`, `cargo test` and the simulation. What users install has no
//! switch that takes checks out. Cargo compiles a crate once for each set of features: one
//! dependency of a test can have the whole gateway compiled twice. It is asked, and builds nothing.

use crate::support::documents::{pages, text};
use crate::support::*;

fn crates(chosen: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]"]).args(chosen);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

const RUN: &[&str] = &["--edges", "normal,build"];
const TEST: &[&str] = &["--edges", "normal,build,dev"];
const SIMULATION: &[&str] = &["-p", "simulation", "--edges", "normal,build,dev"];
const PRODUCT: &[&str] = &["-p", "onceway", "--edges", "normal,build"];

/// The crates of the first build that the second would compile once more.
fn again(first: &[&str], second: &[&str]) -> Vec<String> {
    let (first, second) = (crates(first), crates(second));
    assert!(first.len() > 100, "hardly a build: {first:?}");
    let names: BTreeSet<_> = second.iter().map(|one| one.split(" [").next()).collect();
    first.difference(&second).filter(|one| names.contains(&one.split(" [").next())).cloned().collect()
}

#[test]
fn demo_tests_and_simulation_share_each_crate() {
    assert_eq!(again(RUN, TEST), Vec::<String>::new());
    assert_eq!(again(SIMULATION, TEST), Vec::<String>::new());
    // The comparison sees the switch, which the product alone does without.
    assert!(again(PRODUCT, TEST).iter().any(|one| one.starts_with("onceway ")));
}

fn chosen(line: &str) -> Vec<String> {
    let (_, rest) = line.split_once("cargo build").unwrap();
    let mut words = rest.split(['`', '#']).next().unwrap().split_whitespace();
    let mut chosen = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-p" | "--features" => {
                let value = words.next().unwrap().trim_matches('"').replace("$FEATURES", "jemalloc");
                chosen.extend([word.to_owned(), value]);
            }
            "--no-default-features" => chosen.push(word.to_owned()),
            _ => {}
        }
    }
    chosen
}

#[test]
fn the_installed_program_cannot_switch_checks_off() {
    for crate_name in ["onceway ", "onceway-protocol "] {
        let of =
            |chosen: &[&str]| crates(chosen).into_iter().find(|one| one.starts_with(crate_name)).unwrap();
        assert!(!of(PRODUCT).contains("plant") && of(RUN).contains("plant"), "{crate_name}");
    }
    let mut builds = 0;
    for page in pages().iter().map(String::as_str).chain(["deploy/Containerfile", "src/config/region.rs"]) {
        for line in text(page).lines().filter(|line| line.contains("cargo build --release")) {
            builds += 1;
            let chosen = chosen(line);
            let chosen: Vec<&str> =
                chosen.iter().map(String::as_str).chain(["--edges", "normal,build"]).collect();
            let built = crates(&chosen);
            let has = |name: &str| built.iter().any(|one| one.starts_with(name));
            let protocol = built.iter().find(|one| one.starts_with("onceway-protocol ")).unwrap();
            assert!(has("onceway ") && !protocol.contains("plant"), "{page}: {line}");
            assert_eq!(has("onceway-lab "), page != "deploy/Containerfile", "{page}: {line}");
        }
    }
    for page in ["deploy/GUIDE.md", "deploy/Containerfile"] {
        assert!(text(page).contains("jemalloc"), "{page} builds without the allocator that was measured");
    }
    assert!(builds >= 4, "the documents build the gateway, the image and spans: {builds}");
}
