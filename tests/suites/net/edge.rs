//! The public listener behind trusted proxies and the PROXY protocol, and asked by pages of other
//! origins. `server::edge` has the table of forwarded addresses.

use crate::net::harness::{Running, read_until, rest, run_through, until_cut};
use crate::net::support::*;
use onceway::config::trusted::Network;

fn loopback() -> Vec<Network> {
    vec![Network::parse("127.0.0.0/8").unwrap()]
}

fn few() -> PublicLimits {
    PublicLimits { connections_per_ip: 2, head_time: Duration::from_millis(500), ..PublicLimits::default() }
}

async fn run_behind(limits: PublicLimits, edge: Edge) -> Running {
    run_through(limits, PATIENCE, None, edge).await
}

async fn headers_after(running: &Running, begin: &[u8], lines: &str) -> String {
    let asked = format!("GET /headers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n");
    rest(&mut running.say([begin, asked.as_bytes()].concat()).await).await
}

/// A header of the PROXY protocol for a client of this last byte.
fn proxied(last: u8) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([203, 0, 113, last, 10, 0, 0, 1, 0x12, 0x67, 0x01, 0xbb]);
    header
}

#[tokio::test]
async fn only_a_trusted_proxy_names_the_client() {
    let lines = "X-Forwarded-For: 6.6.6.6, 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\n\
                 X-Real-IP: 6.6.6.6\r\nTrue_Client_IP: 6.6.6.6\r\nCF-Connecting-IP: 6.6.6.6\r\n";
    let seen_by = async |edge: Edge, expected: &[&str]| {
        let seen = headers_after(&run_behind(few(), edge).await, b"", lines).await;
        for expected in expected {
            assert!(seen.contains(&format!("{expected}\n")), "{expected} in {seen}");
        }
        seen
    };
    let forwarded =
        ["x-forwarded-for: 203.0.113.9", "x-forwarded-proto: https", "x-forwarded-host: shop.example"];
    let named = ["x-real-ip: 203.0.113.9", "cf-connecting-ip: 203.0.113.9", "host: a"];
    let behind = Edge { trusted_proxies: loopback(), ..Edge::default() };
    seen_by(behind, &[forwarded, named].concat()).await;
    let open = ["x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http", "x-real-ip: 127.0.0.1"];
    let seen = seen_by(Edge::default(), &open).await;
    assert!(!seen.contains("6.6.6.6") && !seen.contains("shop.example") && !seen.contains("true"), "{seen}");
}

#[tokio::test]
async fn a_trusted_proxy_does_not_count_as_one_client() {
    let held = async |edge: Edge| {
        let running = run_behind(few(), edge).await;
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(running.say(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await);
        }
        let mut served = 0;
        for mut one in all {
            served += usize::from(soon(one.read(&mut [0; 1])).await.is_ok_and(|count| count > 0));
        }
        served
    };
    assert_eq!(held(Edge::default()).await, 2);
    assert_eq!(held(Edge { trusted_proxies: loopback(), ..Edge::default() }).await, 4);
}

#[tokio::test]
async fn only_the_proxy_protocol_names_the_client() {
    let edge = Edge { trusted_proxies: loopback(), proxy_protocol: true, ..Edge::default() };
    let running = run_behind(few(), edge).await;
    let seen = headers_after(&running, &proxied(9), "X-Forwarded-For: 6.6.6.6\r\n").await;
    assert!(seen.contains("x-forwarded-for: 203.0.113.9\n"), "{seen}");
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    assert!(headers_after(&running, local, "").await.contains("x-forwarded-for: 127.0.0.1\n"));
    for begin in [&b""[..], b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n"] {
        let mut stream = running.say([begin, b"GET /headers HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).await;
        assert_eq!(until_cut(&mut stream).await, b"");
    }
    // Silence is cut like any other.
    until_cut(&mut running.say(&proxied(9)[..10]).await).await;
    // Each client has its own bound.
    let mut held = Vec::new();
    for last in [1, 1, 2] {
        let asked = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        let mut one = running.say([&proxied(last)[..], asked].concat()).await;
        read_until(&mut one, "hi").await;
        held.push(one);
    }
    let mut third =
        running.say([&proxied(1)[..], b"GET /headers HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).await;
    assert!(!soon(third.read(&mut [0; 1])).await.is_ok_and(|count| count > 0), "its two are taken");
    // From elsewhere nobody may say who it is.
    let others = vec![Network::parse("10.0.0.0/8").unwrap()];
    let closed =
        run_behind(few(), Edge { trusted_proxies: others, proxy_protocol: true, ..Edge::default() }).await;
    let mut stream = TcpStream::connect(&closed.address).await.unwrap();
    let _reset = stream.write_all(&proxied(9)).await;
    assert!(!soon(stream.read(&mut [0; 1])).await.is_ok_and(|count| count > 0));
}

#[tokio::test]
async fn only_listed_origins_read_answers_and_refusals() {
    let edge = Edge { cors: vec![HeaderValue::from_static("https://shop.example")], ..Edge::default() };
    let running = run_behind(PublicLimits::default(), edge).await;
    let ask = async |head: &str, origin: &str| {
        let head = format!("{head} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{origin}\r\n");
        rest(&mut running.say(head).await).await.to_lowercase()
    };
    let (listed, other) = ("Origin: https://shop.example\r\n", "Origin: https://evil.example\r\n");
    let allowed = "access-control-allow-origin: https://shop.example\r\n";
    for head in ["GET /headers", "GET /refuse", "POST *"] {
        let answer = ask(head, listed).await;
        assert!(answer.contains(allowed) && answer.contains("vary: origin\r\n"), "{answer}");
        assert!(answer.contains("retry-after") && answer.contains("idempotent-replayed"), "{answer}");
        assert!(!ask(head, other).await.contains("access-control"));
        assert!(!ask(head, &format!("{listed}{other}")).await.contains("access-control-allow-origin"));
    }
    let wants = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: idempotency-key\r\n";
    let before = running.service.seen().len();
    let preflight = ask("OPTIONS /v1/charges", &format!("{listed}{wants}")).await;
    assert!(preflight.starts_with("http/1.1 204 ") && preflight.contains(allowed), "{preflight}");
    for (name, value) in [("methods", "post"), ("headers", "idempotency-key")] {
        assert!(preflight.contains(&format!("access-control-allow-{name}: {value}\r\n")), "{preflight}");
    }
    assert_eq!(running.service.seen().len(), before, "it is answered at the door");
    let passed = ask("OPTIONS /v1/charges", &format!("{other}{wants}")).await;
    assert!(!passed.contains("access-control-allow-origin"), "{passed}");
    assert_eq!(running.service.seen().len(), before + 1);
}
