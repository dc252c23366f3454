//! Rules on references between code and documents: a cited anchor exists, and each rule of the
//! protocol names code, tests and plants that exist.
//!
//! `proofs` knows which tests exist; `docs/protocol.md` has the rules. It must not judge whether
//! the code keeps a rule: the tests do.

use crate::support::documents::anchors;
use crate::tidy::{HOUSE, Offence, Rule, by_line};
use std::collections::BTreeSet;

const PROTOCOL: &str = "docs/protocol.md";
const PLANTED: &str = "src/protocol/plant.rs";

pub const ANCHORS: Rule = Rule {
    reason: "Code cites a rule as a page of docs/ with an anchor: the page must have that heading. A \
             rule's number never changes, and a new rule gets the next one.",
    check: |source| {
        by_line(source, |line| {
            let has = |page, anchor| {
                HOUSE.iter().any(|source| source.path == page && anchors(&source.raw).contains(anchor))
            };
            let missing = cited(line).into_iter().filter(|(page, anchor)| !has(*page, *anchor));
            missing.map(|(page, anchor)| format!("{page} has no heading #{anchor}")).collect()
        })
    },
    forged: || {
        // Without its '#' no citation: this file is read, too.
        let forged = |text: &str| text.replace('@', "#");
        let page = "docs/protocol.md";
        vec![
            ("src/a.rs", forged(&format!("//! A row ({page}@the-record).\n/// See {page}@nowhere. //~"))),
            ("src/a.sql", forged(&format!("-- ({page}@rule-1, {page}@rule-0) //~\n-- {page}"))),
            ("README.md", forged(&format!("[why]({page}@rule-1)\n[why](docs/nowhere.md@rule-1) //~"))),
            ("docs/a.md", forged(&format!("[why](../{page}@rule-1)\n[why](../{page}@rule-one) //~"))),
        ]
    },
};

fn cited(line: &str) -> Vec<(&str, &str)> {
    let starts = line.match_indices("docs/").map(|(at, _)| &line[at..]);
    let pairs = starts.filter_map(|rest| {
        let length = rest.find(".md#")? + ".md".len();
        let page = &rest[..length];
        let is_path = page.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c));
        is_path.then(|| (page, anchor(&rest[length + 1..])))
    });
    pairs.collect()
}

fn anchor(rest: &str) -> &str {
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
    &rest[..end.unwrap_or(rest.len())]
}

pub const RULES: Rule = Rule {
    reason: "Each rule of docs/protocol.md says the naive answer and the rule. It names code (a file and \
             what it defines), tests (`suite::test`) and plants that exist. Correct the page when one \
             of them is renamed.",
    check: |source| {
        if source.path != PROTOCOL {
            return Vec::new();
        }
        let mut found: Vec<Offence> = Vec::new();
        let mut last = 0;
        for rule in rules(&source.raw) {
            if rule.number <= last {
                found.push((rule.line, format!("rule {} does not follow rule {last}", rule.number)));
            }
            last = rule.number;
            found.extend(rule.offences());
        }
        found
    },
    forged: || {
        let code = "- Code: `src/protocol/plant.rs` `is_disabled`.";
        let tests = "- Tests: `tidy::the_house_is_seen`.";
        let whole = format!("**T.**\n\nNaive: x.\n\nRule: y.\n\n{code}\n{tests}\n");
        let only = |text: &str| format!("### Rule 1\n\n**T.**\n\nNaive: x.\n\nRule: y.\n\n{text}\n");
        let marked = |text: &str| only(text).replace("Rule 1", "Rule 1 //~");
        let both = format!("{code}\n{tests}");
        vec![
            (PROTOCOL, format!("# A\n### Rule 1\n\n{whole}## B\n### Rule 2\n\n{whole}- Plants: `over`.")),
            (PROTOCOL, format!("### Rule 2\n{whole}### Rule 2 //~\n{whole}### Rule x //~\n{whole}")),
            (PROTOCOL, marked(&both).replace("Naive", "")),
            (PROTOCOL, marked(&both).replace("Rule:", "")),
            (PROTOCOL, marked(code)),
            (PROTOCOL, marked(tests)),
            (PROTOCOL, only(&format!("- Code: `removed`. //~\n{tests}"))),
            (PROTOCOL, only(&format!("- Code: `src/nowhere.rs`, `src/lib.rs`. //~\n{tests}"))),
            (PROTOCOL, only(&format!("- Code: `src/protocol/plant.rs` `disable`. //~\n{tests}"))),
            (PROTOCOL, only(&format!("{code}\n- Tests: `tidy::no_such_test`. //~"))),
            (PROTOCOL, only(&format!("{code}\n- Tests: none. //~"))),
            (PROTOCOL, only(&format!("{both}\n- Plants: `over`\n  (`swarm`)."))),
            (PROTOCOL, only(&format!("{both}\n- Plants: `over` (`no-such`). //~"))),
            ("docs/a.md", "### Rule 1".to_string()),
        ]
    },
};

