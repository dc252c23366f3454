//! A deployment of two regions made by hand, with the commands of a set-up only.
//!
//! The commands are: certificates, `check`, `store init` in the wrong order (it names the missing
//! region, exit code 3), `store check`, `serve`, `status`. `guide.rs` has three regions, on
//! machines of their own. It must not use another way than these commands.

use crate::console::{Desk, hidden};
use crate::support::*;
use onceway_lab::cluster::Cluster;
use onceway_lab::files::RegionFile;
use onceway_lab::janitor::Janitor;
use onceway_lab::ledger::Ledger;
use onceway_lab::ports::{FleetPorts, RegionPorts};
use onceway_lab::scratch;
use onceway_lab::upstream::Upstream;
use tokio::process::{Child, Command};

const NAMES: [&str; 2] = ["north", "south"];

/// The files of the regions, as a user writes them, without certificates: a command makes those.
fn write(dir: &Path, ports: &[RegionPorts]) {
    let names = NAMES.map(|name| RegionName::parse(name).unwrap());
    files::write_shared(dir, &names).unwrap();
    fs::write(dir.join("token"), "letmein-letmein-letmein\n").unwrap();
    let routes = fs::read_to_string(dir.join("routes.toml")).unwrap();
    let settle = "settle_time = \"0s\"\n";
    let routes = routes.replace(settle, &format!("{settle}status_ends_attempt = true\n"));
    fs::write(dir.join("routes.toml"), routes).unwrap();
    // In the north, eve may act. What counts is what the owner's file says.
    let operators = |name: &str, eve: &str| {
        let one = |name: &str, role: &str| {
            let token = format!("{name}-{name}-{name}-{name}-{name}");
            fs::write(dir.join(name), &token).unwrap();
            operator(name, role, &token)
        };
        fs::write(dir.join(format!("{name}.operators")), one("ann", "act") + &one("eve", eve)).unwrap();
    };
    operators("north", "act");
    operators("south", "look");
    for (number, name) in names.iter().enumerate() {
        let (own, other) = (ports[number], ports[1 - number]);
        let at = |port| vec![(names[1 - number].clone(), (Ipv4Addr::LOCALHOST, port).into())];
        let (peers, publishers) = (at(other.peer), at(other.postgres));
        let file = files::write_region(
            dir,
            &RegionFile { name, ports: own, peers, publishers, endpoints: Vec::new() },
        )
        .unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let admin = format!("\n[admin]\ntoken_file = \"token\"\noperators = \"{name}.operators\"\n");
        fs::write(file, text + &admin).unwrap();
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

async fn clusters(dir: &Path, ports: &[RegionPorts]) -> Vec<Cluster> {
    let binaries = tokio::task::spawn_blocking(Binaries::find_or_install).await.unwrap().unwrap();
    let _room = room(2).await;
    let mut clusters = Vec::new();
    for (name, ports) in NAMES.iter().zip(ports) {
        let cluster = Cluster::create(&binaries, &dir.join(name), ports.postgres, &[]).await.unwrap();
        cluster.start().await.unwrap();
        cluster.create_database(files::DATABASE).await.unwrap();
        clusters.push(cluster);
    }
    clusters
}

#[tokio::test(flavor = "multi_thread")]
async fn set_up_commands_alone_make_two_regions() {
    let dir: PathBuf = scratch::create("onceway-by-hand").unwrap();
    let _janitor = Janitor::spawn(&program(), &dir, true).unwrap();
    let ports = FleetPorts::lay_out(port_base(), NAMES.len()).unwrap().regions;
    write(&dir, &ports);
    let _clusters = clusters(&dir, &ports).await;
    let ledger = Ledger::create(&dir.join("ledger.jsonl")).unwrap();
    let mut doors = Vec::new();
    for (name, ports) in NAMES.iter().zip(&ports) {
        let address = (Ipv4Addr::LOCALHOST, ports.upstream).into();
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
        let said: Value = serde_json::from_str(&said).unwrap();
        let ssl = json!({ "setting": "ssl", "is": "off", "recommended": "on" });
        assert!(said["hints"].as_array().unwrap().contains(&ssl), "{said}");
    }

    let [_north, _south] = [serve(&dir, "north"), serve(&dir, "south")];
    founded(&dir).await;
    for ports in &ports {
        let admin = format!("http://127.0.0.1:{}", ports.admin);
        until("the region to serve", async || {
            let said = onceway(&dir, &["status", "--admin", &admin, "--token-file", "token", "--json"]).await;
            let status: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
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
    let public = |number: usize| format!("http://127.0.0.1:{}", ports[number].public);
    let first = ask(post(&public(0), "/v1/charges", &key, BODY)).await;
    let retry = ask(post(&public(1), "/v1/charges", &key, BODY)).await;
    assert_eq!((first.status.as_u16(), &retry.body), (201, &first.body), "{}", first.text());
    assert_eq!((retry.header("idempotent-replayed"), effects(&ledger, &key)), ("true", 1));
    ends_doubts_at_the_owner(&dir, &ports).await;
    acts_on_jobs_elsewhere(&dir, &ports).await;
}

/// Any region passes an act on to the key's owner, which knows the operator by the token and writes
/// the name of its own file into the journal. The other region's word for it is worth nothing.
async fn ends_doubts_at_the_owner(dir: &Path, ports: &[RegionPorts]) {
    let admin = |number: usize| format!("http://127.0.0.1:{}", ports[number].admin);
    let public = |number: usize| format!("http://127.0.0.1:{}", ports[number].public);
    let shown = async |number: usize, key: &str| -> Value {
        let words =
            ["key", "show", "acme", key, "--admin", &admin(number), "--token-file", "token", "--json"];
        serde_json::from_slice(&onceway(dir, &words).await.stdout).unwrap_or_default()
    };
    for (number, token, code, says) in
        [(0, "ann", 0, "released"), (1, "ann", 0, "released"), (0, "eve", 1, "eve may only look")]
    {
        // A key in doubt of the other region.
        let owned = found("a key of the other region", async || {
            let key = key("owned");
            let owner = shown(number, &key).await["owner"].as_str().map(str::to_owned);
            (owner.as_deref() == Some(NAMES[1 - number])).then_some(key)
        })
        .await;
        let doubt = post(&public(number), "/v1/notes", &owned, BODY).with("Demo-Behave", "status=500");
        assert_eq!(ask(doubt).await.status, 500);
        if (number, token) == (0, "ann") {
            // The console passes acts on, too.
            released_on_the_console(dir, &admin(number), &owned).await;
            assert_eq!(shown(1 - number, &owned).await["journal"][0]["actor"], "ann");
            continue;
        }
        let release = ["key", "release", "acme", &owned, "--reason", "a test", "--actor", "mallory"];
        let admin = admin(number);
        let asked = [&release[..], &["--admin", &admin, "--token-file", token]].concat();
        let said = expect(dir, &asked, code).await;
        assert!(said.contains(says), "{said}");
        let journal = shown(1 - number, &owned).await["journal"].clone();
        let actors: Vec<_> = journal.as_array().unwrap().iter().map(|entry| entry["actor"].clone()).collect();
        assert_eq!(actors, vec![json!(token); 1 - usize::try_from(code).unwrap()], "{journal}");
    }
}

/// Releases a key of the other region on a region's console: with a session here, and a token
/// there.
async fn released_on_the_console(dir: &Path, base: &str, key: &str) {
    let token = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let desk = Desk::open(base, &token("ann")).await;
    let page = desk.key(key).await.text();
    assert!(page.contains("you will be asked for your token"), "{page}");
    let [region, seen] = ["region", "seen"].map(|name| hidden(&page, name));
    let fields =
        [("region", &*region), ("tenant", "acme"), ("key", key), ("seen", &seen), ("reason", "a test")];
    let send =
        async |more: &[(&str, &str)]| desk.send("/console/release", &[&fields[..], more].concat()).await;
    let looked = send(&[]).await;
    assert!(looked.status == 200 && looked.text().contains("Nothing was tried yet"), "{}", looked.text());
    let (ann, eve, other) = (token("ann"), token("eve"), "x".repeat(24));
    for (token, status, says) in [
        ("", 400, "show the token"),
        (&other, 503, "not known there by the token"),
        (&eve, 403, "eve may only look"),
    ] {
        let refused = send(&[("token", token), ("confirmed", "yes")]).await;
        assert!(refused.status == status && refused.text().contains(says), "{token}: {}", refused.text());
    }
    let tried = send(&[("token", &ann), ("confirmed", "try")]).await;
    assert!(tried.status == 200 && tried.text().contains("it can be done now"), "{}", tried.text());
    let done = send(&[("token", &ann), ("confirmed", "yes")]).await;
    assert_eq!(done.status, 303, "{}", done.text());
}

/// Each region lists the jobs of all, and passes an act on to the region of the job.
async fn acts_on_jobs_elsewhere(dir: &Path, ports: &[RegionPorts]) {
    let admin = |number: usize| format!("http://127.0.0.1:{}", ports[number].admin);
    let listed = async |number: usize, here: bool| -> Vec<Value> {
        let admin = admin(number);
        let words = ["jobs", "--admin", &admin, "--token-file", "token", "--json"];
        let words = [&words[..], if here { &["--here"] } else { &[] }].concat();
        let page: Value = serde_json::from_slice(&onceway(dir, &words).await.stdout).unwrap_or_default();
        page["jobs"].as_array().cloned().unwrap_or_default()
    };
    let key = found("a job of the south", async || {
        let key = key("job");
        let public = format!("http://127.0.0.1:{}", ports[1].public);
        let request = post(&public, "/v1/emails", &key, BODY).with("Demo-Behave", "status=503");
        let request = request.with("Prefer", "respond-async");
        assert_eq!(ask(request).await.status, 202);
        let own = listed(1, true).await;
        own.iter().any(|job| job["key"] == *key).then_some(key)
    })
    .await;
    assert!(listed(0, true).await.iter().all(|job| job["key"] != *key));
    let all = listed(0, false).await;
    assert_eq!(all.iter().find(|job| job["key"] == *key).unwrap()["region"], "south", "{all:?}");
    let base = admin(0);
    let desk = Desk::open(&base, &fs::read_to_string(dir.join("ann")).unwrap()).await;
    assert!(desk.page("/console").await.text().contains(&*key));
    let text = desk.page(&format!("/console/job?region=south&tenant=acme&key={key}")).await.text();
    assert!(text.contains("Give it up: drop") && text.contains("you will be asked for your token"), "{text}");
    let drop = ["jobs", "drop", "acme", &*key, "--region", "south", "--reason", "a test", "--admin", &base];
    let of = async |token: &str| onceway(dir, &[&drop[..], &["--token-file", token]].concat()).await;
    let refused = of("eve").await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("eve may only look"), "{refused:?}");
    // A worker may have it at this moment.
    until("the job to be dropped", async || of("ann").await.status.success()).await;
    assert!(listed(1, true).await.iter().all(|job| job["key"] != *key));
}

/// Runs `onceway init` until all regions are up. A second founding is refused.
async fn founded(dir: &Path) {
    until("the deployment to be founded", async || {
        let ended = onceway(dir, &["init", "--config", "north.toml"]).await;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(matches!(ended.status.code(), Some(0 | 1 | 3)), "{said}");
        ended.status.success()
    })
    .await;
}
