//! A witness, as a process of its own: its promises outlive SIGKILL, and it never starts with less
//! than it promised. `src/adapters/witness/tests.rs` damages its file in many ways, `net/` attacks
//! the peer listener that it shares with gateways.

mod hostile;
mod reload;

use crate::net::harness::talk;
use crate::net::support::{self as net, Pki, region};
use crate::support::documents::text as document;
use crate::support::*;
use onceway::adapters::witness::{AcceptorFile, Opened};
use onceway::config::witness::WitnessConfig;
use onceway::gateway::authority::register::witness::{Duty, Witness};
use onceway::ports::Clock;
use onceway::ports::peers::{Forward, ForwardReply, PeerReply, Pong, Question};
use onceway::protocol::change::Change;
use onceway::protocol::digest::Digest32;
use onceway::protocol::register::{Ballot, Message, Reply};
use onceway::protocol::ring::Ring;
use onceway::protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use onceway::protocol::time::{Date, Drift, Moment};
use onceway::protocol::versions::{NEXT, Versions};
use onceway::protocol::view::{AcceptorId, Content, View};
use onceway_lab::contract::peers::forward;

const PATIENCE: Duration = Duration::from_secs(10);

/// The files of a witness in a folder of their own, and the way to it from region `us-east`.
pub struct House {
    pub folder: TempDir,
    pki: Pki,
    peers: HttpPeers,
    peer: String,
    admin: String,
}

pub fn house() -> House {
    let pki = Pki::new(&["us-east", "eu-west", "ap-south", "witness-1", "mallory", "left"]);
    let folder = tempfile::tempdir().unwrap();
    let certificates = folder.path().join("certs");
    fs::create_dir(&certificates).unwrap();
    bring(&pki, &certificates);
    let base = ports::free_run(2).unwrap();
    let (peer, admin) = (format!("127.0.0.1:{base}"), format!("127.0.0.1:{}", base + 1));
    let edits = [("0.0.0.0:7403", peer.as_str()), ("127.0.0.1:7402", admin.as_str())];
    fs::write(folder.path().join("witness.toml"), reference("witness.toml", &edits)).unwrap();
    let listed = [("# [[witness]]\n# name", "[[witness]]\nname"), ("lease = \"10s\"", "lease = \"1500ms\"")];
    fs::write(folder.path().join("ring.toml"), reference("ring.toml", &listed)).unwrap();
    House { folder, peers: peers(&pki, &peer), pki, peer, admin: format!("http://{admin}") }
}

/// The same, made and running.
async fn begun() -> (House, Running) {
    let house = house();
    house.init();
    let running = house.start().await;
    (house, running)
}

fn bring(pki: &Pki, certificates: &Path) {
    for file in ["witness-1.pem", "witness-1.key", "ca.pem"] {
        fs::copy(pki.path().join(file), certificates.join(file)).unwrap();
    }
}

fn peers(pki: &Pki, peer: &str) -> HttpPeers {
    HttpPeers::new(&pki.identity("us-east"), BTreeMap::from([(region("witness-1"), peer.to_owned())]))
}

fn reference(name: &str, edits: &[(&str, &str)]) -> String {
    let mut text = document(&format!("config/{name}"));
    for (from, to) in edits {
        assert!(text.contains(from), "config/{name} has no {from:?}");
        text = text.replacen(from, to, 1);
    }
    text
}

