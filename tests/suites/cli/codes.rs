//! Exit codes: one table, in `--help` and in docs/operate/commands.md, and each family of commands
//! follows it.
//!
//! `register` has the admin listener with a test's answers.

use crate::cli::register::{FILE, admin, at, in_a_line, unfounded};
use crate::cli::{ends, err, onceway, well};
use crate::support::documents::text;
use crate::support::*;

const NOWHERE: &str = "http://127.0.0.1:1";

#[test]
fn the_page_and_the_help_list_equal_exit_codes() {
    let help = in_a_line(&well(&["--help"]));
    assert!(help.contains("onceway check") && help.contains("ONCEWAY_LOG") && !help.contains("janitor"));
    let page = text("docs/operate/commands.md");
    let (_, table) = page.split_once("| exit code | meaning |").expect("the page has the table");
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 5);
    for (code, row) in rows.iter().enumerate() {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells[0], code.to_string());
        let meaning = cells[1].replace('`', "");
        assert!(help.contains(&format!("{code} {meaning}")), "{meaning:?} is not in --help:\n{help}");
    }
}

fn code(args: &[&str], status: u16, answer: Value) -> Option<i32> {
    let (address, _) = admin(json!({}), (status, answer));
    at(&address, args).status.code()
}

fn nowhere(args: &[&str]) -> Option<i32> {
    onceway(&[args, &["--admin", NOWHERE]].concat()).status.code()
}

#[test]
fn acts_exit_with_the_documented_codes() {
    let status = unfounded();
    for act in [
        &["region", "drain", "eu-west", "--actor", "a"][..],
        &["region", "resume", "eu-west", "--actor", "a"],
        &["region", "rebuild", "eu-west", "--reason", "r", "--actor", "a"],
        &["takeover", "eu-west", "--reason", "r", "--actor", "a"],
        &["break-glass", "--stopped", "eu-west", "--confirm", "eu-west", "--attest", "off", "--actor", "a"],
        &["init", "--config", FILE],
        &["ring", "plan", "--config", FILE],
        &["ring", "apply", "--config", FILE, "--expect-epoch", "7", "--yes"],
    ] {
        let is_of_a_file = act.contains(&"--config");
        for dry in [&[][..], &["--dry-run"]].into_iter().filter(|dry| dry.is_empty() || !is_of_a_file) {
            let args = [act, dry].concat();
            let done = json!({ "epoch": 8, "generation": 2, "waived": [], "changes": true });
            assert!(is_of_a_file || code(&args, 200, done) == Some(0), "{args:?}");
            for (answered, word, exit) in [
                (409, "refused", 1),
                (409, "epoch", 1),
                (404, "unknown-region", 2),
                (400, "x", 2),
                (503, "not-yet", 3),
            ] {
                let answer = json!({ "code": word, "detail": "acceptor eu-west \u{1b}does not answer" });
                let ended = at(&admin(status.clone(), (answered, answer)).0, &args);
                assert_eq!(ended.status.code(), Some(exit), "{args:?} {word}");
                assert_eq!(err(&ended), "onceway: acceptor eu-west  does not answer\n");
            }
        }
        assert_eq!(nowhere(act), Some(1), "{act:?}");
    }
    let behind = json!({ "protocol": 2, "common": 1, "speaks": { "us": "1-2", "eu": "1-1" } });
    assert_eq!(code(&["protocol", "raise", "--actor", "a"], 200, behind), Some(1));
}

#[test]
fn commands_on_one_key_exit_with_documented_codes() {
    for act in [
        &["key", "show", "acme", "k"][..],
        &["audit", "key", "acme", "k"],
        &["key", "settle", "acme", "k", "--status", "201", "--body", "", "--reason", "r", "--actor", "a"],
        &["key", "release", "acme", "k", "--reason", "r", "--actor", "a"],
        &["doubts", "rule", "payouts", "--now", "park", "--reason", "r", "--actor", "a"],
        &["approve", "ey"],
        &["jobs", "retry", "acme", "k", "--reason", "r", "--actor", "a"],
        &["jobs", "drop", "acme", "k", "--reason", "r", "--actor", "a"],
    ] {
        assert_eq!(code(act, 200, json!({ "state": "released" })), Some(0), "{act:?}");
        for (status, word, exit) in [
            (401, "", 1),
            (409, "refused", 1),
            (403, "forbidden", 1),
            (403, "needs-approval", 3),
            (400, "malformed", 2),
            (404, "", 2),
            // Ask again then.
            (409, "not-yet", 3),
            (503, "not-yet", 3),
        ] {
            let answer = json!({ "code": word, "detail": "x" });
            assert_eq!(code(act, status, answer), Some(exit), "{act:?} {status} {word}");
        }
        assert_eq!(nowhere(act), Some(1), "{act:?}");
    }
}

