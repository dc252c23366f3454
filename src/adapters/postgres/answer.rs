//! Answers at rest: headers as bytes, and bodies that are compressed if that saves space.
//!
//! Only bodies that this program stored are decompressed, up to the stored length and [`MOST`]. A
//! row beyond it is unreadable, and cannot fill the memory.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::thread::LocalKey;

use bytes::Buf;
use zstd::bulk::{Compressor, Decompressor};

/// Layout of stored headers: this version (one byte), then for each header the name's length (u16),
/// the name, the value's length (u32) and the value. Numbers are big-endian.
const VERSION: u8 = 1;
/// `answer_coding`: uncompressed.
pub(super) const PLAIN: i16 = 0;
/// `answer_coding`: zstd.
const ZSTD: i16 = 1;
/// Least length of a compressed body, in bytes: below it the frame would cost more than it saves.
const WORTH_IT: usize = 256;
/// The fastest level: an answer waits for it.
const LEVEL: i32 = 1;
/// Longest body that is ever read back, in bytes: the most that a route may keep.
const MOST: usize = 256 << 20;

/// Encodes headers. `None` if a name is over 64 KiB, or a value over 4 GiB.
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

pub(super) struct Packed<'a> {
    pub(super) coding: i16,
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) length: i32,
}

/// Compresses a body if that makes it smaller. Takes about 3 ms per MiB on the calling thread.
pub(super) fn pack(body: &[u8]) -> Packed<'_> {
    // The gateway keeps no body beyond `MOST`.
    let length = i32::try_from(body.len()).unwrap_or(i32::MAX);
    if body.len() >= WORTH_IT
        && let Some(bytes) = compress(body)
        && bytes.len() < body.len()
    {
        return Packed { coding: ZSTD, bytes: Cow::Owned(bytes), length };
    }
    Packed { coding: PLAIN, bytes: Cow::Borrowed(body), length }
}

thread_local! {
    // Making one costs more than a small body does.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compress(body: &[u8]) -> Option<Vec<u8>> {
    kept(&COMPRESSOR, || Compressor::new(LEVEL), |compressor| compressor.compress(body))
}

fn decompress(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    kept(&DECOMPRESSOR, Decompressor::new, |decompressor| decompressor.decompress(bytes, length))
}

fn kept<T: 'static>(
    key: &'static LocalKey<RefCell<Option<T>>>,
    make: impl FnOnce() -> io::Result<T>,
    work: impl FnOnce(&mut T) -> io::Result<Vec<u8>>,
) -> Option<Vec<u8>> {
    key.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Some(make().ok()?);
        }
        work(kept.as_mut()?).ok()
    })
}

/// Returns the input of [`pack`]; `None` if the bytes are not its output.
pub(super) fn unpack(coding: i16, bytes: &[u8], length: i32) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= MOST)?;
    let body = match coding {
        PLAIN => bytes.to_vec(),
        ZSTD => decompress(bytes, length)?,
        _ => return None,
    };
    (body.len() == length).then_some(body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::digest::digest;

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

    fn there_and_back(body: &[u8]) -> (i16, usize) {
        let packed = pack(body);
        assert_eq!(unpack(packed.coding, &packed.bytes, packed.length).as_deref(), Some(body));
        (packed.coding, packed.bytes.len())
    }

    #[test]
    fn only_long_compressible_bodies_are_compressed() {
        let (coding, stored) = there_and_back(&b"{\"status\":\"succeeded\"}".repeat(1_000));
        assert_eq!(coding, ZSTD);
        assert!(stored < 1_000, "{stored}");
        assert_eq!(there_and_back(b"short"), (PLAIN, 5));
        assert_eq!(there_and_back(b""), (PLAIN, 0));
        let noise: Vec<u8> = (0u8..10).flat_map(|n| *digest("noise", &[&[n]]).as_bytes()).collect();
        assert_eq!(there_and_back(&noise).0, PLAIN);
    }

    #[test]
    fn nothing_is_unpacked_beyond_the_length_that_was_stored() {
        let bomb = zstd::bulk::compress(&vec![0; 1 << 20], LEVEL).unwrap();
        assert_eq!(unpack(ZSTD, &bomb, 1 << 20).map(|body| body.len()), Some(1 << 20));
        for length in [0, 1, (1 << 20) - 1, (1 << 20) + 1, -1, i32::MAX] {
            assert_eq!(unpack(ZSTD, &bomb, length), None, "{length}");
        }
        assert_eq!(unpack(2, b"x", 1), None);
        assert_eq!(unpack(PLAIN, b"x", 2), None);
    }

    proptest! {
        #[test]
        fn bodies_come_back(body in any::<Vec<u8>>(), times in 1usize..200) {
            there_and_back(&body.repeat(times));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>(), coding in 0i16..3, length in 0i32..4_096) {
            let body = unpack(coding, &bytes, length);
            prop_assert!(body.is_none_or(|body| body.len() == length as usize));
        }
    }
}
