//! A thousand requests to an upstream behind TLS, 20 ms away, that closes what is idle for a
//! second: none may be left in doubt by that, nor by the tickets that such servers send.
//!
//! `suites::net::verdicts` plays one close at a time. This file must not choose the gaps between
//! requests so that they avoid the second.

use crate::support::*;
use onceway::adapters::issue::generate;
use onceway::adapters::tls::load;
use onceway::adapters::upstream::{Base, HttpUpstream, ServiceSettings, Tls, TlsFiles, UpstreamSettings};
use onceway::ports::Upstream;
use onceway::ports::body::{Collected, collect};
use onceway::ports::upstream::{ForwardKey, Send};
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

const ONE_WAY: Duration = Duration::from_millis(20);
const CLOSES_AFTER: Duration = Duration::from_secs(1);
const WORKERS: u64 = 50;
const EACH: u64 = 20;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

async fn serve(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let mut request = [0; 4096];
    // A request here is one write, and less than that.
    while let Ok(Ok(1..)) = timeout(CLOSES_AFTER, stream.read(&mut request)).await {
        if stream.write_all(ANSWER).await.is_err() {
            return;
        }
    }
    let _gone = stream.shutdown().await;
}

fn send(number: u64) -> Send {
    Send {
        upstream: None,
        id: KeyId::new(Tenant::parse("acme").unwrap(), Key::parse(&format!("key-{number}")).unwrap()),
        key: ForwardKey::default(),
        token: Token { epoch: 1, attempt: 1 },
        request_id: RequestId(number.into()),
        method: Method::POST,
        target: "/v1/charges".parse().unwrap(),
        headers: HeaderMap::new(),
        body: "{}".into(),
    }
}

#[test]
fn an_upstream_that_closes_idle_connections_leaves_no_key_in_doubt() {
    run(async {
        let (dir, me) = (tempfile::tempdir().unwrap(), RegionName::parse("us").unwrap());
        generate(std::slice::from_ref(&me)).unwrap().write(dir.path()).unwrap();
        let files = files_in(dir.path(), &me);
        let acceptor = TlsAcceptor::from(Arc::new(load(&files.certificate, &files.key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::start(listener.local_addr().unwrap()).await.unwrap();
        [Direction::Forward, Direction::Backward].into_iter().for_each(|way| relay.set_delay(way, ONE_WAY));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream));
            }
        });
        let tls = TlsFiles { ca: Some(files.authorities), own: None, only_13: false };
        let base = Base::parse(&format!("https://{}", relay.local_addr())).unwrap();
        let own = ServiceSettings {
            server_name: Some(ServerName::try_from("us.onceway").unwrap()),
            tls: Arc::new(Tls::load(&tls).unwrap()),
            ..ServiceSettings::at(base).unwrap()
        };
        let settings =
            UpstreamSettings { me, own, shared: true, others: BTreeMap::new(), named: BTreeMap::new() };
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..WORKERS {
            // Each has connections of its own, so that its pauses are their idle times.
            let upstream = HttpUpstream::new(&settings);
            workers.spawn(async move {
                for number in worker * EACH..(worker + 1) * EACH {
                    let answer = upstream.send(send(number), Duration::from_secs(20), || true).await;
                    let answer = answer.unwrap_or_else(|error| panic!("request {number}: {error}"));
                    assert!(matches!(collect(answer.into_body(), 9).await, Ok(Collected::Whole(_))));
                    // From nothing to half a second beyond the close, in no order.
                    wait::pause(Duration::from_millis(number * 997 % 1_500)).await;
                }
            });
        }
        while let Some(done) = workers.join_next().await {
            done.unwrap();
        }
    });
}
