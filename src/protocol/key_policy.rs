//! A route's rules for keys beyond the header's syntax: length, alphabet, form, least randomness.
//!
//! The gateway checks a parsed key before it reads anything. No breach holds a part of the key.

use super::key::Key;

/// A route's rules for keys. The default takes every key that parses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct KeyPolicy {
    pub min_length: usize,
    pub max_length: usize,
    pub alphabet: Alphabet,
    pub form: Form,
    /// The least [`entropy_bits`]; 0: nothing is estimated.
    pub entropy_bits: u32,
}

impl Default for KeyPolicy {
    fn default() -> Self {
        Self {
            min_length: 1,
            max_length: Key::MAX_LEN,
            alphabet: Alphabet::Visible,
            form: Form::Any,
            entropy_bits: 0,
        }
    }
}

named! {
    "The characters that a key may hold, and the advice to who sends others. Url-safe ones are unreserved (RFC 3986 section 2.3)."
    Alphabet
    Visible "visible" "send visible ASCII"
    UrlSafe "url-safe" "send letters, digits, '-', '_', '.' and '~' only"
    Hex "hex" "send the digits 0-9 and a-f only"
}

impl Alphabet {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Visible => byte.is_ascii_graphic(),
            Self::UrlSafe => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~'),
            Self::Hex => byte.is_ascii_hexdigit(),
        }
    }
}

named! {
    "The shape that a key must have, and the advice to who sends another. UUIDs have either case and four dashes (RFC 9562 section 4), and are neither the nil nor the max UUID."
    Form
    Any "any" "send any key"
    Uuid "uuid" "send a UUID, 8-4-4-4-12 hex digits, best of version 4 or 7"
    UuidV4 "uuid-v4" "send a random UUID (version 4), 8-4-4-4-12 hex digits"
    UuidV7 "uuid-v7" "send a UUID of version 7, 8-4-4-4-12 hex digits"
}

impl Form {
    fn fits(self, key: &[u8]) -> bool {
        let version = match self {
            Self::Any => return true,
            Self::Uuid => b'1'..=b'8',
            Self::UuidV4 => b'4'..=b'4',
            Self::UuidV7 => b'7'..=b'7',
        };
        let shape = |(at, byte): (usize, &u8)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => version.contains(byte),
            19 => matches!(byte, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => byte.is_ascii_hexdigit(),
        };
        key.len() == 36 && key.iter().enumerate().all(shape)
    }
}

/// The reason why a route refuses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Breach {
    #[error("the idempotency key is {0} characters long: this route asks for at least {1}")]
    Short(usize, usize),
    #[error("the idempotency key is {0} characters long: this route takes at most {1}")]
    Long(usize, usize),
    #[error("the idempotency key holds a character that this route does not take: {}", .0.about())]
    Alphabet(Alphabet),
    #[error("the idempotency key has not the form that this route asks for: {}", .0.about())]
    Form(Form),
    #[error("the idempotency key looks as if it had {0} bits of randomness: this route asks for {1}")]
    Guessable(u32, u32),
}

impl KeyPolicy {
    /// The greatest floor of a route: a key of 128 random bits stays above it, in any alphabet.
    pub const MOST_BITS: u32 = 32;

    /// Says whether this route takes the key.
    pub fn check(&self, key: &Key) -> Result<(), Breach> {
        let Self { min_length, max_length, alphabet, form, entropy_bits: floor } = *self;
        let bytes = key.as_bytes();
        let bits = || entropy_bits(bytes);
        match bytes.len() {
            len if len < min_length => Err(Breach::Short(len, min_length)),
            len if len > max_length => Err(Breach::Long(len, max_length)),
            _ if !bytes.iter().all(|byte| alphabet.has(*byte)) => Err(Breach::Alphabet(alphabet)),
            _ if !form.fits(bytes) => Err(Breach::Form(form)),
            _ if floor > 0 && bits() < floor => Err(Breach::Guessable(bits(), floor)),
            _ => Ok(()),
        }
    }
}

/// A plain estimate of the random bits in a text; never more than a random hex text of that length
/// holds. Without other characters, it counts:
///
/// - 3 for a digit, 4 for a letter, 2 for a letter in a run of four or more of one case (words);
/// - nothing for a character that continues a run (`aaa`, `123`, `987`) or repeats three characters
///   seen before.
///
/// It cannot distinguish a random number from a clever one, but catches `1`, `order-17`, `aaaaaaaa`
/// and `test-test-test`. A random UUID is worth about 103.
pub fn entropy_bits(text: &[u8]) -> u32 {
    let text: Vec<u8> = text.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
    (0..text.len()).map(|at| worth(&text, at)).sum()
}

