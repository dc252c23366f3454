//! Canonical JSON: the same value, in one form, or none; no digit and no member is lost on the way.
//!
//! The target is `gateway::policy::canonical`. The second readings are serde_json's, and a look at
//! the numbers as written, which serde_json hides.

use crate::fuzz::{Text, fuzz};
use crate::support::*;
use onceway::gateway::policy::canonical::{RawOnly, canonical_json};

const TEXTS: &[&[u8]] = &[
    br#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#,
    br#"{"b":[1,2.50,-0,1e2],"a":{"z":null,"y":true}}"#,
    br#"{"a":1,"\u0061":2}"#,
    br#"["\ud83d\ude00","\ud83d","\u0000\b\f\n\r\t\"\\\/"]"#,
    b"[9007199254740991,9007199254740992,0.1,1e400,5e-324,1e-400,123456789012345678]",
    "{\"\u{20ac}\":1,\"\u{1f600}\":2,\"\u{fb33}\":3}".as_bytes(),
    b"\xef\xbb\xbf{}",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    b" 1 ",
    b"-",
];
const SHORT: &[&[u8]] = &[
    b"{", b"}", b"[", b"]", b":", b",", b"\"", b"\"a\":", b"\\u", b"\\ud83d", b"\\u0061", b"\\", b"0", b"-0",
    b"1.0", b"1e1", b"E+2", b"0.1", b".", b"e-7", b"true", b"null", b" ", b"\n", b"\0", b"\x80",
];
const LONG: &[&[u8]] = &[b"9007199254740992", b"\xf0\x9f\x98\x80"];

#[test]
fn a_canonical_form_is_stable_and_keeps_the_value() {
    fuzz(TEXTS, &[SHORT, LONG].concat(), |body| {
        let theirs = serde_json::from_slice::<Value>(body);
        match canonical_json(body) {
            Ok(form) => {
                assert_eq!(
                    canonical_json(&form).as_ref(),
                    Ok(&form),
                    "{:?} is not the last form",
                    Text(form.clone())
                );
                let again: Value = serde_json::from_slice(&form).expect("a canonical form is JSON");
                let theirs = theirs.expect("what has a canonical form is JSON");
                assert!(same(&theirs, &again), "another value: {form:?}");
                assert_eq!(numbers(body), numbers(&form), "a number changed");
                assert_eq!(members(body), kept(&again), "a member was lost, or is there twice");
            }
            Err(RawOnly::NotJson(at)) => {
                assert!(theirs.is_err() && at <= body.len(), "it is JSON, and not at {at}")
            }
            Err(
                RawOnly::NotUtf8
                | RawOnly::ByteOrderMark
                | RawOnly::TooDeep
                | RawOnly::DuplicateMember
                | RawOnly::LoneSurrogate
                | RawOnly::LargeNumber
                | RawOnly::InexactNumber,
            ) => {}
        }
    });
}

/// True if two values are equal, numbers aside: those are compared as written.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => true,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn bare(text: &[u8]) -> String {
    let (mut out, mut quoted, mut escaped) = (String::new(), false, false);
    for byte in text {
        match (quoted, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (_, false, b'"') => quoted = !quoted,
            (true, false, _) => {}
            (false, ..) => out.push(char::from(*byte)),
        }
    }
    out
}

fn kept(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.values().map(|value| 1 + kept(value)).sum(),
        Value::Array(values) => values.iter().map(kept).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn members(text: &[u8]) -> usize {
    bare(text).matches(':').count()
}

/// Every number of a JSON text as (digits without zeros around them, power of ten, true if
/// negative), sorted, because members may have changed places. Zero has no sign.
fn numbers(text: &[u8]) -> Vec<(String, i64, bool)> {
    let bare = bare(text);
    let words = bare.split(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)));
    let mut all: Vec<_> =
        words.filter(|word| word.contains(|c: char| c.is_ascii_digit())).map(decimal).collect();
    all.sort();
    all
}

fn decimal(word: &str) -> (String, i64, bool) {
    let (mantissa, exponent) = word.split_once(['e', 'E']).unwrap_or((word, "0"));
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX / 2);
    let (whole, part) =
        mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
    let digits = format!("{whole}{part}");
    let kept = digits.trim_end_matches('0');
    if kept.is_empty() {
        return (String::new(), 0, false);
    }
    let dropped = (digits.len() - kept.len()) as i64 - part.len() as i64;
    (kept.trim_start_matches('0').to_owned(), exponent + dropped, mantissa.starts_with('-'))
}

#[test]
fn numbers_are_compared_as_they_are_written() {
    assert_eq!(numbers(br#"{"1":[1.50,-0,2e3]}"#), numbers(b"[0, 2000, 15e-1]"));
    assert_ne!(numbers(b"[0.1]"), numbers(b"[0.10000000000000001]"));
    assert_ne!(numbers(b"[1]"), numbers(b"[-1]"));
}
