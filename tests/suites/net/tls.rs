//! TLS on the public listener: both protocols by ALPN, both versions, and clients without a
//! handshake. `adapters::tls` has the tables of unusable files.

use crate::net::harness::{Running, rest, run_through, until_cut};
use crate::net::support::*;
use onceway::adapters::tls::load;
use rustls::ProtocolVersion;

async fn secure(pki: &Pki, limits: PublicLimits) -> Running {
    let files = files_in(pki.path(), &region("us"));
    let tls = load(&files.certificate, &files.key).unwrap();
    run_through(limits, PATIENCE, Some(tls), Edge::default()).await
}

async fn connect(
    pki: &Pki,
    address: &str,
    version: &'static SupportedProtocolVersion,
    alpn: &[&[u8]],
) -> TlsStream<TcpStream> {
    let mut config = trusting(&pki.authority(), &[version]).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(address).await.unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(server_name(&region("us")), stream);
    soon(connected).await.unwrap()
}

#[tokio::test]
async fn http1_works_over_both_versions_with_or_without_alpn() {
    let pki = Pki::new(&["us"]);
    let running = secure(&pki, PublicLimits::default()).await;
    for (version, alpn, name) in [
        (&rustls::version::TLS13, &[b"http/1.1" as &[u8]][..], ProtocolVersion::TLSv1_3),
        (&rustls::version::TLS12, &[b"http/1.1"], ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, &[], ProtocolVersion::TLSv1_3),
    ] {
        let mut stream = connect(&pki, &running.address, version, alpn).await;
        assert_eq!(stream.get_ref().1.protocol_version(), Some(name));
        let asked = b"GET /headers HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\nHost: a\n\n";
        stream.write_all(asked).await.unwrap();
        let answer = rest(&mut stream).await;
        // The framing guard stands above TLS.
        let (first, second) = answer.split_once("x-forwarded-proto: https\n").expect(&answer);
        assert!(first.starts_with("HTTP/1.1 200 ") && second.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[tokio::test]
async fn http2_is_chosen_by_alpn() {
    let pki = Pki::new(&["us"]);
    let running = secure(&pki, PublicLimits::default()).await;
    let stream = connect(&pki, &running.address, &rustls::version::TLS13, &[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let request = Request::get("https://a/headers").body(Full::new(Bytes::new())).unwrap();
    let answer = soon(sender.send_request(request)).await.unwrap();
    let expected = "host: a\nx-forwarded-for: 127.0.0.1\nx-forwarded-host: a\nx-forwarded-proto: https\n";
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(expected), "{body:?}");
}

#[tokio::test]
async fn a_client_without_a_handshake_is_cut() {
    let pki = Pki::new(&["us"]);
    let limits = PublicLimits { head_time: Duration::from_millis(300), ..PublicLimits::default() };
    let running = secure(&pki, limits).await;
    let half = [0x16, 3, 1, 2, 0, 1];
    for begin in [&b""[..], &half, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let answer = until_cut(&mut running.say(begin).await).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    assert_eq!(running.service.seen(), [""; 0]);
}
