//! The promises of [`Peers`]: one call is one attempt, and a failed call is "not sent" only if
//! surely so.
//!
//! This file must not test who owns a key, nor certificates.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri};

use super::{bounded, whole};
use onceway_ports::peers::{Beat, Forward, ForwardReply, PeerError, Pong};
use onceway_ports::{Clock, Peers};
use onceway_protocol::digest::digest;
use onceway_protocol::key::{Key, KeyId, Tenant};
use onceway_protocol::record::RequestId;
use onceway_protocol::region::{Origin, RegionName};
use onceway_protocol::versions::{NEWEST, Versions};

#[derive(Clone, Debug)]
pub enum PeerBehaviour {
    /// Answers every forward after this time with this status and body.
    Answer {
        /// The time that the handler takes.
        after: Duration,
        status: u16,
        body: Bytes,
    },
    /// Answers every forward with "not the owner".
    NotOwner {
        epoch: u64,
    },
    /// Nothing listens: connections are refused, and the caller's machine knows that standing ones
    /// have ended.
    Refuse,
    BreakAfterReading,
    /// Accepts and reads, and never answers anything, pings included.
    Hang,
}

pub trait PeersBench: Sync {
    type Peers: Peers;
    type Clock: Clock;

    fn peers(&self) -> &Self::Peers;

    fn clock(&self) -> &Self::Clock;

    fn peer(&self) -> RegionName;

    fn unlisted(&self) -> RegionName;

    /// Changes the peer's behaviour, and forgets the calls that arrived.
    fn behave(&self, behaviour: PeerBehaviour) -> impl Future<Output = ()> + Send;

    /// Sets the answer to pings, for while the peer answers.
    fn set_pong(&self, pong: Pong) -> impl Future<Output = ()> + Send;

    /// All forwards that arrived whole since the last `behave`, as its handler saw them.
    fn arrived(&self) -> impl Future<Output = Vec<Forward>> + Send;
}

pub async fn suite<B: PeersBench>(bench: &B) {
    a_forward_arrives_whole_and_once(bench).await;
    an_answer_comes_back_whole(bench).await;
    a_slow_answer_is_waited_for(bench).await;
    not_the_owner_is_told(bench).await;
    a_refused_forward_was_not_sent(bench).await;
    an_unlisted_region_is_not_sent_to(bench).await;
    a_broken_forward_is_unknown(bench).await;
    a_dropped_forward_is_not_sent_again(bench).await;
    a_pong_comes_back_whole(bench).await;
    a_refused_ping_was_not_sent(bench).await;
    a_ping_gives_up_within_its_bound(bench).await;
    a_peer_that_comes_back_is_reached(bench).await;
}

pub async fn a_forward_arrives_whole_and_once<B: PeersBench>(bench: &B) {
    bench.behave(answers(200, "")).await;
    let sent = forward("whole");
    let ForwardReply::Answer(response) = reply(bench, sent.clone()).await else { panic!("{WRONG_REPLY}") };
    assert_eq!(whole(response.into_body()).await.expect("peers: the body broke off"), b"");
    let arrived = bench.arrived().await;
    assert_eq!(arrived.len(), 1, "peers: one forward must arrive once");
    let seen = &arrived[0];
    assert_eq!(seen.id, sent.id, "peers: the key or its tenant changed on the way");
    assert_eq!(seen.principal, sent.principal, "peers: the principal changed on the way");
    assert_eq!((&seen.method, &seen.target), (&sent.method, &sent.target), "peers: the request line changed");
    for name in sent.headers.keys() {
        let (seen, sent) = (values(&seen.headers, name.as_str()), values(&sent.headers, name.as_str()));
        assert_eq!(seen, sent, "peers: header {name} changed on the way");
    }
    assert_eq!(seen.body, sent.body, "peers: the body changed on the way");
    assert_eq!((seen.request_id, seen.epoch), (sent.request_id, sent.epoch), "peers: id or epoch changed");
    let slack = Duration::from_millis(1);
    assert!(seen.deadline <= sent.deadline + slack, "peers: a deadline must not grow on the way");
    assert!(seen.deadline * 2 > sent.deadline, "peers: {:?} is left of {:?}", seen.deadline, sent.deadline);
}

