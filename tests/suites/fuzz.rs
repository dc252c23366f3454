//! Random key headers, JSON bodies, messages between regions and configurations: no panic, and
//! never a guess. Each target takes known texts, of former faults too, and changes them at random
//! for `ONCEWAY_FUZZ_SECONDS` (3 by default). It compares the result with a second reading: another
//! library's, or our own encoder.

mod configuration;
mod json;
mod wire;

use onceway::protocol::key::{Key, Syntax};
use std::panic::RefUnwindSafe;
use std::time::Duration;

#[derive(Clone, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

impl std::fmt::Debug for Text {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "b\"{}\"", self.0.escape_ascii())
    }
}

/// Runs `check` on each of `texts`, then on random changes of them, with `words` put in.
pub fn fuzz(texts: &[&[u8]], words: &[&[u8]], check: impl Fn(&[u8]) + RefUnwindSafe) {
    texts.iter().for_each(|text| check(text));
    bolero::check!()
        .with_type::<Vec<u8>>()
        .map(|script| Text(mix(texts, words, &script)))
        .with_test_time(time())
        .for_each(|text: &Text| check(&text.0));
}

fn time() -> Duration {
    let asked = std::env::var("ONCEWAY_FUZZ_SECONDS").ok();
    Duration::from_secs(asked.map_or(3, |text| text.parse().expect("ONCEWAY_FUZZ_SECONDS is a number")))
}

/// The first byte picks the text, every four further ones are a change.
fn mix(texts: &[&[u8]], words: &[&[u8]], script: &[u8]) -> Vec<u8> {
    let Some((first, changes)) = script.split_first() else { return Vec::new() };
    let mut text =
        texts.get(usize::from(*first) % (texts.len() + 1)).map_or(Vec::new(), |text| text.to_vec());
    for change in changes.chunks_exact(4) {
        let place = usize::from(u16::from_be_bytes([change[1], change[2]]));
        let at = place % (text.len() + 1);
        let (kind, what) = (change[0] % 8, usize::from(change[3]));
        let end = (at + 1 + what % 16).min(text.len());
        match kind {
            0..=2 => drop(text.splice(at..at, words[what % words.len()].iter().copied())),
            3 => text.extend_from_slice(words[what % words.len()]),
            4 => text.insert(at, change[3]),
            5 => drop(text.splice(at..end, [change[3]])),
            6 => drop(text.drain(at..end)),
            _ => {
                let copy = text[at..end].repeat(1 + what / 16);
                drop(text.splice(at..at, copy));
            }
        }
    }
    text
}

#[test]
fn mutation_scripts_reach_every_text() {
    let (texts, words): (&[&[u8]], &[&[u8]]) = (&[b"abc", b"defg"], &[b"-"]);
    assert_eq!(mix(texts, words, &[]), b"");
    assert_eq!(mix(texts, words, &[2]), b"");
    assert_eq!(mix(texts, words, &[1]), b"defg");
    assert_eq!(mix(texts, words, &[0, 0, 0, 1, 7]), b"a-bc");
    assert_eq!(mix(texts, words, &[0, 6, 0, 1, 0, 4, 0, 0, b'x', 3, 0, 0, 0]), b"xac-");
}

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

/// The key as another reader of RFC 8941 sees it: an item without parameters.
fn as_sfv(line: &[u8]) -> Option<Key> {
    let text = str::from_utf8(line).ok()?.trim_matches([' ', '\t']);
    let item = sfv::Parser::new(text).parse::<sfv::Item>().ok().filter(|item| item.params.is_empty())?;
    Key::parse(item.bare_item.as_string()?.as_str()).ok()
}
