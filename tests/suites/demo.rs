//! `onceway demo` as people and outside programs use it: its ready line, its control listener, and
//! its removal of all traces.
//!
//! The contract is `onceway demo --help`. The guided tour itself runs in `.ci/run`.

use crate::support::*;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

struct Demo {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    ready: Value,
    temp: TempDir,
}

impl Demo {
    /// Its scratch folder is in a folder of this test's, so that leftovers are seen.
    async fn start(base: u16) -> Demo {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let _room = room(3).await;
        let mut command = Command::new(program());
        command.args(["demo", "--no-tour", "--json", "--rtt", "20ms", "--port-base", &base.to_string()]);
        command.env("TMPDIR", temp.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("a ready line");
        let ready: Value = serde_json::from_str(&line).expect("one JSON line");
        assert_eq!(ready["ready"], true, "{line}");
        Demo { child, lines, ready, temp }
    }

    async fn event(&mut self) -> Value {
        let line = tokio::time::timeout(BOUND, self.lines.next_line()).await.expect("an event in time");
        serde_json::from_str(&line.unwrap().expect("an event")).unwrap()
    }

    fn url(&self, region: usize, what: &str) -> String {
        self.ready["regions"][region][what].as_str().expect("an address").to_owned()
    }

    async fn control(&self, path: &str) -> Answer {
        let url = format!("{}{path}", self.ready["control"].as_str().unwrap());
        let reads = path.starts_with("/ledger") || path == "/regions";
        ask(if reads { Ask::get(url) } else { Ask::post(url, "") }).await
    }

    async fn end(&mut self, signal: Signal) -> Option<i32> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("a pid");
        rustix::process::kill_process(pid, signal).unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        ended.expect("it ends within 30 s").unwrap().code()
    }

    fn pids(regions: &Value) -> Vec<u64> {
        let of = |region: &Value| [region["gateway_pid"].as_u64(), region["postgres_pid"].as_u64()];
        regions.as_array().unwrap().iter().flat_map(of).flatten().collect()
    }
}

fn alive(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok()
}

fn left_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ready_line_and_the_controls_keep_their_contract() {
    let base = port_base();
    let mut demo = Demo::start(base).await;
    assert_eq!(demo.ready["control"], format!("http://127.0.0.1:{base}"));
    for (number, name) in ["us-east", "eu-west", "ap-south"].into_iter().enumerate() {
        let port = |offset: usize| usize::from(base) + 10 * number + offset;
        let region = &demo.ready["regions"][number];
        assert_eq!(region["name"], name);
        for (part, offset) in [("public", 1), ("admin", 2), ("upstream", 4)] {
            assert_eq!(region[part], format!("http://127.0.0.1:{}", port(offset)), "{part}");
        }
        assert_eq!(region["postgres"], format!("postgres://postgres@127.0.0.1:{}/onceway", port(5)));
    }

    // A web page asks in vain.
    let url = format!("{}/regions/us-east/kill", demo.ready["control"].as_str().unwrap());
    let answer = ask(Ask::post(url, "").with("Origin", "https://elsewhere.example")).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    let pids = Demo::pids(&demo.ready["regions"]);
    assert!(pids.len() == 6 && pids.into_iter().all(alive), "{}", demo.ready);
    ledger_is_kept(&demo).await;
    parts_are_controlled(&mut demo).await;
    links_are_controlled(&mut demo).await;
    endpoints_are_controlled(&mut demo).await;
    assert_eq!(demo.end(Signal::TERM).await, Some(0));
}

async fn ledger_is_kept(demo: &Demo) {
    let key = key("demo");
    let charge = || post(&demo.url(0, "public"), "/v1/charges", &key, BODY);
    assert_eq!(ask(charge()).await.status, 201);
    assert_eq!(ask(charge()).await.header("idempotent-replayed"), "true");
    let one = demo.control(&format!("/ledger?key={key}")).await.json();
    assert_eq!([&one[0]["key"], &one[0]["tenant"]], [key.as_str(), "acme"]);
    assert_eq!((one[0]["effects"].as_u64(), one[0]["regions"].as_array().unwrap().len()), (Some(1), 1));
    assert_eq!(demo.control("/ledger").await.json().as_array().unwrap().len(), 1);
}