pub async fn an_answer_comes_back_whole<B: PeersBench>(bench: &B) {
    for (status, body) in [(201, "made".to_owned()), (503, String::new()), (422, "x".repeat(200_000))] {
        bench.behave(answers(status, &body)).await;
        let ForwardReply::Answer(response) = reply(bench, forward("answer")).await else {
            panic!("{WRONG_REPLY}")
        };
        assert_eq!(response.status().as_u16(), status, "peers: the status changed on the way");
        let read = whole(response.into_body()).await.expect("peers: the body broke off");
        assert!(read == body.as_bytes(), "peers: {} bytes of {} came back", read.len(), body.len());
    }
}

pub async fn a_slow_answer_is_waited_for<B: PeersBench>(bench: &B) {
    let after = Duration::from_millis(300);
    bench.behave(PeerBehaviour::Answer { after, status: 200, body: Bytes::from_static(b"slow") }).await;
    let begun = bench.clock().now();
    let ForwardReply::Answer(_) = reply(bench, forward("slow")).await else { panic!("{WRONG_REPLY}") };
    let took = bench.clock().now().since(begun);
    assert!(took * 10 > after * 9, "peers: an answer that takes {after:?} came after {took:?}");
    assert_eq!(bench.arrived().await.len(), 1, "peers: one forward must arrive once");
}

pub async fn not_the_owner_is_told<B: PeersBench>(bench: &B) {
    bench.behave(PeerBehaviour::NotOwner { epoch: 1 << 40 }).await;
    match reply(bench, forward("not-owner")).await {
        ForwardReply::NotOwner { epoch } => assert_eq!(epoch, 1 << 40, "peers: the peer's epoch changed"),
        ForwardReply::Answer(response) => panic!("peers: `not the owner` came as {}", response.status()),
    }
}

pub async fn a_refused_forward_was_not_sent<B: PeersBench>(bench: &B) {
    bench.behave(PeerBehaviour::Refuse).await;
    let error = failure(bench, &bench.peer(), forward("refused")).await;
    assert!(matches!(error, PeerError::NotSent(_)), "peers: a refused connection sends nothing: {error}");
    assert!(bench.arrived().await.is_empty(), "peers: a forward that was not sent arrived");
}

pub async fn an_unlisted_region_is_not_sent_to<B: PeersBench>(bench: &B) {
    bench.behave(answers(200, "")).await;
    let unlisted = bench.unlisted();
    let error = failure(bench, &unlisted, forward("unlisted")).await;
    assert!(matches!(error, PeerError::NotSent(_)), "peers: {unlisted} is nobody's name: {error}");
    let error =
        ping(bench, &unlisted, Duration::from_secs(1)).await.expect_err("peers: nobody answered a ping");
    assert!(matches!(error, PeerError::NotSent(_)), "peers: {unlisted} is nobody's name: {error}");
    assert!(bench.arrived().await.is_empty(), "peers: a forward to nobody arrived");
}

/// A connection that breaks after the forward was read is unknown, and the forward is not sent
/// again.
pub async fn a_broken_forward_is_unknown<B: PeersBench>(bench: &B) {
    // The first one leaves a connection open, which looks good to the second until it breaks.
    bench.behave(answers(200, "")).await;
    reply(bench, forward("before-broken")).await;
    bench.behave(PeerBehaviour::BreakAfterReading).await;
    let error = failure(bench, &bench.peer(), forward("broken")).await;
    assert!(matches!(error, PeerError::Unknown(_)), "peers: it was read, so it may have worked: {error}");
    assert_eq!(bench.arrived().await.len(), 1, "peers: one forward must arrive once, broken or not");
}

pub async fn a_dropped_forward_is_not_sent_again<B: PeersBench>(bench: &B) {
    bench.behave(PeerBehaviour::Hang).await;
    let clock = bench.clock();
    let peer = bench.peer();
    {
        let mut hanging = Box::pin(bench.peers().forward(&peer, forward("dropped")));
        let deadline = clock.now() + super::SLACK;
        while bench.arrived().await.is_empty() {
            assert!(clock.now() < deadline, "bench: a hanging peer must read what it is sent");
            let mut nap = Box::pin(clock.sleep_until(clock.now() + Duration::from_millis(5)));
            std::future::poll_fn(|context| {
                let answered = hanging.as_mut().poll(context).is_ready();
                assert!(!answered, "peers: a peer that hangs gave an answer");
                nap.as_mut().poll(context)
            })
            .await;
        }
    }
    bench.behave(answers(200, "")).await;
    reply(bench, forward("after-dropped")).await;
    let arrived = bench.arrived().await;
    assert_eq!(arrived.len(), 1, "peers: only the newest forward may arrive");
    assert_eq!(arrived[0].id, forward("after-dropped").id, "peers: a dropped forward was sent again");
}

