//! Every message of the peer plane, well-formed, as requests of one sender, and a function that
//! sends them to a real peer listener. Suites send them with certificates that may not.

use super::*;
use http_body_util::Full;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use onceway::adapters::identity::server_name;
use onceway::adapters::issue::{Purpose, add};
use onceway::adapters::wire;
use onceway::adapters::wire::ask::encode_ask;
use onceway::ports::peers::{Proof, Question};
use onceway::ports::store::Attempt;
use onceway::protocol::digest::digest;
use onceway::protocol::record::{Answer, AnswerBody};
use onceway::protocol::register::{Ballot, Message};
use onceway::protocol::ring::Ring;
use onceway::protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use onceway::protocol::versions::Versions;
use onceway::protocol::view::View;
use onceway_lab::contract::escrow::lodging_of;
use onceway_lab::contract::peers::forward;
use rustls::ClientConfig;
use tokio_rustls::TlsConnector;

/// No deployment reaches this epoch, nor the one whose register the runbook poisons.
pub const POISONED: u64 = 9_200_000_000_000_000_000;

type Said = (Kind, Request<Bytes>);

/// All twenty, as requests of `from` to `to`. `named` is the region for which they speak.
pub fn all(from: &RegionName, named: &RegionName, to: &RegionName) -> Vec<Said> {
    let get = |path| wire::encode_get(from, Versions::OURS, to, path);
    let mut said = vec![
        (Kind::Hello, get(wire::HELLO_PATH)),
        (Kind::Ping, get(wire::PING_PATH)),
        (Kind::Forward, wire::encode_forward(from, to, forward("mallory")).unwrap()),
    ];
    let asked = questions(named, to).into_iter();
    said.extend(asked.map(|question| (question.kind(), encode_ask(from, Versions::OURS, to, &question))));
    let kinds: BTreeSet<Kind> = said.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds.len(), Kind::ALL.len(), "{kinds:?}");
    said
}

/// Each message that `sender` may not send is refused. Returns their number.
pub async fn forbidden(identity: &PeerIdentity, sender: Sender, to: &RegionName, at: &str) -> usize {
    let (me, may_not) = (&identity.me, |kind: &Kind| !kind.list_senders().contains(&sender));
    let said = all(me, me, to).into_iter().filter(|(kind, _)| may_not(kind));
    refused(identity, to, at, said.collect()).await
}

/// Each message that must not name another region is refused. Returns their number.
pub async fn in_anothers_name(of: &PeerIdentity, named: &RegionName, to: &RegionName, at: &str) -> usize {
    let said = all(&of.me, named, to).into_iter().filter(|(kind, _)| kind.is_of_its_sender());
    refused(of, to, at, said.collect()).await
}

async fn refused(identity: &PeerIdentity, to: &RegionName, at: &str, said: Vec<Said>) -> usize {
    let count = said.len();
    for (kind, request) in said {
        // A busy machine may cut a connection before its answer.
        let answered = async || say(identity, to, at, request.clone()).await.ok();
        let (status, code) = found("an answer of the peer listener", answered).await;
        assert_eq!((status.as_u16(), code.as_str()), (403, "peer-forbidden"), "{}", kind.name());
    }
    count
}

pub fn listens(fleet: &Deployment, region: &Region) -> String {
    let file = fs::read_to_string(fleet.dir().join(format!("{}.toml", region.name))).unwrap();
    let peer = file.lines().find_map(|line| line.strip_prefix("peer = \"")?.strip_suffix('"'));
    peer.unwrap().to_owned()
}

/// A certificate of the deployment's authority that belongs to no region.
pub fn stranger(fleet: &Deployment) -> PeerIdentity {
    let (folder, mallory) = (fleet.dir().join("certificates"), RegionName::parse("mallory").unwrap());
    add(&folder, std::slice::from_ref(&mallory), Purpose::Region).unwrap();
    PeerIdentity::load(mallory.clone(), &files_in(&folder, &mallory)).unwrap()
}

/// The refusal of a ping under this identity, over a new connection; empty if it is answered.
pub async fn refusal(identity: &PeerIdentity, fleet: &Deployment, region: &Region) -> String {
    let at = BTreeMap::from([(region.name.clone(), listens(fleet, region))]);
    let said = HttpPeers::new(identity, at).ping(&region.name, Duration::from_secs(5)).await;
    said.err().map(|error| error.to_string()).unwrap_or_default()
}

