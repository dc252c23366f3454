//! The canonical form of a JSON body (RFC 8785), only if it is lossless, for the canonical
//! fingerprint.
//!
//! Lossless: two bodies with one form hold the same values for every parser. A body about which
//! parsers may differ is *raw only*. A wrong "same" would swallow a request, a wrong "other" is a
//! 422.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

/// The deepest nesting of arrays and objects that has a canonical form.
pub const MAX_DEPTH: usize = 64;

/// From 2^53 on neighbouring integers share a double: such numbers are raw only.
const MAX_NUMBER: f64 = 9_007_199_254_740_992.0;

/// Every decimal of up to 15 significant digits has a double of its own (within the normal range).
const SAFE_DIGITS: usize = 15;

/// Reason why a body has no lossless canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawOnly {
    /// The body is not UTF-8.
    #[error("the body is not UTF-8")]
    NotUtf8,
    /// It starts with a byte order mark: parsers may ignore or refuse it (RFC 8259 section 8.1).
    #[error("the body starts with a byte order mark")]
    ByteOrderMark,
    /// The body is not one JSON value, as RFC 8259 defines it.
    #[error("the body is not JSON at byte {0}")]
    NotJson(usize),
    /// Arrays and objects are nested deeper than [`MAX_DEPTH`].
    #[error("the body is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// An object has two members of one name (escapes resolved).
    #[error("an object has two members of one name")]
    DuplicateMember,
    /// A string has a `\u` surrogate without its other half.
    #[error("a string holds half a surrogate pair")]
    LoneSurrogate,
    /// A number of 2^53 or more, or -2^53 or less, however it is written.
    #[error("a number reaches 2^53")]
    LargeNumber,
    /// A number that a double does not hold as written: too many digits, or too close to zero.
    #[error("a number is more precise than a double")]
    InexactNumber,
}

/// The RFC 8785 form of `body`, or the first reason that makes it raw only. Numbers of one value
/// are one number (`1`, `1.0`, `1e0`). Takes time and memory in proportion to the body, and its
/// depth.
pub fn canonical_json(body: &[u8]) -> Result<Vec<u8>, RawOnly> {
    let text = str::from_utf8(body).map_err(|_| RawOnly::NotUtf8)?;
    if text.starts_with('\u{feff}') {
        return Err(RawOnly::ByteOrderMark);
    }
    let mut writer = Writer { text, at: 0, out: Vec::with_capacity(body.len()) };
    writer.value(0)?;
    if writer.at < text.len() { Err(writer.not_json()) } else { Ok(writer.out) }
}

/// Appends the canonical form of `text` from `at` on to `out`, in one pass. Does not use serde:
/// that hides the spelling of a number, and its default float parser is not exact.
struct Writer<'a> {
    text: &'a str,
    at: usize,
    out: Vec<u8>,
}

/// A written member: its name, and the place of `"name":value` in the buffer.
struct Member<'a> {
    name: Cow<'a, str>,
    written: Range<usize>,
}

