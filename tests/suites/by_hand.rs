//! A deployment of two regions made by hand, with the commands of a set-up only, `store init` in
//! the wrong order. `guide.rs` has three regions, on machines of their own.

use crate::console::{Desk, hidden};
use crate::support::*;
use onceway_lab::files::RegionFile;
use tokio::process::{Child, Command};

const NAMES: [&str; 2] = ["north", "south"];

/// The files of the regions, as a user writes them, without certificates: a command makes those.
pub fn write(dir: &Path, ports: &[RegionPorts]) {
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
        let file = RegionFile { name, ports: own, peers, publishers, endpoints: Vec::new() };
        let file = files::write_region(dir, &file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let admin = format!("\n[admin]\ntoken_file = \"token\"\noperators = \"{name}.operators\"\n");
        fs::write(file, text + &admin).unwrap();
    }
}

struct Pair {
    dir: PathBuf,
    ports: Vec<RegionPorts>,
}

impl Pair {
    fn admin(&self, number: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[number].admin)
    }

    fn public(&self, number: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[number].public)
    }

    fn token(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap()
    }

    async fn onceway(&self, args: &[&str]) -> Output {
        Command::new(program()).args(args).current_dir(&self.dir).output().await.unwrap()
    }

    async fn expect(&self, args: &[&str], code: i32, says: &str) -> String {
        let output = self.onceway(args).await;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(says), "onceway {args:?}: {said}");
        said
    }

    async fn json(&self, number: usize, args: &[&str]) -> Value {
        let more = ["--admin", &self.admin(number), "--token-file", "token", "--json"];
        let output = self.onceway(&[args, &more].concat()).await;
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}

fn serve(dir: &Path, name: &str) -> Child {
    let log = fs::File::create(dir.join(format!("{name}.log"))).unwrap();
    let mut command = Command::new(program());
    command.args(["serve", "--config", &format!("{name}.toml")]).current_dir(dir);
    command.stdin(Stdio::null()).stderr(log).kill_on_drop(true).spawn().unwrap()
}

async fn clusters(dir: &Path, ports: &[RegionPorts]) -> Vec<Cluster> {
    let _room = room(2).await;
    let mut clusters = Vec::new();
    for (name, ports) in NAMES.iter().zip(ports) {
        let cluster = postgres(&dir.join(name), ports.postgres, &[]).await;
        cluster.create_database(DATABASE).await.unwrap();
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
    let pair = Pair { dir, ports };
    let mut doors = Vec::new();
    for (name, ports) in NAMES.iter().zip(&pair.ports) {
        let address = (Ipv4Addr::LOCALHOST, ports.upstream).into();
        doors.push(Upstream::start(name, address, ledger.clone()).await.unwrap());
    }

    let certs = ["certs", "--out", "certificates", "--region", "north", "--region", "south"];
    pair.expect(&certs, 0, "").await;
    pair.expect(&["check", "north.toml", "south.toml"], 0, "").await;
    pair.expect(&["store", "check", "--config", "north.toml"], 3, "store init").await;
    // Rehearsed, each ends as the real one does where it waits.
    let said = pair.expect(&["store", "init", "--config", "north.toml", "--dry-run"], 0, "pending").await;
    assert!(said.ends_with("\nNothing was changed.\n"), "{said}");
    let said = pair.expect(&["store", "init", "--config", "north.toml"], 3, "pending").await;
    assert!(said.contains("south"), "{said}");
    let init = ["store", "init", "--config", "south.toml", "--wait", "60s"];
    pair.expect(&[&init[..], &["--dry-run"]].concat(), 0, "").await;
    pair.expect(&init, 0, "").await;
    pair.expect(&["store", "init", "--config", "north.toml", "--wait", "60s"], 0, "").await;
    for name in ["north.toml", "south.toml"] {
        // The servers of tests speak no TLS, which is no reason for another exit code.
        let check = ["store", "check", "--config", name];
        let said = pair.expect(&check, 0, "\nhint     ssl = off: ").await;
        assert!(["pending", "broken", "jit"].iter().all(|word| !said.contains(word)), "{said}");
        let said = pair.expect(&[&check[..], &["--json"]].concat(), 0, "").await;
        let said: Value = serde_json::from_str(&said).unwrap();
        let ssl = json!({ "setting": "ssl", "is": "off", "recommended": "on" });
        assert!(said["hints"].as_array().unwrap().contains(&ssl), "{said}");
    }

    let [_north, _south] = [serve(&pair.dir, "north"), serve(&pair.dir, "south")];
    until("all regions to be up, and the deployment to be founded", async || {
        let ended = pair.onceway(&["init", "--config", "north.toml"]).await;
        assert!(matches!(ended.status.code(), Some(0 | 1 | 3)), "{}", err(&ended));
        ended.status.success()
    })
    .await;
    for number in 0..2 {
        until("the region to serve", async || {
            let readiness = pair.json(number, &["status"]).await["readiness"].clone();
            readiness["serves"] == true && readiness["forwards_to"][0].is_string()
        })
        .await;
        let status = ["status", "--admin", &pair.admin(number)];
        pair.expect(&status, 1, "--token-file").await;
        let shown = pair.expect(&[&status[..], &["--token-file", "token"]].concat(), 0, NAMES[0]).await;
        assert!(shown.contains(NAMES[1]), "{shown}");
    }
    pair.expect(&["init", "--config", "south.toml"], 1, "founded").await;
    let key = key("by-hand");
    let first = ask(post(&pair.public(0), "/v1/charges", &key, BODY)).await;
    let retry = ask(post(&pair.public(1), "/v1/charges", &key, BODY)).await;
    assert_eq!((first.status.as_u16(), &retry.body), (201, &first.body), "{}", first.text());
    assert_eq!((retry.header("idempotent-replayed"), effects(&ledger, &key)), ("true", 1));
    ends_doubts_at_the_owner(&pair).await;
    acts_on_jobs_elsewhere(&pair).await;
}

/// Any region passes an act on to the key's owner, which knows the operator by the token and writes
/// the name of its own file into the journal. The other region's word for it is worth nothing.
async fn ends_doubts_at_the_owner(pair: &Pair) {
    let shown = async |number: usize, key: &str| pair.json(number, &["key", "show", "acme", key]).await;
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
        let doubt = post(&pair.public(number), "/v1/notes", &owned, BODY).with("Demo-Behave", "status=500");
        assert_eq!(ask(doubt).await.status, 500);
        if (number, token) == (0, "ann") {
            // The console passes acts on, too.
            released_on_the_console(pair, &pair.admin(number), &owned).await;
            assert_eq!(shown(1 - number, &owned).await["journal"][0]["actor"], "ann");
            continue;
        }
        let release = ["key", "release", "acme", &owned, "--reason", "a test", "--actor", "mallory"];
        let more = ["--admin", &pair.admin(number), "--token-file", token];
        pair.expect(&[&release[..], &more].concat(), code, says).await;
        let journal = shown(1 - number, &owned).await["journal"].clone();
        let actors: Vec<_> = journal.as_array().unwrap().iter().map(|entry| entry["actor"].clone()).collect();
        assert_eq!(actors, vec![json!(token); 1 - usize::try_from(code).unwrap()], "{journal}");
    }
}

