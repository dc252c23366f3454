//! The house rules, as tests: words that do not belong into a place, references that lead
//! somewhere, and the length of files. Each rule carries its reason and its forgeries: made-up
//! files in which every line that ends in `//~` must be caught and no other. It is tried on them
//! before the tree, so a rule that cannot fail fails. Clippy holds the others (clippy.toml).

mod circles;
mod citations;
mod words;

use crate::support::*;

/// The end of a forged line that the rule must catch.
const CAUGHT: &str = "//~";

/// A line, and its fault.
type Offence = (usize, String);

struct Source {
    /// Relative to the top of the tree, with `/`.
    path: String,
    raw: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True if the file is in one of these places: folders end in `/`, files are named in full.
    fn within(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path == *place || place.ends_with('/') && self.path.starts_with(place))
    }
}

struct Rule {
    /// The reason of the rule, and advice for the author of an offence.
    reason: &'static str,
    check: fn(&Source) -> Vec<Offence>,
    /// Made-up files, path and text, that prove the check.
    forged: fn() -> Vec<(&'static str, String)>,
}

/// The files that git tracks, and every Rust file, tracked or not yet.
static HOUSE: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = BTreeSet::new();
    walk(top, "", &mut all);
    if let Some(tracked) = tracked(top) {
        all.retain(|path| path.ends_with(".rs") || tracked.contains(path));
    }
    let read = |path: String| match fs::read(top.join(&path)) {
        Ok(bytes) => String::from_utf8(bytes).ok().map(|raw| Source { path, raw }),
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
        fs::read_dir(top.join(below)).unwrap_or_else(|error| panic!("{below}/ cannot be read: {error}"));
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

fn by_line(source: &Source, faults: impl Fn(&str) -> Vec<String>) -> Vec<Offence> {
    let lines = source.raw.lines().zip(1..);
    lines.flat_map(|(line, number)| faults(line).into_iter().map(move |what| (number, what))).collect()
}

/// Proves the rule on its forgeries, then holds it against the house.
fn enforce(rule: &Rule) {
    prove(rule);
    let mut places = BTreeSet::new();
    for source in HOUSE.iter() {
        places.extend((rule.check)(source).into_iter().map(|(line, what)| (&source.path, line, what)));
    }
    let list: String = places.iter().map(|(path, line, what)| format!("\n  {path}:{line}: {what}")).collect();
    assert!(places.is_empty(), "{} place(s) break a house rule. {}{list}", places.len(), rule.reason);
}

fn prove(rule: &Rule) {
    let mut caught_any = false;
    for (path, text) in (rule.forged)() {
        let marked = text.lines().enumerate().filter(|(_, line)| line.trim_end().ends_with(CAUGHT));
        let expected: BTreeSet<usize> = marked.map(|(index, _)| index + 1).collect();
        let offences = (rule.check)(&Source { path: path.to_owned(), raw: text.clone() });
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
    ($($name:ident: $rule:path);+ $(;)?) => {
        $(#[test] fn $name() { enforce(&$rule); })+
    };
}

house_rules! {
    words_stand_where_they_belong: words::BANNED;
    files_stay_short: words::LENGTHS;
    a_select_is_biased_where_seeds_are_replayed: words::BIASED;
    no_machine_and_no_reminder_is_named: words::PLACES;
    the_tests_that_are_named_exist: citations::PROOFS;
    the_suites_that_commands_run_exist: citations::COMMANDS;
    the_anchors_that_are_cited_exist: citations::ANCHORS;
    each_rule_names_its_code_and_its_tests: citations::RULES;
    each_plant_belongs_to_a_rule: citations::PLANTS;
}

#[test]
fn the_house_is_seen() {
    let paths =
        "Cargo.toml src/lib.rs simulation/Cargo.toml simulation/src/lib.rs tests/suites/tidy/words.rs";
    for path in paths.split(' ') {
        let is_read = HOUSE.iter().any(|source| source.path == path);
        assert!(is_read, "{path} was not read, so no rule holds for it");
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
