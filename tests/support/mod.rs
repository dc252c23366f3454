//! Shared parts of the suites: one runtime per test process, a region of its own ([`solo`]), a
//! whole deployment, and requests. All run as real processes through `onceway_lab`, on free ports
//! and in scratch folders. A janitor removes both when the test process ends, however it ends.

#![allow(dead_code, unused_imports, reason = "each suite uses its own part")]

pub mod clients;
pub mod documents;
pub mod promtool;
pub mod said;
pub mod solo;

pub use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
pub use std::fs::{self, File};
use std::future::Future;
use std::io::Write;
pub use std::net::{Ipv4Addr, SocketAddr};
pub use std::os::unix::fs::PermissionsExt;
pub use std::path::{Path, PathBuf};
pub use std::pin::Pin;
pub use std::process::{Command, Output, Stdio};
pub use std::sync::atomic::Ordering::{self, SeqCst};
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
pub use std::sync::{Arc, LazyLock, Mutex, OnceLock};
pub use std::time::{Duration, Instant, SystemTime};

pub use base64::Engine;
pub use base64::engine::general_purpose::STANDARD;
pub use bytes::Bytes;
pub use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
pub use http_body_util::BodyExt;
pub use hyper::body::Incoming;
pub use hyper_util::rt::TokioIo;
pub use onceway::adapters::identity::{PeerIdentity, files_in};
pub use onceway::adapters::peers::HttpPeers;
pub use onceway::adapters::system::SystemClock;
pub use onceway::adapters::upstream::{Tls, TlsFiles};
pub use onceway::config::Config;
use onceway::gateway::credentials::digest;
pub use onceway::ports::{Body, KeyStore, Peers, Replica};
pub use onceway::protocol::key::{Key, KeyId, Tenant};
pub use onceway::protocol::record::{Nonce, RequestId, Token};
pub use onceway::protocol::region::{Origin, RegionName};
pub use onceway::protocol::speakers::{Kind, Sender};
pub use onceway::protocol::time::Date;
pub use onceway_client::{Answer, Ask, Connections};
pub use onceway_lab::binaries::Binaries;
pub use onceway_lab::cluster::Cluster;
pub use onceway_lab::deployment::{Deployment, Options};
pub use onceway_lab::files::{self, DATABASE, GATEWAY_ROLE, TENANTS};
pub use onceway_lab::gateway::Action;
pub use onceway_lab::janitor::Janitor;
pub use onceway_lab::ledger::Ledger;
pub use onceway_lab::ports::{FleetPorts, RegionPorts, free_run};
pub use onceway_lab::process::{Launch, Process};
pub use onceway_lab::region::{Part, Region};
pub use onceway_lab::relay::{Direction, Relay};
pub use onceway_lab::upstream::Upstream;
pub use onceway_lab::{ports, scratch, wait};
pub use rustix::process::{Pid, Signal, kill_process};
pub use serde::Deserialize;
pub use serde_json::{Value, json};
pub use solo::{Solo, routes};
pub use tempfile::TempDir;
pub use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
pub use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
pub use tokio::sync::OnceCell;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit};
pub use tokio::task::JoinSet;
pub use tokio::time::timeout;
pub use tokio_postgres::Client;

/// The time limit for any one answer in a test.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit for a condition in a test.
pub const BOUND: Duration = Duration::from_secs(120);
pub const BODY: &str = r#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#;
pub const OTHER_BODY: &str = r#"{"amount":9900,"currency":"usd","source":"tok_visa"}"#;

/// Runs a test on the one runtime of this process, where servers live on for the next test.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime")).block_on(Box::pin(test))
}

pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_onceway"))
}

/// A process that does not outlive its test.
pub struct Mortal(pub std::process::Child);

impl Drop for Mortal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

static MACHINE: RwLock<()> = RwLock::const_new(());

/// Room to start so many regions, at most three, for as long as the permit is kept. A start is a
/// second of work for a core, and one without a core looks like a failure.
pub async fn room(regions: u32) -> SemaphorePermit<'static> {
    static ROOM: Semaphore = Semaphore::const_new(3);
    ROOM.acquire_many(regions).await.expect("nobody closes it")
}

/// Room beside the tests of the long tier that only wait: as many at a time as there are threads.
pub async fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// The machine for a test that keeps up a load: starved ones look like failures.
pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

/// A first port above which a whole deployment fits, and the machines of one more region, free now.
pub fn port_base() -> u16 {
    ports::free_run(40).expect("forty free ports in a row")
}

/// The demo's rules with a shorter wait before a return. Many tests of one deployment break it, and
/// each loss after the third doubles that wait.
pub const FAILOVER: &str = "\n[failover]\nlease = \"3s\"\nfloor = \"1s\"\nstable_for = \"100ms\"\n";

/// A deployment of three regions, for one test or one suite.
pub async fn deployment(rtt: Duration) -> Deployment {
    deployment_with(rtt, None, FAILOVER).await
}

/// The same, with routes of the test's choosing, and other waits: the text of its `[failover]`.
pub async fn deployment_with(rtt: Duration, routes: Option<String>, failover: &str) -> Deployment {
    let _room = room(3).await;
    Deployment::start(&options(rtt, routes, failover), &|_| {}).await.expect("three regions start")
}