/// One rule of the protocol: its number and the lines under its heading.
struct Section<'a> {
    number: usize,
    line: usize,
    lines: Vec<&'a str>,
}

/// The rules of the page, in its order. A heading without a number is rule 0.
fn rules(raw: &str) -> Vec<Section<'_>> {
    let mut found: Vec<Section<'_>> = Vec::new();
    let mut inside = false;
    for (index, line) in raw.lines().enumerate() {
        if let Some(title) = line.strip_prefix("### Rule ") {
            let number = title.split_whitespace().next().and_then(|word| word.parse().ok());
            found.push(Section { number: number.unwrap_or(0), line: index + 1, lines: Vec::new() });
            inside = true;
        } else if line.starts_with('#') {
            inside = false;
        } else if let Some(rule) = found.last_mut().filter(|_| inside) {
            rule.lines.push(line);
        }
    }
    found
}

impl Section<'_> {
    fn offences(&self) -> Vec<Offence> {
        let mut found = Vec::new();
        for part in ["**", "Naive:", "Rule:", "- Code:", "- Tests:"] {
            if !self.lines.iter().any(|line| line.starts_with(part)) {
                found.push((self.line, format!("rule {} has no line {part:?}", self.number)));
            }
        }
        type Check = fn(&[&str]) -> Vec<String>;
        let checks: [(&str, Check); 3] = [("- Code:", code), ("- Tests:", tests), ("- Plants:", plants)];
        for (mark, check) in checks {
            if let Some((line, text)) = self.item(mark) {
                let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
                found.extend(check(&quoted).into_iter().map(|what| (line, what)));
            }
        }
        found
    }

    /// The list item that begins with a mark: its line, and its text over all its lines.
    fn item(&self, mark: &str) -> Option<(usize, String)> {
        let at = self.lines.iter().position(|line| line.starts_with(mark))?;
        let more = self.lines[at + 1..].iter().take_while(|line| line.starts_with("  "));
        let text = std::iter::once(&self.lines[at]).chain(more).copied().collect::<Vec<_>>().join("\n");
        Some((self.line + 1 + at, text))
    }
}

fn code(quoted: &[&str]) -> Vec<String> {
    let (paths, names): (Vec<&str>, Vec<&str>) = quoted.iter().copied().partition(|word| word.contains('/'));
    let files: Vec<&str> =
        HOUSE.iter().filter(|source| paths.contains(&&*source.path)).map(|source| &*source.raw).collect();
    let mut found = Vec::from_iter(paths.is_empty().then(|| "no file of code is named".to_string()));
    let is_missing = |path: &&&str| !HOUSE.iter().any(|source| source.path == ***path);
    found.extend(paths.iter().filter(is_missing).map(|path| format!("there is no file {path}")));
    let is_defined = |name: &str| files.iter().any(|text| defines(text, name));
    let undefined = names.into_iter().filter(|name| !is_defined(name));
    found.extend(undefined.map(|name| format!("none of these files defines `{name}`")));
    found
}

