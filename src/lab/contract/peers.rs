//! The promises of [`Peers`]: one call is one attempt, and a failed call is "not sent" only if
//! surely so.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, Uri};

use super::{SLACK, bounded, is_waited_for, read};
use onceway_ports::peers::{Beat, Forward, ForwardReply, PeerError, PeerReply, Pong, Proof, Question};
use onceway_ports::store::Attempt;
use onceway_ports::{Body, Clock, Peers};
use onceway_protocol::change::Report;
use onceway_protocol::digest::{Digest32, digest};
use onceway_protocol::job::JobState;
use onceway_protocol::key::{Key, KeyId, Tenant};
use onceway_protocol::record::{Answer, AnswerBody, Nonce, RequestId, Token};
use onceway_protocol::region::{Origin, RegionName};
use onceway_protocol::register::{Accepted, Ballot, Message, Reply};
use onceway_protocol::ring::Ring;
use onceway_protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use onceway_protocol::versions::{NEWEST, Versions};
use onceway_protocol::view::{AcceptorId, Release, View};

/// Refusing, breaking and hanging hold for forwards, pings and questions alike.
#[derive(Clone, Debug)]
pub enum PeerBehaviour {
    /// Answers every forward after this time of its handler, with this status and body.
    Answer {
        after: Duration,
        status: u16,
        body: Bytes,
    },
    NotOwner {
        epoch: u64,
    },
    /// Nothing listens: connections are refused, and the caller's machine knows that standing ones
    /// have ended.
    Refuse,
    BreakAfterReading,
    /// Accepts and reads, and never answers anything.
    Hang,
}

pub trait PeersBench: Sync {
    type Peers: Peers;
    type Clock: Clock;

    /// The caller's side. [`peer`] is the one region that it knows.
    fn peers(&self) -> &Self::Peers;

    fn clock(&self) -> &Self::Clock;

    /// Changes the peer's behaviour, and forgets the calls that arrived.
    fn behave(&self, behaviour: PeerBehaviour) -> impl Future<Output = ()> + Send;

    /// Sets the answer to pings, for while the peer answers.
    fn set_pong(&self, pong: Pong) -> impl Future<Output = ()> + Send;

    /// Sets the answer to questions, for while the peer answers.
    fn set_reply(&self, reply: PeerReply) -> impl Future<Output = ()> + Send;

    /// All forwards that arrived whole since the last `behave`, as its handler saw them.
    fn arrived(&self) -> impl Future<Output = Vec<Forward>> + Send;

    fn asked(&self) -> impl Future<Output = Vec<Question>> + Send;
}

fn peer() -> RegionName {
    RegionName::parse("us").expect("a region")
}

fn unlisted() -> RegionName {
    RegionName::parse("nowhere").expect("a region")
}

/// A bound that an answer keeps.
const LONG: Duration = Duration::from_secs(5);
/// A bound that a hanging peer exceeds.
const TIGHT: Duration = Duration::from_millis(250);

pub async fn suite(bench: &impl PeersBench) {
    a_forward_arrives_whole_and_once(bench).await;
    an_answer_comes_back_whole(bench).await;
    a_slow_answer_is_waited_for(bench).await;
    not_the_owner_is_told(bench).await;
    a_call_that_reaches_nobody_was_not_sent(bench).await;
    a_broken_forward_is_unknown(bench).await;
    a_dropped_forward_is_not_sent_again(bench).await;
    a_pong_comes_back_whole(bench).await;
    a_ping_gives_up_within_its_bound(bench).await;
    a_peer_that_comes_back_is_reached(bench).await;
}

/// The promises of [`Peers::ask`]: a question is asked once, and both ways arrive unchanged.
pub async fn asking(bench: &impl PeersBench) {
    a_question_arrives_whole_and_once(bench).await;
    a_peers_reply_arrives_unchanged(bench).await;
    a_question_without_an_answer_is_unknown(bench).await;
}

async fn a_forward_arrives_whole_and_once(bench: &impl PeersBench) {
    bench.behave(answers(200, "")).await;
    let sent = forward("whole");
    assert_eq!(read(answered(bench, sent.clone()).await).await, b"");
    let mut arrived = bench.arrived().await;
    assert_eq!(arrived.len(), 1, "peers: one forward must arrive once");
    let seen = arrived.remove(0);
    for name in sent.headers.keys() {
        let values = |of: &Forward| of.headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(values(&seen), values(&sent), "peers: header {name} changed on the way");
    }
    let slack = Duration::from_millis(1);
    assert!(seen.deadline <= sent.deadline + slack, "peers: a deadline must not grow on the way");
    assert!(seen.deadline * 2 > sent.deadline, "peers: {:?} is left of {:?}", seen.deadline, sent.deadline);
    // The way may add headers of its own.
    let want = Forward { headers: seen.headers.clone(), deadline: seen.deadline, ..sent };
    assert_eq!(seen, want, "peers: the forward changed on the way");
}