fn id() -> KeyId {
    KeyId::new(Tenant::parse("acme").unwrap(), Key::parse("mallory-1").unwrap())
}

fn questions(from: &RegionName, to: &RegionName) -> Vec<Question> {
    // It seals every region except its sender, in an epoch that no deployment reaches.
    let regions = vec![RegionSpec { name: from.clone(), weight: 1 }];
    let ring = Ring::build(&RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() });
    let ring = Arc::new(ring.unwrap());
    let view = Arc::new(View::founding(POISONED, ring, Default::default(), Default::default()));
    let (boot, ttl) = (digest("m", &[]), Duration::from_secs(3));
    let ballot = Ballot { counter: u64::MAX, region: from.clone(), proposer: 1 };
    let messages = [
        Message::Read,
        Message::Prepare { ballot: ballot.clone() },
        Message::Accept { ballot: ballot.clone(), view: view.clone() },
        Message::Renew { region: from.clone(), boot, holder: 1, starts: 1, view: view.clone(), ttl },
        Message::Force { ballot: ballot.clone(), view: view.clone() },
        Message::Found { ballot, view: view.clone() },
    ];
    let (token, nonce) = (Token { epoch: 1, attempt: 1 }, Nonce(7));
    let origin = |name: &RegionName| Origin { region: name.clone(), generation: 1 };
    let answer = Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(Vec::new()) };
    let attempt = || Attempt { id: id(), token, nonce };
    let lodging = lodging_of(id(), origin(from), token, nonce);
    let text = || "mallory".to_owned();
    let proof = Proof { authorization: "Bearer t".to_owned(), approval: None };
    let more = [
        Question::Views { after: 0 },
        Question::Adopt { view: view.clone() },
        Question::Release { target: view },
        Question::Frontier { origin: origin(to), at: 0 },
        Question::Rows { origin: origin(to), after: None, most: 100 },
        Question::Latest { origin: origin(from), from: 0, most: 100 },
        Question::Lodge(Box::new(lodging)),
        Question::LodgeAnswer { attempt: attempt(), answer: Arc::new(answer) },
        Question::Void(attempt()),
        Question::AcceptRisk { region: to.clone(), at: 1, actor: text(), reason: text() },
        Question::Key { id: id() },
        Question::Doubts { after: None, most: 100 },
        Question::Jobs { state: None },
        Question::Act { path: "v1/keys/acme/k/release".to_owned(), body: "{}".to_owned(), proof },
    ];
    let asked = messages.into_iter().map(|message| Question::Acceptor { to: None, message });
    asked.chain(more).collect()
}

/// hyper 1.12 may leave a request without an error whose connection ends just then.
async fn first_answer(
    (mut sender, driver): (SendRequest<Full<Bytes>>, impl Future),
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, String> {
    tokio::select! {
        biased;
        answer = sender.send_request(request) => answer.map_err(|error| error.to_string()),
        _ = driver => Err("the connection ended before the answer".to_owned()),
    }
}

pub async fn raw(
    config: Arc<ClientConfig>,
    to: &RegionName,
    address: &str,
    request: Request<Bytes>,
) -> Result<Response<Incoming>, String> {
    let said = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(config).connect(server_name(to), stream).await;
        let stream = TokioIo::new(stream.map_err(|error| error.to_string())?);
        let made = handshake(TokioExecutor::new(), stream).await.map_err(|error| error.to_string())?;
        first_answer(made, request.map(Full::new)).await
    };
    tokio::time::timeout(BOUND, said).await.expect("this took too long")
}

/// The same under an identity. Returns the status and the problem's code.
pub async fn say(
    identity: &PeerIdentity,
    to: &RegionName,
    address: &str,
    request: Request<Bytes>,
) -> Result<(StatusCode, String), String> {
    let response = raw(identity.client_config(), to, address, request).await?;
    let status = response.status();
    let body = tokio::time::timeout(BOUND, response.into_body().collect()).await.expect("this took too long");
    let json = body.map_err(|error| error.to_string())?.to_bytes();
    let problem: Value = serde_json::from_slice(&json).unwrap_or_default();
    Ok((status, problem["code"].as_str().unwrap_or_default().to_owned()))
}