async fn parts_are_controlled(demo: &mut Demo) {
    let before = demo.ready["regions"][1]["gateway_pid"].as_u64().unwrap();
    let states = [
        ("kill?part=gateway", "down", "running"),
        ("start", "running", "running"),
        ("start", "running", "running"),
        ("pause?part=postgres", "running", "paused"),
        ("resume", "running", "running"),
        ("stop", "down", "down"),
        ("start", "running", "running"),
    ];
    for (action, gateway, postgres) in states {
        let done = demo.control(&format!("/regions/eu-west/{action}")).await;
        assert_eq!(done.status, 200, "{action}: {}", done.text());
        let now = demo.control("/regions").await.json()[1].clone();
        assert_eq!([&now["gateway"], &now["postgres_state"]], [gateway, postgres], "{action}");
        let event = demo.event().await;
        assert_eq!([&event["event"], &event["region"]], ["region", "eu-west"], "{action}");
    }
    assert_ne!(demo.control("/regions").await.json()[1]["gateway_pid"].as_u64(), Some(before));
}

async fn links_are_controlled(demo: &mut Demo) {
    for path in [
        "us-east/eu-west/cut",
        "us-east/eu-west/freeze?oneway=1",
        "us-east/eu-west/heal",
        "us-east/ap-south?rtt=40ms",
    ] {
        assert_eq!(demo.control(&format!("/links/{path}")).await.status, 200, "{path}");
        assert_eq!(demo.event().await["event"], "link");
    }
    for path in [
        "/regions/mars/kill",
        "/regions/us-east/explode",
        "/links/us-east/mars/cut",
        "/links/us-east/eu-west",
    ] {
        assert!(demo.control(path).await.status.is_client_error(), "{path}");
    }
}

/// With one of its two endpoints killed, each region's upstream goes on.
async fn endpoints_are_controlled(demo: &mut Demo) {
    for region in ["us-east", "eu-west", "ap-south"] {
        let killed = demo.control(&format!("/endpoints/{region}/2/kill")).await;
        assert_eq!(killed.status, 200, "{}", killed.text());
        let address = killed.json()["address"].as_str().unwrap().replace("https://", "");
        assert!(TcpStream::connect(&address).await.is_err(), "it still listens");
        assert_eq!(demo.event().await["event"], "endpoint");
    }
    for number in 0..6 {
        let key = key("endpoints");
        // A region that was just started refuses for a moment.
        until("a payment to be made", async || {
            let charge = ask(post(&demo.url(number % 3, "public"), "/v1/charges", &key, BODY)).await;
            assert!([201, 503].contains(&charge.status.as_u16()), "{}", charge.text());
            charge.status == 201
        })
        .await;
    }
    let started = demo.control("/endpoints/us-east/2/start").await;
    let address = started.json()["address"].as_str().unwrap().replace("https://", "");
    assert!(TcpStream::connect(&address).await.is_ok());
    for path in ["/endpoints/mars/1/kill", "/endpoints/us-east/3/kill", "/endpoints/us-east/1/cut"] {
        assert_eq!(demo.control(path).await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named() {
    let base = port_base();
    let _taken = TcpListener::bind(("127.0.0.1", base + 12)).await.unwrap();
    let demo = ["demo", "--exit", "--port-base", &base.to_string()];
    let output = Command::new(program()).args(demo).output().await.unwrap();
    ends(&output, 1, &format!("port {} (admin of eu-west) is taken", base + 12));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_or_a_kill_leaves_nothing_behind() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let mut demo = Demo::start(port_base()).await;
        let pids = Demo::pids(&demo.ready["regions"]);
        assert_eq!((pids.len(), left_in(demo.temp.path()).len()), (6, 1));
        let code = demo.end(signal).await;
        assert_eq!(code, (signal != Signal::KILL).then_some(0), "{signal:?}");
        let gone = async || pids.iter().all(|pid| !alive(*pid)) && left_in(demo.temp.path()).is_empty();
        until("its processes and files to be gone", gone).await;
    }
}
