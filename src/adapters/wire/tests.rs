//! Round trips over random messages, and a table of malformed messages that must be refused.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::adapters::views::tests::origins;
use crate::ports::body::{Collected, collect, full};
use crate::ports::peers::Beat;
use crate::protocol::examples::name as region;
use crate::protocol::region::Origin;
use onceway_lab::contract;

fn header_lines() -> impl Strategy<Value = HeaderMap> {
    let name = "[a-z0-9!#$%&'*+.^_`|~-]{1,20}".prop_filter("ends at this hop, or is ours", |name| {
        HeaderName::from_bytes(name.as_bytes())
            .is_ok_and(|name| !is_hop_by_hop(&name) && !is_under(&name, RESERVED_PREFIX))
    });
    let byte = prop_oneof![Just(b'\t'), 0x20_u8..0x7f, 0x80_u8..=0xff];
    vec((name, vec(byte, 0..12)), 0..8).prop_map(|lines| {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_bytes(&value).unwrap());
        }
        map
    })
}

prop_compose! {
    fn forwards()(
        tenant in "[A-Za-z0-9_.-]{1,64}",
        key in "[!-~]{1,255}",
        principal in option::of(any::<[u8; 32]>()),
        method in "[A-Za-z!#$%&'*+.^_`|~-]{1,12}",
        target in "/[a-zA-Z0-9/%._~-]{0,40}([?][a-zA-Z0-9=&%?/]{0,20})?",
        headers in header_lines(),
        body in vec(any::<u8>(), 0..64),
        request_id in any::<u128>(),
        epoch in any::<u64>(),
        deadline in any::<u64>(),
    ) -> Forward {
        Forward {
            id: KeyId::new(Tenant::parse(&tenant).unwrap(), Key::parse(&key).unwrap()),
            principal: principal.map(Digest32::new),
            method: Method::from_bytes(method.as_bytes()).unwrap(),
            target: target.parse().unwrap(),
            headers,
            body: body.into(),
            request_id: RequestId(request_id),
            epoch,
            deadline: Duration::from_millis(deadline),
        }
    }
}

prop_compose! {
    fn pongs()(
        epoch in any::<u64>(),
        view in any::<[u8; 32]>(),
        shared in any::<[u8; 32]>(),
        serving in any::<bool>(),
        beat in option::of((any::<u64>(), any::<u64>())),
        own in option::of(origins()),
        applied in btree_map(origins(), any::<u64>(), 0..5),
        heard in btree_map(origins(), any::<u64>(), 0..5),
        newest in 1_u16..9,
        protocol in any::<u16>(),
    ) -> Pong {
        Pong {
            speaks: Versions::new(1, newest).unwrap(),
            protocol,
            epoch,
            view: Digest32::new(view),
            shared: Digest32::new(shared),
            serving,
            beat: beat.map(|(seq, age)| Beat { seq, age: Duration::from_nanos(age) }),
            origin: own,
            applied,
            heard,
            upstream_failing: false,
        }
    }
}

proptest! {
    #[test]
    fn forwards_are_read_as_they_were_written(forward in forwards()) {
        let request = encode_forward(&region("eu"), &region("us"), forward.clone()).unwrap();
        prop_assert_eq!(request.uri().to_string(), "https://us.onceway/peer/v1/forward");
        let (head, body) = request.into_parts();
        prop_assert_eq!(decode_from(&head.headers).unwrap(), region("eu"));
        prop_assert_eq!(decode_forward(&head, body).unwrap(), forward);
    }

    #[test]
    fn pongs_are_read_as_they_were_written(pong in pongs()) {
        prop_assert_eq!(decode_pong(&encode_pong(&pong)).unwrap(), pong);
    }

    #[test]
    fn any_single_missing_or_repeated_header_is_refused(forward in forwards(), which in 0..OURS.len()) {
        let name = OURS[which].clone();
        let (mut head, body) = sent(forward);
        let read = |head: &Parts| decode_from(&head.headers).and(decode_forward(head, body.clone()).map(drop));
        prop_assert!(read(&head).is_ok());
        let value = head.headers.remove(&name).unwrap();
        prop_assert_eq!(read(&head), Err(WireError::NotOnce(name.clone())));
        head.headers.append(name.clone(), value.clone());
        head.headers.append(name.clone(), value);
        prop_assert_eq!(read(&head), Err(WireError::NotOnce(name)));
    }
}

