//! Messages between regions, and questions with their replies: each is refused or understood, and
//! an understood one would be written the same way. A message is fuzzed as the text of its head, a
//! header per line, a question as JSON.

use crate::fuzz::fuzz;
use crate::support::*;
use http::{HeaderName, Response, Uri};
use onceway::adapters::wire::ask::{read_question, read_refusal, read_reply, write};
use onceway::adapters::wire::{
    decode_forward, decode_from, decode_pong, decode_reply, encode_forward, encode_pong, encode_reply,
};
use onceway::ports::body::empty;
use onceway::ports::peers::{Forward, ForwardReply};
use onceway::protocol::digest::Digest32;

const FORWARD: &[u8] = b"onceway-peer-from: east\nonceway-peer-epoch: 7\nonceway-peer-deadline-ms: 30000\n\
onceway-peer-tenant: acme\nonceway-peer-principal: none\nonceway-peer-key: k-1\nonceway-peer-request-id: req_000000000000000000000000000000ff\n\
onceway-peer-method: POST\nonceway-peer-target: /v1/charges?a=b%20c\nonceway-peer-hop: 1\n\
onceway-client-content-type: application/json\nonceway-client-x: 1\nonceway-client-x: 2";
const REPLY: &[u8] =
    b"onceway-peer-reply: answer\nonceway-peer-length: 17\ncontent-length: 3\nonceway-region: east\nx: 1";
const MOVED: &[u8] = b"onceway-peer-reply: not-owner\nonceway-peer-epoch: 8";
const REFUSED: &[u8] = b"onceway-peer-reply: refused";
const PONG: &[u8] = br#"{"epoch":1,"view":"0000000000000000000000000000000000000000000000000000000000000000","shared":
"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","serving":true,"beat":{"seq":1,"age_ns":2},"applied":{"east":3}}"#;
const SHORT: &[&[u8]] = &[
    b"\n", b": ", b":", b"-1", b"+", b"00", b"\0", b"\x80", b"#", b"?", b"/", b"//", b"%", b" ", b"\"", b"{",
    b"}", b"[", b"]", b"null", b",", b"1.5", b"1e9", b"\\u0000", b"\\ud800", b"EU", b"#01", b"=",
];
const LONG: &[&[u8]] = &[
    b"onceway-peer-",
    b"onceway-client-",
    b"onceway-",
    b"onceway-peer-principal: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n",
    b"connection: x\n",
    b"onceway-client-connection: x\n",
    b"onceway-client-te: trailers\n",
    b"onceway-peer-hop: 2\n",
    b"onceway-peer-length: 1\n",
    b"transfer-encoding: chunked\n",
    b"onceway-client-onceway-x: 1\n",
    b"onceway-client-content-length: 9\n",
    b"18446744073709551616",
    b"4294967296",
    b"1000000000",
    b"\"views\"",
    b"\"sealed\"",
    b"\"weight\":0",
    b"\"acceptor\"",
];

