//! Other spellings of a path with keys, and headers that name another method or path.
//!
//! None of them brings a request to the upstream without its key. The upstream is a raw server that
//! records its input. Targets are written by hand. It must not use a client library, which would
//! tidy them up. `gateway::policy::path` has the rules one by one, `gateway::policy::route`
//! those without a catch-all.

use crate::net::harness::talk;
use crate::net::support::{RawServer, Then};
use crate::support::solo::{POLICY, Solo};
use crate::support::{key, run};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

const TRANSFERS: &str = "/v1/transfers/{id}";
const PAY: &str = "/v2/pay";

/// Two routes with keys, then others.
fn routes() -> String {
    let keyed = |name: &str, path: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\nmethods = [\"PUT\"]\npath = \"{path}\"\nkey = \"required\"\n\
             recovery = \"park\"\n{POLICY}\n"
        )
    };
    let open = "[[route]]\nname = \"open\"\npath = \"/v3/open\"\nkey = \"off\"\nallow_overrides = true\n";
    let rest = "[[route]]\nname = \"rest\"\npath = \"/*\"\nkey = \"off\"\n";
    [keyed("transfers", TRANSFERS).as_str(), &keyed("pay", PAY), open, rest].join("\n")
}

/// Spellings that some upstream reads as `/v1/transfers/1` or `/v2/pay`, one of each kind.
const SPELLINGS: [&str; 20] = [
    "/v1/%74ransfers/1",
    "/v1/%54ransfers/1",
    "/%76%31/%74%72%61%6E%73%66%65%72%73/1",
    "/v1/%252574ransfers/1",
    "/v1/%%37%34ransfers/1",
    "/v1/%u0074ransfers/1",
    "/v1/%c1%b4ransfers/1",
    "//v1//transfers//1//",
    "/v1/transfers/1/",
    "/v1%2Ftransfers/1",
    "/v1%252Ftransfers/1",
    "/v1%5Ctransfers%5C1",
    "/v1;a=b;c/transfers/1",
    "/v1/transfers%3Ba/1",
    "/v1/;x/transfers/1",
    "/V1/TRANSFERS/1",
    "/v1/%09transfers/1",
    "/v2/pay%3fa",
    "/v2/pay%23a",
    "/v2/pay%00",
];

/// Paths that are no spelling of one with keys.
const ORDINARY: [&str; 8] = [
    "/",
    "/v1/transfers",
    "/v1/transfers/1/notes",
    "/v1//notes",
    "/v1/notes/a%2Fb",
    "/v1/notes;a=b/1",
    "/v2/p%C3%A1y",
    "/v3/transfers/1?path=/v2/pay",
];

/// Status and whole text of the answer to one request.
async fn send(address: &str, method: &str, target: &str, lines: &str) -> (u16, String) {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer sk_demo_acme\r\n\
         {lines}Content-Length: 2\r\n\r\n{{}}"
    );
    let answer = talk(address, &head).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), answer)
}

/// Behind a catch-all without keys, which takes all that no other route takes.
async fn no_spelling_passes() {
    let upstream = RawServer::start(Then::Answer(ANSWER)).await;
    let solo = Solo::start(&routes(), Some(upstream.address.parse().unwrap())).await;
    let address = solo.public().strip_prefix("http://").unwrap().to_owned();
    let mut through = Vec::new();
    for target in SPELLINGS {
        let (status, answer) = send(&address, "PUT", target, "").await;
        let code = ["path-spelling", "key-missing"].into_iter().find(|code| answer.contains(code));
        if status != 400 || code.is_none() {
            through.push((target, status));
        }
    }
    assert!(through.is_empty(), "{} of {}: {through:?}", through.len(), SPELLINGS.len());
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    // Other paths pass unchanged. So does every spelling in a request that changes no state.
    for target in ORDINARY {
        assert_eq!(send(&address, "PUT", target, "").await.0, 200, "{target}");
    }
    for target in SPELLINGS {
        assert_eq!(send(&address, "GET", target, "").await.0, 200, "{target}");
    }
    let read = upstream.seen();
    for (request, target) in read.iter().zip(ORDINARY.iter().chain(&SPELLINGS)) {
        assert_eq!(request.split(' ').nth(1), Some(*target));
    }
    assert_eq!(read.len(), ORDINARY.len() + SPELLINGS.len());
    let keyed = format!("Idempotency-Key: {}\r\n", key("spelt"));
    assert_eq!(send(&address, "PUT", "/v1/transfers/1", &keyed).await.0, 200);
    let (status, answer) = send(&address, "PUT", "//v1/transfers/1", &keyed).await;
    assert!(status == 400 && answer.contains("path-spelling"), "with a key it is refused, too: {answer}");
    no_override_passes(&address, &upstream).await;
}

async fn no_override_passes(address: &str, upstream: &RawServer) {
    let before = upstream.seen().len();
    for (method, target, line) in [
        ("GET", "/v2/pay", "X-HTTP-Method-Override: PUT"),
        ("DELETE", "/v2/pay", "X-HTTP-Method: PUT"),
        ("GET", "/v2/pay", "X_Method_Override: PUT"),
        ("PUT", "/v1/notes", "X-Original-URL: /v2/pay"),
        ("PUT", "/v1/notes", "X-Rewrite-URL: /v2/pay"),
        ("PUT", "/v1/notes", "x_original_uri: /v2/pay"),
    ] {
        let (status, answer) = send(address, method, target, &format!("{line}\r\n")).await;
        assert!(status == 400 && answer.contains("override-refused"), "{line}: {answer}");
    }
    assert_eq!(upstream.seen().len(), before);
    let allowed = "X-HTTP-Method-Override: PATCH\r\nX-Original-URL: /v3/other\r\n";
    assert_eq!(send(address, "PUT", "/v3/open", allowed).await.0, 200, "its route allows it");
    assert_eq!(
        send(address, "GET", "/v1/notes", "X-Original-URL: /v2/pay\r\n").await.0,
        200,
        "it stays a GET"
    );
}

#[test]
fn no_path_spelling_evades_a_keyed_route() {
    run(no_spelling_passes());
}
