//! The public listener of a real gateway: bad input over HTTP/1.1 and HTTP/2 is a clear 4xx
//! problem, nothing stored, nothing sent. Each bad request, written by hand, is a good charge with
//! one mistake, and the good one is sent too.

use crate::net::frames::{self, Outcome, Raw};
use crate::support::*;

fn bad_keys() -> Vec<(Vec<&'static [u8]>, &'static str)> {
    vec![
        (vec![], "key-missing"),
        (vec![b""], "key-empty"),
        (vec![b"a", b"a"], "key-repeated"),
        (vec![b"a, b"], "key-repeated"),
        (vec![b"caf\xe9"], "key-malformed"),
        (vec![b"\"caf\xc3\xa9\""], "key-malformed"),
        (vec![LONG], "key-too-long"),
    ]
}

const LONG: &[u8] = &[b'k'; 256];

fn http1(lines: &[u8], body: &[u8]) -> Vec<u8> {
    let head = b"POST /v1/charges HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk_demo_acme\r\nContent-Type: application/json\r\n";
    [&head[..], lines, b"\r\n", body].concat()
}

fn http1_keys(keys: &[&[u8]]) -> Vec<u8> {
    let mut lines = format!("Content-Length: {}\r\n", BODY.len()).into_bytes();
    for key in keys {
        lines.extend([b"Idempotency-Key: ", *key, b"\r\n"].concat());
    }
    http1(&lines, BODY.as_bytes())
}

async fn talk(address: &str, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = String::new();
    let mut piece = [0; 4096];
    // Refused keys leave the connection open: the answer is read by its length.
    loop {
        let count = timeout(PATIENCE, stream.read(&mut piece)).await.expect("an answer").unwrap_or(0);
        answer.push_str(&String::from_utf8_lossy(&piece[..count]));
        let whole = answer.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            length.is_some_and(|length| body.len() >= length.parse().unwrap())
        });
        if whole || count == 0 {
            break;
        }
    }
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), answer)
}

async fn refused1(address: &str, bytes: &[u8]) -> (u16, String) {
    let shown = bytes.escape_ascii().to_string();
    let (status, answer) = talk(address, bytes).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {shown}"));
    assert!(head.contains("content-type: application/problem+json"), "{shown}: {answer}");
    let problem: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{shown}: {answer}"));
    assert_eq!(problem["status"], status, "{shown}");
    assert!(problem["documentation"].is_string(), "{shown}");
    (status, problem["code"].as_str().unwrap().to_owned())
}

fn http2(others: &[(&str, &[u8])]) -> Vec<u8> {
    let usual: [(&str, &[u8]); 2] =
        [("authorization", b"Bearer sk_demo_acme"), ("content-type", b"application/json")];
    frames::request("POST", "/v1/charges", &[&usual[..], others].concat())
}

async fn over_http2(address: &str, head: &[u8], body: &[u8]) -> Outcome {
    let mut raw = Raw::connect(address, &[]).await;
    raw.post(1, head, body).await;
    timeout(PATIENCE, raw.outcome(1)).await.expect("an end of the stream")
}

/// The problem's status and code, or `None` if the protocol wants the stream to be reset.
async fn refused2(address: &str, head: &[u8], body: &[u8]) -> Option<(u64, String)> {
    match over_http2(address, head, body).await {
        Outcome::Answer(text) => {
            let shown = head.escape_ascii().to_string();
            let problem: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{shown}: {text}"));
            Some((problem["status"].as_u64().unwrap(), problem["code"].as_str().unwrap().to_owned()))
        }
        Outcome::Reset | Outcome::Closed => None,
    }
}

