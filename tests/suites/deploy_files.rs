//! The claims of `deploy/` and of the documents, compared with the product: commands, ports, paths,
//! settings and schemas. Nothing is deployed, and only loopback is used.

mod commands;
mod files;
mod manifests;
mod pod;
mod schema;

use crate::net::peers::{dial, run};
use crate::net::support::{PeerLimits, Pki, region};
use crate::support::documents::text;
use crate::support::*;

/// The regions of `config/ring.toml`, each of which has its manifests.
const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];

fn top(path: &str) -> PathBuf {
    documents::top().join(path)
}

fn files_below(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top(folder)).unwrap().map(Result::unwrap) {
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[track_caller]
fn after<'a>(text: &'a str, begins: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.strip_prefix(begins));
    found.unwrap_or_else(|| panic!("no line begins with {begins:?}"))
}

#[track_caller]
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("there is no {from:?}"));
    rest.split(to).next().unwrap()
}

fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap())
}

fn onceway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceway"));
    for variable in ["ONCEWAY_RING", "ONCEWAY_CONFIG", "ONCEWAY_ADMIN", "ONCEWAY_ADMIN_TOKEN_FILE"] {
        command.env_remove(variable);
    }
    command
}

/// A tool, if it is installed. If not, what was not checked is said.
fn tool(name: &str, what: &str) -> Option<Command> {
    if installed(name).is_none() {
        not_checked(&format!("{what}, because {name} is not installed"));
        return None;
    }
    Some(Command::new(name))
}

/// Runs a tool to its end. Returns its output, if it succeeded.
fn well(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{command:?} ended with {}\n{out}{err}", output.status);
    out
}

#[test]
#[should_panic(expected = "ended with")]
fn a_tool_that_fails_is_a_failure() {
    well(&mut Command::new("false"));
}

/// True if two regions accept each other's identity, in both directions.
async fn know_each_other(one: &PeerIdentity, other: &PeerIdentity) -> bool {
    let greets = async |client: &PeerIdentity, server: &PeerIdentity| {
        let there = run(server, PeerLimits::default()).await;
        let peers = dial(client, server.me.as_str(), &there.address);
        peers.ping(&server.me, PATIENCE).await.is_ok()
    };
    greets(one, other).await && greets(other, one).await
}

#[tokio::test]
async fn certificates_by_the_openssl_recipe_are_taken() {
    if tool("openssl", "the openssl recipe of deploy/README.md").is_none() {
        return;
    }
    let guide = text("deploy/README.md");
    let recipe = between(&guide, "```sh openssl\n", "```");
    let pki = Pki::new(&["us-east", "eu-west"]);
    for file in ["eu-west.pem", "eu-west.key"] {
        fs::remove_file(pki.path().join(file)).unwrap();
    }
    well(Command::new("sh").args(["-eu", "-c", recipe]).env("REGION", "eu-west").current_dir(pki.path()));
    assert!(know_each_other(&pki.identity("us-east"), &pki.identity("eu-west")).await);
}

#[tokio::test]
async fn replacing_an_authority_takes_three_rounds() {
    let [old, new] = [(); 2].map(|()| Pki::new(&["us-east", "eu-west"]));
    let both = old.path().join("both.pem");
    fs::write(&both, [old.authority(), new.authority()].concat()).unwrap();
    let with = |pki: &Pki, name: &str, trusts_both: bool| {
        let mut files = files_in(pki.path(), &region(name));
        if trusts_both {
            files.authorities = both.clone();
        }
        PeerIdentity::load(region(name), &files).unwrap()
    };
    // Each round meets the one before it, region by region.
    let rounds = [(&old, false), (&old, true), (&new, true), (&new, false)];
    for (number, pair) in rounds.windows(2).enumerate() {
        let [before, after] = [pair[0], pair[1]].map(|(pki, both)| with(pki, "us-east", both));
        let other = with(pair[0].0, "eu-west", pair[0].1);
        let known = know_each_other(&before, &other).await && know_each_other(&after, &other).await;
        assert!(known, "round {number}");
    }
    // Without the first round they refuse each other.
    assert!(!know_each_other(&with(&new, "us-east", true), &with(&old, "eu-west", false)).await);
}
