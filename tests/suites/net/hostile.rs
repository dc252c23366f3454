//! Peers that must be refused: other authorities, other regions, no certificate, a second hop,
//! other protocols. No message of them reaches the region's service.

use crate::net::peers::{PATIENCE, PLACES, answer, dial, forward, not_sent, run, us, views};
use crate::net::support::*;
use crate::support::said;
use hyper::body::{Body, Incoming};
use onceway::adapters::issue::{Purpose, add, revoke};
use onceway::adapters::wire;
use onceway::adapters::wire::ask::encode_ask;
use onceway::protocol::versions::{NEWEST, Versions};
use rustls::ClientConfig;
use std::error::Error;

/// A connection to region `us` there, to send more than one request or half of one.
async fn connect<B>(config: Arc<ClientConfig>, address: &str) -> SendRequest<B>
where
    B: Body<Data = Bytes, Error: Error + Send + Sync> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = TlsConnector::from(config).connect(server_name(&region("us")), stream).await.unwrap();
    let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    sender
}

async fn raw(
    config: Arc<ClientConfig>,
    address: &str,
    request: Request<Bytes>,
) -> Result<Response<Incoming>, String> {
    soon(said::raw(config, &region("us"), address, request)).await
}

fn get(from: &str, path: &'static str) -> Request<Bytes> {
    wire::encode_get(&region(from), Versions::OURS, &region("us"), path)
}

fn forwarding(from: &str) -> Request<Bytes> {
    wire::encode_forward(&region(from), &region("us"), forward("/")).unwrap()
}

fn asking(from: &str) -> Request<Bytes> {
    encode_ask(&region(from), Versions::OURS, &region("us"), &views())
}

async fn refused(response: Response<Incoming>, status: u16, code: &str) -> Value {
    let (head, body) = response.into_parts();
    let problem: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((head.status.as_u16(), &problem["code"]), (status, &code.into()), "{problem}");
    assert_eq!(head.headers["onceway-peer-reply"], "refused");
    problem
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (pki, other) = (Pki::new(&["us"]), Pki::new(&["eu", "us"]));
    let us = run(&pki.identity("us"), PeerLimits::default()).await;
    // The stranger trusts the real authority, so only the server can refuse.
    let stranger = other.identity("eu");
    let why = not_sent(us.forwarded(&stranger).await);
    assert!(why.contains("certificate"), "{why}");
    let believer = with_roots(&pki, Some(&stranger));
    assert!(raw(believer, &us.address, get("eu", wire::PING_PATH)).await.is_err());
    us.untouched();
}