impl<'a> Writer<'a> {
    fn not_json(&self) -> RawOnly {
        RawOnly::NotJson(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Reads a value, and the blanks around it.
    fn value(&mut self, depth: usize) -> Result<(), RawOnly> {
        self.blank();
        match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(RawOnly::TooDeep),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(|string| write_string(&mut self.out, &string)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(_) | None => Err(self.not_json()),
        }?;
        self.blank();
        Ok(())
    }

    fn word(&mut self, word: &str) -> Result<(), RawOnly> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.not_json());
        }
        self.at += word.len();
        self.out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), RawOnly> {
        self.out.push(b'[');
        self.items(b']', |writer| writer.value(depth))?;
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), RawOnly> {
        self.out.push(b'{');
        let mut members: Vec<Member<'a>> = Vec::new();
        self.items(b'}', |writer| writer.member(depth).map(|member| members.push(member)))?;
        self.sort(members)?;
        self.out.push(b'}');
        Ok(())
    }

    /// Reads the items of a container, from its opening bracket to the closing one.
    fn items(
        &mut self,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), RawOnly>,
    ) -> Result<(), RawOnly> {
        self.at += 1;
        self.blank();
        if self.take(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.take(close) {
                return Ok(());
            }
            self.expect(b',')?;
            self.out.push(b',');
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), RawOnly> {
        if self.take(byte) { Ok(()) } else { Err(self.not_json()) }
    }

    fn member(&mut self, depth: usize) -> Result<Member<'a>, RawOnly> {
        let start = self.out.len();
        self.blank();
        if self.peek() != Some(b'"') {
            return Err(self.not_json());
        }
        let name = self.string()?;
        write_string(&mut self.out, &name);
        self.blank();
        self.expect(b':')?;
        self.out.push(b':');
        self.value(depth)?;
        Ok(Member { name, written: start..self.out.len() })
    }

    /// Puts an object's members, at the end of the buffer, into the order of their names.
    fn sort(&mut self, mut members: Vec<Member<'a>>) -> Result<(), RawOnly> {
        let Some(start) = members.first().map(|first| first.written.start) else { return Ok(()) };
        let ascending = |a: &Member<'_>, b: &Member<'_>| utf16_order(&a.name, &b.name).is_lt();
        if members.is_sorted_by(ascending) {
            return Ok(());
        }
        members.sort_by(|a, b| utf16_order(&a.name, &b.name));
        if !members.is_sorted_by(ascending) {
            return Err(RawOnly::DuplicateMember);
        }
        let written: Vec<&[u8]> = members.iter().map(|member| &self.out[member.written.clone()]).collect();
        let sorted = written.join(&b',');
        self.out[start..].copy_from_slice(&sorted);
        Ok(())
    }

    /// Reads a string from its opening quote on; borrowed if it has no escapes.
    fn string(&mut self) -> Result<Cow<'a, str>, RawOnly> {
        self.at += 1;
        let mut start = self.at;
        let mut unescaped = String::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = &self.text[start..self.at];
                    self.at += 1;
                    if unescaped.is_empty() {
                        return Ok(Cow::Borrowed(rest));
                    }
                    unescaped.push_str(rest);
                    return Ok(Cow::Owned(unescaped));
                }
                Some(b'\\') => {
                    unescaped.push_str(&self.text[start..self.at]);
                    self.at += 1;
                    unescaped.push(self.escape()?);
                    start = self.at;
                }
                Some(0x20..) => self.at += 1,
                Some(0..0x20) | None => return Err(self.not_json()),
            }
        }
    }

    fn escape(&mut self) -> Result<char, RawOnly> {
        if self.take(b'u') {
            return self.unicode_escape();
        }
        let meant = match self.peek() {
            Some(same @ (b'"' | b'\\' | b'/')) => char::from(same),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(_) | None => return Err(self.not_json()),
        };
        self.at += 1;
        Ok(meant)
    }

    /// Reads four hex digits after `\u`, and the second half of a surrogate pair.
    fn unicode_escape(&mut self) -> Result<char, RawOnly> {
        let first = self.four_hex_digits()?;
        let paired = (0xd800..0xdc00).contains(&first) && self.take(b'\\') && self.take(b'u');
        let second = paired.then(|| self.four_hex_digits()).transpose()?;
        let mut chars = char::decode_utf16(std::iter::once(first).chain(second));
        match (chars.next(), chars.next()) {
            (Some(Ok(char)), None) => Ok(char),
            (Some(_) | None, Some(_) | None) => Err(RawOnly::LoneSurrogate),
        }
    }

    fn four_hex_digits(&mut self) -> Result<u16, RawOnly> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()).ok_or(self.not_json())?;
        self.at += 4;
        Ok(unit)
    }

    /// Reads a number (RFC 8259 section 6) and writes it as ECMAScript (RFC 8785 section 3.2.2.3).
    fn number(&mut self) -> Result<(), RawOnly> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        let mantissa = &self.text[start..self.at];
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        // The standard library's parser is correctly rounded; the grammar it reads includes JSON's.
        let value: f64 = self.text[start..self.at].parse().map_err(|_| self.not_json())?;
        if value.abs() >= MAX_NUMBER {
            return Err(RawOnly::LargeNumber);
        }
        let mut buffer = ryu_js::Buffer::new();
        let written = buffer.format_finite(value);
        if !exact(mantissa, value, written) {
            return Err(RawOnly::InexactNumber);
        }
        self.out.extend_from_slice(written.as_bytes());
        Ok(())
    }

    fn digits(&mut self) -> Result<(), RawOnly> {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(self.not_json()) } else { Ok(()) }
    }
}

/// True if the number with this mantissa, read as `value`, is exactly the one in `written`. Beyond
/// [`SAFE_DIGITS`] several decimals share a double: only the written digits are taken. The exponent
/// needs no check, as both are within half a unit of the last place.
fn exact(mantissa: &str, value: f64, written: &str) -> bool {
    if value == 0.0 {
        return significant(mantissa).next().is_none();
    }
    value.is_normal()
        && (mantissa.len() <= SAFE_DIGITS || {
            let (wanted, got) = (significant(mantissa), significant(written));
            wanted.clone().nth(SAFE_DIGITS).is_none() || wanted.eq(got)
        })
}

/// The digits of a number without leading and trailing zeros, and without its exponent.
fn significant(number: &str) -> impl Iterator<Item = u8> + Clone {
    let mantissa = number.split('e').next().unwrap_or(number);
    mantissa
        .trim_start_matches(['-', '0', '.'])
        .trim_end_matches(['0', '.'])
        .bytes()
        .filter(|byte| *byte != b'.')
}

/// The order of names by their UTF-16 code units (RFC 8785 section 3.2.3): for ASCII, the bytes.
fn utf16_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

/// Writes a string as RFC 8785 section 3.2.2.2 has it, which is how serde_json does.
pub(in crate::gateway) fn write_string(out: &mut Vec<u8>, string: &str) {
    // A `Vec` takes every byte, and a string is always JSON.
    let _ = serde_json::to_writer(out, string);
}

#[cfg(test)]
mod tests;
