//! The rules on claims about tests: a test that a page names exists, and a command that runs a
//! suite names one.
//!
//! Documents name tests as `` `suite::test` ``; the house gives the sources. It must not judge
//! whether the test proves the claim: a reader does.

use crate::tidy::{HOUSE, Rule, by_line};

/// The words by which documents explain how they name a test.
const FORM: &str = "suite::test";

pub const PROOFS: Rule = Rule {
    reason: "Documents say which test shows what: each `suite::test` must be a function of that name, in a file \
             or folder of that name. Correct the page when a test is renamed.",
    check: |source| {
        if !source.path.ends_with(".md") {
            return Vec::new();
        }
        by_line(source, |line| {
            let quoted = line.split('`').skip(1).step_by(2).filter(|name| is_test(name) && *name != FORM);
            quoted.filter(|name| !exists(name)).map(|name| format!("there is no test `{name}`")).collect()
        })
    },
    forged: || {
        vec![
            ("docs/a.md", "| x | `tidy::the_house_is_seen`, `shape.rs` and `cargo test` |".to_string()),
            (
                "docs/a.md",
                "| `tidy::the_house_is_seen` `tidy::no_such_test` //~\n| `nowhere::the_house_is_seen` //~"
                    .into(),
            ),
            (
                "README.md",
                "Shown by `tidy::no_such_test`. //~\nAs `suite::test`, `State::Claimed`.".to_string(),
            ),
            ("src/a.rs", "// `tidy::no_such_test`".to_string()),
        ]
    },
};

/// The option for a test target in a command, in halves: this file is read, too.
const OPTION: &str = concat!("--te", "st ");

pub const COMMANDS: Rule = Rule {
    reason: "A command that runs one suite must run it: the target after `--test` is in tests/ or simulation/tests/, and the suite \
             after it (`regions::`) is a file of that target. A filter that matches nothing passes in silence.",
    check: |source| {
        by_line(source, |line| {
            let mut found = Vec::new();
            for (at, _) in line.match_indices(OPTION) {
                let mut words = line[at + OPTION.len()..].split(' ').filter(|word| *word != "--");
                let target = plain(words.next().unwrap_or_default());
                let suites = words.map_while(|word| Some(plain(word.split_once("::")?.0)));
                let named = std::iter::once(None).chain(suites.map(Some));
                let missing = named.filter(|suite| !is_suite(target, *suite));
                let of = |suite: Option<&str>| suite.map_or(String::new(), |suite| format!("{suite}:: in "));
                found.extend(missing.map(|suite| format!("there is no {}target {target:?}", of(suite))));
            }
            found
        })
    },
    forged: || {
        let forged = |text: &str| text.replace("OPTION ", OPTION);
        vec![
            (
                "README.md",
                forged(
                    "`cargo test OPTION suites tidy::the_house_is_seen`, `OPTION suites`\n`OPTION nowhere` //~",
                ),
            ),
            (
                "a/README.md",
                forged(
                    "OPTION suites -- store::keys:: nowhere:: x //~\nOPTION long takeover:: //~\n-p s OPTION long model::",
                ),
            ),
            (".ci/run", forged("cargo test OPTION suites && cargo clippy OPTION tidy -- -D warnings # //~")),
        ]
    },
};

fn plain(word: &str) -> &str {
    let end = word.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    &word[..end.unwrap_or(word.len())]
}

/// True if such a target exists, in either package, with such a suite, if one is named.
///
/// The simulation's suites are called `simulated`, since they stand in the gateway's package.
fn is_suite(target: &str, suite: Option<&str>) -> bool {
    let target = if target == "simulated" { "suites" } else { target };
    let files = match suite {
        None => [format!("tests/{target}.rs"), format!("tests/{target}/main.rs")],
        Some(suite) => [format!("tests/{target}/{suite}.rs"), format!("tests/{target}/{suite}/mod.rs")],
    };
    let is = |path: &str| files.iter().any(|file| file == path.strip_prefix("simulation/").unwrap_or(path));
    HOUSE.iter().any(|source| is(&source.path))
}

/// True for `suite::test`, perhaps with more folders before, and nothing else. Types begin with a
/// capital.
fn is_test(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let plain = |part: &str| !part.is_empty() && part.bytes().all(is_letter);
    name.contains("::") && name.split("::").all(plain)
}

/// True if a test of this name is in a file or folder of that name.
pub fn exists(name: &str) -> bool {
    let mut parts: Vec<&str> = name.split("::").collect();
    let Some(test) = parts.pop() else { return false };
    let functions = [format!("fn {test}("), format!("fn {test}<")];
    HOUSE.iter().any(|source| {
        let path: Vec<&str> = source.path.trim_end_matches(".rs").split('/').collect();
        let stands = || functions.iter().any(|function| source.raw.contains(function));
        source.is_rust() && parts.iter().all(|part| path.contains(part)) && stands()
    })
}
