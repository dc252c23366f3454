//! The table of docs/upstream.md, row by row: what a failure at the upstream means for the request.
//! Also TLS to upstreams, several endpoints, and our credential there.

use crate::net::support::*;
use crate::net::upstream::{LONG, NONE, OK, always, of as settings, probe, send};
use onceway::adapters::identity;
use onceway::adapters::upstream::{Credential, Host, Tls, TlsFiles};
use onceway::ports::upstream::{CredentialRefused, Send};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

fn over(own: ServiceSettings) -> HttpUpstream {
    HttpUpstream::new(&settings(own))
}

fn at(addresses: &[String]) -> ServiceSettings {
    let mut bases = addresses.iter().map(|address| Base::parse(address).unwrap());
    let first = ServiceSettings::at(bases.next().unwrap()).unwrap();
    ServiceSettings { addresses: first.addresses.iter().cloned().chain(bases).collect(), ..first }
}

/// TLS that believes this authority, and shows the certificate of `own`.
fn secured(address: &str, authority: &Pki, own: Option<(&Pki, &str)>) -> ServiceSettings {
    let files = |pki: &Pki, name: &str| files_in(pki.path(), &region(name));
    let own = own.map(|(pki, name)| (files(pki, name).certificate, files(pki, name).key));
    let tls = TlsFiles { ca: Some(authority.path().join("ca.pem")), own, only_13: false };
    ServiceSettings {
        server_name: Some(ServerName::try_from("us.onceway").unwrap()),
        tls: Arc::new(Tls::load(&tls).unwrap()),
        ..at(&[format!("https://{address}")])
    }
}

async fn after(upstream: &HttpUpstream) -> Result<u16, SendError> {
    let answer = soon(upstream.send(send(&[]), LONG, always)).await?;
    let status = answer.status().as_u16();
    text(answer.into_body()).await;
    Ok(status)
}

#[track_caller]
fn not_sent(outcome: Result<u16, SendError>, why: &str) {
    let says_so = matches!(&outcome, Err(SendError::NotSent(said)) if said.contains(why));
    assert!(says_so, "{outcome:?}, not {why:?}");
}

struct Secure {
    address: String,
    connections: Arc<Mutex<usize>>,
}

impl Secure {
    async fn start<F>(
        config: ServerConfig,
        each: impl Fn(TlsStream<TcpStream>) -> F + std::marker::Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + std::marker::Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (acceptor, connections) = (TlsAcceptor::from(Arc::new(config)), Arc::<Mutex<usize>>::default());
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                if let Ok(stream) = acceptor.accept(stream).await {
                    tokio::spawn(each(stream));
                }
            }
        });
        Self { address, connections }
    }
}

