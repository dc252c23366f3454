//! Stored headers: bytes from which exactly the same headers are read.
//!
//! The layout is version 1 (one byte), then for each header the name's length (u16), the name, the
//! value's length (u32) and the value. Numbers are big-endian. This file must not judge headers:
//! the gateway filtered them.

use bytes::Buf;

const VERSION: u8 = 1;

/// Encodes headers. `None` if one is too long for its length field (a name over 64 KiB, a value
/// over 4 GiB).
pub(super) fn encode(headers: &[(String, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut out = vec![VERSION];
    for (name, value) in headers {
        out.extend_from_slice(&u16::try_from(name.len()).ok()?.to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&u32::try_from(value.len()).ok()?.to_be_bytes());
        out.extend_from_slice(value);
    }
    Some(out)
}

/// Decodes the output of [`encode`], and nothing else.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let (&VERSION, mut rest) = bytes.split_first()? else { return None };
    let mut headers = Vec::new();
    while !rest.is_empty() {
        let length = rest.try_get_u16().ok()?;
        let name = rest.split_off(..usize::from(length))?;
        let length = rest.try_get_u32().ok()?;
        let value = rest.split_off(..usize::try_from(length).ok()?)?;
        headers.push((String::from_utf8(name.to_vec()).ok()?, value.to_vec()));
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_come_back(headers in proptest::collection::vec(("[a-z-]{0,20}", any::<Vec<u8>>()), 0..6)) {
            let bytes = encode(&headers).unwrap();
            prop_assert_eq!(decode(&bytes), Some(headers));
        }

        #[test]
        fn a_cut_or_other_text_is_refused_or_shorter(bytes in any::<Vec<u8>>(), cut in 0usize..40) {
            let _ = decode(&bytes);
            let whole = encode(&[("content-type".to_owned(), b"text/plain".to_vec())]).unwrap();
            let cut = cut.min(whole.len() - 1);
            prop_assert!(cut == 1 || decode(&whole[..cut]).is_none());
        }
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(decode(&[2]), None);
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[1]), Some(vec![]));
    }
}