impl House {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceway"));
        command.args(["witness", "--config"]).arg(self.path("witness.toml")).args(more);
        command.stdin(Stdio::null()).env_remove("ONCEWAY_LOG");
        command
    }

    fn ended(&self, more: &[&str]) -> (Option<i32>, String) {
        let output = self.command(more).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    pub fn init(&self) {
        assert_eq!(self.ended(&["--init"]).0, Some(0));
    }

    async fn start(&self) -> Running {
        self.start_with(&[]).await
    }

    async fn start_with(&self, more: &[&str]) -> Running {
        self.started(self.command(more).stdout(Stdio::null()).stderr(Stdio::null())).await
    }

    async fn start_logging(&self, log: &Path) -> Running {
        let log = fs::File::create(log).unwrap();
        let other = log.try_clone().unwrap();
        self.started(self.command(&[]).stdout(log).stderr(other)).await
    }

    async fn started(&self, command: &mut Command) -> Running {
        let running = Running(Mortal(command.spawn().unwrap()));
        let ping = async || self.peers.ping(&region("witness-1"), PATIENCE).await.ok();
        found("the witness to answer", ping).await;
        running
    }

    async fn pong(&self) -> Pong {
        self.peers.ping(&region("witness-1"), PATIENCE).await.unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        Ask::get(format!("{}{path}", self.admin)).send(PATIENCE).await.unwrap()
    }

    async fn gauge(&self, name: &str) -> String {
        let page = self.get("/metrics").await.text();
        let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {name} in {page}")).to_owned()
    }

    async fn ask(&self, question: Question) -> PeerReply {
        self.peers.ask(&region("witness-1"), question, PATIENCE).await.unwrap()
    }

    /// The acceptor of a witness that holds nothing.
    async fn acceptor(&self) -> AcceptorId {
        let Reply::NotFounded(id) = self.message(Message::Read).await else { panic!("it holds nothing") };
        id
    }

    async fn message(&self, message: Message) -> Reply {
        match self.ask(Question::Acceptor { to: None, message }).await {
            PeerReply::Acceptor(reply) => reply,
            other => panic!("no acceptor's reply: {other:?}"),
        }
    }
}

struct Running(Mortal);

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0.0), signal).unwrap();
    }

    fn ended(&mut self) -> Option<i32> {
        self.0.0.wait().unwrap().code()
    }
}

fn ballot(counter: u64) -> Ballot {
    Ballot { counter, region: region("us-east"), proposer: 9 }
}

fn view(epoch: u64, witness: u128) -> Arc<View> {
    let regions = ["us-east", "eu-west"].map(|name| RegionSpec { name: region(name), weight: 1 }).to_vec();
    let spec = RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() };
    let voters = [("us-east", 1), ("eu-west", 2), ("witness-1", witness)];
    let voters = voters.map(|(name, id)| (region(name), AcceptorId(id))).into();
    let ring = Arc::new(Ring::build(&spec).unwrap());
    let content = View::founding(epoch, ring, Default::default(), voters).content();
    Arc::new(View::from_content(Content { longest_lease: Duration::from_millis(1500), ..content }))
}

/// Founds a new witness and kills its process. Returns its acceptor and the view that it accepted.
async fn founded_and_killed(house: &House) -> (AcceptorId, Arc<View>) {
    house.init();
    let running = house.start().await;
    let id = house.acceptor().await;
    let first = view(1, id.0);
    assert_eq!(house.message(found_by(&first)).await, Reply::Accepted);
    running.signal(Signal::KILL);
    (id, first)
}

fn prepare(counter: u64) -> Message {
    Message::Prepare { ballot: ballot(counter) }
}

fn accept(counter: u64, view: &Arc<View>) -> Message {
    Message::Accept { ballot: ballot(counter), view: view.clone() }
}

fn found_by(view: &Arc<View>) -> Message {
    Message::Found { ballot: ballot(1), view: view.clone() }
}

