//! A deployment of two regions made by hand, with the commands of a set-up only.
//!
//! The commands are: certificates, `check`, `store init` in the wrong order (it names the missing
//! region, exit code 3), `store check`, `serve`, `status`. `guide.rs` has three regions, on
//! machines of their own. It must not use another way than these commands.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::support::{self, BODY, ask, key, port_base, post, program, room, run, until};
use onceway::fleet::binaries::Binaries;
use onceway::fleet::cluster::Cluster;
use onceway::fleet::janitor::Janitor;
use onceway::fleet::ledger::Ledger;
use onceway::fleet::scratch;
use onceway::fleet::upstream::Upstream;
use serde_json::json;
use tokio::process::{Child, Command};

const NAMES: [&str; 2] = ["north", "south"];

/// Five ports per region: public, admin, peer, upstream, Postgres.
fn ports() -> Vec<u16> {
    let base = port_base();
    (base..base + 10).collect()
}

fn write(dir: &Path, ports: &[u16]) {
    let ring = "deployment = \"by-hand\"\nseed = 1\nplace_by = \"key\"\nfailover = \"manual\"\n[[region]]\nname = \"north\"\nweight = 1\n[[region]]\nname = \"south\"\nweight = 1\n";
    fs::write(dir.join("ring.toml"), ring).unwrap();
    let routes = format!(
        "[[route]]\nname = \"charges\"\npath = \"/v1/charges\"\nkey = \"required\"\nrecovery = \"park\"\n{}",
        support::solo::POLICY
    );
    fs::write(dir.join("routes.toml"), routes).unwrap();
    let digest = onceway::gateway::credentials::digest(b"sk_demo_acme");
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let known = format!("[[credential]]\ntenant = \"acme\"\nsha256 = \"{digest}\"\n");
    fs::write(dir.join("credentials.toml"), known).unwrap();
    fs::write(dir.join("token"), "letmein-letmein-letmein\n").unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let (own, peer) = (&ports[number * 5..], &ports[(1 - number) * 5..]);
        let other = NAMES[1 - number];
        let text = format!(
            r#"region = "{name}"
ring = "ring.toml"
routes = "routes.toml"
credentials = "credentials.toml"
[listen]
public = "127.0.0.1:{}"
admin = "127.0.0.1:{}"
peer = "127.0.0.1:{}"
[admin]
token_file = "token"
[store]
url = "postgres://gw@127.0.0.1:{pg}/postgres"
[upstream]
address = "http://127.0.0.1:{}"
shared = true
[peer]
certificate = "certificates/{name}.pem"
key = "certificates/{name}.key"
ca = "certificates/ca.pem"
[peer.addresses]
{other} = "127.0.0.1:{}"
[provision]
admin_url = "postgres://postgres@127.0.0.1:{pg}/postgres"
gateway_role = "gw"
replication_role = "repl"
[provision.publishers]
{other} = "host=127.0.0.1 port={} user=repl dbname=postgres"
"#,
            own[0],
            own[1],
            own[2],
            own[3],
            peer[2],
            peer[4],
            pg = own[4],
        );
        fs::write(dir.join(format!("{name}.toml")), text).unwrap();
    }
}

async fn onceway(dir: &Path, args: &[&str]) -> Output {
    Command::new(program()).args(args).current_dir(dir).output().await.unwrap()
}

/// Runs a command, and expects an exit code. Returns the output.
async fn expect(dir: &Path, args: &[&str], code: i32) -> String {
    let output = onceway(dir, args).await;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(code), "onceway {args:?}: {said}");
    said
}