async fn an_answer_comes_back_whole(bench: &impl PeersBench) {
    for (status, body) in [(201, "made".to_owned()), (503, String::new()), (422, "x".repeat(200_000))] {
        bench.behave(answers(status, &body)).await;
        let response = answered(bench, forward("answer")).await;
        assert_eq!(response.status().as_u16(), status, "peers: the status changed on the way");
        let read = read(response).await;
        assert!(read == body.as_bytes(), "peers: {} bytes of {} came back", read.len(), body.len());
    }
}

async fn a_slow_answer_is_waited_for(bench: &impl PeersBench) {
    let after = Duration::from_millis(300);
    bench.behave(PeerBehaviour::Answer { after, status: 200, body: Bytes::from_static(b"slow") }).await;
    is_waited_for(bench.clock(), after, "peers: an answer", answered(bench, forward("slow"))).await;
    assert_eq!(bench.arrived().await.len(), 1, "peers: one forward must arrive once");
}

async fn not_the_owner_is_told(bench: &impl PeersBench) {
    bench.behave(PeerBehaviour::NotOwner { epoch: 1 << 40 }).await;
    match reply(bench, forward("not-owner")).await {
        ForwardReply::NotOwner { epoch } => assert_eq!(epoch, 1 << 40, "peers: the peer's epoch changed"),
        ForwardReply::Answer(response) => panic!("peers: `not the owner` came as {}", response.status()),
    }
}

async fn a_call_that_reaches_nobody_was_not_sent(bench: &impl PeersBench) {
    for (behaviour, to) in [(PeerBehaviour::Refuse, peer()), (answers(200, ""), unlisted())] {
        bench.behave(behaviour).await;
        let pinged = ping(bench, &to, LONG).await.expect_err("peers: nobody answered a ping");
        let asked = ask(bench, &to, views(0), LONG).await.expect_err("peers: nobody answered a question");
        for error in [failure(bench, &to, forward("refused")).await, pinged, asked] {
            assert!(matches!(error, PeerError::NotSent(_)), "peers: nothing is sent to {to}: {error}");
        }
        assert!(bench.arrived().await.is_empty(), "peers: a forward that was not sent arrived");
        assert!(bench.asked().await.is_empty(), "peers: a question that was not sent arrived");
    }
}

async fn a_broken_forward_is_unknown(bench: &impl PeersBench) {
    // The first one leaves a connection open, which looks good to the second until it breaks.
    bench.behave(answers(200, "")).await;
    reply(bench, forward("before-broken")).await;
    bench.behave(PeerBehaviour::BreakAfterReading).await;
    let error = failure(bench, &peer(), forward("broken")).await;
    assert!(matches!(error, PeerError::Unknown(_)), "peers: it was read, so it may have worked: {error}");
    assert_eq!(bench.arrived().await.len(), 1, "peers: one forward must arrive once, broken or not");
}

async fn a_dropped_forward_is_not_sent_again(bench: &impl PeersBench) {
    bench.behave(PeerBehaviour::Hang).await;
    let (clock, peer) = (bench.clock(), peer());
    {
        let mut hanging = pin!(bench.peers().forward(&peer, forward("dropped")));
        let deadline = clock.now() + SLACK;
        while bench.arrived().await.is_empty() {
            assert!(clock.now() < deadline, "bench: a hanging peer must read what it is sent");
            tokio::select! {
                biased;
                _ = &mut hanging => panic!("peers: a peer that hangs gave an answer"),
                () = clock.sleep_until(clock.now() + Duration::from_millis(5)) => {}
            }
        }
    }
    bench.behave(answers(200, "")).await;
    reply(bench, forward("after-dropped")).await;
    let arrived = bench.arrived().await;
    assert_eq!(arrived.len(), 1, "peers: only the newest forward may arrive");
    assert_eq!(arrived[0].id, forward("after-dropped").id, "peers: a dropped forward was sent again");
}

async fn a_pong_comes_back_whole(bench: &impl PeersBench) {
    bench.behave(answers(200, "")).await;
    let beat = Beat { seq: 1 << 40, age: Duration::from_millis(70) };
    let origin = |region, generation| Origin { region, generation };
    let applied = [(origin(peer(), 1), 1 << 40), (origin(unlisted(), u32::MAX), 0)].into();
    let own = Some(origin(peer(), 2));
    let heard = [(origin(peer(), 1), 1 << 41)].into();
    for pong in [Pong { serving: true, beat: Some(beat), origin: own, applied, heard, ..pong() }, pong()] {
        bench.set_pong(pong.clone()).await;
        let mut got = ping(bench, &peer(), LONG).await.expect("peers: no pong came");
        if let (Some(got), Some(set)) = (&mut got.beat, &pong.beat) {
            assert!(got.age >= set.age, "peers: a heartbeat cannot get younger on the way: {:?}", got.age);
            got.age = set.age;
        }
        assert_eq!(got, pong, "peers: the pong changed on the way");
    }
}

