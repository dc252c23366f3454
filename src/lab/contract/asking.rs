//! The promises of [`Peers::ask`]: a question is asked once, and it and its answer arrive
//! unchanged.
//!
//! This file must not test what a question is worth. [`super::peers`] has the bench and the rest of
//! the port.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::bounded;
use super::peers::{PeerBehaviour, PeersBench};
use onceway_ports::peers::{PeerError, PeerReply, Proof, Question};
use onceway_ports::{Clock, Peers};
use onceway_protocol::change::Report;
use onceway_protocol::digest::{Digest32, digest};
use onceway_protocol::job::JobState;
use onceway_protocol::key::{Key, KeyId, Tenant};
use onceway_protocol::record::{Answer, AnswerBody, Nonce, Token};
use onceway_protocol::region::{Origin, RegionName};
use onceway_protocol::register::{Accepted, Ballot, Message, Reply};
use onceway_protocol::ring::Ring;
use onceway_protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use onceway_protocol::view::{AcceptorId, Release, View};

/// A bench whose peer can be asked. Its behaviour towards forwards (refuse, break, hang) holds for
/// questions too.
pub trait AskBench: PeersBench {
    fn set_told(&self, reply: PeerReply) -> impl Future<Output = ()> + Send;

    /// All questions that arrived whole since the last `behave`, as its handler saw them.
    fn asked(&self) -> impl Future<Output = Vec<Question>> + Send;
}

pub async fn suite<B: AskBench>(bench: &B) {
    a_question_arrives_whole_and_once(bench).await;
    a_peers_reply_arrives_unchanged(bench).await;
    a_question_that_was_not_sent_is_told_so(bench).await;
    a_broken_question_is_unknown(bench).await;
    a_question_gives_up_within_its_bound(bench).await;
}

pub async fn a_question_arrives_whole_and_once<B: AskBench>(bench: &B) {
    bench.set_told(PeerReply::Done).await;
    for question in questions(bench.peer()) {
        bench.behave(answers()).await;
        let reply = ask(bench, &bench.peer(), question.clone(), LONG).await;
        assert_eq!(reply, Ok(PeerReply::Done), "peers: {question:?}");
        let asked = bench.asked().await;
        assert!(asked == [question], "peers: one question must arrive once, as it was asked: {asked:?}");
    }
}

pub async fn a_peers_reply_arrives_unchanged<B: AskBench>(bench: &B) {
    bench.behave(answers()).await;
    for reply in tellings(bench.peer()) {
        bench.set_told(reply.clone()).await;
        let back = ask(bench, &bench.peer(), Question::Views { after: 0 }, LONG).await;
        assert_eq!(back, Ok(reply), "peers: what was told changed on the way");
    }
}

pub async fn a_question_that_was_not_sent_is_told_so<B: AskBench>(bench: &B) {
    bench.behave(answers()).await;
    let unlisted = ask(bench, &bench.unlisted(), Question::Views { after: 0 }, LONG).await;
    assert!(matches!(unlisted, Err(PeerError::NotSent(_))), "peers: there is no such region: {unlisted:?}");
    bench.behave(PeerBehaviour::Refuse).await;
    let refused = ask(bench, &bench.peer(), Question::Views { after: 0 }, LONG).await;
    assert!(matches!(refused, Err(PeerError::NotSent(_))), "peers: nothing was sent: {refused:?}");
    assert!(bench.asked().await.is_empty(), "peers: a question that was not sent arrived");
}

/// A connection that breaks after the question was read is unknown, and the question is not asked
/// again.
pub async fn a_broken_question_is_unknown<B: AskBench>(bench: &B) {
    reach(bench).await;
    bench.behave(PeerBehaviour::BreakAfterReading).await;
    let broken = ask(bench, &bench.peer(), Question::Views { after: 1 }, LONG).await;
    assert!(matches!(broken, Err(PeerError::Unknown(_))), "peers: it was read: {broken:?}");
    let asked = bench.asked().await;
    assert!(asked == [Question::Views { after: 1 }], "peers: one question must arrive once: {asked:?}");
}