/// With a session here, and a token there.
async fn released_on_the_console(pair: &Pair, base: &str, key: &str) {
    let desk = Desk::open(base, &pair.token("ann")).await;
    let page = desk.key(key).await.text();
    assert!(page.contains("you will be asked for your token"), "{page}");
    let [region, seen] = ["region", "seen"].map(|name| hidden(&page, name));
    let fields =
        [("region", &*region), ("tenant", "acme"), ("key", key), ("seen", &seen), ("reason", "a test")];
    let send =
        async |more: &[(&str, &str)]| desk.send("/console/release", &[&fields[..], more].concat()).await;
    let looked = send(&[]).await;
    assert!(looked.status == 200 && looked.text().contains("Nothing was tried yet"), "{}", looked.text());
    let (ann, eve, other) = (pair.token("ann"), pair.token("eve"), "x".repeat(24));
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
async fn acts_on_jobs_elsewhere(pair: &Pair) {
    let listed = async |number: usize, here: bool| -> Vec<Value> {
        let words = if here { &["jobs", "--here"][..] } else { &["jobs"] };
        pair.json(number, words).await["jobs"].as_array().cloned().unwrap_or_default()
    };
    let key = found("a job of the south", async || {
        let key = key("job");
        let request = post(&pair.public(1), "/v1/emails", &key, BODY).with("Demo-Behave", "status=503");
        let request = request.with("Prefer", "respond-async");
        assert_eq!(ask(request).await.status, 202);
        let own = listed(1, true).await;
        own.iter().any(|job| job["key"] == *key).then_some(key)
    })
    .await;
    assert!(listed(0, true).await.iter().all(|job| job["key"] != *key));
    let all = listed(0, false).await;
    assert_eq!(all.iter().find(|job| job["key"] == *key).unwrap()["region"], "south", "{all:?}");
    let base = pair.admin(0);
    let desk = Desk::open(&base, &pair.token("ann")).await;
    assert!(desk.page("/console").await.text().contains(&*key));
    let text = desk.page(&format!("/console/job?region=south&tenant=acme&key={key}")).await.text();
    assert!(text.contains("Give it up: drop") && text.contains("you will be asked for your token"), "{text}");
    let drop = ["jobs", "drop", "acme", &*key, "--region", "south", "--reason", "a test", "--admin", &base];
    let of = async |token: &str| pair.onceway(&[&drop[..], &["--token-file", token]].concat()).await;
    ends(&of("eve").await, 1, "eve may only look");
    // A worker may have it at this moment.
    until("the job to be dropped", async || of("ann").await.status.success()).await;
    assert!(listed(1, true).await.iter().all(|job| job["key"] != *key));
}
