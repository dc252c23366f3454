//! The command line, through the built binary: its output and its exit codes.
//!
//! `config/` holds the reference files of these tests; `tests/suites/config.rs` tests mistakes in
//! files.

mod codes;
mod everywhere;
mod register;
mod terminal;

use crate::support::documents::text as document;
use crate::support::*;

const RING: &str = "config/ring.toml";

/// The program in this tree's folder, without the settings of whoever runs the tests.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceway"));
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    for variable in ["ONCEWAY_RING", "ONCEWAY_CONFIG", "ONCEWAY_ADMIN", "ONCEWAY_ADMIN_TOKEN_FILE"] {
        command.env_remove(variable);
    }
    command
}

fn onceway(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Stdout of a command that must succeed and write nothing to stderr.
fn well(args: &[&str]) -> String {
    let output = onceway(args);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""), "{args:?}");
    out(&output)
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn ring_show_draws_the_shares() {
    let drawn = well(&["ring", "show", "--ring", RING]);
    assert_eq!(
        drawn,
        concat!(
            "ring of example, place_by = \"key\", digest b23b1e9ea8721114\n",
            "\n",
            "region    weight     share    arcs\n",
            "ap-south       1   33.35 %  21,856  ████████████████████████████████████████\n",
            "eu-west        1   33.26 %  21,795  ███████████████████████████████████████▉\n",
            "us-east        1   33.39 %  21,885  ████████████████████████████████████████\n",
            "total          3  100.00 %  65,536\n",
            "\n",
            "pinned tenants, home first\n",
            "initech  eu-west\n",
        )
    );
    let by_environment = command(&["ring", "show"]).env("ONCEWAY_RING", RING).output().unwrap();
    assert_eq!((by_environment.status.code(), out(&by_environment)), (Some(0), drawn));
    let ring = report(&onceway(&["ring", "show", "--ring", RING, "--json"]));
    let arcs = |region: &Value| region["arcs"].as_u64().unwrap();
    assert_eq!(ring["regions"].as_array().unwrap().iter().map(arcs).sum::<u64>(), 65_536);
    assert_eq!((&ring["place_by"], &ring["pins"][0]["tenant"]), (&json!("key"), &json!("initech")));
}

#[test]
fn ring_explain_names_the_rule_and_not_the_key() {
    let explain = |tenant: &str| well(&["ring", "explain", tenant, "order-1001", "--ring", RING]);
    assert_eq!(
        explain("acme"),
        concat!(
            "tenant  acme\n",
            "key     digest 61d98934\n",
            "arc     23335 of 65,536, by tenant and key (place_by = \"key\")\n",
            "rule    the arc's order: weighted rendezvous over all regions with a weight above 0\n",
            "order   ap-south > us-east > eu-west\n",
            "home    ap-south\n",
        )
    );
    assert_eq!(
        explain("initech"),
        concat!(
            "tenant  initech\n",
            "key     digest 99f84465\n",
            "arc     51733 of 65,536, by tenant and key (place_by = \"key\")\n",
            "rule    the pin of tenant initech: these regions and no others, whatever the arc\n",
            "order   eu-west\n",
            "home    eu-west\n",
        )
    );
    let as_json = report(&onceway(&["ring", "explain", "acme", "order-1001", "--ring", RING, "--json"]));
    assert_eq!(
        as_json,
        json!({ "tenant": "acme", "digest": "61d98934", "arc": 23335, "place_by": "key", "pinned": false,
            "order": ["ap-south", "us-east", "eu-west"], "home": "ap-south" })
    );
    let bad_key = onceway(&["ring", "explain", "acme", "planted secret", "--ring", RING]);
    assert!(bad_key.status.code() == Some(2) && !err(&bad_key).contains("planted"), "{}", err(&bad_key));
}