pub async fn a_question_gives_up_within_its_bound<B: AskBench>(bench: &B) {
    reach(bench).await;
    bench.behave(PeerBehaviour::Hang).await;
    let within = Duration::from_millis(250);
    let silent = ask(bench, &bench.peer(), Question::Views { after: 0 }, within).await;
    assert!(matches!(silent, Err(PeerError::Unknown(_))), "peers: a peer that hangs: {silent:?}");
}

/// Waits until the peer answers over a standing connection, as it may just have come back.
async fn reach<B: AskBench>(bench: &B) {
    bench.behave(answers()).await;
    let deadline = bench.clock().now() + super::SLACK;
    while ask(bench, &bench.peer(), Question::Views { after: 0 }, LONG).await.is_err() {
        assert!(bench.clock().now() < deadline, "peers: a peer that answers was not reached");
        bench.clock().sleep_until(bench.clock().now() + Duration::from_millis(20)).await;
    }
}

const LONG: Duration = Duration::from_secs(5);

fn answers() -> PeerBehaviour {
    PeerBehaviour::Answer { after: Duration::ZERO, status: 200, body: bytes::Bytes::new() }
}

async fn ask<B: AskBench>(
    bench: &B,
    to: &RegionName,
    question: Question,
    within: Duration,
) -> Result<PeerReply, PeerError> {
    let clock: &B::Clock = bench.clock();
    let begun = clock.now();
    let reply = bounded(clock, within, "peers: ask", bench.peers().ask(to, question, within)).await;
    let took = clock.now().since(begun);
    assert!(took <= within + super::SLACK, "peers: a question took {took:?}");
    reply
}

fn view(region: &RegionName) -> Arc<View> {
    let regions = vec![RegionSpec { name: region.clone(), weight: 3 }];
    let spec = RingSpec { seed: u64::MAX, place_by: PlaceBy::Tenant, regions, pins: Vec::new() };
    let ring = Arc::new(Ring::build(&spec).expect("a ring"));
    let voters = BTreeMap::from([(region.clone(), AcceptorId(u128::MAX))]);
    Arc::new(View::founding(1 << 40, ring, [(Arc::from("charges"), Digest32::new([7; 32]))].into(), voters))
}

fn id() -> KeyId {
    KeyId::new(Tenant::parse("acme.eu_1").expect("a tenant"), Key::parse("!\"#\\~").expect("a key"))
}

fn answer() -> Arc<Answer> {
    let headers = vec![("content-type".to_owned(), b"caf\xe9".to_vec())];
    Arc::new(Answer { status: 201, headers, body: AnswerBody::Kept((0..=255).collect()) })
}

fn questions(region: RegionName) -> Vec<Question> {
    let (token, nonce) = (Token { epoch: 1 << 40, attempt: u32::MAX }, Nonce(u128::MAX - 1));
    let ballot = Ballot { counter: 1 << 40, region: region.clone(), proposer: u64::MAX };
    let origin = Origin { region: region.clone(), generation: 2 };
    let message = Message::Accept { ballot, view: view(&region) };
    let risk = Question::AcceptRisk {
        region: region.clone(),
        at: 7,
        actor: "Zoë".to_owned(),
        reason: "a \"fire\"\n".to_owned(),
    };
    vec![
        Question::Acceptor { to: None, message: Message::Read },
        Question::Acceptor { to: Some(AcceptorId(1)), message },
        Question::Adopt { view: view(&region) },
        Question::Rows { origin: origin.clone(), after: Some(id()), most: 1_000 },
        Question::Latest { origin: origin.clone(), from: 1 << 40, most: 1_000 },
        Question::LodgeAnswer { id: id(), token, nonce, answer: answer() },
        Question::Void { id: id(), token, nonce },
        Question::Doubts { after: Some(id()), most: 1_000 },
        Question::Jobs { state: Some(JobState::Dead) },
        Question::Act {
            path: "v1/keys/acme/k/release".to_owned(),
            body: "{}".to_owned(),
            proof: Proof { authorization: "Bearer t".to_owned(), approval: Some("ey".to_owned()) },
        },
        Question::Frontier { origin, at: 1 << 40 },
        risk,
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
