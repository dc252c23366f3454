//! The rules on shape: headers, lengths, the lint table, the places of SQL, and names that no text
//! file may contain.
//!
//! `source` gives raw text, functions and literals. It must not judge code by its words (`words`
//! does). Words that this file must not contain itself are put together from halves.

use crate::tidy::{Offence, Rule};

const FILE_LINES: usize = 700;
const FUNCTION_LINES: usize = 70;

pub const HEADERS: Rule = Rule {
    reason: "Every file opens with `//!`: its purpose, the rule that it keeps, what it must not do, in two lines or at least 80 \
             characters. Whoever opens it first reads that.",
    check: |source| {
        let header = source.raw.lines().skip_while(|line| !line.starts_with("//!"));
        let text: Vec<&str> = header.map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let full =
            text.iter().filter(|line| !line.is_empty()).count() >= 2 || text.concat().chars().count() >= 80;
        let opens = source.raw.lines().take(3).any(|line| line.starts_with("//!"));
        if source.is_rust() && !(opens && full) {
            vec![(1, "no header that says enough".into())]
        } else {
            Vec::new()
        }
    },
    forged: || {
        vec![
            ("src/a.rs", "fn f() {} //~".to_string()),
            ("tests/a.rs", "//! Too short. //~\nfn f() {}".to_string()),
            ("src/b.rs", "// plain //~\n\n\n\n//! Too late.\n//! Much too late.".to_string()),
            ("src/c.rs", "//! One line. //~\n//!\nfn f() {}".to_string()),
            ("src/d.rs", "//! One.\n//!\n//! Two.\nfn f() {}".to_string()),
            ("src/e.rs", format!("//! {}", "long ".repeat(20))),
            ("README.md", "# No header needed".to_string()),
        ]
    },
};

pub const LENGTHS: Rule = Rule {
    reason: "A file stays within 700 lines and a function within 70, so that each can be held in mind at once: split by \
             concern, not by size.",
    check: |source| {
        if !source.is_rust() {
            return Vec::new();
        }
        let count = source.raw.lines().count();
        let mut found: Vec<Offence> = Vec::new();
        if count > FILE_LINES {
            found.push((count, format!("the file has {count} lines, more than {FILE_LINES}")));
        }
        for (name, first, last) in source.functions() {
            let lines = last - first + 1;
            if lines > FUNCTION_LINES {
                found.push((first, format!("`{name}` has {lines} lines, more than {FUNCTION_LINES}")));
            }
        }
        found
    },
    forged: || {
        let body = |lines: usize| "    f(\"}\"); // }\n".repeat(lines);
        vec![
            ("src/a.rs", format!("{}//~", "\n".repeat(FILE_LINES))),
            ("src/a.rs", format!("{}//", "\n".repeat(FILE_LINES - 1))),
            ("src/a.rs", format!("fn f() {{ //~\n{}}}", body(FUNCTION_LINES - 1))),
            ("src/a.rs", format!("fn f() {{\n{}}}\nfn g() {{\n{}}}", body(FUNCTION_LINES - 2), body(2))),
            ("tests/a.rs", format!("impl A {{\n async fn f(\n  a: [u8; 2],\n ) {{\n{} }}\n}}", body(10))),
            ("tests/a.rs", format!("impl A {{\n async fn f( //~\n  a: [u8; 2],\n ) {{\n{} }}\n}}", body(70))),
        ]
    },
};

pub const LINTS: Rule = Rule {
    reason: "The compiler forbids unsafe code in every package: `unsafe_code = \"forbid\"` in [workspace.lints.rust] of \
             Cargo.toml, and `[lints] workspace = true` in each package's manifest.",
    check: |source| {
        if !source.path.ends_with("Cargo.toml") {
            return Vec::new();
        }
        let has = |section: &str, wanted: &str| {
            let after = source.raw.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
            after.take_while(|line| !line.starts_with('[')).any(|line| line == wanted)
        };
        let mut found = Vec::new();
        if source.path == "Cargo.toml" && !has("[workspace.lints.rust]", "unsafe_code = \"forbid\"") {
            found.push((1, "[workspace.lints.rust] does not forbid unsafe_code".to_string()));
        }
        if !has("[lints]", "workspace = true") {
            found.push((1, "the package does not take the workspace's lints".to_string()));
        }
        found
    },
    forged: || {
        let good = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n[lints]\nworkspace = true\n";
        vec![
            ("Cargo.toml", good.to_string()),
            ("Cargo.toml", format!("# //~\n{}", good.replace("forbid", "deny"))),
            ("Cargo.toml", format!("# //~\n{}", good.replace("[lints]", "[other]"))),
            (
                "Cargo.toml",
                "# //~\n[workspace.lints.rust]\n[a]\nunsafe_code = \"forbid\"\n[lints]\nworkspace = true"
                    .into(),
            ),
            ("simulation/Cargo.toml", "[lints]\nworkspace = true".to_string()),
            ("simulation/Cargo.toml", "[package] # //~".to_string()),
        ]
    },
};

