//! The reference files and `onceway config explain`: they name every accepted key and no other, and
//! each default is the value without the key. Every question goes to the readers that gateways use,
//! so no key is listed here.

mod written;

use crate::support::documents::{pages, text as document, top};
use crate::support::*;
use onceway::config::load_ring;
use onceway::config::reference::{self, Default, Entry, FILES};
use onceway::config::witness::WitnessConfig;

fn text(file: &str) -> &'static str {
    FILES.iter().find(|(name, _)| *name == file).unwrap().1
}

/// Every table of a file with its keys, tables below it included.
fn tables(file: &str, entries: &[Entry]) -> BTreeSet<(String, BTreeSet<String>)> {
    let mut names: BTreeSet<String> = [String::new()].into();
    let mut keys = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.file == file) {
        let parts: Vec<&str> = entry.path.split('.').collect();
        for (depth, part) in parts.iter().enumerate() {
            keys.insert((parts[..depth].join("."), (*part).to_owned()));
            names.extend((depth > 0).then(|| parts[..depth].join(".")));
        }
    }
    let of =
        |name: &String| keys.iter().filter(|(table, _)| table == name).map(|(_, key)| key.clone()).collect();
    names.iter().map(|name| (name.clone(), of(name))).collect()
}

/// The reader lists what it accepts in a table when it meets a strange key.
fn accepted(file: &str, entries: &[Entry], table: &str) -> Option<BTreeSet<String>> {
    const STRANGE: &str = "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz = 1";
    let text = text(file);
    let in_table =
        |entry: &&Entry| entry.file == file && entry.path.rsplit_once('.').map_or("", |(of, _)| of) == table;
    let with_strange = match entries.iter().find(in_table) {
        _ if table.is_empty() => format!("{STRANGE}\n{text}"),
        Some(first) => {
            let open = reference::with(text, first, &first.value);
            let lines = open.lines().enumerate();
            let strange = |at| (at == first.line).then_some(STRANGE);
            let added = lines.flat_map(|(at, line)| [line].into_iter().chain(strange(at)));
            added.collect::<Vec<_>>().join("\n")
        }
        None => return None,
    };
    let said = reference::problems(file, &with_strange);
    let lists = said.iter().filter(|problem| problem.text.contains("zzzz"));
    let mut known = lists.filter_map(|problem| problem.text.split_once("known here are "));
    known.next().map(|(_, list)| list.split(", ").map(str::to_owned).collect())
}

