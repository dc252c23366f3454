//! Peers that must be refused: other authorities, other regions, no certificate, a second hop,
//! other protocols.
//!
//! `peers` has the good case. Each test also shows that the message must not reach the region's
//! service.

use crate::net::peers::{PATIENCE, PLACES, dial, forward, not_sent, run, us};
use crate::net::support::*;
use crate::support::said::{self, first_answer};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::Connection;
use onceway::adapters::issue::{Purpose, add, revoke};
use onceway::adapters::wire;
use onceway::adapters::wire::ask::encode_ask;
use onceway::protocol::versions::{NEWEST, Versions};
use rustls::ClientConfig;
use std::error::Error;

type Made<B> = (SendRequest<B>, Connection<TokioIo<TlsStream<TcpStream>>, B, TokioExecutor>);

async fn made<B>(config: Arc<ClientConfig>, address: &str) -> Result<Made<B>, String>
where
    B: Body<Data = Bytes, Error: Error + Send + Sync> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = TlsConnector::from(config)
        .connect(server_name(&region("us")), stream)
        .await
        .map_err(|error| error.to_string())?;
    handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|error| error.to_string())
}

async fn connect<B>(config: Arc<ClientConfig>, address: &str) -> Result<SendRequest<B>, String>
where
    B: Body<Data = Bytes, Error: Error + Send + Sync> + Send + Unpin + 'static,
{
    let (sender, driver) = made(config, address).await?;
    tokio::spawn(driver);
    Ok(sender)
}

async fn raw(
    config: Arc<ClientConfig>,
    address: &str,
    request: Request<Bytes>,
) -> Result<Response<Incoming>, String> {
    let made = soon(made(config, address)).await?;
    soon(first_answer(made, request.map(Full::new))).await
}

fn get(from: &str, path: &'static str) -> Request<Bytes> {
    wire::encode_get(&region(from), Versions::OURS, &region("us"), path)
}

async fn code(response: Response<Incoming>) -> String {
    let json = response.into_body().collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&json).unwrap();
    problem["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (pki, other) = (Pki::new(&["us"]), Pki::new(&["eu", "us"]));
    let us = run(&pki.identity("us"), PeerLimits::default()).await;
    // The stranger trusts the real authority, so only the server can refuse.
    let stranger = other.identity("eu");
    let why = not_sent(soon(dial(&stranger, "us", &us.address).forward(&region("us"), forward("/"))).await);
    assert!(why.contains("certificate"), "{why}");
    let believer = with_roots(&pki, Some(&stranger));
    let refused = raw(believer, &us.address, get("eu", wire::PING_PATH)).await;
    assert!(refused.is_err());
    assert_eq!(us.region.seen.lock().unwrap().len(), 0);
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
    let welcome = raw(Arc::new(config.clone()), &us.address, ping()).await.unwrap();
    assert_eq!(welcome.status(), 200);
    config.alpn_protocols = Vec::new();
    assert!(raw(Arc::new(config.clone()), &us.address, ping()).await.is_err());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    assert!(raw(Arc::new(config), &us.address, ping()).await.is_err());
}

