//! Percent-encoding of one path segment or query value, and back (RFC 3986, section 2.1).
//!
//! This file must not touch requests to routes. They are never decoded: the path that was matched
//! is the path that is sent.

/// Encodes all bytes that are not unreserved: `a/b` to `a%2Fb`.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Decodes `%41` to `A`. An invalid escape stays as it is; bytes that are no UTF-8 afterwards are
/// replaced.
pub fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| tail.split_at_checked(2)).flatten();
        match escaped.and_then(|(digits, after)| Some((hex(digits)?, after))) {
            Some((byte, after)) => {
                bytes.push(byte);
                rest = after;
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn escapes_are_decoded_and_the_rest_stays() {
        for (text, decoded) in [
            ("a%2Fb", "a/b"),
            ("%22x%22", "\"x\""),
            ("100%", "100%"),
            ("%zz", "%zz"),
            ("%+1", "%+1"),
            ("%e2%82%ac", "€"),
            ("", ""),
        ] {
            assert_eq!(decode(text), decoded, "{text}");
        }
    }

    #[test]
    fn what_was_encoded_is_one_segment_and_comes_back() {
        let visible: String = (0x21..0x7f).map(char::from).collect();
        for text in [visible.as_str(), "order-1001", "€ 5%"] {
            let encoded = encode(text);
            assert!(!encoded.contains(['/', '?', '#', ' ', '"']), "{encoded}");
            assert_eq!(decode(&encoded), text);
        }
        assert_eq!(encode("a/b c"), "a%2Fb%20c");
    }
}
