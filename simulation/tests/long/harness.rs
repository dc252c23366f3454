//! `onceway-sim` as its users have it: a process, files, its output and its exit code.
//!
//! `takeover` has the scenarios by rule, with requests to single gateways.

mod reports;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn onceway_sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceway-sim")).args(args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn exits(args: &[&str], code: i32) -> Output {
    let ended = onceway_sim(args);
    assert_eq!(ended.status.code(), Some(code), "{args:?}: {}{}", out(&ended), err(&ended));
    ended
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A copy of a scenario with some text replaced, its files named by their whole paths.
    fn scenario(&self, name: &str, replace: &[(&str, &str)]) -> String {
        let rings = format!("\"{}/rings/", scenarios().display());
        let mut text = fs::read_to_string(scenarios().join(format!("{name}.toml"))).unwrap();
        text = text.replace("\"rings/", &rings);
        for (from, to) in replace {
            assert!(text.contains(from), "{name} has no {from:?}");
            text = text.replacen(from, to, 1);
        }
        let file = self.0.join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        file.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_seed_tells_one_story_in_two_processes() {
    for (scenario, seed) in [("swarm", "3"), ("swarm", "11"), ("region-loss", "1")] {
        let replay = || onceway_sim(&["replay", scenario, "--seed", seed, "--set", "length=30s"]);
        let (one, other) = (replay(), replay());
        assert_eq!((one.status.code(), err(&one).as_str()), (Some(0), ""));
        assert!(one.stdout == other.stdout, "seed {seed} of {scenario} differs");
        let story = out(&one);
        for what in ["CLIENT", "STORE", "UPSTREAM", "EFFECT", "GATE", "SERVES", "FAULT"] {
            assert!(story.lines().any(|line| line.contains(&format!(" {what} "))), "no {what} in {scenario}");
        }
    }
    let other_seed = onceway_sim(&["replay", "region-loss", "--seed", "2", "--set", "length=30s"]);
    let seed = onceway_sim(&["replay", "region-loss", "--seed", "1", "--set", "length=30s"]);
    assert!(other_seed.stdout != seed.stdout);
}

#[test]
fn a_region_that_dies_is_taken_over_and_comes_back() {
    let played = exits(&["run", "region-loss", "--json"], 0);
    let outcome: serde_json::Value = serde_json::from_str(&out(&played)).unwrap();
    assert_eq!(outcome["breaches"], serde_json::json!([]));
    assert_eq!(
        (outcome["happened"]["takeover"].as_u64(), outcome["happened"]["return"].as_u64()),
        (Some(1), Some(1))
    );
    let faults = outcome["faults"].as_array().unwrap();
    let loss = faults.iter().find(|fault| fault["kind"] == "region-loss").unwrap();
    assert_eq!(loss["mattered"], true);
    assert!(
        outcome["keys"]["begun"].as_u64() > Some(100) && outcome["keys"]["given_up"] == 0,
        "{}",
        outcome["keys"]
    );
    assert!(outcome["views"].as_array().is_some_and(|views| views.len() >= 3));
    let shown = onceway_sim(&["run", "region-loss"]);
    assert!(out(&shown).ends_with("Every invariant held.\n"), "{}", out(&shown));
}

#[test]
fn a_batch_of_seeds_holds_and_breaks_where_a_check_is_removed() {
    let batch = |count: &str, more: &[&str]| {
        let args = ["seeds", "swarm", "--count", count, "--json", "--set", "length=30s"];
        onceway_sim(&[&args[..], more].concat())
    };
    let held = batch("3", &[]);
    assert_eq!(held.status.code(), Some(0), "{}", out(&held));
    let sums: serde_json::Value = serde_json::from_str(&out(&held)).unwrap();
    assert!(sums["simulated_ms"].as_u64() > Some(90_000) && sums["broke"] == serde_json::json!([]));
    assert!(sums["events"].as_u64() > Some(10_000), "{}", sums["events"]);
    assert!(sums["faults"].as_object().is_some_and(|kinds| kinds.len() > 5), "{}", sums["faults"]);
    // One seed of three notices. Every change of the scenario changes which ones.
    let broke = batch("16", &["--plant", "pending-closed"]);
    assert_eq!(broke.status.code(), Some(1), "{}", out(&broke));
    let sums: serde_json::Value = serde_json::from_str(&out(&broke)).unwrap();
    assert!(sums["broke"].as_array().is_some_and(|broke| !broke.is_empty()));
}

/// Every check has a scenario that breaks without it, and holds with it. For these checks a hundred
/// random seeds do not notice, so the check's own scenario must.
#[test]
fn each_missing_check_fails_its_own_scenario() {
    let own = [
        ("tenure", "sleeping-handler"),
        ("release-bound", "second-lease"),
        ("heartbeat-of-epoch", "new-target"),
        ("escrow-meaning", "renamed-routes"),
        ("masking-kept", "short-lived"),
        ("late-renewal", "late-renewal"),
        ("voters-before", "new-voter"),
        ("skipped-view", "skipped-view"),
        ("sealed-asked", "sealed-keeper"),
        ("fingerprint", "reused-keys"),
        ("told-of-records", "asked-first"),
        ("put-back", "put-back"),
        ("observed-time", "rebooted"),
    ];
    let table = onceway_sim(&["plants", "late-renewal", "--count", "1"]);
    let rows = out(&table);
    assert_eq!(table.status.code(), Some(0), "{rows}{}", err(&table));
    let all = out(&onceway_sim(&["run", "swarm", "--plant", "list"])).lines().count();
    assert!(all >= 32 && rows.ends_with(&format!("{all} of {all} noticed\n")), "{rows}");
    // An unfinished or a refused key says little of safety: only progress may show by it.
    let shows = |row: &&str| row.contains("progress") || row.contains("service");
    let late = rows.lines().filter(shows).filter_map(|row| row.split_whitespace().next());
    assert_eq!(late.collect::<Vec<_>>(), ["quiet"], "{rows}");
    for (name, scenario) in own {
        let row = rows.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = row.into_iter().find(|row| row.first() == Some(&name));
        assert_eq!(row.and_then(|row| row.get(1).copied()), Some(scenario), "{name}: {rows}");
    }
}

/// No seed of the requested scenario notices. The check's own scenario is played besides.
#[test]
fn a_batch_without_a_check_breaks_whatever_its_scenario() {
    let args = ["seeds", "isolated", "--count", "1"];
    exits(&args, 0);
    let answer = out(&exits(&[&args[..], &["--plant", "late-renewal"]].concat(), 1));
    assert!(
        answer.contains("Every invariant held in all 1 seeds.\nbesides       late-renewal, "),
        "{answer}"
    );
}

/// Without the tree of its build, and without a file beside it.
#[test]
fn the_program_finds_scenarios_and_seeds_by_name() {
    let folder = Folder::new("elsewhere");
    let program = folder.0.join("onceway-sim");
    // By a process of its own. What other tests start would inherit a file that is being written
    // here, and until they end it cannot be executed.
    let mut copy = Command::new("cp");
    assert!(copy.arg(env!("CARGO_BIN_EXE_onceway-sim")).arg(&program).status().unwrap().success());
    let run = |args: &[&str]| Command::new(&program).args(args).current_dir(&folder.0).output().unwrap();
    let played = run(&["run", "swarm", "--set", "length=5s"]);
    assert_eq!(played.status.code(), Some(0), "{}{}", out(&played), err(&played));
    let listed = run(&["list"]);
    assert!(out(&listed).lines().count() >= 20, "{}", out(&listed));
    let answer = out(&run(&["seeds", "late-rows", "--count", "1", "--plant", "closed-when-gained"]));
    assert!(answer.contains("onceway-sim replay late-rows --seed 0"), "{answer}");
}

#[test]
fn faults_accept_only_the_settings_of_their_kind() {
    let folder = Folder::new("how");
    let letters = |text: &str| {
        folder.scenario(
            "late-renewal",
            &[("letters = [\"renew\"]", text), ("lasts = \"3100ms\"", "lasts = \"1s\"")],
        )
    };
    exits(&["run", &letters("letters = [\"renew\", \"views\"]"), "--set", "length=20s"], 0);
    let bad = exits(&["run", &letters("letters = [\"parcel\"]")], 2);
    assert!(err(&bad).contains("\"parcel\""), "{}", err(&bad));
    let elsewhere =
        folder.scenario("region-loss", &[("kind = \"region-loss\"", "kind = \"region-loss\"\nby = \"1s\"")]);
    let bad = exits(&["run", &elsewhere], 2);
    assert!(err(&bad).contains("unknown key \"by\""), "{}", err(&bad));
}

/// One seed of each but the swarm, which is played above: nothing breaks, and its events occur.
#[test]
fn every_scenario_holds_and_shows_what_it_is_about() {
    let listed = out(&onceway_sim(&["list"]));
    let names =
        listed.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "swarm");
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 14, "{names:?}");
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || {
                let text = fs::read_to_string(scenarios().join(format!("{name}.toml"))).unwrap();
                let (_, expects) = text.split_once("\nexpects = [").expect("what it expects");
                assert!(expects.trim_start().starts_with('"'), "{name} expects nothing");
                exits(&["seeds", name, "--count", "1"], 0);
            });
        }
    });
}