async fn a_ping_gives_up_within_its_bound(bench: &impl PeersBench) {
    bench.behave(PeerBehaviour::Hang).await;
    assert!(ping(bench, &peer(), TIGHT).await.is_err(), "peers: a peer that hangs answered a ping");
}

async fn a_peer_that_comes_back_is_reached(bench: &impl PeersBench) {
    for down in [PeerBehaviour::Refuse, PeerBehaviour::BreakAfterReading] {
        bench.behave(down).await;
        failure(bench, &peer(), forward("down")).await;
        bench.behave(answers(200, "back")).await;
        until_reached(bench, async || match bench.peers().forward(&peer(), forward("back")).await {
            Ok(ForwardReply::NotOwner { .. }) => panic!("{WRONG_REPLY}"),
            reply => reply.is_ok(),
        })
        .await;
    }
}

async fn a_question_arrives_whole_and_once(bench: &impl PeersBench) {
    bench.set_reply(PeerReply::Done).await;
    for question in questions(peer()) {
        bench.behave(answers(200, "")).await;
        let reply = ask(bench, &peer(), question.clone(), LONG).await;
        assert_eq!(reply, Ok(PeerReply::Done), "peers: {question:?}");
        assert_eq!(bench.asked().await, [question], "peers: one question must arrive once, as it was asked");
    }
}

async fn a_peers_reply_arrives_unchanged(bench: &impl PeersBench) {
    bench.behave(answers(200, "")).await;
    for reply in tellings(peer()) {
        bench.set_reply(reply.clone()).await;
        let back = ask(bench, &peer(), views(0), LONG).await;
        assert_eq!(back, Ok(reply), "peers: what was told changed on the way");
    }
}

async fn a_question_without_an_answer_is_unknown(bench: &impl PeersBench) {
    standing(bench).await;
    bench.behave(PeerBehaviour::BreakAfterReading).await;
    let broken = ask(bench, &peer(), views(1), LONG).await;
    assert!(matches!(broken, Err(PeerError::Unknown(_))), "peers: it was read: {broken:?}");
    assert_eq!(bench.asked().await, [views(1)], "peers: one question must arrive once");
    standing(bench).await;
    bench.behave(PeerBehaviour::Hang).await;
    let silent = ask(bench, &peer(), views(0), TIGHT).await;
    assert!(matches!(silent, Err(PeerError::Unknown(_))), "peers: a peer that hangs: {silent:?}");
}

/// Waits until the peer answers over a standing connection.
async fn standing(bench: &impl PeersBench) {
    bench.behave(answers(200, "")).await;
    until_reached(bench, async || ask(bench, &peer(), views(0), LONG).await.is_ok()).await;
}

/// Calls until the peer answers, as it may just have come back.
async fn until_reached(bench: &impl PeersBench, reaches: impl AsyncFn() -> bool) {
    let deadline = bench.clock().now() + SLACK;
    while !reaches().await {
        assert!(bench.clock().now() < deadline, "peers: a peer that answers was not reached");
        bench.clock().sleep_until(bench.clock().now() + Duration::from_millis(20)).await;
    }
}

const WRONG_REPLY: &str = "peers: an owner's answer came back as `not the owner`, or the other way round";

fn answers(status: u16, body: &str) -> PeerBehaviour {
    PeerBehaviour::Answer { after: Duration::ZERO, status, body: Bytes::copy_from_slice(body.as_bytes()) }
}

fn tenant() -> Tenant {
    Tenant::parse("acme.eu_1").expect("a tenant")
}

/// A forward with a value of its own in every field.
pub fn forward(key: &str) -> Forward {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.append("x-twice", HeaderValue::from_static("1"));
    headers.append("x-twice", HeaderValue::from_static("2"));
    headers.insert("x-latin", HeaderValue::from_bytes(b"caf\xe9").expect("obs-text is allowed"));
    let key = Key::parse(&format!("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{{|}}~{key}")).expect("a key");
    Forward {
        id: KeyId::new(tenant(), key),
        principal: Some(digest("onceway/contract/principal", &[])),
        method: Method::POST,
        target: Uri::from_static("/v1/charges?a=1&b=%20"),
        headers,
        body: Bytes::from((0..=255).collect::<Vec<u8>>()),
        request_id: RequestId(u128::MAX - 1),
        epoch: 1 << 40,
        deadline: Duration::from_secs(20),
    }
}