pub const SQL: Rule = Rule {
    reason: "SQL stands under src/adapters/postgres (and in src/fleet/cluster.rs with its tests, which build clusters, in \
             cluster_audit.rs, which looks behind the audit, in cluster_slots.rs, which breaks replication, and in naive.rs, which is another design with a schema of its own), \
             beside what knows the schema: everybody else asks a port.",
    check: |source| {
        let home = [
            "src/adapters/postgres/",
            "src/adapters/postgres.rs",
            "src/fleet/cluster.rs",
            "src/fleet/cluster_tests.rs",
            "src/fleet/cluster_audit.rs",
            "src/fleet/cluster_slots.rs",
            "src/fleet/naive.rs",
        ];
        if !source.within(&["src/", "simulation/"]) || source.within(&home) {
            return Vec::new();
        }
        if source.path.ends_with(".sql") {
            return vec![(1, "a file of SQL".to_string())];
        }
        let statements = source.literals.iter().filter(|(_, text)| is_sql(text));
        statements.map(|(line, text)| (*line, format!("SQL: {:.60}", text.trim()))).collect()
    },
    forged: || {
        let text = "q(\"select version from gate\"); //~\nq(\"  SELECT 1\"); //~\nq(r#\"insert into records values (1)\"#); //~\n\
                    q(\"update gate set epoch = 1\"); //~\nq(\"delete from records\"); //~\nq(\"update the region file first\");\n\
                    q(\"Select a region\");\nq(\"selected\"); // \"select 1\"\nq(\"insert a coin\");";
        vec![
            ("src/gateway/a.rs", text.to_string()),
            ("src/cli/store.rs", text.to_string()),
            ("simulation/src/a.rs", text.to_string()),
            ("src/gateway/claim.sql", "-- claims //~".to_string()),
            ("src/adapters/postgres/a.rs", text.replace(" //~", "")),
            ("src/adapters/postgres/claim.sql", "-- claims".to_string()),
            ("src/fleet/cluster.rs", text.replace(" //~", "")),
            ("src/fleet/cluster_tests.rs", text.replace(" //~", "")),
            ("src/fleet/upstream_tests.rs", text.to_string()),
            ("src/fleet/deployment.rs", text.to_string()),
            ("tests/a.rs", text.replace(" //~", "")),
        ]
    },
};

/// True if a literal reads as a statement: its verb is all in one case, and if that is also plain
/// English, more words follow.
fn is_sql(text: &str) -> bool {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let first = text.split_whitespace().next().unwrap_or("");
    let one_case = first == first.to_lowercase() || first == first.to_uppercase();
    let second = words.get(1).map(String::as_str);
    one_case
        && match words.first().map(String::as_str) {
            Some("select") => second.is_some(),
            Some("insert") => second == Some("into"),
            Some("delete") => second == Some("from"),
            Some("update") => words.iter().any(|word| word == "set"),
            Some(_) | None => false,
        }
}

/// Homes of developers and of build machines.
const MACHINES: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
const REMINDERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub const PLACES: Rule = Rule {
    reason: "What is published names no developer's machine (use a path relative to the tree, or a temporary folder) \
             and no unfinished business (do it, or open an issue).",
    check: |source| {
        let mut found = Vec::new();
        for (number, line) in source.raw.lines().enumerate() {
            let machine =
                MACHINES.iter().find(|path| stands(line, path, |before| !"._-~}".contains(before), |_| true));
            let reminder = REMINDERS.iter().find(|word| stands(line, word, |c| c != '_', |c| c != '_'));
            found.extend(machine.map(|path| (number + 1, format!("names a path of one machine: {path}"))));
            found.extend(reminder.map(|word| (number + 1, format!("{word} is unfinished business"))));
        }
        found
    },
    forged: || {
        let [work, home, root, users] = MACHINES;
        let [first, second, third] = REMINDERS;
        let text = format!(
            "see {work}main //~\nfile://{home}x //~\n\"{root}y\" //~\n{users}z //~\n// {first}: later //~\n{second} //~\n\
             /* {third} */ //~\nsrc{home}page\n..{work}x\n~{work}x\n${{TOP}}{work}x\nmktemp onceway.{third}{third}\nA{first}\n\
             MY_{first}\n{work} and {work} //~\nsrc{work} then {work} //~"
        );
        vec![("README.md", text.clone()), ("src/a.rs", text.clone()), (".ci/run", text)]
    },
};

/// True if `wanted` is in the line with no letter or digit before it, nor after it if it ends in a
/// letter. Both sides must also please the caller's checks.
fn stands(line: &str, wanted: &str, before: fn(char) -> bool, after: fn(char) -> bool) -> bool {
    let ends_in_letter = wanted.ends_with(char::is_alphanumeric);
    line.match_indices(wanted).any(|(at, _)| {
        let left = line[..at].chars().next_back();
        let right = line[at + wanted.len()..].chars().next().filter(|_| ends_in_letter);
        left.is_none_or(|c| !c.is_alphanumeric() && before(c))
            && right.is_none_or(|c| !c.is_alphanumeric() && after(c))
    })
}