#[test]
fn lists_exit_3_when_somebody_must_act() {
    let doubt = json!({ "tenant": "acme", "key": "k" });
    let waits = json!({ "region": "us", "jobs": [{ "state": "waiting" }] });
    assert_eq!(code(&["jobs"], 200, waits), Some(0), "a job that waits is nobody's to see to");
    let clean = json!({ "region": "us", "runs": [{ "verdict": "clean" }], "findings": [] });
    assert_eq!(code(&["audit"], 200, clean), Some(0));
    for (args, field, entry) in [
        (&["doubts"][..], "doubts", doubt),
        (&["jobs"], "jobs", json!({ "state": "dead" })),
        (&["audit"], "runs", json!({ "verdict": "double" })),
    ] {
        assert_eq!(code(args, 200, json!({ "region": "us", field: [] })), Some(0), "{args:?}");
        assert_eq!(code(args, 200, json!({ "region": "us", field: [entry] })), Some(3), "{args:?}");
        assert_eq!(code(args, 500, json!({})), Some(1), "{args:?}");
        assert_eq!(nowhere(args), Some(1), "{args:?}");
        assert_eq!(onceway(&[args, &["--no-such-flag"]].concat()).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn checks_exit_1_on_findings_and_3_when_unsure() {
    let seen = |protection: &str| {
        let line = json!({ "method": "POST", "path": "/x", "route": null, "protection": protection, "refused": false, "count": 1 });
        json!({ "full": false, "seen": [line] })
    };
    assert_eq!(code(&["coverage"], 200, seen("protected")), Some(0));
    assert_eq!(code(&["coverage"], 200, seen("no-route")), Some(1));
    assert_eq!(code(&["coverage"], 200, json!({ "full": false, "seen": [] })), Some(3));
    assert_eq!(nowhere(&["coverage"]), Some(3));
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.csv");
    fs::write(&ledger, "idempotency_key\nk1\n").unwrap();
    let compare = ["audit", "compare", ledger.to_str().unwrap(), "--tenant", "acme"];
    let none = json!({ "region": "us", "entries": [], "copies": [] });
    assert_eq!(code(&compare, 200, none), Some(1), "k1 is extra");
    assert_eq!(nowhere(&compare), Some(3));
    assert_eq!(onceway(&["audit", "compare", "absent.csv", "--tenant", "acme"]).status.code(), Some(2));
    assert_eq!(onceway(&["check", "absent.toml"]).status.code(), Some(2));
    assert_eq!(nowhere(&["top", "--once", "--interval", "100ms"]), Some(1));
}

#[test]
fn read_commands_exit_0_even_for_bad_news() {
    for look in [&["status"][..], &["shadow"]] {
        assert_eq!(code(look, 200, json!({})), Some(0), "{look:?}");
        assert_eq!(nowhere(look), Some(1), "{look:?}");
        assert_eq!(onceway(&[look, &["--token-file", "absent"]].concat()).status.code(), Some(2), "{look:?}");
    }
    assert_eq!(code(&["shadow"], 404, json!({})), Some(1), "it is not in shadow mode");
    for look in [&["ring", "show"][..], &["ring", "explain", "acme", "k"]] {
        for (file, ends) in [("config/ring.toml", 0), ("config/routes.toml", 2)] {
            assert_eq!(onceway(&[look, &["--ring", file]].concat()).status.code(), Some(ends), "{look:?}");
        }
    }
    assert_eq!(onceway(&["certs", "--out", "/dev/null", "--region", "a"]).status.code(), Some(1));
}

#[test]
fn under_json_a_failure_is_one_object_on_stderr() {
    let (address, _) =
        admin(json!({}), (503, json!({ "code": "not-yet", "detail": "acceptor b is silent" })));
    for (args, code, word, part) in [
        (
            &["region", "drain", "eu-west", "--actor", "a", "--admin", &address][..],
            3,
            "incomplete",
            "acceptor b is silent",
        ),
        (&["status", "--admin", NOWHERE], 1, "failed", "is a gateway running there?"),
        (&["ring", "show", "--ring", "absent.toml"], 2, "wrong", "absent.toml"),
        (&["region", "drain"], 2, "wrong", "<REGION>"),
        (&["certs", "--out", "x"], 2, "wrong", "--region"),
        (&["ring", "explain", "no tenant", "k", "--ring", "config/ring.toml"], 2, "wrong", "TENANT"),
    ] {
        let failed = onceway(&[args, &["--json"]].concat());
        ends(&failed, code, "");
        let failure: Value = serde_json::from_str(err(&failed).trim_end()).expect("one object");
        assert_eq!((&failure["error"], &failure["exit_code"]), (&json!(word), &json!(code)), "{failure}");
        assert!(failure["message"].as_str().unwrap().contains(part), "{failure}");
        assert!(failed.stdout.is_empty(), "{args:?}");
        let said = onceway(args);
        assert!(said.status.code() == Some(code) && !err(&said).starts_with('{'), "{}", err(&said));
    }
}