/// The pong of a region that serves nothing and has heard of nobody.
pub fn pong() -> Pong {
    Pong {
        speaks: Versions::OURS,
        protocol: NEWEST,
        epoch: 3,
        view: digest("onceway/contract/view", &[]),
        shared: digest("onceway/contract/shared", &[]),
        serving: false,
        beat: None,
        origin: None,
        upstream_failing: false,
        applied: BTreeMap::new(),
        heard: BTreeMap::new(),
    }
}

async fn reply(bench: &impl PeersBench, forward: Forward) -> ForwardReply {
    let peer = peer();
    let call = bench.peers().forward(&peer, forward);
    bounded(bench.clock(), Duration::ZERO, "peers: forward", call).await.expect("peers: the forward failed")
}

async fn answered(bench: &impl PeersBench, forward: Forward) -> Response<Body> {
    let ForwardReply::Answer(response) = reply(bench, forward).await else { panic!("{WRONG_REPLY}") };
    response
}

async fn failure(bench: &impl PeersBench, to: &RegionName, forward: Forward) -> PeerError {
    let call = bench.peers().forward(to, forward);
    match bounded(bench.clock(), Duration::ZERO, "peers: a forward that fails", call).await {
        Err(error) => error,
        Ok(_) => panic!("peers: a forward to {to} came back though nothing could answer it"),
    }
}

async fn ping(bench: &impl PeersBench, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
    bounded(bench.clock(), within, "peers: ping", bench.peers().ping(to, within)).await
}

async fn ask(
    bench: &impl PeersBench,
    to: &RegionName,
    question: Question,
    within: Duration,
) -> Result<PeerReply, PeerError> {
    bounded(bench.clock(), within, "peers: ask", bench.peers().ask(to, question, within)).await
}

fn views(after: u64) -> Question {
    Question::Views { after }
}

fn view(region: &RegionName) -> Arc<View> {
    let regions = vec![RegionSpec { name: region.clone(), weight: 3 }];
    let spec = RingSpec { seed: u64::MAX, place_by: PlaceBy::Tenant, regions, pins: Vec::new() };
    let ring = Arc::new(Ring::build(&spec).expect("a ring"));
    let voters = BTreeMap::from([(region.clone(), AcceptorId(u128::MAX))]);
    Arc::new(View::founding(1 << 40, ring, [(Arc::from("charges"), Digest32::new([7; 32]))].into(), voters))
}

fn questions(region: RegionName) -> Vec<Question> {
    let (token, nonce) = (Token { epoch: 1 << 40, attempt: u32::MAX }, Nonce(u128::MAX - 1));
    let id = || KeyId::new(tenant(), Key::parse("!\"#\\~").expect("a key"));
    let attempt = || Attempt { id: id(), token, nonce };
    let headers = vec![("content-type".to_owned(), b"caf\xe9".to_vec())];
    let answer = Arc::new(Answer { status: 201, headers, body: AnswerBody::Kept((0..=255).collect()) });
    let ballot = Ballot { counter: 1 << 40, region: region.clone(), proposer: u64::MAX };
    let origin = Origin { region: region.clone(), generation: 2 };
    let view = view(&region);
    let message = Message::Accept { ballot, view: view.clone() };
    let (actor, reason) = ("Zoë".to_owned(), "a \"fire\"\n".to_owned());
    vec![
        Question::Acceptor { to: None, message: Message::Read },
        Question::Acceptor { to: Some(AcceptorId(1)), message },
        Question::Adopt { view },
        Question::Rows { origin: origin.clone(), after: Some(id()), most: 1_000 },
        Question::Latest { origin: origin.clone(), from: 1 << 40, most: 1_000 },
        Question::LodgeAnswer { attempt: attempt(), answer },
        Question::Void(attempt()),
        Question::Doubts { after: Some(id()), most: 1_000 },
        Question::Jobs { state: Some(JobState::Dead) },
        Question::Act {
            path: "v1/keys/acme/k/release".to_owned(),
            body: "{}".to_owned(),
            proof: Proof { authorization: "Bearer t".to_owned(), approval: Some("ey".to_owned()) },
        },
        Question::Frontier { origin, at: 1 << 40 },
        Question::AcceptRisk { region, at: 7, actor, reason },
    ]
}

fn tellings(region: RegionName) -> Vec<PeerReply> {
    let view = view(&region);
    let ballot = Ballot { counter: 1, region: region.clone(), proposer: 0 };
    let release = Release { base: 1 << 40, target: digest("onceway/contract/target", &[]) };
    let seen = BTreeMap::from([(Origin { region, generation: 2 }, 1 << 40)]);
    vec![
        PeerReply::Acceptor(Reply::Promised(Accepted { ballot, view: view.clone() })),
        PeerReply::Views(vec![view.clone(), view]),
        PeerReply::Views(Vec::new()),
        PeerReply::Released(Report { generation: 3, seal: 1 << 40, release, seen }),
        PeerReply::Refused("not now: \"no\"".to_owned()),
    ]
}
