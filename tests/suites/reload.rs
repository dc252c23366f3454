//! A configuration that changes under a running gateway: by signal and by file, right and wrong,
//! under load; and changes that need a restart. One region serves the tests, one after the other.
//! `routes.toml` and `credentials.toml` are as Kubernetes mounts them: links through a folder that
//! is exchanged whole.

use crate::net::support::trusting;
use crate::support::solo::routes as with_notes;
use crate::support::*;
use onceway::adapters::identity::server_name;
use onceway::adapters::issue::{Generated, generate};
use std::os::unix::fs::symlink;
use tokio::sync::{Mutex, MutexGuard};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

struct Site {
    solo: Solo,
    credentials: String,
    versions: AtomicUsize,
}

/// The region, for one test alone.
async fn site() -> MutexGuard<'static, Site> {
    static SITE: OnceCell<Mutex<Site>> = OnceCell::const_new();
    let start = || async {
        let solo = Solo::start_with(&routes(), None, |dir| {
            fs::create_dir(dir.join("..0")).unwrap();
            symlink("..0", dir.join("..data")).unwrap();
            for name in ["routes.toml", "credentials.toml"] {
                fs::rename(dir.join(name), dir.join("..0").join(name)).unwrap();
                symlink(Path::new("..data").join(name), dir.join(name)).unwrap();
            }
        })
        .await;
        let credentials = fs::read_to_string(solo.dir.join("credentials.toml")).unwrap();
        Mutex::new(Site { solo, credentials, versions: AtomicUsize::new(0) })
    };
    SITE.get_or_init(start).await.lock().await
}

async fn posted(solo: &Solo, path: &str) -> u16 {
    ask(post(&solo.public(), path, &key("new"), BODY)).await.status.as_u16()
}

async fn config(solo: &Solo) -> Value {
    status(&solo.region).await["config"].clone()
}

async fn reloads(solo: &Solo, result: &str) -> f64 {
    series(&solo.region, &format!("onceway_config_reloads_total{{result=\"{result}\"}}"))
        .await
        .expect("it is counted")
}

/// Changes the files and waits until the gateway has read them, with this result.
pub async fn reload(solo: &Solo, result: &str, change: impl FnOnce()) {
    let before = reloads(solo, result).await;
    change();
    until(&format!("a reload that is {result}"), async || reloads(solo, result).await > before).await;
}

/// Changes the files, says so, and waits until the gateway has taken them over.
async fn taken_over(solo: &Solo, change: impl FnOnce()) {
    let change = || {
        change();
        solo.region.process().unwrap().hang_up();
    };
    reload(solo, "ok", change).await;
}

async fn shown(solo: &Solo) -> String {
    out(&onceway(&solo.region, &["status"]).await)
}