pub fn options(rtt: Duration, routes: Option<String>, failover: &str) -> Options {
    let failover = Some(failover.to_owned());
    let (program, port_base) = (program(), port_base());
    Options { program, port_base, rtt, routes, failover, ..Options::default() }
}

pub fn route(name: &str, lines: &str) -> String {
    format!("[[route]]\nname = \"{name}\"\nmethods = [\"POST\"]\npath = \"/v1/{name}\"\n{lines}\n\n")
}

/// A key that no other test of this process uses.
pub fn key(word: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{word}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst))
}

pub fn post(public: &str, path: &str, key: &str, body: &str) -> Ask {
    Ask::post(format!("{public}{path}"), body.to_owned())
        .with("Authorization", "Bearer sk_demo_acme")
        .with("Idempotency-Key", key)
}

/// Sends, and expects an answer. As clients do, the test repeats what a region without authority
/// refused: a lease can end on a busy machine, and arcs move while another region is away.
pub async fn ask(ask: Ask) -> Answer {
    let answered = || async {
        let answer = ask.send(PATIENCE).await?;
        let without = ["not-authoritative", "moving"].map(Value::from);
        let refused = answer.status == 503 && without.contains(&answer.json()["code"]);
        Ok((!refused).then_some(answer))
    };
    wait::for_some("an answer of a region that has authority", BOUND, answered).await.expect("an answer")
}

pub fn code(answer: &Answer) -> String {
    assert_eq!(answer.header("content-type"), "application/problem+json", "{}", answer.text());
    let json = answer.json();
    assert_eq!(json["status"], answer.status.as_u16(), "{json}");
    assert_eq!(json["type"], format!("urn:onceway:problem:{}", json["code"].as_str().expect("a code")));
    assert!(json["safe_to_retry"].is_boolean() && json["documentation"].is_string(), "{json}");
    if let Some(after) = json["retry_after"].as_u64() {
        assert_eq!(answer.header("retry-after"), after.to_string());
    }
    json["code"].as_str().expect("a code").to_owned()
}

pub fn effects(ledger: &Ledger, key: &str) -> u64 {
    ledger.totals(Some(key)).iter().map(|total| total.effects).sum()
}

/// The admin listener's report of a key of acme.
pub async fn key_status(region: &Region, key: &str) -> serde_json::Value {
    ask(Ask::get(format!("{}/v1/keys/acme/{key}", region.admin()))).await.json()
}

/// A new key whose home is this region.
pub async fn key_at(home: &Region, word: &str) -> String {
    loop {
        let candidate = key(word);
        if key_status(home, &candidate).await["order"][0] == home.name.as_str() {
            return candidate;
        }
    }
}

pub fn sha256(token: &str) -> String {
    digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A key whose home is this region, once it serves: after a fault it first has to come home.
pub async fn homed_at(fleet: &Deployment, home: usize, word: &str) -> String {
    let (there, elsewhere) = (&fleet.regions[home], &fleet.regions[(home + 1) % 3]);
    found("a key that is at home", async || {
        let key = key(word);
        let owned = key_status(elsewhere, &key).await["owner"] == there.name.as_str();
        let at_home = owned && key_status(there, &key).await["owner"] == there.name.as_str();
        (at_home && there.serves().await.is_ok()).then_some(key)
    })
    .await
}

/// Two regions' rows say that they settled the key `silent`, and no claim names a risk: a bug.
pub async fn settled_twice(client: &Client, origins: [&str; 2]) {
    let rows = "insert into onceway.records (tenant, key, origin, state, epoch, attempt, nonce, fp_raw, request_id, answer_status, \
                answer_headers, held_at, held_ms, hold_ms, settle_ms, recovery, settled_at, expires_at, due_ms) \
                select 'acme', 'silent', origin, 4, 1, 1, gen_random_uuid(), sha256('x'), gen_random_uuid(), 201, '\\x01', now(), 0, 0, 0, 0, \
                now(), now() + interval '1 day', 86400000 from unnest($1::text[]) as origin";
    client.execute(rows, &[&&origins[..]]).await.unwrap();
}

/// The section of an operator with this token.
pub fn operator(name: &str, role: &str, token: &str) -> String {
    format!("[[operator]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{}\"\n", sha256(token))
}

pub fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Says on stderr, where no harness swallows it, that this could not be checked. With
/// ONCEWAY_TOOLS=all, as `.ci/run` sets it, it is a failure.
pub fn not_checked(what: &str) {
    assert!(std::env::var("ONCEWAY_TOOLS").as_deref() != Ok("all"), "{what}");
    let line = format!("NOT CHECKED: {what}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr can be written to");
}

/// Asks until there is an answer. The question is boxed: a test's stack has no room for the copies
/// that code without optimization makes of it.
pub async fn found<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let attempt = || {
        let answer = Box::pin(ask());
        async move { Ok(answer.await) }
    };
    wait::for_some(what, BOUND, attempt).await.expect(what)
}

pub async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let held = || {
        let held = Box::pin(condition());
        async move { held.await.then_some(()) }
    };
    found(what, held).await;
}