fn server(pki: &Pki, versions: &[&'static SupportedProtocolVersion], clients: Option<&Pki>) -> ServerConfig {
    let files = files_in(pki.path(), &region("us"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let roots = Arc::new(identity::roots(&clients.path().join("ca.pem")).unwrap());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = identity::chain(&files.certificate).unwrap();
    let mut config = builder.with_single_cert(chain, identity::private_key(&files.key).unwrap()).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.max_early_data_size = 16_384;
    config
}

async fn answers(mut stream: TlsStream<TcpStream>) {
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    while let Some(request) = read_request(&mut stream).await {
        assert!(stream.get_mut().1.early_data().is_none(), "{request}");
        stream.write_all(OK.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_was_sent_if_no_connection_was_made() {
    let refusing = format!("127.0.0.1:{}", free_run(1).unwrap());
    not_sent(after(&over(at(&[format!("http://{refusing}")]))).await, &format!("connect to {refusing}: "));
    not_sent(after(&over(at(&["http://nowhere.invalid".to_owned()]))).await, "look up nowhere.invalid: ");
    // It accepts, and never shakes hands.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = silent.local_addr().unwrap();
    let pki = Pki::new(&["us"]);
    not_sent(after(&over(secured(&silent.to_string(), &pki, None))).await, "timed out");
    let plain = RawServer::start(Then::Answer(OK)).await;
    not_sent(after(&over(secured(&plain.address, &pki, None))).await, "connect to ");
    assert_eq!(plain.seen().len(), 0);
}

#[tokio::test]
async fn nothing_was_sent_to_a_server_with_another_certificate() {
    let (pki, other) = (Pki::new(&["us", "eu"]), Pki::new(&["us"]));
    let served = Secure::start(server(&pki, BOTH, None), answers).await;
    not_sent(after(&over(secured(&served.address, &other, None))).await, "UnknownIssuer");
    let named = ServerName::try_from("eu.onceway").unwrap();
    let settings = ServiceSettings { server_name: Some(named), ..secured(&served.address, &pki, None) };
    not_sent(after(&over(settings)).await, "certificate not valid for name");
    // None but the public authorities, unless the file says which.
    let settings =
        ServiceSettings { tls: at(&["https://a".to_owned()]).tls, ..secured(&served.address, &pki, None) };
    not_sent(after(&over(settings)).await, "UnknownIssuer");
    assert_eq!(after(&over(secured(&served.address, &pki, None))).await, Ok(200));
}

#[tokio::test]
async fn nothing_was_sent_without_a_slot() {
    let server = RawServer::start(Then::AnswerAndHang("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")).await;
    let mut settings = at(&[server.url()]);
    settings.bounds.connections = 1;
    let upstream = over(settings);
    let first = soon(upstream.send(send(&[]), LONG, always)).await.unwrap();
    not_sent(after(&upstream).await, "all 1 connections are in use");
    drop(first);
    let again = soon(upstream.send(send(&[]), LONG, always)).await;
    assert_eq!(again.unwrap().status(), 200, "its slot is free again");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn one_tls_connection_of_either_version_serves_many() {
    let pki = Pki::new(&["us"]);
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        // Tickets for later handshakes come behind TLS 1.3's: they break no idle connection.
        let served = Secure::start(server(&pki, versions, None), answers).await;
        let mut settings = secured(&served.address, &pki, None);
        (settings.bounds.write_idle, settings.bounds.keep_idle) = (LONG, LONG);
        let upstream = over(settings);
        for _ in 0..20 {
            assert_eq!(after(&upstream).await, Ok(200));
        }
        assert_eq!(*served.connections.lock().unwrap(), 1);
    }
    let old = Secure::start(server(&pki, &[&rustls::version::TLS12], None), answers).await;
    let files = TlsFiles { ca: Some(pki.path().join("ca.pem")), own: None, only_13: true };
    let settings =
        ServiceSettings { tls: Arc::new(Tls::load(&files).unwrap()), ..secured(&old.address, &pki, None) };
    not_sent(after(&over(settings)).await, "ProtocolVersion");
}

/// Its farewell waits in the kernel when the next request comes: nothing is in doubt.
#[tokio::test]
async fn closed_idle_connections_leave_nothing_in_doubt() {
    let pki = Pki::new(&["us"]);
    let (close, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let outcome = (close.clone(), closed.clone());
    let served = Secure::start(server(&pki, BOTH, None), move |mut stream| {
        let (close, closed) = outcome.clone();
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(OK.as_bytes()).await.unwrap();
            close.notified().await;
            let _ = stream.shutdown().await;
            closed.notify_one();
        }
    })
    .await;
    let upstream = over(secured(&served.address, &pki, None));
    for number in 1..=20 {
        assert_eq!(after(&upstream).await, Ok(200));
        assert_eq!(*served.connections.lock().unwrap(), number);
        close.notify_one();
        closed.notified().await;
    }
}

#[tokio::test]
async fn a_server_that_refuses_our_certificate_got_nothing() {
    let (pki, other) = (Pki::new(&["us", "eu"]), Pki::new(&["eu"]));
    let served = Secure::start(server(&pki, &[&rustls::version::TLS13], Some(&pki)), answers).await;
    assert_eq!(after(&over(secured(&served.address, &pki, Some((&pki, "eu"))))).await, Ok(200));
    // Its alert comes behind a handshake that looks whole from here.
    for own in [Some((&other, "eu")), None] {
        not_sent(after(&over(secured(&served.address, &pki, own))).await, "refuses our certificate");
    }
    let older = Secure::start(server(&pki, &[&rustls::version::TLS12], Some(&pki)), answers).await;
    not_sent(after(&over(secured(&older.address, &pki, Some((&other, "eu"))))).await, "connect to ");
}

#[tokio::test]
async fn a_break_after_the_handshake_is_unknown() {
    let pki = Pki::new(&["us"]);
    // It resets, says farewell, or answers half.
    for half in [None, Some(""), Some("HTTP/1.1 200 OK\r\nCont")] {
        let served = Secure::start(server(&pki, BOTH, None), move |mut stream| async move {
            let _ = read_request(&mut stream).await;
            let Some(half) = half else { return stream.get_ref().0.set_zero_linger().unwrap() };
            let _ = stream.write_all(half.as_bytes()).await;
            let _ = stream.shutdown().await;
        })
        .await;
        let outcome = after(&over(secured(&served.address, &pki, None))).await;
        assert!(matches!(outcome, Err(SendError::Unknown(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_replaced_certificate_counts_for_the_next_connection() {
    let (pki, newer) = (Pki::new(&["us"]), Pki::new(&["us"]));
    let served = Secure::start(server(&newer, BOTH, None), answers).await;
    let with = |pki: &Pki, value: &'static str| {
        let secured = secured(&served.address, pki, None);
        settings(ServiceSettings { credential: Some(credential(value)), ..secured })
    };
    let old = with(&pki, "Bearer old");
    let upstream = HttpUpstream::new(&old);
    not_sent(after(&upstream).await, "UnknownIssuer");
    old.renewable().renew(&with(&newer, "Bearer new").renewable());
    assert_eq!(after(&upstream).await, Ok(200));
}

#[tokio::test]
async fn a_dead_or_silent_endpoint_takes_nothing_down() {
    let (one, two) = (RawServer::start(Then::Answer(OK)).await, RawServer::start(Then::Answer(OK)).await);
    let dead = format!("http://127.0.0.1:{}", free_run(1).unwrap());
    let pki = Pki::new(&["us"]);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("https://{}", silent.local_addr().unwrap());
    let addresses = [dead, silent, one.url(), two.url()];
    let settings = ServiceSettings { addresses: at(&addresses).addresses, ..secured("a", &pki, None) };
    let upstream = over(settings);
    for _ in 0..40 {
        assert_eq!(after(&upstream).await, Ok(200));
    }
    let seen = (one.seen().len(), two.seen().len());
    assert!(seen.0 + seen.1 == 40 && seen.0 > 5 && seen.1 > 5, "{seen:?}");
    // All are tried if all are out.
    let dead = [free_run(1).unwrap(), free_run(1).unwrap()].map(|port| format!("http://127.0.0.1:{port}"));
    let upstream = over(at(&dead));
    for _ in 0..3 {
        not_sent(after(&upstream).await, "connect to ");
    }
    let back = TcpListener::bind(dead[1].strip_prefix("http://").unwrap()).await.unwrap();
    let back = RawServer::on(back, Then::Answer(OK));
    assert_eq!(after(&upstream).await, Ok(200), "the last resort");
    assert_eq!(back.seen().len(), 1);
}

#[tokio::test]
async fn an_endpoint_that_fails_fast_draws_no_traffic() {
    let failing = RawServer::start(Then::Answer("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")).await;
    let well = RawServer::start(Then::Answer(OK)).await;
    let upstream = over(at(&[&failing, &well].map(|server| server.url())));
    for _ in 0..50 {
        after(&upstream).await.unwrap();
    }
    // A slow machine may take longer than a failure counts.
    assert!(failing.seen().len() <= 5, "{} of 50", failing.seen().len());
}

#[tokio::test]
async fn the_host_header_follows_the_configured_choice() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let named = Host::Named(HeaderValue::from_static("internal.example"));
    let own = server.address.clone();
    for (host, sent, expected) in [
        (Host::Upstream, Some("public.example"), own.as_str()),
        (Host::Keep, Some("public.example"), "public.example"),
        (Host::Keep, None, own.as_str()),
        (named, Some("public.example"), "internal.example"),
    ] {
        let upstream = over(ServiceSettings { host, ..at(&[server.url()]) });
        let headers: Vec<(&'static str, &str)> = sent.map(|host| ("host", host)).into_iter().collect();
        soon(upstream.send(send(&headers), LONG, always)).await.unwrap();
        assert_eq!(server.headers().pop().unwrap()["host"], expected);
    }
}

fn credential(value: &'static str) -> Arc<Credential> {
    Arc::new(Credential::new(http::header::AUTHORIZATION, HeaderValue::from_static(value)))
}

#[tokio::test]
async fn our_credential_replaces_the_clients_and_refusals_are_marked() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let refusing = RawServer::start(Then::Answer("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")).await;
    let with = |server: &RawServer, value: &'static str| ServiceSettings {
        credential: Some(credential(value)),
        ..at(&[server.url()])
    };
    let own = |server: &RawServer| with(server, "Bearer sk_live");
    assert!(!format!("{:?}", own(&server)).contains("sk_live"));
    let before = settings(own(&server));
    let upstream = HttpUpstream::new(&before);
    let client = [("authorization", "Bearer client"), ("cookie", "session=1"), ("x-other", "stays")];
    soon(upstream.send(send(&client), LONG, always)).await.unwrap();
    before.renewable().renew(&settings(with(&server, "Bearer newer")).renewable());
    let mut passed = Request::get("/p").body(empty()).unwrap();
    passed.headers_mut().insert("authorization", HeaderValue::from_static("Bearer client"));
    soon(upstream.pass(None, passed, LONG)).await.unwrap();
    let seen = server.headers();
    assert_eq!((seen[0]["authorization"].as_str(), seen[0]["x-other"].as_str()), ("Bearer sk_live", "stays"));
    assert_eq!((seen[0].get("cookie"), seen[1]["authorization"].as_str()), (None, "Bearer newer"));

    let is_marked = async |upstream: &HttpUpstream| {
        let answer = soon(upstream.send(send(&[]), LONG, always)).await.unwrap();
        (answer.status().as_u16(), answer.extensions().get::<CredentialRefused>().is_some())
    };
    let upstream = over(own(&refusing));
    assert_eq!(is_marked(&upstream).await, (403, true));
    let passed = soon(upstream.pass(None, Request::get("/p").body(empty()).unwrap(), LONG)).await.unwrap();
    assert!(passed.extensions().get::<CredentialRefused>().is_some());
    // Without one of ours it is the client's that was refused.
    assert_eq!(is_marked(&over(at(&[refusing.url()]))).await, (403, false));
    assert_eq!(is_marked(&over(own(&server))).await, (200, false));
}

/// The new credential of a service that moved must not be sent to its old place.
#[tokio::test]
async fn a_credential_never_goes_to_another_address() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let with = |address: &str, header: &'static str, value: &'static str| {
        let header = HeaderName::from_static(header);
        let credential = Arc::new(Credential::new(header, HeaderValue::from_static(value)));
        settings(ServiceSettings { credential: Some(credential), ..at(&[format!("http://{address}")]) })
    };
    let before = with(&server.address, "authorization", "Bearer old");
    let upstream = HttpUpstream::new(&before);
    let sent = async || {
        after(&upstream).await.unwrap();
        server.headers().pop().unwrap()["authorization"].clone()
    };
    for moved in [with("127.0.0.1:1", "authorization", "Bearer new"), with(&server.address, "x-key", "new")] {
        before.renewable().renew(&moved.renewable());
        assert_eq!(sent().await, "Bearer old");
    }
    before.renewable().renew(&with(&server.address, "authorization", "Bearer new").renewable());
    assert_eq!(sent().await, "Bearer new");
}

#[tokio::test]
async fn each_endpoint_asks_for_the_right_to_send() {
    let server = RawServer::start(Then::Answer(OK)).await;
    let dead = format!("http://127.0.0.1:{}", free_run(1).unwrap());
    let upstream = over(at(&[dead, server.url()]));
    for _ in 0..10 {
        let outcome = soon(upstream.send(send(&[]), LONG, || false)).await;
        not_sent(outcome.map(|answer| answer.status().as_u16()), "the right to send ended");
    }
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn idle_connections_count_towards_the_bound() {
    let mut server = RawServer::start(Then::Answer(OK)).await;
    let mut settings = at(&[server.url()]);
    settings.bounds.connections = 2;
    (settings.bounds.write_idle, settings.bounds.keep_idle) = (Duration::ZERO, LONG);
    let upstream = over(settings);
    for number in 1..=5_usize {
        // None is fresh enough for a write, so each makes its own.
        assert_eq!(after(&upstream).await, Ok(200));
        if number > 2 {
            soon(server.closed.recv()).await.unwrap();
        }
    }
    assert_eq!(server.connections(), 5);
}

#[tokio::test]
async fn a_probe_asks_the_service_of_the_doubt() {
    let [default, named] =
        [RawServer::start(Then::Answer(NONE)).await, RawServer::start(Then::Answer(NONE)).await];
    let mut settings = settings(at(&[default.url()]));
    let of = |server: &RawServer| at(&[server.url()]);
    settings.named.insert("pay".into(), (of(&named), false));
    settings.named.insert("shared".into(), (of(&named), true));
    settings.shared = true;
    let upstream = HttpUpstream::new(&settings);
    let probe = async |name: &str, region: &str| {
        let probe = Probe { upstream: Some(name.into()), ..probe(region) };
        matches!(soon(upstream.probe(probe, LONG, 9)).await, ProbeReply::DidNotHappen)
    };
    assert!(probe("pay", "eu").await && probe("shared", "us").await);
    assert!(!probe("pay", "us").await, "another region's service of that name may know more");
    assert!(!probe("gone", "eu").await);
    assert_eq!((default.seen().len(), named.seen().len()), (0, 2));
    let send = Send { upstream: Some("gone".into()), ..send(&[]) };
    let outcome = soon(upstream.send(send, LONG, always)).await.map(|answer| answer.status().as_u16());
    not_sent(outcome, "no [upstreams.gone]");
}
