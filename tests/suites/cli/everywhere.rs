//! Properties of every command: exit codes, JSON for an answer, a dry run for a change, completions
//! and a manual page.
//!
//! The commands are those that `--help` lists, so a new one has to be entered here.

use crate::cli::register::{admin, at};
use crate::cli::{err, onceway, out, report, well};
use crate::support::*;
use std::io::Write;

/// Commands that change something, and so have a dry run.
const ACTS: &str = "approve, break-glass, certs, certs revoke, doubts rule, init, jobs drop, jobs retry, key release, \
                    key settle, protocol raise, region drain, region rebuild, region resume, ring apply, store init, \
                    store reseed, takeover, witness";
/// Other commands with JSON: they print an answer, run something, or show it live.
const OTHERS: &str = "audit, audit compare, audit export, audit key, check, config explain, coverage, demo, doubts, \
                      drill, jobs, key show, man, new, region status, ring explain, ring plan, ring show, shadow, \
                      status, store check, top";
/// Commands without JSON: they print a script, or no answer.
const MUTE: &str = "completion, sample-postgres, sample-upstream, serve";

fn commands() -> Vec<String> {
    fn below(command: &str, all: &mut Vec<String>) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let help = well(&[&words[..], &["--help"]].concat());
        let usage = help.lines().find(|line| line.starts_with("Usage:")).unwrap();
        if !usage.contains("<COMMAND>") && !command.is_empty() {
            all.push(command.to_owned());
        }
        let Some((_, listed)) = help.split_once("\nCommands:\n") else { return };
        for line in listed.lines().take_while(|line| line.starts_with("  ")) {
            // The first screen lists its commands in a column behind their group.
            let column = if command.is_empty() { 12 } else { 2 };
            let name = line[column..].split(' ').next().filter(|name| !name.is_empty()).unwrap_or("help");
            if name != "help" {
                below(format!("{command} {name}").trim(), all);
            }
        }
    }
    let mut all = Vec::new();
    below("", &mut all);
    all.sort();
    all
}

#[test]
fn commands_have_json_and_acts_have_dry_runs() {
    let [acts, others, mute] = [ACTS, OTHERS, MUTE].map(|list| list.split(", ").collect::<Vec<_>>());
    let mut known = [&acts[..], &others, &mute].concat();
    known.sort_unstable();
    assert_eq!(commands(), known, "a new command is entered above");
    for command in commands() {
        let help = well(&[&command.split(' ').collect::<Vec<_>>()[..], &["--help"]].concat());
        let has = |flag: &str| help.lines().any(|line| line.trim_start().starts_with(flag));
        assert_eq!(has("--json"), !mute.contains(&command.as_str()), "{command}");
        assert_eq!(has("--dry-run"), acts.contains(&command.as_str()), "{command}");
        assert!(help.contains("Exit codes:"), "{command}");
    }
}

