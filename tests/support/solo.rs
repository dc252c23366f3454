//! One region alone: a Postgres, a gateway process and a sample upstream, with routes of the test's
//! choosing. It is made as a user would make it: files, `store init`, `serve`.
//!
//! A ring of one region has no peers, so everything happens at the owner. [`solo`] is one whose
//! console asks for a token.

use super::*;
use tokio::sync::{Mutex, MutexGuard};

pub struct Solo {
    pub region: Region,
    pub ledger: Arc<Ledger>,
    pub dir: PathBuf,
    _upstream: Upstream,
    _janitor: Janitor,
}

/// Policies short enough for tests: the least that the configuration allows.
pub const POLICY: &str =
    "hold = \"6s\"\nwait = \"1s\"\nupstream_timeout = \"1s\"\nsettle_time = \"0s\"\nbody_limit = \"64KiB\"\n";

pub fn keyed(name: &str, lines: &str) -> String {
    route(name, &format!("key = \"required\"\n{POLICY}{lines}"))
}

/// The demo's routes under [`POLICY`], and one that forgets soon.
pub fn routes() -> String {
    [
        keyed("charges", "recovery = \"probe\"\nprobe = \"/onceway/effects\""),
        keyed("payouts", "recovery = \"park\"\nretention = \"7s\""),
        keyed("emails", "recovery = \"rerun\"\nmax_attempts = 3"),
        keyed("notes", "recovery = \"park\"").replace("required", "optional"),
        route("blobs", "key = \"off\""),
    ]
    .concat()
}

impl Solo {
    /// Starts it until it serves. The gateway's upstream is `upstream`, or the sample one.
    pub async fn start(routes: &str, upstream: Option<SocketAddr>) -> Solo {
        Self::start_with(routes, upstream, |_| {}).await
    }

    /// Like [`Solo::start`]; `edit` may change the files before anything reads them.
    pub async fn start_with(routes: &str, upstream: Option<SocketAddr>, edit: impl FnOnce(&Path)) -> Solo {
        let _room = room(1).await;
        let name = RegionName::parse("solo").expect("a name");
        let dir = scratch::create("onceway-solo").expect("a scratch folder");
        let janitor = Janitor::spawn(&program(), &dir, true).expect("a janitor");
        let ports = FleetPorts::lay_out(port_base(), 1).expect("a layout").regions[0];
        let ledger = Ledger::create(&dir.join("ledger.jsonl")).expect("a ledger");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.upstream));
        let door = Upstream::start("solo", address, ledger.clone()).await.expect("an upstream");
        let names = std::slice::from_ref(&name);
        files::write_shared(&dir, names).expect("shared files");
        files::certify(&program(), &dir, "certificates", names).expect("certificates");
        fs::write(dir.join("routes.toml"), routes).expect("routes");
        let upstream = upstream.map_or(ports.upstream, |address| address.port());
        let seen = RegionPorts { upstream, ..ports };
        let (peers, publishers, endpoints) = (Vec::new(), Vec::new(), Vec::new());
        let file = files::RegionFile { name: &name, ports: seen, peers, publishers, endpoints };
        let file = files::write_region(&dir, &file).expect("a region file");
        edit(&dir);
        let cluster = postgres(&dir.join("postgres"), ports.postgres, &[]).await;
        cluster.create_database(files::DATABASE).await.expect("a database");
        let serve = ["serve".into(), "--config".into(), file.into_os_string()];
        let region = Region::new(name, ports, cluster, launch(program(), serve, &dir, "gateway.log"));
        region.provision(PATIENCE).await.expect("provisioning");
        region.act(Action::Start, Part::Gateway).await.expect("the gateway starts");
        region.found(PATIENCE).await.expect("the register is founded");
        let solo = Solo { region, ledger, dir, _upstream: door, _janitor: janitor };
        solo.serves().await;
        solo
    }

    /// Like [`Solo::start`], with these lines at the end of its file.
    pub async fn start_adding(routes: &str, upstream: Option<SocketAddr>, lines: &str) -> Solo {
        Self::start_with(routes, upstream, |dir| add_lines(dir, lines)).await
    }

    pub async fn serves(&self) {
        until("the region to serve", async || {
            let ready = Ask::get(format!("{}/readyz", self.region.admin())).send(PATIENCE).await;
            ready.is_ok_and(|ready| ready.json()["serves"] == true)
        })
        .await;
    }

    pub fn public(&self) -> String {
        self.region.public()
    }
}

pub fn add_lines(dir: &Path, lines: &str) {
    let file = dir.join("solo.toml");
    let written = fs::read_to_string(&file).expect("the region's file");
    fs::write(&file, format!("{written}\n{lines}")).expect("the region's file");
}

/// The token of [`solo`]'s admin listener.
pub const TOKEN: &str = "letmein-letmein-letmein";
/// The token of ann, who may approve.
pub const ANN: &str = "ann-ann-ann-ann-ann";
/// The token of bob, who may act.
pub const BOB: &str = "bob-bob-bob-bob-bob";
/// The token of eve, who may only look.
pub const EVE: &str = "eve-eve-eve-eve-eve";

/// A region alone whose admin listener asks for a token. All tests of this process share it.
pub async fn solo() -> &'static Solo {
    static SOLO: OnceCell<Solo> = OnceCell::const_new();
    SOLO.get_or_init(start).await
}

pub async fn start() -> Solo {
    let settle = "settle_time = \"0s\"\n";
    let routes = routes().replace(settle, &format!("{settle}status_ends_attempt = true\n"));
    Solo::start_with(&routes, None, |dir| {
        fs::write(dir.join("token"), TOKEN).unwrap();
        let named = [("ann", "approve", ANN), ("bob", "act", BOB), ("eve", "look", EVE)];
        let named = named.map(|(name, role, token)| operator(name, role, token)).concat();
        fs::write(dir.join("operators.toml"), named).unwrap();
        add_lines(dir, "[admin]\ntoken_file = \"token\"\noperators = \"operators.toml\"\n");
    })
    .await
}

/// The lock of tests that look at all keys of [`solo`] or stop its store, and of the disturbed.
pub async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}

/// Makes a key in doubt whose attempt is over: its upstream's status said nothing.
pub async fn doubt(public: &str, key: &str) -> Answer {
    let request = post(public, "/v1/payouts", &format!("\"{key}\""), BODY).with("Demo-Behave", "status=500");
    let answer = ask(request).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    answer
}

pub async fn retry(public: &str, key: &str) -> Answer {
    ask(post(public, "/v1/payouts", &format!("\"{key}\""), BODY)).await
}
