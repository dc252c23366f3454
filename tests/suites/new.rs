//! A deployment of one region as a new user makes it: the README's three commands, in front of a
//! service that nobody here wrote. Of the files that `onceway new` writes, tests change the ports
//! only.

use crate::support::documents::text;
use crate::support::*;
use tokio::process::{Child, Command};

/// A service with ten lines of Python: each POST has one effect, and says which.
const WSGI: &str = "\
from wsgiref.simple_server import make_server
import sys
made = []
def app(environ, start_response):
    if environ['REQUEST_METHOD'] == 'POST':
        made.append(environ['HTTP_IDEMPOTENCY_KEY'])
        start_response('201 Created', [('Content-Type', 'text/plain')])
        return [f'made {len(made)}'.encode()]
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [f'{len(made)} made'.encode()]
make_server('127.0.0.1', int(sys.argv[1]), app).serve_forever()
";

struct Place {
    dir: TempDir,
    service: u16,
    public: u16,
    postgres: u16,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let base = free_run(5).unwrap();
        Self { dir, service: base, public: base + 1, postgres: base + 4 }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn run(&self, words: &[&str]) -> Child {
        let (program, words) = match words {
            ["onceway", rest @ ..] => (program(), rest),
            [other, rest @ ..] => (PathBuf::from(*other), rest),
            [] => panic!("no command"),
        };
        let log = fs::File::create(self.path().join("log")).unwrap();
        let mut command = Command::new(program);
        command.args(words).current_dir(self.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        command.kill_on_drop(true).spawn().unwrap()
    }

    /// Runs a command to its end. Returns its exit code, and what it said.
    async fn ended(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.run(words).wait_with_output().await.unwrap();
        let log = fs::read_to_string(self.path().join("log")).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &log)
    }

    async fn well(&self, words: &[&str]) -> String {
        let (code, said) = self.ended(&[&["onceway"], words].concat()).await;
        assert_eq!(code, Some(0), "{said}");
        said
    }

    async fn fails(&self, words: &[&str], exit: i32, says: &str) {
        let (code, said) = self.ended(words).await;
        assert!(code == Some(exit) && said.contains(says), "{words:?} {code:?}: {said}");
    }

    /// The files of `onceway new` with this test's ports; returns the token.
    async fn new_gateway(&self, words: &[&str]) -> String {
        let said = self.well(&words[1..]).await;
        let file = self.path().join("gateway/us-east.toml");
        let written = fs::read_to_string(&file).unwrap();
        let own = written
            .replace(":7401", &format!(":{}", self.public))
            .replace(":7402", &format!(":{}", self.public + 1));
        fs::write(file, own).unwrap();
        let (_, token) = said.split_once("shown only now: ").unwrap();
        token.lines().next().unwrap().to_owned()
    }

    fn ask(&self, ask: Ask, token: &str) -> Ask {
        let url = format!("http://127.0.0.1:{}{}", self.public, ask.url);
        Ask { url, ..ask }.with("Authorization", format!("Bearer {token}"))
    }

    /// The body of a GET through the gateway, once that answers.
    async fn page(&self, token: &str) -> String {
        found("the gateway to answer", async || {
            let answer = self.ask(Ask::get("/"), token).send(PATIENCE).await.ok()?;
            (answer.status == 200).then(|| answer.text())
        })
        .await
    }
}