#[test]
fn the_files_name_every_key_that_is_accepted_and_no_other() {
    let entries = reference::entries();
    assert!(entries.len() > 100, "{}", entries.len());
    let mut compared = 0;
    for (file, _) in FILES {
        for (table, written) in tables(file, &entries) {
            // Where keys are names of regions or upstreams, any name is accepted.
            if written.contains("REGION") || written.contains("NAME") {
                continue;
            }
            let accepted = accepted(file, &entries, &table).unwrap_or_default();
            assert_eq!(written, accepted, "{file} [{table}]");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

/// The gap in a comment for its lone reader, as `config explain` shows it. Beside the default and
/// the bounds, it must say the purpose of the key.
fn says_too_little(entry: &Entry) -> Option<&'static str> {
    let why = entry.why.to_lowercase();
    if why.starts_with("...") || why.starts_with("or ") || why.ends_with("...") {
        return Some("it goes on in another key's comment");
    }
    let sentences = why.split(['.', ';']).filter(|sentence| !sentence.contains("default"));
    let words = sentences.flat_map(str::split_whitespace);
    let letters = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() > 1 && *word != "to";
    (words.filter(letters).count() < 5).then_some("why?")
}

#[test]
fn a_comment_that_leaves_the_why_to_others_would_be_noticed() {
    let known = reference::entries().into_iter().find(|entry| entry.path == "failover.lease").unwrap();
    for why in [
        "0 to 10000",
        "spelt like a region's",
        "The path of a file that holds it ...",
        "... or the name of an environment variable.",
        "or \"json\", one object per line",
        "default: none",
        "its private key. No default.",
        "",
    ] {
        let entry = Entry { why: why.to_owned(), ..known.clone() };
        assert!(says_too_little(&entry).is_some(), "{why:?}");
    }
    assert_eq!(says_too_little(&known), None);
}

#[test]
fn every_key_says_its_default_what_it_is_for_and_what_may_stand_there() {
    let mut lacking = Vec::new();
    for entry in reference::entries() {
        let mut lacks = |what: &str| lacking.push(format!("{} {}: {what}", entry.file, entry.path));
        if entry.default == Default::Unsaid {
            lacks("no word of its default");
        }
        if let Some(what) = says_too_little(&entry) {
            lacks(what);
        }
        match reference::must_be(&entry) {
            None => lacks("what may stand there?"),
            // A reader of the file alone must find the bounds there, too.
            Some(words) => {
                let bounds = words.split_once("from ").and_then(|(_, rest)| rest.split_once(" to "));
                let bounds = bounds.map(|(least, most)| [least, most.split(',').next().unwrap_or("")]);
                for bound in bounds.iter().flatten().map(|bound| bound.trim_matches('"')) {
                    if !entry.why.contains(bound) && !["2^64 - 1", "0", "3650d"].contains(&bound) {
                        lacks(&format!("its comment does not name the bound {bound}"));
                    }
                }
            }
        }
    }
    assert!(lacking.is_empty(), "{lacking:#?}");
}

fn folder(file: &str, text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, reference) in FILES {
        let text = if name == file { text } else { reference };
        // The witness of witness.toml is in no ring that has three regions. A tenant pinned to one
        // region has no region to hold its claims, where that is required.
        let text = text.split("[[pin]]").next().unwrap();
        let text = match name {
            "ring.toml" => format!("{text}\n[[witness]]\nname = \"witness-1\"\n"),
            // Tables of TLS are for upstreams that speak it.
            "us-east.toml" => text
                .replace("[peer.addresses]\n", "[peer.addresses]\nwitness-1 = \"w:1\"\n")
                .replace("\"http://127.0.0.1:7404\"", "\"https://upstream.example:7404\""),
            _ => text.to_owned(),
        };
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::create_dir(folder.path().join("secrets")).unwrap();
    for secret in ["upstream", "stripe"] {
        fs::write(folder.path().join("secrets").join(secret), "Bearer secret").unwrap();
    }
    let keys = document("config/accounts.jwks.json");
    fs::write(folder.path().join("accounts.jwks.json"), keys).unwrap();
    folder
}

fn understood(file: &str, text: &str) -> String {
    let folder = folder(file, text);
    let at = |name: &str| folder.path().join(name);
    let set =
        |name: &str| (name == "ONCEWAY_STORE_URL").then(|| "postgres://me@127.0.0.1/onceway".to_owned());
    let shown = match file {
        "ring.toml" => load_ring(&at(file)).map(|ring| format!("{ring:?}")),
        "witness.toml" => WitnessConfig::load(&at(file)).map(|witness| format!("{witness:?}")),
        _ => Config::load_with(&at("us-east.toml"), &set).map(|config| format!("{config:?}")),
    };
    shown
        .unwrap_or_else(|errors| panic!("{file}: {errors}"))
        .replace(&folder.path().display().to_string(), "")
}

/// A key in a commented-out table appears with the whole table.
fn with_and_without(entry: &Entry, value: &str) -> (String, String) {
    let text = text(entry.file);
    let whole: Vec<&str> = text.lines().collect();
    let from = match entry.path.starts_with("upstreams.NAME.") {
        // Its tables below are nothing without it.
        true => whole.iter().position(|line| *line == "# [upstreams.stripe]").unwrap(),
        false => entry.table_line.unwrap_or(entry.line),
    };
    let to = match entry.table_line {
        Some(_) => (from..whole.len()).find(|at| !whole[*at].starts_with('#')).unwrap_or(whole.len()),
        None => entry.line + 1,
    };
    let names = |line: &str| reference::read("ring.toml", &format!("{line}\n")).len() == 1;
    let open = |at: usize, line: &str| match line.strip_prefix("# ") {
        Some(bare) if (from..to).contains(&at) && (bare.starts_with('[') || names(line)) => bare.to_owned(),
        Some(_) | None => line.to_owned(),
    };
    let opened: Vec<String> = whole.iter().enumerate().map(|(at, line)| open(at, line)).collect();
    let at_key = |line: &str| {
        let mut lines = opened.clone();
        lines[entry.line] = line.to_owned();
        // Only one of a secret's keys may be present.
        let others = ["key_env = ", "key_file = ", "value_env = "];
        lines.retain(|line| !others.iter().any(|other| line.starts_with(other)));
        lines.join("\n") + "\n"
    };
    (at_key(&format!("{} = {value}", entry.key())), at_key(""))
}

/// True if the default that is written and the value without the key differ.
fn drifts(entry: &Entry, value: &str) -> bool {
    let (with, without) = with_and_without(entry, value);
    understood(entry.file, &with) != understood(entry.file, &without)
}

/// Defaults that are no value: another key's, or none.
const IN_WORDS: [&str; 4] =
    ["none", "nobody", "new_keys_per_second", "sslrootcert is taken for a path on both"];

#[test]
fn each_default_is_what_counts_where_the_key_is_absent() {
    let entries = reference::entries();
    let written = |entry: &Entry| match &entry.default {
        Default::Value => Some(entry.value.clone()),
        Default::Words(words) if IN_WORDS.contains(&words.as_str()) => None,
        Default::Words(words) => {
            let is_value = format!("x = {words}").parse::<toml::Table>().is_ok();
            assert!(is_value, "{}: {words:?} is no value: is it a comment that was misread?", entry.path);
            Some(words.clone())
        }
        Default::None | Default::Unsaid => None,
    };
    let valued: Vec<(&Entry, String)> =
        entries.iter().filter_map(|entry| Some((entry, written(entry)?))).collect();
    assert!(valued.len() > 50, "{}", valued.len());
    let drifted = valued.iter().filter(|(entry, value)| drifts(entry, value)).map(|(entry, _)| &entry.path);
    let drifted: Vec<&String> = drifted.collect();
    assert!(drifted.is_empty(), "{drifted:?}");
    // Another value would be noticed.
    for (path, other) in [
        ("failover.lease", "\"11s\""),
        ("route.hold", "\"31s\""),
        ("route.methods", "[\"POST\"]"),
        ("route.escrow_alone", "\"run\""),
        ("store.pool", "17"),
        ("upstream.health.every", "\"3s\""),
        ("issuer.leeway", "\"31s\""),
    ] {
        let (entry, _) =
            valued.iter().find(|(entry, _)| entry.path == path).unwrap_or_else(|| panic!("{path}"));
        assert!(drifts(entry, other), "{path} = {other}");
    }
}

#[test]
fn settings_without_a_default_are_called_required() {
    let all = reference::entries();
    let needed = ["deployment", "seed", "region.weight", "witness.name", "upstream.shared", "listen.tls.key"];
    // One of several keys with the same meaning, or none at all.
    let others = ["store.url_env", "accept.key_env", "admin.token_file", "listen.trusted.from", "route.wait"];
    let needed = needed.into_iter().chain(["upstream.health.path", "route.recovery"]);
    for (path, is_required) in needed.map(|path| (path, true)).chain(others.map(|path| (path, false))) {
        let entry = all.iter().find(|entry| entry.path == path).unwrap_or_else(|| panic!("{path}"));
        assert_eq!(reference::is_required(entry), is_required, "{path}");
    }
    assert!(explain(&["upstream.shared"]).1.contains("default  required\n"));
    assert!(explain(&["admin.token_file"]).1.contains("default  none\n"));
}

fn explain(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(program()).args(["config", "explain"]).args(args).output().unwrap();
    (output.status.code(), out(&output), err(&output))
}

#[test]
fn explain_says_it_all() {
    let (code, said, _) = explain(&["failover.lease"]);
    assert_eq!(code, Some(0));
    has(
        &said,
        &[
            "failover.lease",
            "default  \"10s\"",
            "must be  a span of time in quotes, from \"1s\" to \"10m\"",
            "in       ring.toml",
            "failure detector",
        ],
    );
    let (_, by_end, _) = explain(&["lease"]);
    assert_eq!(by_end, said);
    let (_, certificates, _) = explain(&["peer.certificate"]);
    assert!(certificates.contains("us-east.toml") && certificates.contains("witness.toml"), "{certificates}");
    // It is counted from the newest claim (`protocol::lifetime`).
    assert!(explain(&["route.retention"]).1.contains("from its newest attempt"));
    let (_, list, _) = explain(&[]);
    let (_, json, _) = explain(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let all = json.as_array().unwrap();
    assert_eq!(all.len(), reference::entries().len());
    for key in all {
        assert!(list.contains(key["key"].as_str().unwrap()), "{key}");
    }
    let pool = all.iter().find(|key| key["key"] == "store.pool").unwrap();
    assert_eq!((&pool["default"], &pool["must_be"]), (&"16".into(), &"a whole number from 2 to 1000".into()));
}

#[test]
fn a_key_that_is_none_is_refused_with_the_nearest() {
    let (code, said, error) = explain(&["failover.leese"]);
    assert_eq!((code, said.as_str()), (Some(2), ""));
    assert!(error.contains("did you mean failover.lease?"), "{error}");
    let (code, _, error) = explain(&["poool"]);
    assert!(code == Some(2) && error.contains("did you mean pool?"), "{error}");
    assert!(explain(&["something-else-entirely"]).2.contains("lists all"));
}

/// The exit code, and file, line and key of each secret that the reference files show.
fn known(args: &[&str]) -> (Option<i32>, Vec<(String, u64, String)>) {
    let mut command = Command::new(program());
    let output = command.args(["check", "--json"]).args(args).current_dir(top()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = report["problems"].as_array().unwrap().iter();
    let about = about.filter(|problem| word(&problem["message"]).contains("the reference file"));
    let place = |problem: &Value| {
        (word(&problem["file"]), problem["line"].as_u64().unwrap_or(0), word(&problem["key"]))
    };
    (output.status.code(), about.map(place).collect())
}

#[test]
fn check_warns_of_all_that_the_reference_files_show_to_everybody() {
    let lines = |file: &str, begins: &str, key: &str| -> Vec<(String, u64, String)> {
        let numbered = text(file).lines().zip(1..).filter(|(line, _)| line.starts_with(begins));
        numbered.map(|(_, line)| (format!("config/{file}"), line, key.to_owned())).collect()
    };
    let seed = lines("ring.toml", "seed = ", "seed");
    let tokens = lines("credentials.toml", "sha256 = ", "credential.sha256");
    let keys = document("config/accounts.jwks.json").matches("\"kid\"").count();
    let keys = vec![("config/accounts.jwks.json".to_owned(), 0, String::new()); keys];
    assert_eq!((seed.len(), tokens.len(), keys.len()), (1, 3, 2));
    let credentials = [tokens, keys].concat();
    for (file, expected) in [
        ("config/ring.toml", seed.clone()),
        ("config/credentials.toml", credentials.clone()),
        ("config/us-east.toml", [seed, credentials].concat()),
    ] {
        assert_eq!(known(&[file]), (Some(0), expected.clone()), "{file}");
        assert_eq!(known(&["--strict", "--serve", file]), (Some(2), expected), "{file}");
    }
}

/// Scenario files of the simulation have tables of their own.
const OF_SCENARIOS: [&str; 2] = ["docs/simulation.md", "simulation/README.md"];

/// The settings in backquotes, as `[table]` or `[table] key`, that no reference file has.
fn strange_settings(markdown: &str) -> Vec<String> {
    let entries = reference::entries();
    let quoted = markdown.split('`').skip(1).step_by(2).filter_map(|span| span.strip_prefix('['));
    let named = quoted.filter_map(|span| span.trim_start_matches('[').split_once(']'));
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || "_.".contains(c));
    let named = named.filter(|(table, _)| !table.is_empty() && is_plain(table));
    let paths = named.map(|(table, rest)| {
        let key = rest.trim_start_matches(']').split_whitespace().next().unwrap_or_default();
        if key.is_empty() { table.to_owned() } else { format!("{table}.{key}") }
    });
    let exists = |path: &String| {
        let below = format!("{path}.");
        entries.iter().any(|entry| entry.path == *path || entry.path.starts_with(&below))
    };
    paths.filter(|path| !exists(path)).collect()
}

#[test]
fn every_setting_that_a_document_names_exists() {
    for page in pages().iter().filter(|page| !OF_SCENARIOS.contains(&page.as_str())) {
        assert_eq!(strange_settings(&document(page)), Vec::<String>::new(), "{page} names no such setting");
    }
    let named =
        "`[failover]`, `[failover] lease`, `[[witness]]`, `[listen.limits] leash`, `[nowhere]`, `[1]`";
    assert_eq!(strange_settings(named), ["listen.limits.leash", "nowhere"]);
}