#[test]
fn a_batch_that_never_saw_what_its_scenario_expects_fails() {
    let folder = Folder::new("never");
    let file = folder.scenario("region-loss", &[("kind = \"region-loss\"", "kind = \"probes-silent\"")]);
    let batch = exits(&["seeds", &file, "--count", "1"], 1);
    assert!(out(&batch).contains("NEVER         takeover: expected of 1 seeds"), "{}", out(&batch));
    let more = folder.scenario(
        "region-loss",
        &[("kind = \"region-loss\"", "kind = \"probes-silent\""), ("expects =", "expects_of = 2\nexpects =")],
    );
    assert_eq!(onceway_sim(&["seeds", &more, "--count", "1"]).status.code(), Some(0), "too few to tell");
}

#[test]
fn seeds_that_once_broke_something_hold() {
    let kept = exits(&["kept"], 0);
    assert!(out(&kept).lines().filter(|line| line.starts_with("held ")).count() >= 20, "{}", out(&kept));
}

#[test]
fn every_scenario_error_is_reported_with_its_line() {
    let folder = Folder::new("bad");
    let file = folder.scenario(
        "region-loss",
        &[
            ("length = \"60s\"", "length = \"60\"\nlenght = \"60s\""),
            ("path = \"/v1/charges\"", "path = \"/v1/refunds\""),
            ("kind = \"region-loss\"", "kind = \"region-lost\""),
            ("region = \"any\"", "region = \"mars\""),
        ],
    );
    let refused = onceway_sim(&["run", &file]);
    assert_eq!((refused.status.code(), out(&refused).as_str()), (Some(2), ""));
    let said = err(&refused);
    for (line, what) in [
        (7, "length"),
        (8, "unknown key \"lenght\": did you mean \"length\"?"),
        (17, "no route of the routes file takes a POST with a key to \"/v1/refunds\": there are /v1/charges"),
        (35, "\"region-lost\""),
        (36, "there is no region \"mars\" in the ring file: it has ap-south, eu-west, us-east"),
    ] {
        let place = format!("{file}:{line}: ");
        let found = said.lines().any(|text| text.starts_with(&place) && text.contains(what));
        assert!(found, "line {line}: {what}, in\n{said}");
    }
    let ring = folder.scenario("region-loss", &[("/rings/three.toml", "/rings/four.toml")]);
    let said = err(&exits(&["run", &ring], 2));
    assert!(said.contains("cannot read") && said.contains("four.toml"), "{said}");
}