#[tokio::test]
async fn renewed_certificates_apply_to_new_connections() {
    let (old, new) = (Pki::new(&["eu", "us"]), Pki::new(&["eu", "us"]));
    let identity = old.identity("us");
    let us = run(&identity, PeerLimits::default()).await;
    let reaches = async |identity: &PeerIdentity| {
        soon(dial(identity, "us", &us.address).forward(&region("us"), forward("/"))).await.is_ok()
    };
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
    let why = not_sent(soon(dial(&forged, "us", &us.address).forward(&region("us"), forward("/"))).await);
    assert!(why.contains("403"), "{why}");
    // Also without a hello, and for each kind of message.
    let as_ap = || wire::encode_forward(&region("ap"), &region("us"), forward("/")).unwrap();
    for request in [
        as_ap(),
        get("ap", wire::PING_PATH),
        get("ap", wire::HELLO_PATH),
        encode_ask(&region("ap"), Versions::OURS, &region("us"), &Question::Views { after: 0 }),
    ] {
        let refused = raw(forged.client_config(), &us.address, request).await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert_eq!(refused.headers()["onceway-peer-reply"], "refused");
        assert_eq!(code(refused).await, "peer-forged");
    }
    assert_eq!(us.region.seen.lock().unwrap().len(), 0);
    assert!(us.region.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_question_of_another_version_is_refused_with_advice() {
    let (pki, us) = us(PeerLimits::default()).await;
    let config = pki.identity("eu").client_config();
    for (body, says) in [
        (
            r#"{"forget":{"all":true}}"#,
            "\"forget\" is not known here: the other end may run another version of onceway",
        ),
        (r#"{"views":{"after":"x"}}"#, "malformed at byte "),
        ("", "malformed at byte "),
    ] {
        let mut later =
            encode_ask(&region("eu"), Versions::OURS, &region("us"), &Question::Views { after: 0 });
        *later.body_mut() = body.into();
        let refused = raw(config.clone(), &us.address, later).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert_eq!(refused.headers()["onceway-peer-reply"], "refused");
        let json = refused.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(problem["code"], "bad-peer-message");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
    }
    assert!(us.region.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_second_hop_and_unknown_messages_are_refused() {
    let (pki, us) = us(PeerLimits::default()).await;
    let config = pki.identity("eu").client_config();
    let mut again = wire::encode_forward(&region("eu"), &region("us"), forward("/")).unwrap();
    again.headers_mut().insert("onceway-peer-hop", "2".parse().unwrap());
    let refused = raw(config.clone(), &us.address, again).await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(code(refused).await, "bad-peer-message");
    let later = get("eu", "/peer/v2/forward");
    let refused = raw(config.clone(), &us.address, later).await.unwrap();
    assert_eq!(refused.status(), StatusCode::NOT_FOUND);
    let mut anonymous = wire::encode_forward(&region("eu"), &region("us"), forward("/")).unwrap();
    anonymous.headers_mut().remove("onceway-peer-from");
    let refused = raw(config, &us.address, anonymous).await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(us.region.seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn the_client_refuses_a_server_of_another_region() {
    let pki = Pki::new(&["eu", "us", "ap"]);
    let ap = run(&pki.identity("ap"), PeerLimits::default()).await;
    let misled = dial(&pki.identity("eu"), "us", &ap.address);
    let why = not_sent(soon(misled.forward(&region("us"), forward("/"))).await);
    assert!(why.contains("us.onceway"), "{why}");
    assert_eq!(ap.region.seen.lock().unwrap().len(), 0);
}

/// A peer without a common version learns so from the hello: no forward, question or ping reaches
/// the service.
#[tokio::test]
async fn both_ends_refuse_a_peer_of_another_version() {
    let pki = Pki::new(&["eu", "us"]);
    let foreign = Versions::new(NEWEST + 1, NEWEST + 2).unwrap();
    for (ours, theirs) in [(Versions::OURS, foreign), (foreign, Versions::OURS)] {
        let us = run(&pki.identity("us").speaking(theirs), PeerLimits::default()).await;
        let peers = dial(&pki.identity("eu").speaking(ours), "us", &us.address);
        let refused = PeerError::Versions { theirs, ours };
        assert_eq!(peers.ping(&region("us"), Duration::from_secs(5)).await.unwrap_err(), refused);
        assert_eq!(peers.forward(&region("us"), forward("/")).await.err(), Some(refused.clone()));
        let question = Question::Views { after: 0 };
        assert_eq!(peers.ask(&region("us"), question, Duration::from_secs(5)).await.unwrap_err(), refused);
        assert!(us.region.seen.lock().unwrap().is_empty() && us.region.asked.lock().unwrap().is_empty());
        // A peer that asks without a hello.
        let rude = encode_ask(&region("eu"), ours, &region("us"), &Question::Views { after: 0 });
        let refused = raw(pki.identity("eu").client_config(), &us.address, rude).await.unwrap();
        assert_eq!((refused.status(), code(refused).await.as_str()), (StatusCode::CONFLICT, "peer-version"));
        assert!(us.region.asked.lock().unwrap().is_empty());
    }
}

/// A stream that was ended here may still have data on its way. Without a setting for it, too many
/// of those count as an attack.
#[tokio::test]
async fn refused_bodies_do_not_break_their_connection() {
    let (pki, us) = us(PeerLimits::default()).await;
    let peers = Arc::new(dial(&pki.identity("eu"), "us", &us.address));
    let served = tokio::spawn({
        let peers = peers.clone();
        async move { peers.forward(&region("us"), forward("/hang")).await }
    });
    soon(async {
        while us.region.seen.lock().unwrap().is_empty() {
            tokio::task::yield_now().await
        }
    })
    .await;
    let left = us.region.places.available_permits();
    let _all_others = us.region.places.clone().try_acquire_many_owned(left as u32).unwrap();
    for _ in 0..30 {
        let mut wave = JoinSet::new();
        for _ in 0..100 {
            let (peers, body) = (peers.clone(), vec![b'a'; 1 << 18].into());
            wave.spawn(
                async move { peers.forward(&region("us"), Forward { body, ..forward("/large") }).await },
            );
        }
        while let Some(outcome) = soon(wave.join_next()).await {
            let outcome = outcome.unwrap();
            assert!(
                matches!(outcome, Ok(ForwardReply::Answer(_))),
                "not known to be refused: {:?}",
                outcome.err()
            );
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
    let request = wire::encode_forward(&region("eu"), &region("us"), forward("/late")).unwrap();
    let mut sender = soon(connect(with_roots(&pki, Some(&eu)), &us.address)).await.unwrap();
    let refused = soon(sender.send_request(request.map(|_| body))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);

    // A forward may be larger than a stream's window: its result is still known.
    let large = Forward { body: vec![b'a'; limit].into(), ..forward("/large") };
    let peers = dial(&eu, "us", &us.address);
    let reply = soon(peers.forward(&region("us"), large)).await.unwrap();
    let ForwardReply::Answer(answer) = reply else { panic!("an answer was given") };
    assert_eq!(
        (answer.status(), text(answer.into_body()).await.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "full")
    );
    assert_eq!(us.region.seen.lock().unwrap().len(), 0);
    assert!(matches!(
        soon(peers.forward(&region("us"), forward("/small"))).await,
        Ok(ForwardReply::Answer(_))
    ));
}

#[tokio::test]
async fn forbidden_senders_are_refused_before_any_work() {
    let (pki, us) = us(PeerLimits::default()).await;
    for sender in [Sender::Stranger, Sender::Witness] {
        *us.region.sender.lock().unwrap() = sender;
        for (kind, request) in said::all(&region("eu"), &region("eu"), &region("us")) {
            let what = kind.name();
            let refused = raw(pki.identity("eu").client_config(), &us.address, request).await.unwrap();
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{what}");
            assert_eq!(refused.headers()["onceway-peer-reply"], "refused", "{what}");
            assert_eq!(code(refused).await, "peer-forbidden", "{what}");
        }
    }
    assert_eq!(us.region.places.available_permits(), PLACES, "a place was taken");
    assert!(us.region.seen.lock().unwrap().is_empty() && us.region.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_witness_is_not_taken_for_a_client() {
    let pki = Pki::new(&["eu", "us"]);
    add(pki.path(), &[region("w")], Purpose::Witness).unwrap();
    let us = run(&pki.identity("us"), PeerLimits::default()).await;
    let ping = get("w", wire::PING_PATH);
    let refused = raw(pki.identity("w").client_config(), &us.address, ping).await;
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
    let mut sender = soon(connect(config.clone(), &us.address)).await.unwrap();
    let ping = |from: &str| {
        let request = get(from, wire::PING_PATH);
        request.map(Full::new)
    };
    assert_eq!(soon(sender.send_request(ping("eu"))).await.unwrap().status(), StatusCode::OK);
    let other = dial(&pki.identity("ap"), "us", &us.address);
    soon(other.ping(&region("us"), PATIENCE)).await.unwrap();
    revoke(pki.path(), &region("eu"), &[]).unwrap();
    identity.renew(&pki.identity("us"));
    let refused = soon(sender.send_request(ping("eu"))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(code(refused).await, "peer-revoked");
    let anew = raw(config, &us.address, ping("eu").map(|_| Bytes::new())).await;
    assert!(anew.is_err(), "{anew:?}");
    soon(other.ping(&region("us"), PATIENCE)).await.unwrap();
    // No region dials it any more either.
    let eu = run(&pki.identity("eu"), PeerLimits::default()).await;
    let why = not_sent(soon(dial(&identity, "eu", &eu.address).ping(&region("eu"), PATIENCE)).await);
    assert!(why.contains("revoked") || why.contains("Revoked"), "{why}");
}