pub async fn becomes(region: &Region, key: &str, state: &str) {
    until(&format!("{key} to be {state}"), async || key_status(region, key).await["state"] == state).await;
}

pub async fn metrics(region: &Region) -> String {
    ask(Ask::get(format!("{}/metrics", region.admin()))).await.text()
}

/// The log of a region's gateway with all lines until now: a gateway writes them a little later.
pub async fn log(region: &Region) -> String {
    static MARKS: AtomicU64 = AtomicU64::new(1);
    // A stranger's question under a trace of its own. Lines stand in their order.
    let mark = format!("{:032x}", (0xfeed_u128 << 112) + u128::from(MARKS.fetch_add(1, Ordering::Relaxed)));
    let question = Ask::get(format!("{}/.well-known/onceway/requests/mark", region.public()));
    assert_eq!(ask(question.with("Traceparent", format!("00-{mark}-00f067aa0ba902b7-01"))).await.status, 401);
    let log = || fs::read_to_string(region.gateway_log()).expect("a log");
    let log = found("the log's newest line", async || Some(log()).filter(|log| log.contains(&mark))).await;
    log.lines().filter(|line| !line.contains("feed0000")).map(|line| format!("{line}\n")).collect()
}

pub async fn series(region: &Region, name: &str) -> Option<f64> {
    metrics(region).await.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

pub async fn status(region: &Region) -> serde_json::Value {
    ask(Ask::get(format!("{}/v1/status", region.admin()))).await.json()
}

pub async fn restart(region: &Region) {
    for action in [Action::Stop, Action::Start] {
        region.act(action, Part::Gateway).await.unwrap();
    }
}

/// Restarts a gateway as one that speaks these versions of the protocol, or its own.
pub async fn replace(region: &Region, versions: Option<&str>) {
    region.speak(versions);
    restart(region).await;
}

/// Sends charges one after the other until `over`; each is answered 201. Returns their keys.
pub async fn charges(public: &str, over: &AtomicBool, done: &AtomicUsize, behave: &str) -> Vec<String> {
    let (connections, mut keys) = (Connections::default(), Vec::new());
    while !over.load(SeqCst) {
        let key = key("load");
        let request = post(public, "/v1/charges", &key, BODY).with("Demo-Behave", behave);
        let answer = connections.send(request, PATIENCE).await;
        let answer = answer.unwrap_or_else(|error| panic!("{key}: {error:#}"));
        assert_eq!(answer.status.as_u16(), 201, "{key}: {}", answer.text());
        keys.push(key);
        done.fetch_add(1, SeqCst);
    }
    keys
}

/// A process of this program, whose log is in its folder.
pub fn launch<A: Into<OsString>>(
    program: PathBuf,
    args: impl IntoIterator<Item = A>,
    cwd: &Path,
    log: &str,
) -> Launch {
    let args = args.into_iter().map(Into::into).collect();
    Launch { program, args, env: Vec::new(), cwd: cwd.to_owned(), log: cwd.join(log), account: None }
}

/// A started Postgres whose files are in this folder.
pub async fn postgres(data: &Path, port: u16, settings: &[(&str, &str)]) -> Cluster {
    let binaries = tokio::task::spawn_blocking(Binaries::find_or_install).await.unwrap().unwrap();
    let cluster = Cluster::create(&binaries, data, port, settings).await.unwrap();
    cluster.start().await.unwrap();
    cluster
}

/// Lets a server ask a role for its password from now on. Returns its rules of before.
pub async fn ask_for_password(cluster: &Cluster, admin: &Client, role: &str) -> String {
    let hba = cluster.data().join("pg_hba.conf");
    let before = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, format!("host all {role} 127.0.0.1/32 scram-sha-256\n{before}")).unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
    before
}

pub async fn all_serve(fleet: &Deployment) {
    for region in &fleet.regions {
        region.serves().await.unwrap();
    }
}

pub async fn charge(region: &Region, key: &str) -> Answer {
    ask(post(&region.public(), "/v1/charges", key, BODY)).await
}

/// Runs a command of the operator ada against a region's admin listener.
pub async fn onceway(region: &Region, args: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(args).arg("--admin").arg(region.admin()).env("USER", "ada");
    command.env_remove("ONCEWAY_ADMIN_TOKEN_FILE").output().await.unwrap()
}

/// Runs a command of an operator at a region until it succeeds.
pub async fn operated(region: &Region, words: &[&str]) {
    until(&words.join(" "), async || region.operate(words).await.unwrap().status.success()).await;
}

/// Changes a setting of a server, such as `set jit = on`, and lets it read its settings again.
pub async fn alter_system(admin: &Client, sql: &str) {
    admin.batch_execute(&format!("alter system {sql}")).await.unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Checks a command's exit code, and that its stderr says this.
#[track_caller]
pub fn ends(output: &Output, code: i32, says: &str) {
    let said = err(output);
    assert!(output.status.code() == Some(code) && said.contains(says), "{}: {said}", output.status);
}

#[track_caller]
pub fn has(text: &str, parts: &[&str]) {
    let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:?} not in\n{text}");
}
