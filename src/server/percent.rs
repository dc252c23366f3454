//! Percent-decoding of one path segment or query value (RFC 3986, section 2.1), for the admin and control listeners.
//!
//! Neighbours: `server::admin`, `fleet::control`. The public listener never decodes: it forwards exactly what it matched.

/// Decodes `%41` to `A`. What is no valid escape stays as it is; what is no UTF-8 afterwards is replaced.
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
    use super::decode;

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
}