impl Site {
    /// Exchanges the folder behind the links, as Kubernetes does: one rename.
    fn exchange(&self, routes: &str) {
        let dir = &self.solo.dir;
        let (old, new) = (self.versions.fetch_add(1, Ordering::SeqCst), self.versions.load(Ordering::SeqCst));
        let folder = dir.join(format!("..{new}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("routes.toml"), routes).unwrap();
        fs::write(folder.join("credentials.toml"), &self.credentials).unwrap();
        symlink(folder.file_name().unwrap(), dir.join("..new")).unwrap();
        fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
        fs::remove_dir_all(dir.join(format!("..{old}"))).unwrap();
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.solo.dir.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
    }
}

fn routes() -> String {
    with_notes().replace("name = \"notes\"", "name = \"memos\"").replace("/v1/notes", "/v1/memos")
}

#[test]
fn reloads_under_load_drop_no_request() {
    run(async {
        let site = site().await;
        let (solo, public) = (&site.solo, site.solo.public());
        let (over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        // Some go on over a reload or two.
        let client = |behave| charges(&public, &over, &done, behave);
        let changes = async {
            let before = reloads(solo, "ok").await;
            for round in 0..8 {
                let waits = ["wait = \"1s\"", "wait = \"2s\""][round % 2];
                taken_over(solo, || site.exchange(&routes().replace("wait = \"1s\"", waits))).await;
            }
            over.store(true, Ordering::SeqCst);
            reloads(solo, "ok").await - before
        };
        let (a, b, c, d, made) =
            tokio::join!(client("slow=700ms"), client(""), client(""), client(""), changes);
        let keys = [a, b, c, d].concat();
        assert!(made >= 8.0 && keys.len() > 50, "{made} reloads, {} requests", keys.len());
        for key in &keys {
            assert_eq!(effects(&solo.ledger, key), 1, "{key}");
        }
        taken_over(solo, || site.exchange(&routes())).await;
    });
}

#[test]
fn running_requests_keep_their_routes_over_a_reload() {
    run(async {
        let site = site().await;
        let (solo, public) = (&site.solo, site.solo.public());
        let before = status(&solo.region).await;
        let (slow, note) = (key("slow"), key("note"));
        assert_eq!(ask(post(&public, "/v1/notes", &note, BODY)).await.status.as_u16(), 404);
        let begun = ask(post(&public, "/v1/emails", &slow, BODY).with("Demo-Behave", "slow=900ms"));
        let gone = with_notes()
            .replace("name = \"emails\"\n", "name = \"mails\"\n")
            .replace("/v1/emails", "/v1/mails");
        let change = async {
            until("the attempt to run", async || status(&solo.region).await["in_flight"] == 1).await;
            taken_over(solo, || site.exchange(&gone)).await;
            assert_eq!(status(&solo.region).await["in_flight"], 1, "the reload came while the request ran");
        };
        let (answer, ()) = tokio::join!(begun, change);
        assert_eq!((answer.status.as_u16(), effects(&solo.ledger, &slow)), (201, 1));
        assert_eq!(posted(solo, "/v1/emails").await, 404);
        assert_eq!(ask(post(&public, "/v1/notes", &note, BODY)).await.status.as_u16(), 201);
        let after = status(&solo.region).await;
        assert_ne!(after["shared"], before["shared"], "what peers compare is what runs");
        for same in ["epoch", "view", "origin"] {
            assert_eq!(after[same], before[same], "{same}");
        }
        let attempts = "onceway_attempts_total{route=\"notes\",outcome=\"final\"}";
        assert_eq!(series(&solo.region, attempts).await, Some(1.0));
        reload(solo, "ok", || site.exchange(&routes())).await;
        assert_eq!(status(&solo.region).await["shared"], before["shared"]);
    });
}

#[test]
fn a_bad_file_changes_nothing_and_says_so_everywhere() {
    run(async {
        let site = site().await;
        let solo = &site.solo;
        let before = status(&solo.region).await;
        assert_eq!((&before["config"]["current"], &before["config"]["problems"]), (&json!(true), &json!([])));
        assert!(before["config"]["loaded_ms"].as_i64().unwrap() > 1_700_000_000_000);
        // All or nothing: the credentials beside it are right, and are not taken over either.
        let wrong = with_notes().replacen("recovery = \"park\"", "recovry = \"park\"", 1);
        reload(solo, "failed", || site.exchange(&wrong)).await;
        let after = status(&solo.region).await;
        let problems = after["config"]["problems"].to_string();
        has(&problems, &["routes.toml:", "did you mean \\\"recovery\\\"?"]);
        assert_eq!(after["config"]["current"], false);
        assert_eq!(after["config"]["loaded_ms"], before["config"]["loaded_ms"]);
        assert_eq!(after["shared"], before["shared"]);
        assert_eq!(series(&solo.region, "onceway_config_current").await, Some(0.0));
        assert_eq!([posted(solo, "/v1/notes").await, posted(solo, "/v1/charges").await], [404, 201]);
        let shown = shown(solo).await;
        has(&shown, &["NOT TAKEN OVER, the old one runs: ", "routes.toml:"]);
        let log = log(&solo.region).await;
        assert!(log.contains("the configuration is not taken over") && log.contains("recovry"), "{log}");
        // It is not read again and again while nobody touches it.
        let failed = reloads(solo, "failed").await;
        reload(solo, "ok", || site.exchange(&routes())).await;
        assert_eq!(reloads(solo, "failed").await, failed);
        let mended = config(solo).await;
        assert_eq!((&mended["current"], &mended["problems"]), (&json!(true), &json!([])));
        assert!(mended["loaded_ms"].as_i64() > before["config"]["loaded_ms"].as_i64());
        assert_eq!(series(&solo.region, "onceway_config_current").await, Some(1.0));
    });
}

#[test]
fn settings_that_need_a_restart_are_named_and_kept() {
    run(async {
        let site = site().await;
        let (solo, public) = (&site.solo, site.solo.public());
        let before = status(&solo.region).await;
        let log = log(&solo.region).await;
        assert!(!log.contains("a bearer token is not accepted"), "debug lines from the start");
        let file = solo.region.name.to_string() + ".toml";
        let [region, ring] =
            [&*file, "ring.toml"].map(|name| fs::read_to_string(solo.dir.join(name)).unwrap());
        let address = public.strip_prefix("http://").unwrap();
        taken_over(solo, || {
            site.edit("ring.toml", "seed = ", "heartbeat = \"200ms\"\nseed = ");
            site.edit(&file, address, "127.0.0.1:1");
        })
        .await;
        let after = status(&solo.region).await;
        assert_eq!(after["config"]["restart"], json!(["heartbeat", "listen.public"]));
        assert_eq!((&after["config"]["current"], &after["shared"]), (&json!(false), &before["shared"]));
        assert_eq!(after["epoch"], before["epoch"]);
        assert_eq!(series(&solo.region, "onceway_config_current").await, Some(0.0));
        assert_eq!(posted(solo, "/v1/charges").await, 201);
        assert!(shown(solo).await.contains("needs a restart: listen.public"));
        // Other changes do not wait.
        let more = "[quota]\nnew_keys_per_second = 1\nlive_keys = 1000000\n[log]\nlevel = \"info,onceway=debug\"\n[upstream]";
        taken_over(solo, || site.edit(&file, "[upstream]", more)).await;
        let charged = async || posted(solo, "/v1/charges").await;
        assert_eq!([charged().await, charged().await], [201, 429]);
        let live = async || series(&solo.region, "onceway_live_keys{tenant=\"acme\"}").await;
        until("the tenant's keys to be counted", async || live().await >= Some(1.0)).await;
        until("a line that only debug has", async || {
            let nobody = Ask::post(format!("{public}/v1/charges"), BODY.to_owned())
                .with("Authorization", "Bearer sk_nobody");
            assert_eq!(ask(nobody.with("Idempotency-Key", key("nobody"))).await.status.as_u16(), 401);
            fs::read_to_string(solo.region.gateway_log()).unwrap().contains("a bearer token is not accepted")
        })
        .await;
        taken_over(solo, || {
            fs::write(solo.dir.join(&file), &region).unwrap();
            fs::write(solo.dir.join("ring.toml"), &ring).unwrap();
        })
        .await;
        let mended = config(solo).await;
        assert_eq!((&mended["current"], &mended["restart"]), (&json!(true), &json!([])));
        assert_eq!([charged().await, charged().await], [201, 201]);
    });
}

/// While it asks for a token that others do not know, only its answers can be tested.
#[test]
fn another_admin_token_counts_without_a_restart() {
    run(async {
        let site = site().await;
        let (solo, file) = (&site.solo, site.solo.dir.join("solo.toml"));
        let before = fs::read_to_string(&file).unwrap();
        let (first, second) = ("the-first-token-of-a-gateway", "its-second-token-is-another");
        fs::write(solo.dir.join("token"), first).unwrap();
        let answered = async |token: &str| {
            let shown = Ask::get(format!("{}/metrics", solo.region.admin()));
            ask(shown.with("Authorization", format!("Bearer {token}"))).await.status.as_u16()
        };
        fs::write(&file, format!("{before}\n[admin]\ntoken_file = \"token\"\n")).unwrap();
        solo.region.process().unwrap().hang_up();
        until("a token to be asked for", async || answered("").await == 401).await;
        assert_eq!([answered(first).await, answered(second).await], [200, 401]);
        // No signal is sent: the file is watched like all others.
        fs::write(solo.dir.join("token"), second).unwrap();
        until("the second token to count", async || answered(second).await == 200).await;
        assert_eq!(answered(first).await, 401);
        fs::write(&file, before).unwrap();
        solo.region.process().unwrap().hang_up();
        until("no token to be asked for", async || answered("").await == 200).await;
    });
}

/// Its certificate is its own authority.
#[test]
fn the_admin_listener_speaks_tls_from_a_restart_on() {
    run(async {
        let site = site().await;
        let (solo, file) = (&site.solo, site.solo.dir.join("solo.toml"));
        let before = fs::read_to_string(&file).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(solo.dir.join("admin.key"), key.serialize_pem()).unwrap();
        fs::write(solo.dir.join("admin.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let tls = "[admin.tls]\ncertificate = \"admin.pem\"\nkey = \"admin.key\"\n";
        taken_over(solo, || fs::write(&file, format!("{before}\n{tls}")).unwrap()).await;
        assert_eq!(config(solo).await["restart"], json!(["[admin.tls] as such"]));
        restart(&solo.region).await;
        let files = TlsFiles { ca: Some(solo.dir.join("admin.pem")), ..TlsFiles::default() };
        let tls = Tls::load(&files).unwrap().now();
        let at = solo.region.admin().replacen("http://", "https://", 1);
        until("health over TLS", async || {
            let ask = Ask { tls: Some(tls.clone()), ..Ask::get(format!("{at}/healthz")) };
            ask.send(PATIENCE).await.is_ok_and(|answer| answer.status == 200)
        })
        .await;
        fs::write(&file, before).unwrap();
        restart(&solo.region).await;
        solo.serves().await;
    });
}

async fn connect(address: &str, made: &Generated) -> Result<TlsStream<TcpStream>, String> {
    let config = trusting(made.authority.as_bytes(), rustls::DEFAULT_VERSIONS).with_no_client_auth();
    let name = RegionName::parse("solo").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(server_name(&name), stream).await;
    connected.map_err(|error| error.to_string())
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

async fn answers(stream: &mut TlsStream<TcpStream>) -> bool {
    stream.write_all(b"GET /v1/anything HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut begin = [0; 9];
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut begin)).await;
    read.is_ok_and(|read| read.is_ok()) && &begin == b"HTTP/1.1 "
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_connections_see_a_new_certificate() {
    let name = RegionName::parse("solo").unwrap();
    let old = generate(std::slice::from_ref(&name)).unwrap();
    let made_by = unix_seconds();
    let folder = tempfile::tempdir().unwrap();
    old.write(folder.path()).unwrap();
    let at = |path: &Path| path.display().to_string();
    let files = files_in(folder.path(), &name);
    let tables =
        format!("\n[listen.tls]\ncertificate = {:?}\nkey = {:?}\n", at(&files.certificate), at(&files.key));
    let solo = Solo::start_adding(&routes(), None, &tables).await;
    // A certificate tells whole seconds: one of a later second also expires later.
    until("a second after the old certificate", async || unix_seconds() > made_by).await;
    let new = generate(std::slice::from_ref(&name)).unwrap();
    let expires =
        async || series(&solo.region, "onceway_certificate_expires_timestamp_seconds{of=\"public\"}").await;
    let first_to_expire = expires().await;
    let address = solo.public().strip_prefix("http://").unwrap().to_owned();
    let mut first = connect(&address, &old).await.unwrap();
    assert!(answers(&mut first).await);
    assert!(connect(&address, &new).await.is_err());
    // Half of a pair does not fit the other half: nothing changes.
    let (_, certificate, private) = &new.regions[0];
    reload(&solo, "failed", || fs::write(&files.certificate, certificate).unwrap()).await;
    assert!(config(&solo).await["problems"][0].as_str().unwrap().contains("[listen.tls] key"));
    assert!(connect(&address, &old).await.is_ok());
    assert_eq!(expires().await, first_to_expire, "a certificate that is not in use is shown");
    reload(&solo, "ok", || fs::write(&files.key, private).unwrap()).await;
    assert!(expires().await > first_to_expire, "the old certificate is shown");
    assert!(connect(&address, &old).await.is_err(), "a new connection still sees the old certificate");
    assert!(answers(&mut connect(&address, &new).await.unwrap()).await);
    let mut rest = vec![0; 4_096];
    drop(tokio::time::timeout(Duration::from_millis(200), first.read(&mut rest)).await);
    assert!(answers(&mut first).await, "the old connection was cut");
}