pub async fn a_pong_comes_back_whole<B: PeersBench>(bench: &B) {
    bench.behave(answers(200, "")).await;
    let beat = Beat { seq: 1 << 40, age: Duration::from_millis(70) };
    let origin = |region, generation| Origin { region, generation };
    let applied = [(origin(bench.peer(), 1), 1 << 40), (origin(bench.unlisted(), u32::MAX), 0)].into();
    let own = Some(origin(bench.peer(), 2));
    let heard = [(origin(bench.peer(), 1), 1 << 41)].into();
    let full = Pong { serving: true, beat: Some(beat), origin: own, applied, heard, ..pong() };
    for pong in [full, pong()] {
        bench.set_pong(pong.clone()).await;
        let mut got = ping(bench, &bench.peer(), Duration::from_secs(5)).await.expect("peers: no pong came");
        if let (Some(got), Some(set)) = (&mut got.beat, &pong.beat) {
            assert!(got.age >= set.age, "peers: a heartbeat cannot get younger on the way: {:?}", got.age);
            got.age = set.age;
        }
        assert_eq!(got, pong, "peers: the pong changed on the way");
    }
}

pub async fn a_refused_ping_was_not_sent<B: PeersBench>(bench: &B) {
    bench.behave(PeerBehaviour::Refuse).await;
    let error = ping(bench, &bench.peer(), Duration::from_secs(2)).await.expect_err("peers: nobody answered");
    assert!(matches!(error, PeerError::NotSent(_)), "peers: a refused connection sends nothing: {error}");
}

pub async fn a_ping_gives_up_within_its_bound<B: PeersBench>(bench: &B) {
    bench.behave(PeerBehaviour::Hang).await;
    let within = Duration::from_millis(250);
    let silent = ping(bench, &bench.peer(), within).await;
    assert!(silent.is_err(), "peers: a peer that hangs answered a ping");
}

pub async fn a_peer_that_comes_back_is_reached<B: PeersBench>(bench: &B) {
    for down in [PeerBehaviour::Refuse, PeerBehaviour::BreakAfterReading] {
        bench.behave(down).await;
        failure(bench, &bench.peer(), forward("down")).await;
        bench.behave(answers(200, "back")).await;
        let deadline = bench.clock().now() + super::SLACK;
        let mut tries = 0;
        let came_back = loop {
            tries += 1;
            match bench.peers().forward(&bench.peer(), forward("back")).await {
                Ok(ForwardReply::Answer(_)) => break true,
                Ok(ForwardReply::NotOwner { .. }) => panic!("{WRONG_REPLY}"),
                Err(_) if bench.clock().now() < deadline => {
                    bench.clock().sleep_until(bench.clock().now() + Duration::from_millis(20)).await;
                }
                Err(_) => break false,
            }
        };
        assert!(came_back, "peers: a peer that came back was not reached in {tries} tries");
    }
}

const WRONG_REPLY: &str = "peers: an owner's answer came back as `not the owner`, or the other way round";

fn answers(status: u16, body: &str) -> PeerBehaviour {
    PeerBehaviour::Answer { after: Duration::ZERO, status, body: Bytes::copy_from_slice(body.as_bytes()) }
}

/// A forward with a value of its own in every field.
pub fn forward(key: &str) -> Forward {
    let tenant = Tenant::parse("acme.eu_1").expect("a tenant");
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.append("x-twice", HeaderValue::from_static("1"));
    headers.append("x-twice", HeaderValue::from_static("2"));
    headers.insert("x-latin", HeaderValue::from_bytes(b"caf\xe9").expect("obs-text is allowed"));
    Forward {
        id: KeyId::new(
            tenant,
            Key::parse(&format!("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{{|}}~{key}")).expect("a key"),
        ),
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

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}

async fn reply<B: PeersBench>(bench: &B, forward: Forward) -> ForwardReply {
    let peer = bench.peer();
    let call = bench.peers().forward(&peer, forward);
    bounded(bench.clock(), Duration::ZERO, "peers: forward", call).await.expect("peers: the forward failed")
}

async fn failure<B: PeersBench>(bench: &B, to: &RegionName, forward: Forward) -> PeerError {
    let call = bench.peers().forward(to, forward);
    match bounded(bench.clock(), Duration::ZERO, "peers: a forward that fails", call).await {
        Err(error) => error,
        Ok(_) => panic!("peers: a forward to {to} came back though nothing could answer it"),
    }
}

async fn ping<B: PeersBench>(bench: &B, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
    bounded(bench.clock(), within, "peers: ping", bench.peers().ping(to, within)).await
}