/// True if a file of Rust or SQL defines something of this name.
fn defines(text: &str, name: &str) -> bool {
    ["fn ", "struct ", "enum ", "trait ", "function onceway."].iter().any(|word| {
        let defined = format!("{word}{name}");
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
        text.match_indices(&defined).any(|(at, _)| ends(&text[at + defined.len()..]))
    })
}

fn tests(quoted: &[&str]) -> Vec<String> {
    let missing = quoted.iter().filter(|name| !exists(name));
    let missing = missing.map(|name| format!("there is no test `{name}`"));
    missing.chain(quoted.is_empty().then(|| "no test is named".to_string())).collect()
}

fn plants(quoted: &[&str]) -> Vec<String> {
    let planted = HOUSE.iter().filter(|source| source.path == PLANTED);
    let known: BTreeSet<&str> =
        planted.flat_map(|source| names_of(&source.raw)).map(|(_, name)| name).collect();
    let is_scenario = |name: &str| {
        let path = format!("simulation/scenarios/{name}.toml");
        HOUSE.iter().any(|source| source.path == path)
    };
    let missing = quoted.iter().filter(|name| !known.contains(**name) && !is_scenario(name));
    missing.map(|name| format!("there is no plant and no scenario `{name}`")).collect()
}

fn names_of(raw: &str) -> Vec<(usize, &str)> {
    let named = raw.lines().enumerate().filter_map(|(index, line)| {
        let mut words = line.split_whitespace();
        let is_plant = |word: &str| word.chars().all(char::is_alphanumeric);
        words.next().filter(|word| is_plant(word))?;
        let name = words.next()?.strip_prefix('"')?.strip_suffix('"')?;
        Some((index + 1, name))
    });
    named.collect()
}

pub const PLANTS: Rule = Rule {
    reason: "Each check that can be taken out belongs to a rule: docs/protocol.md names it under `Plants`.",
    check: |source| {
        if source.path != PLANTED {
            return Vec::new();
        }
        let page = HOUSE.iter().find(|source| source.path == PROTOCOL);
        let rules = page.map(|page| rules(&page.raw)).unwrap_or_default();
        let items: Vec<String> =
            rules.iter().filter_map(|rule| rule.item("- Plants:")).map(|(_, text)| text).collect();
        let named = |name: &str| items.iter().any(|text| text.contains(&format!("`{name}`")));
        let missing = names_of(&source.raw).into_iter().filter(|(_, name)| !named(name));
        missing.map(|(line, name)| (line, format!("no rule names the plant {name}"))).collect()
    },
    forged: || {
        let text = "    Over \"over\" \"14: about.\"\n    Nothing \"no-such\" \"About.\" //~\n// A \"b\" c";
        vec![(PLANTED, text.to_string()), ("src/a.rs", text.replace(" //~", ""))]
    },
};

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

/// The simulation's suites are called `simulated`, since they stand in this package.
fn is_suite(target: &str, suite: Option<&str>) -> bool {
    let target = if target == "simulated" { "suites" } else { target };
    let files = match suite {
        None => [format!("tests/{target}.rs"), format!("tests/{target}/main.rs")],
        Some(suite) => [format!("tests/{target}/{suite}.rs"), format!("tests/{target}/{suite}/mod.rs")],
    };
    let is = |path: &str| files.iter().any(|file| file == path.strip_prefix("simulation/").unwrap_or(path));
    HOUSE.iter().any(|source| is(&source.path))
}

/// True for `suite::test`, and nothing else. Types begin with a capital.
fn is_test(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let plain = |part: &str| !part.is_empty() && part.bytes().all(is_letter);
    name.contains("::") && name.split("::").all(plain)
}

/// True if a test of this name is in a file or folder of that name.
fn exists(name: &str) -> bool {
    let mut parts: Vec<&str> = name.split("::").collect();
    let Some(test) = parts.pop() else { return false };
    let functions = [format!("fn {test}("), format!("fn {test}<")];
    HOUSE.iter().any(|source| {
        let path: Vec<&str> = source.path.trim_end_matches(".rs").split('/').collect();
        let stands = || functions.iter().any(|function| source.raw.contains(function));
        source.is_rust() && parts.iter().all(|part| path.contains(part)) && stands()
    })
}
