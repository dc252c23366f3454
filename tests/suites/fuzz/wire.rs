//! Messages between regions: each is refused or understood, and an understood one would be written
//! the same way.
//!
//! The target is `adapters::wire`. A message is fuzzed as the text of its head, a header per line.

use crate::fuzz::fuzz;
use crate::support::*;
use http::{HeaderName, Response, Uri};
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
    b"\n", b": ", b"-1", b"+", b"00", b"\0", b"\x80", b"#", b"?", b"/", b"//", b"%", b" ", b"\"", b"{", b"}",
    b"null", b",", b"\\u0000",
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

/// A target as it travels: its path and query, written out. (http shows an empty path as `/` only
/// on request.)
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

fn check_pong(text: &[u8]) {
    if let Ok(pong) = decode_pong(text) {
        assert_eq!(decode_pong(&encode_pong(&pong)), Ok(pong));
    }
}

#[test]
fn a_peers_message_is_refused_or_understood() {
    let sent = b"acme\nk-1\nPOST\n/v1/charges?a=b\ncontent-type: application/json\nconnection: x\nx: 1\nonceway-y: 2";
    let absolute = b"acme\nk-1\nPATCH\nhttp://host/v1?a\nte: trailers";
    fuzz(&[FORWARD, REPLY, MOVED, REFUSED, PONG, sent, absolute], &[SHORT, LONG].concat(), |text| {
        check_forward(text);
        check_sent(text);
        check_reply(text);
        check_pong(text);
    });
}