#[test]
fn unplayable_scenarios_are_refused_with_one_line() {
    for (args, what) in [
        ("run nowhere", "no scenario \"nowhere\": give the path of a file, or one of alone, asked-first"),
        ("run swarm --plant nothing", "no safety check \"nothing\" to remove: there are grant-on-accept"),
        ("run swarm --set failover.lease=1h", "lease"),
        ("run swarm --set failover", "write KEY=VALUE"),
        ("seeds swarm --count many", "--count"),
        ("seeds swarm --count 0", "0 is not in 1..=10000000"),
        ("plants nowhere", "there is no scenario"),
        ("play", "play"),
    ] {
        let refused = onceway_sim(&args.split(' ').collect::<Vec<_>>());
        assert_eq!((refused.status.code(), out(&refused).as_str()), (Some(2), ""), "{args:?}");
        assert!(err(&refused).contains(what), "{args:?}: {}", err(&refused));
    }
}

#[test]
fn scenarios_faults_and_safety_checks_can_be_listed() {
    let list = |args: &[&str]| out(&exits(args, 0));
    assert!(list(&["list"]).contains("region-loss"));
    assert!(list(&["faults"]).lines().count() >= 30);
    assert!(list(&["run", "swarm", "--plant", "list"]).contains("gate-in-claim"));
}

/// As `onceway-sim list | head -1` does.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut started = Command::new(env!("CARGO_BIN_EXE_onceway-sim"))
        .arg("list")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(started.stdout.take());
    let ended = started.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), err(&ended).as_str()), (Some(0), ""));
}
