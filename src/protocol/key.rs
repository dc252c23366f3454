//! Keys: the client's name for one intended effect, and the tenant it belongs to
//! (docs/protocol.md#the-record).
//!
//! The tenant comes from verified credentials, and this file must not know how: that is the
//! gateway's work. It must never let a key's text into `Debug`, an error or a log line.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::digest::digest;
use super::region::{NameError, read_name};

/// A verified account: 1 to 64 of `a-z`, `A-Z`, `0-9`, `_`, `.` and `-`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// The most bytes a tenant has.
    pub const MAX_LEN: usize = 64;

    /// Reads a tenant.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        let rule = "may hold only letters, digits, '_', '.' and '-'";
        read_name(text, "a tenant", Self::MAX_LEN, rule, |text| text.bytes().all(allowed)).map(Self)
    }

    /// The tenant's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant's text as bytes; never holds a zero byte.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

worded! {
    /// The accepted spelling of the `Idempotency-Key` header.
    #[derive(Default)]
    Syntax;
    /// Its name in configuration and in the published contract.
    name {
        /// As in [`Syntax::Strict`], or bare, as most clients send it: `"abc"` is `abc`.
        #[default]
        Lenient = "lenient",
        /// Only an RFC 8941 section 3.3.3 string, in double quotes, without parameters.
        Strict = "strict",
    }
}

/// An idempotency key: 1 to 255 visible ASCII characters (0x21 to 0x7e), unquoted. Cheap to clone.
///
/// A key has no `Display`, and its `Debug` shows a digest: logs treat keys as the clients' secrets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The reason why a request has no usable key. None of these holds any part of the sent header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum KeyError {
    #[error("the Idempotency-Key header is missing: send one key per intended effect")]
    Missing,
    /// Several header lines, or several members in one: picking one of them would be a guess.
    #[error("the Idempotency-Key header holds several keys: send exactly one")]
    Repeated,
    #[error("the Idempotency-Key header is empty: send 1 to 255 visible ASCII characters")]
    Empty,
    /// More than 255 characters, quotes and escapes not counted.
    #[error("the idempotency key is {0} characters long: at most 255 are allowed")]
    TooLong(usize),
    #[error("the Idempotency-Key header is malformed: {0}")]
    Malformed(&'static str),
}

const NOT_VISIBLE: KeyError =
    KeyError::Malformed("a key may hold visible ASCII only, no space, control or other character");
const PARAMETERS: KeyError =
    KeyError::Malformed("parameters are not accepted; put a key that holds ';' in double quotes");

impl Key {
    /// The most characters a key has.
    pub const MAX_LEN: usize = 255;

    /// Reads a key as it is stored or sent between peers: without quotes and escapes.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            Err(KeyError::Empty)
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Err(NOT_VISIBLE)
        } else if text.len() > Self::MAX_LEN {
            Err(KeyError::TooLong(text.len()))
        } else {
            Ok(Self(text.into()))
        }
    }

    /// Reads the key from the lines of a request's `Idempotency-Key` header; never guesses.
    ///
    /// Spaces and tabs around the value are ignored (RFC 9110 section 5.5). A bare key may hold any
    /// visible ASCII but `,` `;` `"` and `\`: these may mean a list, a parameter or a string.
    pub fn from_header_values(values: &[&[u8]], syntax: Syntax) -> Result<Self, KeyError> {
        let value = match values {
            [] => return Err(KeyError::Missing),
            [value] => trim(value),
            [_, ..] => return Err(KeyError::Repeated),
        };
        match (value, syntax) {
            ([], Syntax::Lenient | Syntax::Strict) => Err(KeyError::Empty),
            ([b'"', rest @ ..], Syntax::Lenient | Syntax::Strict) => quoted(rest),
            ([_, ..], Syntax::Lenient) => bare(value),
            ([_, ..], Syntax::Strict) => {
                Err(KeyError::Malformed("the key must be in double quotes (RFC 8941 string)"))
            }
        }
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key's text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Reads the rest of the header line after the opening quote.
fn quoted(rest: &[u8]) -> Result<Key, KeyError> {
    let mut text = String::with_capacity(rest.len());
    let mut bytes = rest.iter();
    loop {
        match bytes.next() {
            None => return Err(KeyError::Malformed("the closing double quote is missing")),
            Some(b'"') => break,
            Some(b'\\') => match bytes.next() {
                Some(&escaped @ (b'"' | b'\\')) => text.push(char::from(escaped)),
                Some(_) | None => {
                    return Err(KeyError::Malformed("a backslash may only precede '\"' or '\\'"));
                }
            },
            Some(&byte) if byte.is_ascii_graphic() => text.push(char::from(byte)),
            Some(_) => return Err(NOT_VISIBLE),
        }
    }
    match trim(bytes.as_slice()).first() {
        None => Key::parse(&text),
        Some(b',') => Err(KeyError::Repeated),
        Some(b';') => Err(PARAMETERS),
        Some(_) => Err(KeyError::Malformed("something follows the closing double quote")),
    }
}

fn bare(value: &[u8]) -> Result<Key, KeyError> {
    if value.contains(&b',') {
        return Err(KeyError::Repeated);
    }
    if value.contains(&b';') {
        return Err(PARAMETERS);
    }
    if value.iter().any(|byte| matches!(byte, b'"' | b'\\')) {
        return Err(KeyError::Malformed("a key that holds '\"' or '\\' must be in double quotes"));
    }
    Key::parse(str::from_utf8(value).map_err(|_| NOT_VISIBLE)?)
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = digest("onceway/key/log/1", &[self.as_bytes()]);
        write!(f, "Key({})", KeyDigest::of(whole.as_bytes()))
    }
}