fn serve(dir: &Path, name: &str) -> Child {
    let log = fs::File::create(dir.join(format!("{name}.log"))).unwrap();
    Command::new(program())
        .args(["serve", "--config", &format!("{name}.toml")])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn clusters(dir: &Path, ports: &[u16]) -> Vec<Cluster> {
    let binaries = tokio::task::spawn_blocking(Binaries::find_or_install).await.unwrap().unwrap();
    let _room = room(2).await;
    let mut clusters = Vec::new();
    for (number, name) in NAMES.iter().enumerate() {
        let cluster = Cluster::create(&binaries, &dir.join(name), ports[number * 5 + 4], &[]).await.unwrap();
        cluster.start().await.unwrap();
        clusters.push(cluster);
    }
    clusters
}

#[test]
fn two_regions_by_the_commands_of_a_set_up() {
    run(async {
        let dir: PathBuf = scratch::create("onceway-by-hand").unwrap();
        let _janitor = Janitor::spawn(&program(), &dir, true).unwrap();
        let ports = ports();
        write(&dir, &ports);
        let _clusters = clusters(&dir, &ports).await;
        let ledger = Ledger::create(&dir.join("ledger.jsonl")).unwrap();
        let mut doors = Vec::new();
        for (number, name) in NAMES.iter().enumerate() {
            let address = (Ipv4Addr::LOCALHOST, ports[number * 5 + 3]).into();
            doors.push(Upstream::start(name, address, ledger.clone()).await.unwrap());
        }

        expect(&dir, &["certs", "--out", "certificates", "--region", "north", "--region", "south"], 0).await;
        expect(&dir, &["check", "north.toml", "south.toml"], 0).await;
        let said = expect(&dir, &["store", "check", "--config", "north.toml"], 3).await;
        assert!(said.contains("store init"), "{said}");
        // Rehearsed, each ends as the real one does where it waits.
        let said = expect(&dir, &["store", "init", "--config", "north.toml", "--dry-run"], 0).await;
        assert!(said.contains("pending") && said.ends_with("\nNothing was changed.\n"), "{said}");
        let said = expect(&dir, &["store", "init", "--config", "north.toml"], 3).await;
        assert!(said.contains("pending") && said.contains("south"), "{said}");
        let init = ["store", "init", "--config", "south.toml", "--wait", "60s"];
        expect(&dir, &[&init[..], &["--dry-run"]].concat(), 0).await;
        expect(&dir, &init, 0).await;
        expect(&dir, &["store", "init", "--config", "north.toml", "--wait", "60s"], 0).await;
        for name in ["north.toml", "south.toml"] {
            let said = expect(&dir, &["store", "check", "--config", name], 0).await;
            assert!(!said.contains("pending") && !said.contains("broken"), "{said}");
            // The servers of tests speak no TLS, which is no reason for another exit code.
            assert!(said.contains("\nhint     ssl = off: ") && !said.contains("jit"), "{said}");
            let said = expect(&dir, &["store", "check", "--config", name, "--json"], 0).await;
            let said: serde_json::Value = serde_json::from_str(&said).unwrap();
            let ssl = json!({ "setting": "ssl", "is": "off", "recommended": "on" });
            assert!(said["hints"].as_array().unwrap().contains(&ssl), "{said}");
        }

        let [_north, _south] = [serve(&dir, "north"), serve(&dir, "south")];
        founded(&dir).await;
        for number in 0..2 {
            let admin = format!("http://127.0.0.1:{}", ports[number * 5 + 1]);
            until("the region to serve", async || {
                let said =
                    onceway(&dir, &["status", "--admin", &admin, "--token-file", "token", "--json"]).await;
                let status: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
                status["readiness"]["serves"] == true && status["readiness"]["forwards_to"][0].is_string()
            })
            .await;
            let refused = expect(&dir, &["status", "--admin", &admin], 1).await;
            assert!(refused.contains("--token-file"), "{refused}");
            let shown = expect(&dir, &["status", "--admin", &admin, "--token-file", "token"], 0).await;
            assert!(NAMES.iter().all(|name| shown.contains(name)), "{shown}");
        }
        let said = expect(&dir, &["init", "--config", "south.toml"], 1).await;
        assert!(said.contains("founded"), "{said}");
        let key = key("by-hand");
        let public = |number: usize| format!("http://127.0.0.1:{}", ports[number * 5]);
        let first = ask(post(&public(0), "/v1/charges", &key, BODY)).await;
        let retry = ask(post(&public(1), "/v1/charges", &key, BODY)).await;
        assert_eq!((first.status.as_u16(), &retry.body), (201, &first.body), "{}", first.text());
        assert_eq!((retry.header("idempotent-replayed"), support::effects(&ledger, &key)), ("true", 1));
    });
}

/// Runs `onceway init` until all regions are up. A second founding is refused.
async fn founded(dir: &Path) {
    until("the deployment to be founded", async || {
        let told = onceway(dir, &["init", "--config", "north.toml"]).await;
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(matches!(told.status.code(), Some(0 | 1 | 3)), "{said}");
        told.status.success()
    })
    .await;
}