fn sent(forward: Forward) -> (Parts, Bytes) {
    encode_forward(&region("eu"), &region("us"), forward).unwrap().into_parts()
}

fn example() -> Forward {
    Forward { headers: HeaderMap::new(), ..contract::peers::forward("k") }
}

#[test]
fn malformed_values_are_refused() {
    let table: &[(&HeaderName, &[&[u8]])] = &[
        (&EPOCH, &[b"", b"-1", b"+1", b"01", b"1.0", b"18446744073709551616", b"x"]),
        (&DEADLINE, &[b"", b"1s", b"00", b" 1"]),
        (&TENANT, &[b"", b"a b", b"a/b", b"\xff"]),
        (&PRINCIPAL, &[b"", b"None", b"ann", &[b'A'; 64], &[b'a'; 63]]),
        (&KEY, &[b"", b"a b", b"\xc3\xa9"]),
        (&REQUEST_ID, &[b"", b"req_", b"req_7", &[b'0'; 32], b"req_0000000000000000000000000000000G"]),
        (&METHOD, &[b"", b"PO ST", b"GET\t"]),
        (&TARGET, &[b"", b"v1", b"*", b"http://a/b", b"/a#b", b"/a b"]),
    ];
    for (name, values) in table {
        for value in *values {
            let (mut head, body) = sent(example());
            head.headers.insert((*name).clone(), HeaderValue::from_bytes(value).unwrap());
            let refused = decode_forward(&head, body).map(drop);
            assert_eq!(refused, Err(WireError::Malformed((*name).clone())), "{value:?}");
        }
    }
}

#[test]
fn a_second_hop_is_refused() {
    for hop in ["2", "0", "", "01"] {
        let (mut head, body) = sent(example());
        head.headers.insert(HOP, hop.parse().unwrap());
        assert_eq!(decode_forward(&head, body).map(drop), Err(WireError::Hop), "{hop:?}");
    }
}

#[test]
fn forbidden_headers_do_not_travel() {
    let mut forward = example();
    for name in [
        "connection",
        "keep-alive",
        "te",
        "onceway-token",
        "onceway-peer-hop",
        "onceway-client-a",
        "x-listed",
    ] {
        forward.headers.append(name, HeaderValue::from_static("x-listed"));
    }
    forward.headers.append("accept", HeaderValue::from_static("a"));
    forward.headers.append("accept", HeaderValue::from_static("b"));
    let (head, body) = sent(forward);
    let read = decode_forward(&head, body).unwrap();
    let lines: Vec<_> =
        read.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(lines, [("accept", "a"), ("accept", "b")]);
}

#[test]
fn smuggled_and_unknown_headers_are_refused() {
    for (name, expected_unknown) in [
        ("onceway-peer-later", true),
        ("onceway-token", true),
        ("onceway-client-", false),
        ("onceway-client-connection", false),
        ("onceway-client-onceway-token", false),
    ] {
        let name = HeaderName::from_static(name);
        let (mut head, body) = sent(example());
        head.headers.insert(name.clone(), HeaderValue::from_static("1"));
        let expected = if expected_unknown { WireError::Unknown(name) } else { WireError::Malformed(name) };
        assert_eq!(decode_forward(&head, body).map(drop), Err(expected));
    }
}

