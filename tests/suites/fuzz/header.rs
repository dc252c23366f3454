//! `Idempotency-Key`: a header is read as one key, however it is spelled, and strict mode reads the
//! same as RFC 8941.
//!
//! The target is `protocol::key`, the second reading the `sfv` crate's.

use onceway::protocol::key::{Key, Syntax};

use crate::fuzz::fuzz;

const TEXTS: &[&[u8]] = &[
    b"8e03978e-40d5-43dd-bc93-6894a57f9324",
    b"\"8e03978e-40d5-43dd-bc93-6894a57f9324\"",
    b" \t\"abc\" \t",
    b"\"a\\\"b\\\\c\"",
    b"\"abc\";q=1",
    b"\"a\", \"b\"",
    b"abc;q=1",
    b":aGk=:",
    b"?1",
    b"\"",
    b"\xff\xfe",
    &[b'k'; 256],
];
const WORDS: &[&[u8]] =
    &[b"\"", b"\\", b"\\\"", b"\\\\", b",", b";", b";a=1", b" ", b"\t", b"\0", b"\x7f", b"k", b"'"];

#[test]
fn a_key_header_is_one_key_or_an_error() {
    fuzz(TEXTS, WORDS, |line| {
        let strict = Key::from_header_values(&[line], Syntax::Strict).ok();
        let lenient = Key::from_header_values(&[line], Syntax::Lenient).ok();
        assert_eq!(strict, as_sfv(line), "strict mode and RFC 8941 differ");
        assert!(strict.is_none() || strict == lenient, "lenient mode changes what strict mode takes");
        for key in strict.iter().chain(&lenient) {
            assert!((1..=Key::MAX_LEN).contains(&key.as_str().len()));
            assert_eq!(Key::parse(key.as_str()).as_ref(), Ok(key));
            let quoted = format!("\"{}\"", key.as_str().replace('\\', "\\\\").replace('"', "\\\""));
            for syntax in [Syntax::Strict, Syntax::Lenient] {
                assert_eq!(Key::from_header_values(&[quoted.as_bytes()], syntax).as_ref(), Ok(key));
                assert!(Key::from_header_values(&[line, line], syntax).is_err(), "two lines are no key");
            }
        }
    });
}

/// The key as another reader of RFC 8941 strings sees it: an item, without parameters, that makes a
/// key.
fn as_sfv(line: &[u8]) -> Option<Key> {
    let text = str::from_utf8(line).ok()?.trim_matches([' ', '\t']);
    let item = sfv::Parser::new(text).parse::<sfv::Item>().ok().filter(|item| item.params.is_empty())?;
    Key::parse(item.bare_item.as_string()?.as_str()).ok()
}
