//! The house rules, as tests: allowed imports, places for clocks, SQL and statuses, and limits of
//! length.
//!
//! Each rule carries its reason and its forgeries: made-up files in which every line that ends in
//! `//~` must be caught and no other. A rule is tried on its forgeries before it is tried on the
//! tree, so a rule that cannot fail fails. Every offending place is listed at once. In `tidy/`,
//! `source` and `paths` read Rust, and the other files hold the rules. It must not need more than
//! this source tree (and git, where there is one).

mod arrows;
mod citations;
mod paths;
mod proofs;
mod prose;
mod shape;
mod source;
mod words;

use source::Source;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// The end of a forged line that the rule must catch.
const CAUGHT: &str = "//~";

/// A line, and its fault.
type Offence = (usize, String);

struct Rule {
    /// The reason of the rule, and advice for the author of an offence.
    reason: &'static str,
    check: fn(&Source) -> Vec<Offence>,
    /// Made-up files, path and text, that prove the check.
    forged: fn() -> Vec<(&'static str, String)>,
}

/// Every file that the rules look at: those that git tracks, and every Rust file, tracked or not
/// yet.
static HOUSE: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = BTreeSet::new();
    walk(top, "", &mut all);
    if let Some(tracked) = tracked(top) {
        all.retain(|path| path.ends_with(".rs") || tracked.contains(path));
    }
    let read = |path: String| match std::fs::read(top.join(&path)) {
        Ok(bytes) => String::from_utf8(bytes).ok().map(|text| Source::new(&path, &text)),
        Err(error) => panic!("{path} cannot be read: {error}"),
    };
    all.into_iter().filter_map(read).collect()
});

/// The files that git tracks; none without git, or if its repository is not this tree's.
fn tracked(top: &Path) -> Option<BTreeSet<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(top).output().ok()?;
    let listing = String::from_utf8(output.stdout).ok()?;
    let files: BTreeSet<String> = listing.split('\0').map(String::from).collect();
    (output.status.success() && files.contains("Cargo.toml") && files.contains("src/lib.rs")).then_some(files)
}

fn walk(top: &Path, below: &str, all: &mut BTreeSet<String>) {
    let folder =
        std::fs::read_dir(top.join(below)).unwrap_or_else(|error| panic!("{below}/ cannot be read: {error}"));
    for entry in folder.map(|entry| entry.expect("a folder of the tree can be listed")) {
        let name = entry.file_name().into_string().expect("names in the tree are UTF-8");
        let kind = entry.file_type().expect("an entry of the tree has a type");
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if kind.is_dir() && name != ".git" && name != "target" {
            walk(top, &path, all);
        } else if kind.is_file() {
            all.insert(path);
        }
    }
}

/// Proves the rule on its forgeries, then holds it against the house. `left` places break it still.
/// The number only falls: a change that mends one lowers it.
fn enforce(rule: &Rule, left: usize) {
    prove(rule);
    let mut places = BTreeSet::new();
    for source in HOUSE.iter() {
        places.extend((rule.check)(source).into_iter().map(|(line, what)| (&source.path, line, what)));
    }
    let list: String = places.iter().map(|(path, line, what)| format!("\n  {path}:{line}: {what}")).collect();
    let count = places.len();
    assert!(count <= left, "{count} place(s) break a house rule, {left} may. {}{list}", rule.reason);
    assert!(count == left, "only {count} place(s) break this rule: lower its {left}. {}", rule.reason);
}

fn prove(rule: &Rule) {
    let mut caught_any = false;
    for (path, text) in (rule.forged)() {
        let marked = text.lines().enumerate().filter(|(_, line)| line.trim_end().ends_with(CAUGHT));
        let expected: BTreeSet<usize> = marked.map(|(index, _)| index + 1).collect();
        let offences = (rule.check)(&Source::new(path, &text));
        let seen: BTreeSet<usize> = offences.iter().map(|(line, _)| *line).collect();
        assert_eq!(
            seen, expected,
            "the rule sees other lines of this forged {path} than it must:\n{text}\n{offences:?}"
        );
        caught_any |= !expected.is_empty();
    }
    assert!(caught_any, "no forgery breaks this rule, so nothing shows that it can fail: {}", rule.reason);
}

macro_rules! house_rules {
    ($($name:ident: $rule:path $(, but $left:literal)?);+ $(;)?) => {
        $(#[test] fn $name() { enforce(&$rule, 0 $(+ $left)?); })+
    };
}

house_rules! {
    imports_go_down_only: arrows::FLOORS;
    each_floor_knows_few_crates: arrows::CRATES;
    the_simulation_stays_below_the_adapters: arrows::SIMULATION;
    the_protocol_is_pure: words::PURE;
    clocks_are_read_in_one_place: words::CLOCKS;
    selects_are_ordered: words::SELECTS;
    maps_replay: words::MAPS;
    nothing_is_left_undone: words::UNDONE;
    tests_wait_on_conditions: words::WAITING;
    statuses_stand_in_reply: words::STATUSES;
    heartbeats_are_read_in_one_place: words::HEARTBEATS;
    files_open_with_their_purpose: shape::HEADERS;
    files_and_functions_stay_short: shape::LENGTHS;
    unsafe_is_forbidden_by_the_compiler: shape::LINTS;
    sql_stands_beside_the_store: shape::SQL;
    no_machine_and_no_reminder_is_named: shape::PLACES;
    the_tests_that_are_named_exist: proofs::PROOFS;
    the_suites_that_commands_run_exist: proofs::COMMANDS;
    the_anchors_that_are_cited_exist: citations::ANCHORS;
    no_paper_is_cited: citations::PAPERS;
    each_rule_names_its_code_and_its_tests: citations::RULES;
    each_plant_belongs_to_a_rule: citations::PLANTS;
    the_glossary_names_what_is_in_the_code: citations::NAMES;
    prose_fits_a_hundred_columns: prose::WIDTH;
    sentences_have_one_thought: prose::SENTENCES;
    doc_comments_begin_with_a_noun_or_a_verb: prose::OPENINGS;
    headers_list_no_neighbours: prose::NEIGHBOURS;
}

#[test]
fn the_house_is_seen() {
    for path in [
        "Cargo.toml",
        "src/lib.rs",
        "simulation/Cargo.toml",
        "simulation/src/lib.rs",
        "tests/suites/tidy/source.rs",
    ] {
        assert!(
            HOUSE.iter().any(|source| source.path == path),
            "{path} was not read, so no rule holds for it"
        );
    }
}

#[test]
#[should_panic(expected = "nothing shows that it can fail")]
fn a_rule_that_catches_nothing_is_refused() {
    prove(&Rule {
        reason: "",
        check: |_| Vec::new(),
        forged: || vec![("src/a.rs", "fn a() {}".to_string())],
    });
}

#[test]
#[should_panic(expected = "the rule sees other lines")]
fn a_rule_that_misses_its_forgery_is_refused() {
    prove(&Rule {
        reason: "",
        check: |_| Vec::new(),
        forged: || vec![("src/a.rs", format!("fn a() {{}} {CAUGHT}"))],
    });
}
