//! Questions between regions and their answers: each message is refused or understood, and an
//! understood one is written the same way again.
//!
//! The target is `adapters::wire::ask`.

use onceway::adapters::wire::ask::{read_question, read_refusal, read_reply, write};

use crate::fuzz::fuzz;

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
const SHORT: &[&[u8]] = &[
    b"\"", b"{", b"}", b"[", b"]", b":", b",", b"null", b"-1", b"1.5", b"1e9", b"00", b"\\u0000", b"\\ud800",
    b"\0", b"\x80", b"EU", b"#01", b"=",
];
const LONG: &[&[u8]] = &[
    b"18446744073709551616",
    b"4294967296",
    b"1000000000",
    b"\"views\"",
    b"\"sealed\"",
    b"\"weight\":0",
    b"\"acceptor\"",
];

fn check(json: &[u8]) {
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
    fuzz(&texts, &[SHORT, LONG].concat(), check);
}