/// A tenant and its key: the name of a record. Ordered by tenant, then key. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId {
    tenant: Tenant,
    key: Key,
}

impl KeyId {
    /// This tenant's key.
    pub fn new(tenant: Tenant, key: Key) -> Self {
        Self { tenant, key }
    }

    /// The tenant of the key.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The key without its tenant.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The digest that log lines, metrics' exemplars and error pages show instead of the key.
    pub fn digest(&self) -> KeyDigest {
        let whole = digest("onceway/key-id/log/1", &[self.tenant.as_bytes(), self.key.as_bytes()]);
        KeyDigest::of(whole.as_bytes())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({}/{})", self.tenant, self.digest())
    }
}

/// Eight hex digits that stand for a key in logs: enough to follow one request, no name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest([u8; 4]);

impl KeyDigest {
    fn of(&[a, b, c, d, ..]: &[u8; 32]) -> Self {
        Self([a, b, c, d])
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::examples::id;

    /// The result of a parse, without the reason's wording.
    fn said(result: Result<Key, KeyError>) -> String {
        match result {
            Ok(key) => format!("ok {}", key.as_str()),
            Err(KeyError::Missing) => "missing".into(),
            Err(KeyError::Repeated) => "repeated".into(),
            Err(KeyError::Empty) => "empty".into(),
            Err(KeyError::TooLong(len)) => format!("too long {len}"),
            Err(KeyError::Malformed(why)) => {
                assert!(!why.is_empty());
                "malformed".into()
            }
        }
    }

    /// (the header line, the lenient result, the strict result)
    const TABLE: &[(&[u8], &str, &str)] = &[
        (b"abc", "ok abc", "malformed"),
        (b"\"abc\"", "ok abc", "ok abc"),
        (b"  abc\t", "ok abc", "malformed"),
        (b" \t\"abc\" \t", "ok abc", "ok abc"),
        (b"8e03978e-40d5-43dd-bc93-6894a57f9324", "ok 8e03978e-40d5-43dd-bc93-6894a57f9324", "malformed"),
        (b"a:b/c+d=e.f_g-h", "ok a:b/c+d=e.f_g-h", "malformed"),
        (b"*!#$%&'()<>?@[]^`{|}~", "ok *!#$%&'()<>?@[]^`{|}~", "malformed"),
        (b"0", "ok 0", "malformed"),
        (b"?1", "ok ?1", "malformed"),
        (b":aGk=:", "ok :aGk=:", "malformed"),
        (b"\"a,b;c\"", "ok a,b;c", "ok a,b;c"),
        (b"\"a\\\"b\"", "ok a\"b", "ok a\"b"),
        (b"\"a\\\\b\"", "ok a\\b", "ok a\\b"),
        (b"\"\\\"\"", "ok \"", "ok \""),
        (b"%41", "ok %41", "malformed"),
        (b"", "empty", "empty"),
        (b" \t ", "empty", "empty"),
        (b"\"\"", "empty", "empty"),
        (b"a,b", "repeated", "malformed"),
        (b"a, a", "repeated", "malformed"),
        (b",", "repeated", "malformed"),
        (b"\"a\", \"a\"", "repeated", "repeated"),
        (b"\"a\" ,", "repeated", "repeated"),
        (b"abc;q=1", "malformed", "malformed"),
        (b"\"abc\";q=1", "malformed", "malformed"),
        (b"\"abc\" ; q", "malformed", "malformed"),
        (b"\"abc", "malformed", "malformed"),
        (b"abc\"", "malformed", "malformed"),
        (b"a\"b", "malformed", "malformed"),
        (b"\"", "malformed", "malformed"),
        (b"\"abc\\\"", "malformed", "malformed"),
        (b"\"a\\nb\"", "malformed", "malformed"),
        (b"\"a\\", "malformed", "malformed"),
        (b"a\\b", "malformed", "malformed"),
        (b"\"a\"b", "malformed", "malformed"),
        (b"\"a\" \"b\"", "malformed", "malformed"),
        (b"\"a b\"", "malformed", "malformed"),
        (b"a b", "malformed", "malformed"),
        (b"a\tb", "malformed", "malformed"),
        (b"a\0b", "malformed", "malformed"),
        (b"a\r\nb", "malformed", "malformed"),
        (b"\"a\x7f\"", "malformed", "malformed"),
        (b"a\x7f", "malformed", "malformed"),
        ("schlüssel".as_bytes(), "malformed", "malformed"),
        ("\"schlüssel\"".as_bytes(), "malformed", "malformed"),
        (b"\xff\xfe", "malformed", "malformed"),
        (b"'abc'", "ok 'abc'", "malformed"),
    ];

    #[test]
    fn table() {
        for (line, lenient, strict) in TABLE {
            let shown = String::from_utf8_lossy(line);
            let found = said(Key::from_header_values(&[line], Syntax::Lenient));
            assert_eq!(found, *lenient, "lenient {shown:?}");
            assert_eq!(said(Key::from_header_values(&[line], Syntax::Strict)), *strict, "strict {shown:?}");
        }
    }

    #[test]
    fn exactly_one_line() {
        for syntax in [Syntax::Lenient, Syntax::Strict] {
            assert_eq!(Key::from_header_values(&[], syntax), Err(KeyError::Missing));
            assert_eq!(Key::from_header_values(&[b"\"a\"", b"\"a\""], syntax), Err(KeyError::Repeated));
            assert_eq!(Key::from_header_values(&[b"", b""], syntax), Err(KeyError::Repeated));
        }
    }

    #[test]
    fn length_counts_the_key_not_its_spelling() {
        let parse =
            |line: &str| Key::from_header_values(&[line.as_bytes()], Syntax::Lenient).map(|key| key.0.len());
        assert_eq!(parse(&"k".repeat(255)), Ok(255));
        assert_eq!(parse(&"k".repeat(256)), Err(KeyError::TooLong(256)));
        assert_eq!(parse(&format!("\"{}\"", "k".repeat(255))), Ok(255));
        assert_eq!(parse(&format!("\"{}\"", "\\\"".repeat(255))), Ok(255));
        assert_eq!(parse(&format!("\"{}\"", "k".repeat(256))), Err(KeyError::TooLong(256)));
        assert_eq!(Key::parse(&"k".repeat(1_000_000)), Err(KeyError::TooLong(1_000_000)));
    }

    #[test]
    fn tenants() {
        let longest = "t".repeat(64);
        for good in ["a", "Acme_Corp.eu-1", "0", ".", longest.as_str()] {
            assert_eq!(Tenant::parse(good).unwrap().as_str(), good);
        }
        let refused = |text: &str| Tenant::parse(text).unwrap_err().to_string();
        assert_eq!(refused(""), "a tenant is empty: give it 1 to 64 characters");
        assert_eq!(refused(&"t".repeat(65)), "a tenant is 65 bytes long: at most 64 are allowed");
        for bad in ["a b", "a/b", "a\0", "ä", "a:b", "a\n"] {
            assert_eq!(refused(bad), "a tenant may hold only letters, digits, '_', '.' and '-'", "{bad:?}");
        }
    }

    #[test]
    fn debug_never_shows_the_key() {
        let canary = id("acme", "canary-7f1c");
        assert_eq!(canary.key().as_bytes(), b"canary-7f1c");
        let shown = format!("{:?} {:?} {:#?} {}", canary, canary.key(), canary, canary.digest());
        assert!(!shown.contains("canary"), "{shown}");
        // python3 hashlib: sha256 over len8(part)+part for domain, tenant, key.
        assert_eq!(format!("{canary:?}"), "KeyId(acme/dff151ec)");
        assert_eq!(format!("{:?}", canary.key()), "Key(9b6f8b5a)");
        assert_ne!(id("acm", "ecanary-7f1c").digest(), canary.digest());
    }

    proptest! {
        #[test]
        fn quoted_and_bare_agree(text in "[!#-+\\--:<-\\[\\]-~]{1,300}") {
            let quoted = format!("\"{text}\"");
            let parse = |line: &str, syntax| Key::from_header_values(&[line.as_bytes()], syntax);
            prop_assert_eq!(parse(&quoted, Syntax::Lenient), parse(&text, Syntax::Lenient));
            prop_assert_eq!(parse(&quoted, Syntax::Strict), Key::parse(&text));
        }

        #[test]
        fn strict_agrees_with_the_sfv_crate(
            line in prop_oneof!["[ -~\t]{0,30}", r#""([!-~]|\\["\\]){0,20}"( |;a|,|;a=1){0,2}"#],
        ) {
            let ours = Key::from_header_values(&[line.as_bytes()], Syntax::Strict);
            let theirs = sfv::Parser::new(line.trim_matches([' ', '\t'])).parse::<sfv::Item>().ok()
                .filter(|item| item.params.is_empty())
                .and_then(|item| item.bare_item.as_string().map(|text| text.as_str().to_owned()));
            let key = theirs.as_deref().map(Key::parse).transpose().unwrap_or(None);
            prop_assert_eq!(ours.ok(), key);
        }

        #[test]
        fn any_bytes_are_a_key_or_an_error(
            lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..3),
        ) {
            let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
            for syntax in [Syntax::Lenient, Syntax::Strict] {
                if let Ok(key) = Key::from_header_values(&lines, syntax) {
                    prop_assert!(lines.len() == 1 && (1..=255).contains(&key.as_bytes().len()));
                    prop_assert_eq!(Key::parse(key.as_str()), Ok(key.clone()));
                }
            }
        }
    }
}