/// Requests with bad framing only, with a key of their own: one of each kind.
fn bad_framing(key: &str) -> Vec<(Vec<u8>, u16, &'static str)> {
    let keyed = |lines: &str, body: &str| {
        http1(format!("Idempotency-Key: {key}\r\n{lines}").as_bytes(), body.as_bytes())
    };
    let length = format!("Content-Length: {}\r\n", BODY.len());
    let chunk = format!("{:x}\r\n{BODY}\r\n", BODY.len());
    let chunked = |body: &str| keyed("Transfer-Encoding: chunked\r\n", body);
    let whole = String::from_utf8(keyed(&length, BODY)).unwrap();
    vec![
        (keyed(&format!("{length}Transfer-Encoding: chunked\r\n"), &chunk), 400, "bad-request"),
        (keyed(&format!("{length}Connection: Idempotency-Key\r\n"), BODY), 400, "bad-request"),
        (keyed(&format!("{length}Expect: nothing\r\n"), BODY), 417, "expectation-failed"),
        (keyed(&format!("{length}X-HTTP-Method-Override: PUT\r\n"), BODY), 400, "override-refused"),
        (whole.replace("/charges", "/%63harges").into_bytes(), 400, "path-spelling"),
        (whole.replace("\r\n", "\n").into_bytes(), 400, "bad-request"),
        (whole.replace(key, &format!("{key}\x01")).into_bytes(), 400, "bad-request"),
        (chunked(&format!("{chunk}zz\r\n")), 400, "body-broken"),
        (keyed("Content-Length: 70000\r\nExpect: 100-continue\r\n", ""), 413, "body-too-large"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_a_problem_and_leaves_nothing_behind() {
    let solo = Solo::start(&routes(), None).await;
    let address = solo.public().strip_prefix("http://").unwrap().to_owned();
    for (keys, code) in bad_keys() {
        let refused = refused1(&address, &http1_keys(&keys)).await;
        assert_eq!(refused, (400, code.to_owned()), "{keys:?}");
        let fields: Vec<(&str, &[u8])> = keys.iter().map(|key| ("idempotency-key", *key)).collect();
        let refused = refused2(&address, &http2(&fields), BODY.as_bytes()).await;
        assert_eq!(refused, Some((400, code.to_owned())), "{keys:?}");
    }
    let bad = key("bad");
    let framings = bad_framing(&bad);
    for (bytes, status, code) in &framings {
        let refused = refused1(&address, bytes).await;
        assert_eq!(refused, (*status, (*code).to_owned()), "{}", bytes.escape_ascii());
    }
    let malformed: &[(&str, &[u8])] = &[
        ("connection", b"idempotency-key"),
        ("content-length", b"7"),
        ("x", b"a\r\nonceway-tenant: globex"),
    ];
    for field in malformed {
        let head = http2(&[("idempotency-key", bad.as_bytes()), *field]);
        let refused = refused2(&address, &head, BODY.as_bytes()).await;
        assert!(refused.as_ref().is_none_or(|(status, _)| *status == 400), "{field:?}: {refused:?}");
    }
    // Nothing was claimed, nothing was sent.
    assert!(solo.ledger.totals(None).is_empty());
    let metrics = async || metrics(&solo.region).await;
    let claims = "onceway_store_seconds_count{op=\"claim\",";
    let before = metrics().await;
    assert!(!before.contains(claims), "{before}");
    let refused = "onceway_refusals_total{code=\"bad-request\"} ";
    let count = before.lines().find_map(|line| line.strip_prefix(refused)).expect("a count");
    let least = framings.iter().filter(|(_, _, code)| *code == "bad-request").count();
    assert!(count.parse::<usize>().unwrap() >= least, "{count} of {least}");
    good_input_runs(&solo, &address).await;
    assert!(metrics().await.contains(claims));
    the_admin_listener_answers_to_its_own_names_only(&solo).await;
}

/// A browser may be made to ask for a stranger's page, and names the stranger (DNS rebinding).
async fn the_admin_listener_answers_to_its_own_names_only(solo: &Solo) {
    let admin = solo.region.admin();
    let address = admin.strip_prefix("http://").unwrap();
    let json = "Content-Type: application/json";
    // As the browser sends a form of the stranger's page, whose origin and host are one.
    let form = "Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://HOST";
    let sent = async |line: &str, kind: &str, host: &str| {
        let kind = kind.replace("HOST", host);
        let head =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\n{kind}\r\nContent-Length: 2\r\nConnection: close");
        talk(address, format!("{head}\r\n\r\n{{}}").as_bytes()).await.0
    };
    for (line, kind, ours) in [
        ("GET /v1/doubts", json, 200),
        ("GET /metrics", json, 200),
        ("POST /v1/keys/acme/k/release", json, 400),
        ("GET /console", json, 200),
        ("GET /console/now", json, 200),
        ("POST /console/release", form, 400),
        ("POST /console/sign-in", form, 303),
    ] {
        let status = async |line: &str, host: &str| sent(line, kind, host).await;
        for host in [address, "localhost:7402", "LOCALHOST", "[::1]:7402"] {
            assert_eq!(status(line, host).await, ours, "{line} {host}");
        }
        for stranger in ["pages.example", "pages.example:7402", "127.0.0.1.pages.example", "192.0.2.7", "a b"]
        {
            assert_eq!(status(line, stranger).await, 421, "{line} {stranger}");
        }
    }
    assert_eq!(sent("GET /healthz", json, "balancer.example").await, 200);
}

async fn good_input_runs(solo: &Solo, address: &str) {
    let (one, chunked, two) = (key("one"), key("chunked"), key("two"));
    assert_eq!(talk(address, &http1_keys(&[one.as_bytes()])).await.0, 201);
    let lines =
        format!("Transfer-Encoding: chunked\r\nTrailer: Idempotency-Key\r\nIdempotency-Key: {chunked}\r\n");
    let body = format!("{:x}\r\n{BODY}\r\n0\r\nIdempotency-Key: {chunked}-2\r\n\r\n", BODY.len());
    assert_eq!(talk(address, &http1(lines.as_bytes(), body.as_bytes())).await.0, 201);
    let head = http2(&[("idempotency-key", two.as_bytes())]);
    assert!(
        matches!(over_http2(address, &head, BODY.as_bytes()).await, Outcome::Answer(body) if body.contains("2000"))
    );
    for key in [&one, &chunked, &two] {
        assert_eq!(effects(&solo.ledger, key), 1);
        let again = ask(post(&solo.public(), "/v1/charges", key, BODY)).await;
        assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (201, "true"));
    }
    assert_eq!(effects(&solo.ledger, &format!("{chunked}-2")), 0);
}
