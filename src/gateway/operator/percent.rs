//! Percent-encoding of one path segment or query value, and back (RFC 3986, section 2.1).
//!
//! Requests to routes are never decoded: the path that was matched is the path that is sent.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const NOT_UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes all bytes that are not unreserved: `a/b` to `a%2Fb`.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, &NOT_UNRESERVED).to_string()
}

/// Decodes `%41` to `A`. An invalid escape stays; bytes that are no UTF-8 are replaced.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
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
    fn an_encoded_text_is_one_segment_and_decodes_back() {
        let visible: String = (0x21..0x7f).map(char::from).collect();
        for text in [visible.as_str(), "order-1001", "€ 5%"] {
            let encoded = encode(text);
            assert!(!encoded.contains(['/', '?', '#', ' ', '"']), "{encoded}");
            assert_eq!(decode(&encoded), text);
        }
        assert_eq!(encode("a/b c"), "a%2Fb%20c");
    }
}