fn with_roots(pki: &Pki, of: Option<&PeerIdentity>) -> Arc<ClientConfig> {
    let builder = trusting(&pki.authority(), &[&rustls::version::TLS13]);
    let mut config = match of {
        Some(identity) => {
            builder.with_client_cert_resolver(identity.client_config().client_auth_cert_resolver.clone())
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

#[tokio::test]
async fn a_client_without_certificate_or_protocol_is_refused() {
    let (pki, us) = us(PeerLimits::default()).await;
    let ping = || get("eu", wire::PING_PATH);
    assert!(raw(with_roots(&pki, None), &us.address, ping()).await.is_err());
    let mut config = ClientConfig::clone(&with_roots(&pki, Some(&pki.identity("eu"))));
    for (protocols, welcome) in
        [(vec![b"h2".to_vec()], true), (vec![], false), (vec![b"http/1.1".to_vec()], false)]
    {
        config.alpn_protocols = protocols;
        let answer = raw(Arc::new(config.clone()), &us.address, ping()).await;
        assert_eq!(answer.is_ok_and(|answer| answer.status() == 200), welcome, "{:?}", config.alpn_protocols);
    }
}

#[tokio::test]
async fn renewed_certificates_apply_to_new_connections() {
    let (old, new) = (Pki::new(&["eu", "us"]), Pki::new(&["eu", "us"]));
    let identity = old.identity("us");
    let us = run(&identity, PeerLimits::default()).await;
    let reaches = async |identity: &PeerIdentity| us.forwarded(identity).await.is_ok();
    let (eu, open) = (old.identity("eu"), old.identity("eu"));
    let open = dial(&open, "us", &us.address);
    assert!(soon(open.forward(&region("us"), forward("/"))).await.is_ok() && reaches(&eu).await);
    // Another region's identity is not used for this one.
    identity.renew(&new.identity("eu"));
    assert!(reaches(&eu).await);
    identity.renew(&new.identity("us"));
    assert!(reaches(&new.identity("eu")).await && !reaches(&eu).await);
    assert!(soon(open.forward(&region("us"), forward("/"))).await.is_ok(), "an open connection was cut");
    eu.renew(&new.identity("eu"));
    assert!(reaches(&eu).await);
}

#[tokio::test]
async fn a_claim_to_be_another_region_is_refused() {
    let pki = Pki::new(&["eu", "us", "ap"]);
    let us = run(&pki.identity("us"), PeerLimits::default()).await;
    let mut forged = pki.identity("eu");
    forged.me = region("ap");
    let why = not_sent(us.forwarded(&forged).await);
    assert!(why.contains("403"), "{why}");
    // Also without a hello, and for each kind of message.
    let [ping, hello] = [wire::PING_PATH, wire::HELLO_PATH].map(|path| get("ap", path));
    for request in [forwarding("ap"), ping, hello, asking("ap")] {
        refused(raw(forged.client_config(), &us.address, request).await.unwrap(), 403, "peer-forged").await;
    }
    us.untouched();
}

#[tokio::test]
async fn malformed_messages_are_refused_with_advice() {
    let (pki, us) = us(PeerLimits::default()).await;
    let config = pki.identity("eu").client_config();
    let asked = |body: &'static str| asking("eu").map(|_| body.into());
    let forwarded = |change: fn(&mut HeaderMap)| {
        let mut request = forwarding("eu");
        change(request.headers_mut());
        request
    };
    let newer = "\"forget\" is not known here: the other end may run another version of onceway";
    for (request, says) in [
        (asked(r#"{"forget":{"all":true}}"#), newer),
        (asked(r#"{"views":{"after":"x"}}"#), "malformed at byte "),
        (asked(""), "malformed at byte "),
        (forwarded(|headers| drop(headers.insert("onceway-peer-hop", "2".parse().unwrap()))), ""),
        (forwarded(|headers| drop(headers.remove("onceway-peer-from"))), ""),
    ] {
        let problem =
            refused(raw(config.clone(), &us.address, request).await.unwrap(), 400, "bad-peer-message").await;
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
    let later = raw(config, &us.address, get("eu", "/peer/v2/forward")).await.unwrap();
    assert_eq!(later.status(), StatusCode::NOT_FOUND);
    us.untouched();
}

#[tokio::test]
async fn the_client_refuses_a_server_of_another_region() {
    let pki = Pki::new(&["eu", "us", "ap"]);
    let ap = run(&pki.identity("ap"), PeerLimits::default()).await;
    let why = not_sent(ap.forwarded(&pki.identity("eu")).await);
    assert!(why.contains("us.onceway"), "{why}");
    ap.untouched();
}

/// A peer without a common version learns so from the hello: nothing else reaches the service.
#[tokio::test]
async fn both_ends_refuse_a_peer_of_another_version() {
    let pki = Pki::new(&["eu", "us"]);
    let foreign = Versions::new(NEWEST + 1, NEWEST + 2).unwrap();
    for (ours, theirs) in [(Versions::OURS, foreign), (foreign, Versions::OURS)] {
        let us = run(&pki.identity("us").speaking(theirs), PeerLimits::default()).await;
        let peers = dial(&pki.identity("eu").speaking(ours), "us", &us.address);
        let versions = PeerError::Versions { theirs, ours };
        assert_eq!(peers.ping(&region("us"), PATIENCE).await.unwrap_err(), versions);
        assert_eq!(peers.forward(&region("us"), forward("/")).await.err(), Some(versions.clone()));
        assert_eq!(peers.ask(&region("us"), views(), PATIENCE).await.unwrap_err(), versions);
        // A peer that asks without a hello.
        let rude = encode_ask(&region("eu"), ours, &region("us"), &views());
        let rude = raw(pki.identity("eu").client_config(), &us.address, rude).await.unwrap();
        refused(rude, 409, "peer-version").await;
        us.untouched();
    }
}

/// Data still on its way to an ended stream must not count as an attack.
#[tokio::test]
async fn refused_bodies_do_not_break_their_connection() {
    let (pki, us) = us(PeerLimits::default()).await;
    let peers = Arc::new(dial(&pki.identity("eu"), "us", &us.address));
    let served = tokio::spawn({
        let peers = peers.clone();
        async move { peers.forward(&region("us"), forward("/hang")).await }
    });
    us.was_reached().await;
    let left = us.region.places.available_permits();
    let _all_others = us.region.places.clone().try_acquire_many_owned(left as u32).unwrap();
    for _ in 0..30 {
        let mut wave = JoinSet::new();
        for _ in 0..100 {
            let (peers, body) = (peers.clone(), vec![b'a'; 1 << 18].into());
            let large = Forward { body, ..forward("/large") };
            wave.spawn(async move { peers.forward(&region("us"), large).await });
        }
        while let Some(outcome) = soon(wave.join_next()).await {
            answer(async { outcome.unwrap() }).await;
        }
    }
    assert!(!served.is_finished(), "it was served over the same connection");
    served.abort();
}

/// Another forward has most of the room.
#[tokio::test]
async fn a_forward_without_place_is_refused_before_its_body() {
    let pki = Pki::new(&["eu", "us"]);
    let (eu, limit) = (pki.identity("eu"), 3 << 20);
    let us = run(&pki.identity("us"), PeerLimits { body_limit: limit, ..PeerLimits::default() }).await;
    let _all_but_one_body = us.region.places.clone().try_acquire_many_owned((PLACES - limit) as u32).unwrap();
    let (_feed, body) = fed();
    let mut sender = soon(connect(with_roots(&pki, Some(&eu)), &us.address)).await;
    let late = soon(sender.send_request(forwarding("eu").map(|_| body))).await.unwrap();
    assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);

    // A forward may be larger than a stream's window: its result is still known.
    let large = Forward { body: vec![b'a'; limit].into(), ..forward("/large") };
    let peers = dial(&eu, "us", &us.address);
    let full = answer(peers.forward(&region("us"), large)).await;
    assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(full.into_body()).await, "full");
    us.untouched();
    answer(peers.forward(&region("us"), forward("/small"))).await;
}

#[tokio::test]
async fn forbidden_senders_are_refused_before_any_work() {
    let (pki, us) = us(PeerLimits::default()).await;
    for sender in [Sender::Stranger, Sender::Witness] {
        *us.region.sender.lock().unwrap() = sender;
        for (kind, request) in said::all(&region("eu"), &region("eu"), &region("us")) {
            let response = raw(pki.identity("eu").client_config(), &us.address, request).await;
            let response = response.unwrap_or_else(|why| panic!("{}: {why}", kind.name()));
            refused(response, 403, "peer-forbidden").await;
        }
    }
    assert_eq!(us.region.places.available_permits(), PLACES, "a place was taken");
    us.untouched();
}

#[tokio::test]
async fn a_witness_is_not_taken_for_a_client() {
    let pki = Pki::new(&["eu", "us"]);
    add(pki.path(), &[region("w")], Purpose::Witness).unwrap();
    let us = run(&pki.identity("us"), PeerLimits::default()).await;
    let refused = raw(pki.identity("w").client_config(), &us.address, get("w", wire::PING_PATH)).await;
    assert!(refused.is_err(), "{refused:?}");
    // A witness still answers.
    let witness = run(&pki.identity("w"), PeerLimits::default()).await;
    soon(dial(&pki.identity("eu"), "w", &witness.address).ping(&region("w"), PATIENCE)).await.unwrap();
}

#[tokio::test]
async fn a_revoked_region_is_refused_on_every_connection() {
    let pki = Pki::new(&["eu", "us", "ap"]);
    let identity = pki.identity("us");
    let us = run(&identity, PeerLimits::default()).await;
    let config = pki.identity("eu").client_config();
    let mut sender = soon(connect(config.clone(), &us.address)).await;
    let ping = || get("eu", wire::PING_PATH);
    let welcome = soon(sender.send_request(ping().map(Full::new))).await.unwrap();
    assert_eq!(welcome.status(), StatusCode::OK);
    let other = dial(&pki.identity("ap"), "us", &us.address);
    soon(other.ping(&region("us"), PATIENCE)).await.unwrap();
    revoke(pki.path(), &region("eu"), &[]).unwrap();
    identity.renew(&pki.identity("us"));
    let open = soon(sender.send_request(ping().map(Full::new))).await.unwrap();
    refused(open, 403, "peer-revoked").await;
    let anew = raw(config, &us.address, ping()).await;
    assert!(anew.is_err(), "{anew:?}");
    soon(other.ping(&region("us"), PATIENCE)).await.unwrap();
    // No region dials it any more either.
    let eu = run(&pki.identity("eu"), PeerLimits::default()).await;
    let why = not_sent(soon(dial(&identity, "eu", &eu.address).ping(&region("eu"), PATIENCE)).await);
    assert!(why.contains("revoked") || why.contains("Revoked"), "{why}");
}