#[test]
fn check_warns_of_absent_files_and_strict_refuses_them() {
    let check = |flags: &[&str]| {
        let args = [&["check"], flags, &["config/us-east.toml", "config/eu-west.toml"]].concat();
        command(&args).env_clear().output().unwrap()
    };
    let line = |text: &str| {
        document("config/us-east.toml").lines().position(|line| line.starts_with(text)).unwrap() + 1
    };
    let unset = "[store]: url_env: the environment variable ONCEWAY_STORE_URL is not set";
    let (store, pem) = (line("url_env = "), line("certificate = \"certs/us-east.pem\""));
    let mild = check(&[]);
    assert_eq!(mild.status.code(), Some(0), "{}", err(&mild));
    assert_eq!(String::from_utf8_lossy(&mild.stdout).lines().count(), 2);
    let certificate = "[peer]: certificate: cannot read";
    for (line, why) in [(store, unset), (pem, certificate)] {
        has(&err(&mild), &[&format!("config/us-east.toml:{line}: warning: {why}"), "config/eu-west.toml:"]);
    }
    let strict = check(&["--strict"]);
    ends(&strict, 2, &format!("config/us-east.toml:{store}: {unset}"));
    // The reference routes have one that reruns; it may be meant.
    let warned: Vec<String> =
        err(&strict).lines().filter(|line| line.contains("warning")).map(str::to_owned).collect();
    assert!(warned.len() == 1 && warned[0].contains("runs a key in doubt again"), "{}", err(&strict));
    assert!(!out(&strict).contains("in order"), "{}", out(&strict));
    assert_eq!(err(&strict).lines().count(), err(&mild).lines().count() + 1);
    let serving = err(&check(&["--strict", "--serve"]));
    assert!(serving.contains(unset) && !serving.contains("ONCEWAY_ADMIN_URL"), "{serving}");
}

/// A gateway's machine may have no [provision]. Somebody has to have it: `check --serve` says so.
#[test]
fn check_serve_warns_of_a_file_without_provision() {
    let folder = reference_files();
    let before = |text: String| text.split_once("\n[provision]").unwrap().0.to_owned();
    let file = change(&folder, "us-east.toml", before);
    let serving = onceway(&["check", "--serve", &file]);
    ends(&serving, 0, "us-east.toml: warning: has no [provision]: gateways need none");
    assert!(!err(&onceway(&["check", &file])).contains("has no [provision]"));
}

/// The reference files of three regions, for a test to change.
fn reference_files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tomls = ["us-east", "eu-west", "ap-south", "ring", "routes", "credentials"];
    let names = tomls.map(|name| format!("{name}.toml")).into_iter();
    for name in names.chain(["accounts.jwks.json".to_owned()]) {
        fs::write(folder.path().join(&name), document(&format!("config/{name}"))).unwrap();
    }
    folder
}