fn commands() -> Vec<String> {
    let readme = text("README.md");
    let (_, rest) = readme.split_once("## In front of your own service\n").expect("the README has them");
    let block = rest.split("```").nth(1).unwrap().trim_start_matches("sh\n");
    block
        .lines()
        .map(|line| line.split('#').next().unwrap().trim_end_matches(['&', ' ']).to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_three_commands_start_a_gateway() {
    let (place, _room) = (Place::new(), room(1).await);
    let commands = commands();
    let [postgres, new, serve] = &commands[..] else { panic!("three commands: {commands:?}") };
    let url = format!("postgres://postgres@127.0.0.1:{}/onceway", place.postgres);
    let port = place.postgres.to_string();
    let words = |command: &str| -> Vec<String> {
        let own =
            command.replace("cargo run -- ", "onceway ").replace(":3000", &format!(":{}", place.service));
        own.split_whitespace().map(str::to_owned).collect()
    };
    let with = |command: &str, more: &[&str]| -> Vec<String> {
        words(command).into_iter().chain(more.iter().map(|word| (*word).to_owned())).collect()
    };
    let start = |words: Vec<String>| place.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let service = place.service.to_string();
    let _service = place.run(&["python3", "-m", "http.server", "--bind", "127.0.0.1", &service]);
    let mut postgres = start(with(postgres, &["--port", &port]));
    let mut said = BufReader::new(postgres.stdout.take().unwrap()).lines();
    assert_eq!(said.next_line().await.unwrap(), Some(format!("listens: {url}")));
    let new = with(new, &["--store", &url]);
    let token = place.new_gateway(&new.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let _gateway = start(words(serve));
    assert!(place.page(&token).await.contains("Directory listing"));
    found("the superuser to be told of", async || {
        let log = fs::read_to_string(place.path().join("log")).unwrap();
        log.contains("the store's role is a superuser").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_region_prepares_for_others_and_keeps_its_keys() {
    let (place, _room) = (Place::new(), room(1).await);
    // The owner is no superuser, and the server replicates nothing logically.
    let settings = [("wal_level", "replica")];
    let cluster = postgres(&place.path().join("postgres"), place.postgres, &settings).await;
    let admin = cluster.connect("postgres").await.unwrap();
    admin.batch_execute("create role me login").await.unwrap();
    admin.batch_execute("create database mine owner me").await.unwrap();
    drop(admin);
    fs::write(place.path().join("service.py"), WSGI).unwrap();
    let _service = place.run(&["python3", "service.py", &place.service.to_string()]);
    let store = format!("postgres://me@127.0.0.1:{}/mine", place.postgres);
    let upstream = format!("http://127.0.0.1:{}", place.service);
    let new = ["onceway", "new", "gateway", "--upstream", &upstream, "--store", &store];
    let token = place.new_gateway(&new).await;
    place.well(&["check", "--serve", "gateway/us-east.toml"]).await;
    place.fails(&["onceway", "new", "gateway"], 2, "is there already").await;

    let nowhere = store.replace("/mine", "/nowhere");
    place.ended(&["onceway", "new", "other", "--store", &nowhere]).await;
    let why = format!(
        "3D000: there is no such database: make it, as by `createdb` (role me, host 127.0.0.1:{}, database nowhere)",
        place.postgres
    );
    place.fails(&["onceway", "serve", "--config", "other/us-east.toml", "--init"], 1, &why).await;
    let serve = ["onceway", "serve", "--config", "gateway/us-east.toml", "--init"];
    let mine = cluster.connect("mine").await.unwrap();
    mine.batch_execute("create table orders ()").await.unwrap();
    place.fails(&serve, 1, "make one of its own, such as `createdb onceway`").await;
    mine.batch_execute("drop table orders").await.unwrap();

    let mut gateway = place.run(&serve);
    assert_eq!(place.page(&token).await, "0 made");
    let key = key("order");
    let post = || place.ask(Ask::post("/orders", "{}"), &token).with("Idempotency-Key", &*key);
    let made = found("a key to run", async || {
        let answer = post().send(PATIENCE).await.unwrap();
        (answer.status != 503).then_some(answer)
    })
    .await;
    assert_eq!((made.status.as_u16(), made.text().as_str()), (201, "made 1"), "{}", made.text());
    let replays = async || {
        let again = found("the answer to be replayed", async || {
            let answer = post().send(PATIENCE).await.ok()?;
            (answer.status == 201).then_some(answer)
        })
        .await;
        assert_eq!((again.text().as_str(), again.header("idempotent-replayed")), ("made 1", "true"));
    };
    // Without --init, and with it once more: the same keys.
    for serve in [&serve[..4], &serve[..]] {
        gateway.kill().await.unwrap();
        gateway = place.run(serve);
        replays().await;
    }
    let bare = place.ask(Ask::post("/orders", "{}"), &token).send(PATIENCE).await.unwrap();
    assert_eq!(bare.json()["code"], "key-missing");
    assert_eq!(place.page(&token).await, "1 made");
    assert!(!fs::read_to_string(place.path().join("log")).unwrap().contains("superuser"));

    gateway.kill().await.unwrap();
    drop(mine);
    let _cluster = prepare_for_others(&place, cluster, &store).await;
    let _gateway = place.run(&serve[..4]);
    replays().await;
}

/// The page "From one region to three" up to where "Adding a region" goes on.
async fn prepare_for_others(place: &Place, cluster: Cluster, store: &str) -> Cluster {
    cluster.stop(PATIENCE).await.unwrap();
    drop(cluster);
    let cluster = postgres(&place.path().join("postgres"), place.postgres, &[]).await;
    let regions = ["--region", "us-east", "eu-west", "ap-south"];
    place.well(&[&["certs", "--out", "gateway/certificates"], &regions[..]].concat()).await;
    let file = place.path().join("gateway/us-east.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("[listen]\n", &format!("[listen]\npeer = \"127.0.0.1:{}\"\n", place.public + 2));
    let text = text.replace("//me@", "//onceway_gateway@");
    let (me, admin) = ("certificates/us-east", store.replace("//me@", "//postgres@"));
    let more = format!(
        "\n[peer]\ncertificate = \"{me}.pem\"\nkey = \"{me}.key\"\nca = \"certificates/ca.pem\"\n\n[provision]\nadmin_url = \"{admin}\"\n"
    );
    fs::write(&file, text + &more).unwrap();
    place.well(&["check", "--strict", "gateway/us-east.toml"]).await;
    for command in ["init", "check"] {
        place.well(&["store", command, "--config", "gateway/us-east.toml"]).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn onceway_new_writes_a_file_for_each_region() {
    let place = Place::new();
    let new = ["onceway", "new", "gateway", "--regions", "us-east,eu-west,ap-south"];
    place.new_gateway(&new).await;
    for name in ["us-east", "eu-west", "ap-south"] {
        place.well(&["check", "--strict", &format!("gateway/{name}.toml")]).await;
    }
    let file = place.path().join("gateway/us-east.toml");
    let text = fs::read_to_string(&file).unwrap();
    let (head, rest) = text.split_once("# The certificate that other").unwrap();
    let (_, tail) = rest.split_once("# For `onceway store").unwrap();
    for (without, why) in [
        (
            text.replace("peer = \"0.0.0.0:", "# \""),
            "[listen]: peer is missing: say where other regions connect",
        ),
        (format!("{head}# {tail}"), "[peer] is missing: say how peers are known and found"),
    ] {
        fs::write(&file, without).unwrap();
        place.fails(&["onceway", "check", "gateway/us-east.toml"], 2, why).await;
    }
    for wrong in [
        &["--store", "postgres://me@127.0.0.1/x"][..],
        &["--regions", "a b"],
        &["--regions", "a"],
        &["--upstream", "localhost"],
    ] {
        let words = [&["onceway", "new", "other", "--regions=a,b"], wrong].concat();
        place.fails(&words, 2, "").await;
    }
    assert!(!place.path().join("other").exists());
}