#[test]
fn dry_runs_ask_the_gateway_and_change_nothing() {
    let changes = json!({
        "dry_run": true, "from_epoch": 7, "epoch": 8, "changes": true, "moves": [], "effects": ["so and so"], "waived": ["us-east"],
        "state": "in-doubt", "protocol": 1, "common": 2, "speaks": { "us-east": "1-2" },
    });
    let config = ["--config", "config/us-east.toml"];
    for act in [
        &["region", "drain", "eu-west"][..],
        &["region", "drain", "eu-west", "--force", "--reason", "r"],
        &["region", "resume", "eu-west"],
        &["region", "rebuild", "eu-west", "--reason", "r"],
        &["takeover", "eu-west", "--reason", "r", "--accept-risk"],
        &["break-glass", "--stopped", "eu-west", "--attest", "off"],
        &["ring", "apply", config[0], config[1], "--expect-epoch", "7"],
        &["key", "settle", "acme", "k", "--status", "201", "--body", "", "--reason", "r"],
        &["key", "release", "acme", "k", "--reason", "r"],
        &["doubts", "rule", "payouts", "--now", "rerun", "--reason", "r"],
        &["jobs", "retry", "acme", "k", "--reason", "r"],
        &["jobs", "drop", "acme", "k", "--reason", "r"],
        &["protocol", "raise"],
    ] {
        let (address, posted) = admin(json!({}), (200, changes.clone()));
        let args = [act, &["--actor", "a", "--dry-run"]].concat();
        let dry = at(&address, &args);
        assert_eq!(dry.status.code(), Some(0), "{args:?} {}", err(&dry));
        assert!(out(&dry).ends_with("Nothing was changed.\n"), "{args:?} {}", out(&dry));
        let as_json = report(&at(&address, &[&args[..], &["--json"]].concat()));
        assert_eq!(as_json, changes, "{args:?}");
        let posted = posted.lock().unwrap();
        assert!(posted.len() == 2 && posted.iter().all(|(_, body)| body["dry_run"] == true), "{posted:?}");
    }
    let both = onceway(&["ring", "apply", config[0], config[1], "--expect-epoch", "7", "--yes", "--dry-run"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn check_lists_problems_also_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("routes.toml").to_str().unwrap().to_owned();
    let text =
        "[[route]]\nname = \"a\"\npath = \"/a\"\nkey = \"required\"\nhold = \"1s\"\nrecovry = \"park\"\n";
    fs::write(&file, text).unwrap();
    let plain = err(&onceway(&["check", &file]));
    assert!(plain.starts_with("onceway: 2 problems in the configuration:\n"), "{plain}");
    assert!(plain.contains(&format!("{file}:1: route \"a\": recovery is missing")), "{plain}");
    let wrong = onceway(&["check", "--json", &file]);
    assert_eq!(wrong.status.code(), Some(2));
    let problems = report(&wrong)["problems"].as_array().unwrap().clone();
    let find = |key: &str| {
        problems.iter().find(|problem| problem["key"] == key).unwrap_or_else(|| panic!("{key}: {wrong:?}"))
    };
    let unknown = find("route.recovry");
    assert_eq!((&unknown["line"], &unknown["severity"]), (&json!(6), &json!("error")));
    assert_eq!(unknown["file"], *file);
    assert!(unknown["message"].as_str().unwrap().contains("did you mean \"recovery\""), "{unknown}");
    assert_eq!(find("route.recovery")["line"], 1);
    let mild = onceway(&["check", "--json", "config/us-east.toml"]);
    assert_eq!((mild.status.code(), err(&mild).as_str()), (Some(0), ""));
    let said = report(&mild);
    assert_eq!(said["files"][0]["is"], "region us-east of example");
    let warned = said["problems"].as_array().unwrap();
    assert!(warned.iter().all(|problem| problem["severity"] == "warning"), "{said}");
    let has_line = |problem: &Value| problem["key"] == "store.url_env" && problem["line"].is_u64();
    assert!(warned.iter().any(has_line), "{said}");
    let absent = report(&onceway(&["check", "--json", "absent.toml"]));
    assert!(absent.to_string().contains("cannot read absent.toml"), "{absent}");
    assert!(absent["problems"][0]["line"].is_null() && absent["problems"][0]["key"].is_null(), "{absent}");
}

#[test]
fn completions_are_scripts_that_name_every_command() {
    let bash = well(&["completion", "bash"]);
    let mut shell =
        Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(bash.as_bytes()).unwrap();
    let read = shell.wait_with_output().unwrap();
    assert!(read.status.success() && read.stderr.is_empty(), "{}", err(&read));
    for script in [bash, well(&["completion", "zsh"]), well(&["completion", "fish"])] {
        for command in commands() {
            let last = command.split(' ').next_back().unwrap();
            assert!(script.contains(last), "{command}");
        }
        assert!(script.contains("dry-run"));
    }
    assert_eq!(onceway(&["completion", "csh"]).status.code(), Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("man1");
    let made = report(&onceway(&["man", dir.to_str().unwrap(), "--json"]));
    let pages: Vec<&str> =
        made["pages"].as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    for command in commands() {
        let name = format!("onceway-{}.1", command.replace(' ', "-"));
        assert!(pages.contains(&name.as_str()), "{name} in {pages:?}");
    }
    assert!(pages.contains(&"onceway.1") && !pages.iter().any(|page| page.contains("janitor")), "{pages:?}");
    for page in &pages {
        let text = fs::read_to_string(dir.join(page)).unwrap();
        assert!([".TH ", ".SH NAME", ".SH SYNOPSIS"].iter().all(|part| text.contains(part)), "{page}");
    }
    let drain = fs::read_to_string(dir.join("onceway-region-drain.1")).unwrap();
    assert!(drain.contains("Exit codes:"), "what --help says in the end is there, too");
    assert_eq!(well(&["man"]), fs::read_to_string(dir.join("onceway.1")).unwrap());
    // If groff is installed, it must not complain.
    for page in &pages {
        let Ok(read) = Command::new("groff").args(["-man", "-ww", "-z"]).arg(dir.join(page)).output() else {
            return;
        };
        assert!(read.status.success() && read.stderr.is_empty(), "{page}: {}", err(&read));
    }
}