fn head(text: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn are_among(some: &HeaderMap, all: &HeaderMap) -> bool {
    some.keys().all(|name| some.get_all(name).iter().eq(all.get_all(name).iter()))
}

fn regions() -> (RegionName, RegionName) {
    (RegionName::parse("east").unwrap(), RegionName::parse("west").unwrap())
}

fn decode(request: Request<Bytes>) -> Option<Forward> {
    let (head, body) = request.into_parts();
    decode_forward(&head, body).ok()
}

fn parts(forward: Forward) -> impl PartialEq + std::fmt::Debug {
    let Forward { id, principal, method, target, headers, body, request_id, epoch, deadline } = forward;
    let (tenant, key) = (id.tenant().clone(), id.key().as_str().to_owned());
    ((tenant, key, principal, method, target), (headers, body, request_id, epoch, deadline))
}

fn check_forward(text: &[u8]) {
    let (east, west) = regions();
    let mut request = Request::new(Bytes::from_static(b"body"));
    *request.headers_mut() = head(text);
    let _anything_but_a_panic = decode_from(request.headers());
    let Some(forward) = decode(request) else { return };
    let again = encode_forward(&east, &west, forward.clone()).expect("what was understood can be written");
    assert_eq!(decode_from(again.headers()).as_ref(), Ok(&east));
    assert_eq!(again.uri().path(), "/peer/v1/forward");
    assert_eq!(decode(again).map(parts), Some(parts(forward)));
}

/// Here the text is a client's request: tenant, key, method and target, a line each, then headers.
fn check_sent(text: &[u8]) {
    let (east, west) = regions();
    let mut lines =
        text.splitn(5, |byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    let mut next = || lines.next().unwrap_or_default();
    let (tenant, key, method, target, headers) = (next(), next(), next(), next(), next());
    let (Ok(tenant), Ok(key), Ok(method), Ok(target)) = (
        Tenant::parse(&tenant),
        Key::parse(&key),
        Method::from_bytes(method.as_bytes()),
        target.parse::<Uri>(),
    ) else {
        return;
    };
    let request_id = RequestId(u128::from(text.len() as u64) << 90);
    let forward = Forward {
        id: KeyId::new(tenant, key),
        principal: text.first_chunk().map(|bytes| Digest32::new(*bytes)),
        method,
        target,
        headers: head(headers.as_bytes()),
        body: Bytes::copy_from_slice(text),
        request_id,
        epoch: u64::MAX,
        deadline: Duration::from_millis(12),
    };
    let Ok(request) = encode_forward(&east, &west, forward.clone()) else { return };
    let got = decode(request).expect("what was written is understood");
    let headers = got.headers.clone();
    assert!(headers.keys().all(|name| !name.as_str().starts_with("onceway-") && name != "connection"));
    assert!(are_among(&headers, &forward.headers));
    assert_eq!(parts(got), parts(Forward { headers, target: path(&forward.target), ..forward }));
}

/// A target as it travels. (http shows an empty path as `/` only on request.)
fn path(target: &Uri) -> Uri {
    target.path_and_query().expect("a target with a path").as_str().parse().expect("a path is a target")
}

fn check_reply(text: &[u8]) {
    let mut response = Response::new(empty());
    *response.headers_mut() = head(text);
    let first = match decode_reply(response) {
        Err(_) => return,
        Ok(ForwardReply::Answer(answer)) => answer,
        Ok(ForwardReply::NotOwner { epoch }) => {
            let again = decode_reply(encode_reply(ForwardReply::NotOwner { epoch }));
            assert!(matches!(again, Ok(ForwardReply::NotOwner { epoch: told }) if told == epoch));
            return;
        }
    };
    let (status, headers) = (first.status(), first.headers().clone());
    assert!(headers.keys().all(|name| !name.as_str().starts_with("onceway-peer-")), "ours reach the client");
    let Ok(ForwardReply::Answer(again)) = decode_reply(encode_reply(ForwardReply::Answer(first))) else {
        panic!("an answer is an answer on its second way");
    };
    assert_eq!(again.status(), status);
    assert!(are_among(again.headers(), &headers));
}

#[test]
fn a_peers_message_is_refused_or_understood() {
    let sent = b"acme\nk-1\nPOST\n/v1/charges?a=b\ncontent-type: application/json\nconnection: x\nx: 1\nonceway-y: 2";
    let absolute = b"acme\nk-1\nPATCH\nhttp://host/v1?a\nte: trailers";
    fuzz(&[FORWARD, REPLY, MOVED, REFUSED, PONG, sent, absolute], &[SHORT, LONG].concat(), |text| {
        check_forward(text);
        check_sent(text);
        check_reply(text);
        if let Ok(pong) = decode_pong(text) {
            assert_eq!(decode_pong(&encode_pong(&pong)), Ok(pong));
        }
    });
}

const VIEW: &str = r#"{"epoch":3,"protocol":1,"ring":{"seed":1,"place_by":"key","regions":[{"name":"eu","weight":1}],"pins":[]},"escrow":[{"route":"charges","means":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}],
"voters":[{"name":"eu","id":"000000000000000000000000000000ff"}],"voters_before":[{"name":"eu","id":"000000000000000000000000000000ff"}],"members":[{"name":"eu","generation":1,"standing":"serving","mark":9,"release":null}],"retired":[],"longest_lease":[10,0],"longest_life":[90000,0]}"#;
const BALLOT: &str = r#"{"counter":4,"region":"eu","proposer":5}"#;
const ROW: &str = r#"{"id":{"tenant":"acme","key":"k"},"row":{"origin":"eu#1","token":{"epoch":1,"attempt":1},"nonce":"000000000000000000000000000000ff",
"fingerprint":{"raw":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","canonical":null},"state":{"settled":{"answer":{"status":200,
"headers":[["x","YQ=="]],"body":"YQ=="},"age":[1,2],"expired":false}},"over":[["us#2",{"epoch":1,"attempt":1}]],"risk":["us"],
"request_id":"000000000000000000000000000000ff","expires":1,"principal":null,"accepted":false,"settle_time":[1,2],"recovery":"rerun 3"},"hold":[1,2],"lives":[1,2],
"tombstone":[1,2],"route":"charges","path":"/v1"}"#;
const LODGE: &str = r#"{"lodge":{"id":{"tenant":"acme","key":"k"},"origin":"eu#1","token":{"epoch":1,"attempt":1},"nonce":"000000000000000000000000000000ff",
"fingerprint":{"raw":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","canonical":null},"request_id":"000000000000000000000000000000ff",
"hold":[1,2],"settle_time":[1,2],"recovery":"park","lifetime":{"retention":null,"skew":[1,0],"tombstone":[1,0]},"route":"charges","path":"/v1","principal":null}}"#;
const PLAIN: [&str; 13] = [
    r#"{"rows":{"origin":"eu#1","after":{"tenant":"acme","key":"k"},"most":9}}"#,
    r#"{"latest":{"origin":"eu#1","from":9,"most":9}}"#,
    r#"{"doubts":{"after":{"tenant":"acme","key":"k"},"most":9}}"#,
    r#"{"doubts":{"page":"{}"}}"#,
    r#"{"jobs":{"state":"dead"}}"#,
    r#"{"act":{"path":"v1/keys/acme/k/release","body":"{}","proof":{"authorization":"Bearer t","approval":null}}}"#,
    r#"{"accept_risk":{"region":"eu","at":1,"actor":"a","reason":"b"}}"#,
    r#"{"acceptor":{"to":null,"message":"read"}}"#,
    r#""done""#,
    r#"{"lodged":"gate_moved"}"#,
    r#"{"acceptor":{"granted":{"number":1}}}"#,
    r#"{"released":{"generation":1,"seal":2,"release":{"base":1,"target":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},"seen":{"us#1":1}}}"#,
    r#"{"detail":"why"}"#,
];
fn check_asked(json: &[u8]) {
    let _anything_but_a_panic = read_refusal(json);
    if let Ok(question) = read_question(json) {
        assert_eq!(read_question(&write(&question)), Ok(question));
    }
    if let Ok(reply) = read_reply(json) {
        assert_eq!(read_reply(&write(&reply)), Ok(reply));
    }
}

#[test]
fn a_question_is_refused_or_understood() {
    let whole = [
        format!(r#"{{"adopt":{{"view":{VIEW}}}}}"#),
        format!(r#"{{"acceptor":{{"to":null,"message":{{"accept":{{"ballot":{BALLOT},"view":{VIEW}}}}}}}}}"#),
        format!(r#"{{"views":[{VIEW}]}}"#),
        format!(r#"{{"acceptor":{{"promised":{{"ballot":{BALLOT},"view":{VIEW}}}}}}}"#),
        format!(r#"{{"rows":[{ROW}]}}"#),
        LODGE.to_owned(),
    ];
    for (count, json) in whole.iter().map(String::as_str).chain(PLAIN).enumerate() {
        let understood = read_question(json.as_bytes()).is_ok() || read_reply(json.as_bytes()).is_ok();
        assert!(understood || count + 1 == whole.len() + PLAIN.len(), "{json}");
    }
    let texts: Vec<&[u8]> = whole.iter().map(String::as_bytes).chain(PLAIN.map(str::as_bytes)).collect();
    fuzz(&texts, &[SHORT, LONG].concat(), check_asked);
}
