//! The rule on what documents claim: a test that a page names is there.
//!
//! Neighbours: `tests/README.md` maps demands to tests as `` `suite::test` ``; the house gives the sources. It must not judge
//! whether the test proves what is claimed: a reader does.

use crate::tidy::{HOUSE, Offence, Rule};

/// The page whose names are held against the tree.
const PAGE: &str = "tests/README.md";

pub const PROOFS: Rule = Rule {
    reason: "tests/README.md says which test proves what: every `suite::test` in its tables must be a function of that name, in a \
             file or folder of that name. Correct the page when a test is renamed.",
    check: |source| {
        if source.path != PAGE {
            return Vec::new();
        }
        let mut found: Vec<Offence> = Vec::new();
        for (index, line) in source.raw.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
            let quoted = line.split('`').skip(1).step_by(2).filter(|name| is_test(name));
            found.extend(
                quoted
                    .filter(|name| !exists(name))
                    .map(|name| (index + 1, format!("there is no test `{name}`"))),
            );
        }
        found
    },
    forged: || {
        vec![
            (PAGE, "| x | `tidy::the_house_is_seen`, `shape.rs` and `cargo test` |".to_string()),
            (
                PAGE,
                "| `tidy::the_house_is_seen` `tidy::no_such_test` //~\n| `nowhere::the_house_is_seen` //~"
                    .into(),
            ),
            (PAGE, "Use `tokio::time::sleep`.".to_string()),
            ("README.md", "| `tidy::no_such_test` |".to_string()),
        ]
    },
};

/// `suite::test`, perhaps with more folders before, and nothing else.
fn is_test(name: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    name.contains("::") && name.split("::").all(plain)
}

fn exists(name: &str) -> bool {
    let mut parts: Vec<&str> = name.split("::").collect();
    let Some(test) = parts.pop() else { return false };
    let functions = [format!("fn {test}("), format!("fn {test}<")];
    HOUSE.iter().any(|source| {
        let path: Vec<&str> = source.path.trim_end_matches(".rs").split('/').collect();
        let stands = functions.iter().any(|function| source.raw.contains(function));
        source.is_rust() && parts.iter().all(|part| path.contains(part)) && stands
    })
}