fn change(folder: &TempDir, name: &str, change: impl FnOnce(String) -> String) -> String {
    let file = folder.path().join(name);
    fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
    file.to_str().unwrap().to_owned()
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn the_reference_witness_is_valid_with_its_ring_entry() {
    let folder = reference_files();
    let file = folder.path().join("witness.toml");
    let text = document("config/witness.toml");
    fs::write(&file, &text).unwrap();
    let check = || onceway(&["check", file.to_str().unwrap()]);
    ends(&check(), 2, "witness-1 is no witness of the ring");
    let said = text.lines().filter_map(|line| line.strip_prefix("#        "));
    let listed = said.fold(String::new(), |lines, line| lines + "\n" + line) + "\n";
    assert!(listed.contains("[[witness]]"), "{listed}");
    change(&folder, "ring.toml", |text| text + &listed);
    let after = check();
    assert_eq!(after.status.code(), Some(0), "{}", err(&after));
    assert_eq!(out(&after).trim_end(), format!("{}: witness witness-1, in order", file.display()));
}

#[test]
fn check_takes_a_ring_with_any_seed() {
    let folder = reference_files();
    for seed in ["0", "0x8000000000000000", "0xffffffffffffffff"] {
        let other = |line: &str| {
            if line.starts_with("seed = ") { format!("seed = {seed}\n") } else { format!("{line}\n") }
        };
        let file = change(&folder, "ring.toml", |text| text.lines().map(other).collect());
        let output = onceway(&["check", "--strict", &file]);
        assert_eq!(output.status.code(), Some(0), "{seed}: {}", err(&output));
    }
}

#[test]
fn check_warns_of_spans_this_build_cannot_export() {
    let folder = reference_files();
    let otlp = "\n[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n";
    let output = onceway(&["check", &change(&folder, "us-east.toml", |text| text + otlp)]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let warned = err(&output).contains("warning: this onceway was built without the export of spans");
    assert_eq!(warned, !cfg!(feature = "otlp"), "{}", err(&output));
}

#[test]
fn check_compares_regions() {
    let folder = reference_files();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let edit = |name: &str, to: &str, from: &str, by: &str| {
        fs::write(at(to), replaced(&fs::read_to_string(at(name)).unwrap(), from, by)).unwrap();
    };
    edit("ring.toml", "ring-2.toml", "weight = 1", "weight = 2");
    edit("routes.toml", "routes-2.toml", "max_attempts = 3", "max_attempts = 4");
    edit("eu-west.toml", "eu-west.toml", "\"ring.toml\"", "\"ring-2.toml\"");
    edit("ap-south.toml", "ap-south.toml", "\"routes.toml\"", "\"routes-2.toml\"");
    let files = ["us-east.toml", "eu-west.toml", "ap-south.toml", "us-east.toml"].map(at);
    let files = files.each_ref().map(String::as_str);
    let output = onceway(&[&["check"], &files[..]].concat());
    ends(&output, 2, "3 problems");
    let said = err(&output);
    let ring = format!(
        "{}: region.weight differs from {}, so eu-west and us-east do not share it",
        at("ring-2.toml"),
        at("ring.toml")
    );
    assert!(said.contains(&ring), "{said}");
    let text = fs::read_to_string(at("routes.toml")).unwrap();
    let line = text.lines().position(|line| line == "name = \"emails\"").unwrap();
    let routes = format!(
        "{}:{line}: route.max_attempts of route \"emails\" differs from {}:{line}, so ap-south and us-east",
        at("routes-2.toml"),
        at("routes.toml")
    );
    assert!(said.contains(&routes), "{said}");
    let report = report(&onceway(&[&["check", "--json"], &files[..]].concat()));
    let keys: Vec<&str> =
        report["problems"].as_array().unwrap().iter().filter_map(|one| one["key"].as_str()).collect();
    assert!(keys.contains(&"region.weight") && keys.contains(&"route.max_attempts"), "{report}");
    assert!(said.contains("region us-east is the region of"), "{said}");
}

#[test]
fn an_unreachable_store_error_shows_no_secret() {
    let folder = reference_files();
    let named = |text: String| replaced(&text, "\"ONCEWAY_ADMIN_URL\"", "\"ONCEWAY_TEST_ADMIN_URL\"");
    let file = change(&folder, "us-east.toml", named);
    let run = |url: Option<&str>| {
        let mut command = command(&["store", "check", "--config", &file]);
        command.env_remove("ONCEWAY_TEST_ADMIN_URL").env_remove("ONCEWAY_LOG");
        for other in ["EU_WEST", "AP_SOUTH"] {
            command.env(
                format!("ONCEWAY_PUBLISHER_{other}"),
                "host=h user=u password=planted-secret dbname=d sslmode=disable",
            );
        }
        for password in ["ONCEWAY_GATEWAY_PASSWORD", "ONCEWAY_REPLICATION_PASSWORD"] {
            command.env(password, "planted-secret");
        }
        command.envs(url.map(|url| ("ONCEWAY_TEST_ADMIN_URL", url))).output().unwrap()
    };
    let unset = run(None);
    ends(&unset, 2, "ONCEWAY_TEST_ADMIN_URL is not set");
    let unreachable = run(Some("postgres://somebody:planted-secret@127.0.0.1:1/onceway"));
    ends(&unreachable, 1, "cannot reach the store of us-east");
    assert!(!err(&unreachable).contains("planted"), "{}", err(&unreachable));
}

#[test]
fn store_init_prints_sql_without_server_or_secrets() {
    let run = |secret: Option<&str>| {
        let mut command = command(&["store", "init", "--print", "--config", "config/us-east.toml"]);
        let names = "ADMIN_URL PUBLISHER_EU_WEST PUBLISHER_AP_SOUTH GATEWAY_PASSWORD REPLICATION_PASSWORD";
        for name in names.split(' ').map(|name| format!("ONCEWAY_{name}")) {
            command.env_remove(&name).envs(secret.map(|secret| (name, secret)));
        }
        command.output().unwrap()
    };
    let printed = run(None);
    assert_eq!(printed.status.code(), Some(0), "{}", err(&printed));
    let text = out(&printed);
    has(
        &text,
        &[
            "\\getenv publisher ONCEWAY_PUBLISHER_EU_WEST",
            " password :'gateway_verifier';",
            "create subscription sub_us_east_from_ap_south connection :'publisher'",
            "create publication onceway_us_east_g1",
        ],
    );
    assert_eq!(out(&run(Some("planted-secret"))), text);
}

#[test]
fn serve_starts_nothing_before_all_is_valid() {
    // The certificates of the reference file do not exist.
    let mut serve = command(&["serve", "--config", "config/us-east.toml"]);
    ends(&serve.output().unwrap(), 2, "ONCEWAY_STORE_URL is not set");
    let output = serve.env("ONCEWAY_STORE_URL", "postgres://gateway@127.0.0.1:1/onceway").output().unwrap();
    ends(&output, 1, "certs/us-east.pem");
    assert!(!err(&output).contains("listening"), "{}", err(&output));
    let output = serve.env("ONCEWAY_LOG", "inof").output().unwrap();
    ends(&output, 2, "ONCEWAY_LOG: \"inof\" is no level");
}

#[test]
fn certs_are_made_once_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("certs");
    let dir = made.to_str().unwrap();
    let said = well(&["certs", "--out", dir, "--region", "a", "b", "--dry-run"]);
    assert!(said.contains("ca.pem, ca.key, a.pem, a.key, b.pem, b.key"), "{said}");
    for dry in [&[][..], &["--dry-run"]] {
        let taken = onceway(&[&["certs", "--out", dir, "--region", "a", "ca"][..], dry].concat());
        ends(&taken, 2, "ca.pem and ca.key are the authority's");
    }
    assert!(!made.exists());
    let said = well(&["certs", "--out", dir, "--region", "us-east", "eu-west", "--region", "ap-south"]);
    assert!(said.contains("ap-south, eu-west, us-east"), "{said}");
    for name in ["ca.pem", "ca.key", "us-east.pem", "us-east.key", "eu-west.pem", "ap-south.key"] {
        assert!(made.join(name).is_file(), "{name}");
    }
    let mode = fs::metadata(&made).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "whoever reads its keys can be any region");
    let before = fs::read(made.join("ca.pem")).unwrap();
    for (more, exit) in [(&["us-east"][..], 1), (&["us-east", "--dry-run"], 1), (&["us-east", "us-east"], 2)]
    {
        ends(&onceway(&[&["certs", "--out", dir, "--region"], more].concat()), exit, "");
    }
    assert_eq!(fs::read(made.join("ca.pem")).unwrap(), before);
    let other = folder.path().join("other");
    let made = report(&onceway(&["certs", "--out", other.to_str().unwrap(), "--region", "a", "--json"]));
    assert_eq!((&made["authority"], &made["files"][2]), (&json!("made"), &json!("a.pem")));
}
