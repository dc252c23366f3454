//! Founding, ring changes, drains and takeovers as a user types them, before an admin listener with
//! each test's own answers.
//!
//! The gateway's side of these acts is tested on real regions.

use crate::cli::terminal::one_lost;
use crate::cli::{command, ends, err, onceway, out, report, well};
use crate::support::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

pub const FILE: &str = "config/us-east.toml";

/// The requests beside those for the status: path and body, in order.
pub type Posted = Arc<Mutex<Vec<(String, Value)>>>;

/// An admin listener that reports `status`, has two metrics, and answers everything else with
/// `answer`. It ends with the test's process.
pub fn admin(status: Value, answer: (u16, Value)) -> (String, Posted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, posted) = (format!("http://{}", listener.local_addr().unwrap()), Posted::default());
    let seen = posted.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(stream.read_line(&mut head).unwrap() > 0, "the head is whole");
            }
            let length = head.to_lowercase().split_once("content-length: ").map_or(0, |(_, rest)| {
                rest.lines().next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
            });
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let (code, text) = match path.as_str() {
                "/v1/status" => (200, status.to_string()),
                "/metrics" => {
                    (200, "onceway_answers_total{verdict=\"settled\"} 5\nonceway_doubts 2\n".to_owned())
                }
                _ => {
                    let body =
                        if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
                    seen.lock().unwrap().push((path, body));
                    (answer.0, answer.1.to_string())
                }
            };
            let whole = format!("HTTP/1.1 {code} x\r\ncontent-length: {}\r\n\r\n{text}", text.len());
            stream.get_mut().write_all(whole.as_bytes()).unwrap();
        }
    });
    (address, posted)
}

pub fn at(address: &str, args: &[&str]) -> Output {
    onceway(&[args, &["--admin", address]].concat())
}

/// The status of a gateway that runs the reference files, before the register is founded.
pub fn unfounded() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let config = Config::load_for_command(&file).unwrap();
    json!({
        "region": "us-east", "epoch": 0, "shared": config.shared.digest.to_string(), "view": config.shared.view().digest().to_string(),
    })
}

#[test]
fn init_founds_with_the_files_that_the_gateway_runs() {
    let report = json!({ "epoch": 10, "voters": ["ap-south", "eu-west", "us-east"] });
    let (address, posted) = admin(unfounded(), (200, report));
    let done = at(&address, &["init", "--config", FILE, "--epoch-above", "9"]);
    assert_eq!((done.status.code(), err(&done).as_str()), (Some(0), ""));
    assert!(out(&done).starts_with("founded at epoch 10"), "{}", out(&done));
    assert!(out(&done).contains("ap-south, eu-west, us-east"), "{}", out(&done));
    let act = ("/v1/admin/init".to_owned(), json!({ "escrow": ["notes"], "epoch_above": 9 }));
    assert_eq!(*posted.lock().unwrap(), [act]);
    for (field, other, code, why) in [
        ("region", json!("eu-west"), 2, "is of region eu-west, the file of us-east"),
        ("view", json!("0123"), 1, "started with another ring.toml"),
        ("shared", json!("0123"), 1, "started with another ring.toml or routes.toml"),
    ] {
        let mut status = unfounded();
        status[field] = other;
        let (address, posted) = admin(status, (200, json!({})));
        ends(&at(&address, &["init", "--config", FILE]), code, why);
        assert_eq!(posted.lock().unwrap().len(), 0, "nothing was asked for");
    }
}

#[test]
fn init_waits_for_voters_until_its_limit() {
    let too_early = json!({ "detail": "acceptor eu-west does not answer" });
    for (wait, least) in [("0s", 1), ("1500ms", 2)] {
        let (address, posted) = admin(unfounded(), (503, too_early.clone()));
        let in_vain = at(&address, &["init", "--config", FILE, "--wait", wait]);
        ends(&in_vain, 3, "eu-west does not answer");
        let asked = posted.lock().unwrap().len();
        assert!(asked >= least && (least > 1 || asked == 1), "asked {asked} times within {wait}");
    }
}

#[test]
fn a_ring_is_applied_only_as_it_was_planned() {
    let plan = json!({
        "epoch": 7, "moves": [{ "from": "us-east", "to": "eu-west", "arcs": 13107, "share": 0.2 }], "pins": [],
        "regions_added": [], "regions_removed": [], "escrow_added": ["payouts"], "escrow_removed": [],
    });
    let (address, posted) = admin(json!({}), (200, plan.clone()));
    let apply = |epoch: &str, rest: &[&str]| {
        at(&address, &[&["ring", "apply", "--config", FILE, "--expect-epoch", epoch], rest].concat())
    };
    let dry = apply("7", &[]);
    assert_eq!(dry.status.code(), Some(0), "{}", err(&dry));
    assert!(out(&dry).contains("us-east  eu-west  13,107  20.00 %"), "{}", out(&dry));
    assert!(out(&dry).ends_with(&format!("  onceway ring apply --config {FILE} --expect-epoch 7 --yes\n")));
    ends(&apply("6", &[]), 1, "at epoch 7, not 6");
    assert!(posted.lock().unwrap().iter().all(|(path, _)| path == "/v1/admin/ring/plan"));
    let planned = at(&address, &["ring", "plan", "--config", FILE, "--json"]);
    assert_eq!(report(&planned), plan);

    let (address, posted) = admin(json!({}), (200, json!({ "epoch": 8 })));
    let args = ["ring", "apply", "--config", FILE, "--expect-epoch", "7", "--yes", "--actor", "ada"];
    assert_eq!(out(&at(&address, &args)), "in force: epoch 8\n");
    let posted = posted.lock().unwrap();
    let (path, body) = &posted[0];
    assert_eq!(path, "/v1/admin/ring/apply");
    assert_eq!((&body["expect_epoch"], &body["actor"]), (&json!(7), &json!("ada")));
    assert_eq!(body["ring"]["seed"], json!(0x6f6e_6365_7761_7921_u64));
    assert_eq!(body["ring"]["regions"][0], json!({ "name": "ap-south", "weight": 1 }));
    assert_eq!(body["ring"]["pins"][0], json!({ "tenant": "initech", "regions": ["eu-west"] }));
}