#[tokio::test]
async fn answers_are_read_as_they_were_written() {
    let answer = Response::builder()
        .status(201)
        .header("content-length", "5")
        .header("set-cookie", "a")
        .header("set-cookie", "b")
        .header("onceway-region", "us")
        .header("connection", "close")
        .body(full("hello"))
        .unwrap();
    let mut sent = encode_reply(ForwardReply::Answer(answer));
    assert!(!sent.headers().contains_key(CONTENT_LENGTH));
    sent.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(99));
    let Ok(ForwardReply::Answer(read)) = decode_reply(sent) else { panic!("an answer was written") };
    assert_eq!(read.status(), 201);
    assert_eq!(read.headers()["content-length"], "5");
    assert_eq!(read.headers()["onceway-region"], "us");
    assert_eq!(read.headers().get_all("set-cookie").iter().count(), 2);
    assert_eq!(read.headers().len(), 4);
    let Ok(Collected::Whole(body)) = collect(read.into_body(), 5).await else { panic!("a whole body") };
    assert_eq!(body, "hello");
}

#[test]
fn replies_that_are_no_answer() {
    let read = |response: Response<Body>| match decode_reply(response) {
        Ok(ForwardReply::NotOwner { epoch }) => format!("not owner {epoch}"),
        Ok(ForwardReply::Answer(_)) => "answer".into(),
        Err(error) => error.to_string(),
    };
    assert_eq!(read(encode_reply(ForwardReply::NotOwner { epoch: 9 })), "not owner 9");
    assert!(read(Response::new(empty())).contains("exactly once"));
    let refusal = Response::builder().status(403).body(empty()).unwrap();
    assert_eq!(read(encode_refusal(refusal)), "peer message: refused with 403 Forbidden");
    let strange = Response::builder().header(REPLY, "perhaps").body(empty()).unwrap();
    assert!(read(strange).contains("malformed"));
}

#[test]
fn pongs_that_are_none_are_refused() {
    let good = encode_pong(&pong());
    let good = str::from_utf8(&good).unwrap();
    assert!(decode_pong(good.as_bytes()).is_ok());
    for (from, to) in [
        ("\"epoch\":1", "\"epoch\":-1"),
        ("\"epoch\":1,", ""),
        ("\"1-2\"", "\"2-1\""),
        ("\"protocol\":2", "\"protocol\":\"2\""),
        ("0101", "01"),
        ("0202", "020G"),
        ("\"eu#1\"", "\"EU#1\""),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good);
        assert!(matches!(decode_pong(bad.as_bytes()), Err(WireError::Pong(_))), "{bad}");
    }
}

fn pong() -> Pong {
    Pong {
        speaks: Versions::new(1, 2).unwrap(),
        protocol: 2,
        epoch: 1,
        view: Digest32::new([1; 32]),
        shared: Digest32::new([2; 32]),
        applied: BTreeMap::from([(Origin { region: region("eu"), generation: 1 }, 4)]),
        heard: BTreeMap::from([(Origin { region: region("eu"), generation: 1 }, 5)]),
        ..contract::peers::pong()
    }
}

/// Members of a newer version are ignored.
#[test]
fn members_that_are_not_known_are_left_alone() {
    let json = encode_pong(&pong());
    let json = str::from_utf8(&json).unwrap().replacen('{', "{\"more\":{\"a\":[1]},", 1);
    assert_eq!(decode_pong(json.as_bytes()), Ok(pong()));
}

#[test]
fn versions_travel_in_a_header() {
    let get = encode_get(&region("eu"), Versions::new(2, 3).unwrap(), &region("us"), HELLO_PATH);
    assert_eq!(decode_versions(get.headers()), Ok(Versions::new(2, 3).unwrap()));
    assert_eq!(decode_versions(&HeaderMap::new()), Ok(Versions::UNSAID));
    let mut wrong = HeaderMap::new();
    wrong.insert(SPEAKS, HeaderValue::from_static("2"));
    assert_eq!(decode_versions(&wrong), Err(WireError::Malformed(SPEAKS)));
}