fn renew(name: &str, view: &Arc<View>) -> Message {
    let (boot, ttl) = (Digest32::new([7; 32]), Duration::from_millis(1500));
    Message::Renew { region: region(name), boot, holder: 1, starts: 1, view: view.clone(), ttl }
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_outlive_the_process() {
    let house = house();
    let (id, first) = founded_and_killed(&house).await;

    let running = house.start().await;
    let Reply::Promised(accepted) = house.message(prepare(7)).await else { panic!("it is founded") };
    // The founding prepares nothing, so its ballot counts as the lowest.
    assert_eq!((accepted.ballot, accepted.view), (ballot(0), first.clone()));
    assert_eq!(house.message(renew("us-east", &first)).await, Reply::Granted(1));
    drop(running);

    let running = house.start().await;
    assert_eq!(house.message(prepare(6)).await, Reply::Outbid(ballot(7)));
    // The grant is not known to be over: this process has seen it for less than a lease.
    let Reply::Holds { id: same, promised, running: leases, .. } = house.message(Message::Read).await else {
        panic!("it is founded")
    };
    assert_eq!((same, promised), (id, Some(ballot(7))));
    assert_eq!(leases, [region("us-east")].into());
    let read = async || house.message(Message::Read).await;
    until(
        "the grant to be over",
        async || matches!(read().await, Reply::Holds { running, .. } if running.is_empty()),
    )
    .await;
    drop(running);

    // An older copy would grant below its accepted ballot.
    let running = house.start().await;
    let second = view(2, id.0);
    assert_eq!(house.message(accept(7, &second)).await, Reply::Accepted);
    drop(running);
    let mut running = house.start().await;
    assert_eq!(house.message(renew("us-east", &first)).await, Reply::Newer);
    let pong = house.pong().await;
    assert_eq!((pong.epoch, pong.view, pong.serving), (2, second.digest(), false));
    assert_eq!((pong.beat, pong.applied.len()), (None, 0));
    running.signal(Signal::TERM);
    assert_eq!(running.ended(), Some(0));
}

/// It is another acceptor, and no voter.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_state_file_votes_no_more() {
    let house = house();
    let (id, first) = founded_and_killed(&house).await;
    let copy = fs::read(house.path("witness.state")).unwrap();

    let running = house.start().await;
    assert!(matches!(house.message(prepare(7)).await, Reply::Promised(_)));
    let second = view(2, id.0);
    assert_eq!(house.message(accept(7, &second)).await, Reply::Accepted);
    assert_eq!(house.gauge("onceway_witness_began_anew").await, "0");
    drop(running);

    // Every way to write a copy over it: into the same file here.
    fs::write(house.path("witness.state"), copy).unwrap();
    let running = house.start().await;
    let other = house.acceptor().await;
    assert_ne!(other, id);
    // Each of these would break what it promised, and none of them is answered as that acceptor.
    for message in [prepare(6), accept(6, &view(2, 9)), renew("us-east", &first)] {
        for (to, replied) in
            [(Some(id), Reply::OtherAcceptor(other)), (Some(other), Reply::NotFounded(other))]
        {
            let asked = Question::Acceptor { to, message: message.clone() };
            assert_eq!(house.ask(asked).await, PeerReply::Acceptor(replied), "{message:?}");
        }
    }
    assert_eq!(house.gauge("onceway_witness_began_anew").await, "1");
    assert_eq!(house.gauge("onceway_witness_admitted").await, "0");
    drop(running);

    // From then on it is one as any other, and keeps what it promises.
    let _running = house.start().await;
    assert_eq!(house.message(Message::Read).await, Reply::NotFounded(other));
    assert_eq!(house.gauge("onceway_witness_began_anew").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_is_an_acceptor_and_nothing_else() {
    let (house, _running) = begun().await;
    for question in [Question::Views { after: 0 }, Question::Key { id: net::key_id("acme", "k") }] {
        let PeerReply::Refused(why) = house.ask(question).await else { panic!("it has no store") };
        assert_eq!(why, "witness-1 is a witness: it votes on views and keeps no keys");
    }
    let forward = Forward { body: bytes::Bytes::new(), ..forward("k") };
    let reply = house.peers.forward(&region("witness-1"), forward).await.unwrap();
    assert!(matches!(reply, ForwardReply::NotOwner { epoch: 0 }));
    assert_eq!(house.get("/healthz").await.text(), "ok\n");
    let metrics = house.get("/metrics").await.text();
    assert!(metrics.contains("\nonceway_witness_refusals_total 2\n"), "{metrics}");
    for of in ["peer", "authority"] {
        let expires = format!("\nonceway_certificate_expires_timestamp_seconds{{of=\"{of}\"}} ");
        assert!(metrics.contains(&expires), "{metrics}");
    }
    let status = house.get("/v1/status").await.json();
    assert_eq!((&status["witness"], &status["epoch"]), (&"witness-1".into(), &Value::Null));
    let rebound = "GET /v1/status HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n";
    let answer = talk(house.admin.trim_start_matches("http://"), rebound).await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_is_made_once_for_one_process() {
    let house = house();
    let ends = |more: &[&str], exit: i32, parts: &[&str]| {
        let (code, said) = house.ended(more);
        let all = parts.iter().all(|part| said.contains(part));
        assert!(code == Some(exit) && all, "{more:?} {code:?} {said}");
    };
    ends(&[], 2, &["there is no such file", "--init"]);
    assert!(!house.path("witness.state").exists());
    let text = fs::read_to_string(house.path("witness.toml")).unwrap();
    fs::write(house.path("witness.toml"), text.replacen("\"witness.state\"", "\"absent/witness.state\"", 1))
        .unwrap();
    for nowhere in [&["--init"][..], &["--init", "--dry-run"]] {
        ends(nowhere, 2, &["absent: No such file"]);
    }
    fs::write(house.path("witness.toml"), text).unwrap();
    ends(&["--init", "--dry-run"], 0, &["Nothing was changed.\n"]);
    assert!(!house.path("witness.state").exists());
    ends(&["--init"], 0, &["made for witness-1, acceptor "]);
    ends(&["--init", "--dry-run"], 2, &[]);
    ends(&["--init"], 2, &["never overwritten"]);
    let _running = house.start().await;
    ends(&[], 2, &["another process uses this file"]);
}

/// A boot clock that a test moves.
#[derive(Clone, Default)]
struct Hand(Arc<Mutex<u64>>);

impl Hand {
    fn pass(&self, millis: u64) {
        *self.0.lock().unwrap() += millis;
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        Moment::from_nanos(*self.0.lock().unwrap() * 1_000_000)
    }

    fn date(&self) -> Date {
        Date(0)
    }

    async fn sleep_until(&self, _deadline: Moment) {
        std::future::pending().await
    }
}

/// A new witness, acceptor 5, whose leases run for a second and a half.
fn new_witness(folder: &Path, clock: &Hand) -> Witness<AcceptorFile, Hand> {
    let path = folder.join("state");
    let duty = Duty {
        me: region("witness-1"),
        ring: view(1, 1).ring().clone(),
        drift: Drift { ppm: 0, margin: Duration::ZERO },
        speaks: Versions::OURS,
    };
    AcceptorFile::create(&path, &duty.me, AcceptorId(5)).unwrap();
    let Opened { file, held, is_anew } = AcceptorFile::open(&path, &duty.me, AcceptorId(6)).unwrap();
    assert!(!is_anew);
    Witness::new(duty, file, clock.clone(), &held).unwrap()
}

/// A new witness learns from what both regions say that it votes, and is silent for a lease then.
/// One region alone could say it early: the witness would vote with a lease still running.
#[tokio::test]
async fn a_new_witness_votes_one_lease_after_most_regions() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::default();
    let witness = new_witness(folder.path(), &clock);
    let chosen = view(4, 5);
    let renews = async || {
        let question = Question::Acceptor { to: None, message: renew("us-east", &chosen) };
        let replied = witness.ask(region("us-east"), question).await;
        clock.pass(750);
        replied
    };
    let not_founded = PeerReply::Acceptor(Reply::NotFounded(AcceptorId(5)));
    for _ in 0..9 {
        assert_eq!(renews().await, not_founded);
        let alone = witness.ask(region("us-east"), Question::Adopt { view: chosen.clone() }).await;
        assert_eq!(alone, PeerReply::Adopted(0));
    }
    let both = witness.ask(region("eu-west"), Question::Adopt { view: chosen.clone() }).await;
    assert_eq!(both, PeerReply::Adopted(4));
    let replied = [renews().await, renews().await, renews().await];
    assert_eq!(replied, [not_founded.clone(), not_founded, PeerReply::Acceptor(Reply::Granted(1))]);
}

/// A region that breaks the glass is the only one that is left.
#[tokio::test]
async fn a_new_witness_waits_for_no_silent_region() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hand::default();
    let witness = new_witness(folder.path(), &clock);
    let (chosen, mut replied) = (view(4, 5), Vec::new());
    for second in 0..12 {
        let alone = witness.ask(region("us-east"), Question::Adopt { view: chosen.clone() }).await;
        replied.push(alone);
        if second == 0 {
            let read = Question::Acceptor { to: None, message: Message::Read };
            witness.ask(region("eu-west"), read).await;
        }
        clock.pass(1_000);
    }
    let (waits, last) = replied.split_at(11);
    assert!(waits.iter().all(|replied| *replied == PeerReply::Adopted(0)), "{waits:?}");
    assert_eq!(last, [PeerReply::Adopted(4)]);
}

#[test]
fn the_reference_witness_file_is_valid() {
    let house = house();
    let config = WitnessConfig::load(&house.path("witness.toml")).unwrap();
    assert_eq!(config.name, region("witness-1"));
    assert_eq!(config.drift.ppm, 500);
    assert_eq!(config.file, house.path("witness.state"));
    let text = fs::read_to_string(house.path("witness.toml")).unwrap();
    let said = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(house.path("other.toml"), text.replacen(from, to, 1)).unwrap();
        let errors = WitnessConfig::load(&house.path("other.toml")).expect_err(to);
        let said = errors.to_string().replace(&format!("{}/", house.folder.path().display()), "");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 1, "{said}");
        lines[0].split_once(": ").unwrap().1.to_owned()
    };
    let admin = house.admin.trim_start_matches("http://");
    for (from, to, expected) in [
        (
            "name = \"witness-1\"\n\n",
            "name = \"witness-2\"\n\n",
            "witness-2 is no witness of the ring: add it",
        ),
        ("name = \"witness-1\"\n\n", "\n", "name is missing: say which [[witness]]"),
        ("file = \"witness.state\"", "", "file is missing: name the file on a local disk"),
        ("file = \"witness.state\"", "file = \"w\"\nstore = 1", "unknown key \"store\": "),
        ("key = \"certs/witness-1.key\"", "", "[peer]: key is missing"),
        (admin, "0.0.0.0:7402", "the admin listener on 0.0.0.0:7402 is open to other machines"),
        ("ring = \"ring.toml\"", "ring = \"none.toml\"", "cannot read none.toml"),
    ] {
        let said = said(from, to);
        assert!(said.starts_with(expected), "{said}");
    }
}