#[test]
fn a_forced_drain_needs_the_regions_name_twice() {
    let (address, posted) = admin(json!({}), (200, json!({ "epoch": 8 })));
    let drain = |rest: &[&str]| {
        let mut command = command(&["region", "drain", "eu-west", "--admin", &address, "--actor", "ada"]);
        command.args(rest).stdin(Stdio::null()).output().unwrap()
    };
    for (rest, why) in [
        (&["--force"][..], "--reason"),
        (&["--confirm", "eu-west"], "--force"),
        (&["--force", "--reason", "r"], "add --confirm eu-west"),
        (&["--force", "--reason", "r", "--confirm", "us-east"], "\"us-east\" is not eu-west"),
    ] {
        ends(&drain(rest), 2, why);
    }
    assert_eq!(posted.lock().unwrap().len(), 0, "nothing was asked for");
    let done = drain(&["--force", "--reason", "r", "--confirm", "eu-west"]);
    assert_eq!(out(&done), "eu-west is drained: epoch 8\n", "{}", err(&done));
    assert_eq!(drain(&[]).status.code(), Some(0));
    let act = |force: bool, reason: &str| {
        let body = json!({ "region": "eu-west", "force": force, "actor": "ada", "reason": reason });
        ("/v1/admin/region/drain".to_owned(), body)
    };
    assert_eq!(*posted.lock().unwrap(), [act(true, "r"), act(false, "")]);
}

#[test]
fn a_takeover_says_where_and_when_keys_open() {
    let takeover = |waived: Value, rest: &[&str]| {
        let (address, posted) = admin(json!({}), (200, json!({ "epoch": 8, "waived": waived })));
        let done =
            at(&address, &[&["takeover", "eu-west", "--reason", "r", "--actor", "ada"], rest].concat());
        let accepted = posted.lock().unwrap()[0].1["accept_risk"] == true;
        (done.status.code(), out(&done), accepted)
    };
    let lost = "eu-west is lost since epoch 8";
    let accepted = &["--accept-risk"][..];
    for (waived, rest, exit, says) in [
        (json!([]), &[][..], 0, "; its keys open elsewhere after the window (`onceway status`)"),
        (json!(["ap-south", "us-east"]), accepted, 0, "; without waiting its keys open in ap-south, us-east"),
        (json!([]), accepted, 3, ""),
    ] {
        let expected = (Some(exit), format!("{lost}{says}\n"), !rest.is_empty());
        assert_eq!(takeover(waived, rest), expected);
    }
}

#[test]
fn region_status_exits_by_the_regions_standing() {
    let (address, _) = admin(one_lost(), (200, json!({})));
    let serving = at(&address, &["region", "status", "us-east"]);
    assert_eq!((serving.status.code(), err(&serving).as_str()), (Some(0), ""));
    let lost = at(&address, &["region", "status", "eu-west"]);
    assert_eq!((lost.status.code(), err(&lost).as_str()), (Some(3), "onceway: eu-west is lost\n"));
    has(&out(&lost), &["LOST", "epoch 4 of 8", "50.00 %", "1.5 s left"]);
    assert_eq!(at(&address, &["region", "status", "north"]).status.code(), Some(2));
    let screen = out(&at(&address, &["status"]));
    let shown = ["failover manual", "held, 8.4 s left", "LOST: its keys run elsewhere", "window  1.5 s left"];
    has(&screen, &shown);
}

pub fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn malformed_acts_are_refused_and_help_explains_them() {
    for bad in [
        "init",
        "init --config absent.toml",
        "init --config config/us-east.toml --epoch-above x",
        "ring plan",
        "ring apply --config config/us-east.toml",
        "ring apply --config config/us-east.toml --expect-epoch -1",
        "region drain",
        "region drain No_Region",
        "region status EU",
        "takeover eu-west",
        "takeover eu-west --accept-risk",
        "takeover eu-west --reason \t --actor a",
        "key release acme k --actor a",
        "key settle acme k --reason r --actor a",
        "key settle acme k --reason r --status x --actor a",
        "key settle acme k --reason r --status 200 --actor a",
        "key settle acme k --reason r --status 200 --header none --actor a",
        "key settle acme k --reason r --status 200 --body a --body-file b",
    ] {
        assert_eq!(onceway(&bad.split(' ').collect::<Vec<_>>()).status.code(), Some(2), "{bad}");
    }
    for (command, taught) in [
        ("init", "Exit codes: 0 founded"),
        ("ring plan", "Changes nothing"),
        ("ring apply", "Without --yes: a dry run"),
        ("region drain", "The last region that serves cannot be drained"),
        ("region resume", "comes back by itself"),
        ("region status", "0 it serves"),
        ("takeover", "may run a second time"),
        ("key release", "a retry of the client runs again"),
        ("key settle", "cannot be taken back"),
        ("key settle", "--header 'content-type"),
        ("doubts", "Exit codes: 0 none is in doubt, 3 some are"),
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = in_a_line(&well(&words));
        assert!(help.contains(taught) && help.contains("Exit codes:"), "{help}");
    }
}