fn worth(text: &[u8], at: usize) -> u32 {
    let byte = text[at];
    if let Some(&[before, last]) = at.checked_sub(2).map(|from| &text[from..at]).and_then(<[u8]>::as_array) {
        let (step, earlier) = (i16::from(byte) - i16::from(last), i16::from(last) - i16::from(before));
        if step.abs() <= 1 && step == earlier {
            return 0;
        }
        // The three characters may overlap those that they repeat.
        if text[..at].windows(3).any(|seen| seen == [before, last, byte]) {
            return 0;
        }
    }
    if byte.is_ascii_digit() {
        return 3;
    }
    let alike =
        |other: &&u8| other.is_ascii_alphabetic() && other.is_ascii_lowercase() == byte.is_ascii_lowercase();
    let run = text[..at].iter().rev().take_while(alike).count() + text[at..].iter().take_while(alike).count();
    if run >= 4 { 2 } else { 4 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    const V4: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    const V7: &str = "019aa1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";

    #[test]
    fn lengths_and_alphabets_take_what_they_say() {
        let (any, longest) = (KeyPolicy::default, "k".repeat(255));
        let length = || KeyPolicy { min_length: 3, max_length: 5, ..any() };
        let of = |alphabet| KeyPolicy { alphabet, ..any() };
        for good in ["1", "a", "~!", &longest] {
            assert_eq!(any().check(&key(good)), Ok(()), "the default takes every key");
        }
        for (policy, good, bad, breach) in [
            (length(), "abc", "ab", Breach::Short(2, 3)),
            (length(), "abcde", "abcdef", Breach::Long(6, 5)),
            (of(Alphabet::UrlSafe), "aZ0-_.~", "a/b", Breach::Alphabet(Alphabet::UrlSafe)),
            (of(Alphabet::Hex), "09afAF", "g", Breach::Alphabet(Alphabet::Hex)),
            (of(Alphabet::Hex), "0", "0-0", Breach::Alphabet(Alphabet::Hex)),
        ] {
            assert_eq!((policy.check(&key(good)), policy.check(&key(bad))), (Ok(()), Err(breach)));
        }
    }

    #[test]
    fn forms_take_their_uuids_only() {
        let takes = |form, text: &str| KeyPolicy { form, ..KeyPolicy::default() }.check(&key(text)).is_ok();
        for (text, any, four, seven) in [
            (V4, true, true, false),
            (V7, true, false, true),
            (&V4.to_uppercase(), true, true, false),
            ("8e03978e-40d5-13dd-bc93-6894a57f9324", true, false, false),
            ("8e03978e-40d5-43dd-cc93-6894a57f9324", false, false, false),
            ("8e03978e-40d5-43dd-bc93-6894a57f932", false, false, false),
            ("8e03978e-40d5-43dd-bc93-6894a57f93244", false, false, false),
            ("8e03978e040d5-43dd-bc93-6894a57f9324", false, false, false),
            ("8e03978g-40d5-43dd-bc93-6894a57f9324", false, false, false),
            ("00000000-0000-0000-0000-000000000000", false, false, false),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff", false, false, false),
            ("abc", false, false, false),
        ] {
            let found = (takes(Form::Uuid, text), takes(Form::UuidV4, text), takes(Form::UuidV7, text));
            assert_eq!(found, (any, four, seven), "{text}");
        }
    }

    #[test]
    fn guessable_keys_fall_below_32_bits_and_random_ones_do_not() {
        for weak in [
            "1",
            "order-1",
            "order-1001",
            "aaaaaaaa",
            "12345678901234567890",
            "abcdefghijklmnop",
            "test-test-test-test",
            "payment",
            "00000000-0000-4000-8000-000000000001",
            "........................",
        ] {
            assert!(entropy_bits(weak.as_bytes()) < 32, "{weak} {}", entropy_bits(weak.as_bytes()));
        }
        for strong in
            [V4, V7, "9f86d081884c7d659a2feaa0c55ad015", "01JD8Q0Z4T2M6X9V3B7N5K1R8C", "Xk9_Q2vT-7mZp4"]
        {
            assert!(entropy_bits(strong.as_bytes()) >= 32, "{strong} {}", entropy_bits(strong.as_bytes()));
        }
        let policy = KeyPolicy { entropy_bits: 32, ..KeyPolicy::default() };
        assert_eq!(policy.check(&key("order-1")), Err(Breach::Guessable(13, 32)));
        assert_eq!(policy.check(&key(V4)), Ok(()));
    }

    /// Random bits as a client would write them in an alphabet.
    fn written(bits: u128, length: usize, alphabet: &[u8]) -> Vec<u8> {
        let base = alphabet.len() as u128;
        // Drawn bits may be few; spread, they are as random as any.
        let mut left = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).rotate_left(61) ^ bits;
        std::iter::repeat_with(|| {
            let digit = alphabet[usize::try_from(left % base).unwrap()];
            left /= base;
            digit
        })
        .take(length)
        .collect()
    }

    proptest! {
        #[test]
        fn no_random_uuid_falls_below_the_greatest_floor(bits: u128) {
            let hex = format!("{bits:032x}");
            let uuid = format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
            prop_assert!(entropy_bits(uuid.as_bytes()) >= KeyPolicy::MOST_BITS, "{}", uuid);
        }

        #[test]
        fn no_key_of_128_random_bits_falls_below_the_greatest_floor(bits: u128) {
            for (length, alphabet) in [
                (28, "abcdefghijklmnopqrstuvwxyz"),
                (39, "0123456789"),
                (32, "0123456789abcdef"),
                (26, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"),
                (22, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"),
            ] {
                let key = written(bits, length, alphabet.as_bytes());
                prop_assert!(entropy_bits(&key) >= KeyPolicy::MOST_BITS, "{}", String::from_utf8_lossy(&key));
            }
        }

        #[test]
        fn an_estimate_is_never_above_that_of_random_hex(text in "[!-~]{0,255}") {
            prop_assert!(entropy_bits(text.as_bytes()) as usize <= 4 * text.len());
        }
    }
}