/// It does not start over a file with another version. Put back too late, it says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_witness_votes_only_on_versions_it_speaks() {
    let (house, older) = begun().await;
    let pong = house.pong().await;
    assert_eq!((pong.speaks, pong.protocol), (Versions::OURS, 1));
    let first = view(1, house.acceptor().await.0);
    let second = Arc::new(View::from_content(Content { protocol: NEXT, ..first.content() }));
    let refused = "the regions go by protocol version 2 and this witness speaks 1-1";
    let replied = house.ask(Question::Acceptor { to: None, message: found_by(&second) }).await;
    assert!(matches!(&replied, PeerReply::Refused(why) if why.starts_with(refused)), "{replied:?}");
    assert_eq!(house.message(found_by(&first)).await, Reply::Accepted);
    drop(older);

    let newer = house.start_with(&["--speaks=1-2"]).await;
    let pong = house.pong().await;
    assert_eq!((pong.speaks, pong.protocol), (Versions::new(1, 2).unwrap(), 1));
    let raised = Arc::new(first.next(&Change::Protocol(NEXT)).unwrap());
    assert!(matches!(house.message(prepare(7)).await, Reply::Promised(_)), "it is founded");
    assert_eq!(house.message(accept(7, &raised)).await, Reply::Accepted);
    drop(newer);
    let (code, said) = house.ended(&[]);
    assert!(code == Some(1) && said.contains(refused), "{code:?}: {said}");
}
