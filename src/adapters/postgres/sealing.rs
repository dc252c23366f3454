//! Stored requests at rest: one request as bytes, sealed if the region has a key for that.
//!
//! A sealed request is AES-256-GCM with a fresh random nonce before the text (NIST SP 800-38D,
//! section 8.2.2: 2^32 requests per key). It is bound to tenant and key, so that it can be moved to
//! no other key. This file must not log or return any byte of a request that it could not read.

use std::fmt;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::answer;
use crate::ports::jobs::StoredRequest;
use crate::protocol::key::KeyId;

const VERSION: u8 = 1;
/// Bytes of a sealing key.
pub const SEAL_KEY_BYTES: usize = 32;

/// The region's key for stored requests.
#[derive(Clone)]
pub struct Sealer {
    key: LessSafeKey,
    random: SystemRandom,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sealer")
    }
}

impl Sealer {
    /// Makes a sealer with this key; `None` unless it has [`SEAL_KEY_BYTES`] bytes.
    pub fn new(key: &[u8]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
        Some(Self { key, random: SystemRandom::new() })
    }

    /// Seals a text. `None` if the system gives no random bytes.
    pub(super) fn seal(&self, id: &KeyId, plain: Vec<u8>) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut text = plain;
        let sealing = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(sealing, Aad::from(bound_to(id)), &mut text).ok()?;
        Some([nonce.as_slice(), &text].concat())
    }

    /// Opens a sealed text. `None` if the key or the record is another, or it is no sealed text.
    pub(super) fn open(&self, id: &KeyId, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, Aad::from(bound_to(id)), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

/// The text to which a request is bound. A tenant holds no zero byte, so each is unique.
fn bound_to(id: &KeyId) -> Vec<u8> {
    [b"onceway/request/1\0".as_slice(), id.tenant().as_bytes(), b"\0", id.key().as_bytes()].concat()
}

/// Encodes a request. `None` if a part is too long for its length field. Layout: version 1 (one
/// byte), the lengths of method, target and headers (u32 each, big-endian), then those three and
/// the body.
pub(super) fn encode(request: &StoredRequest) -> Option<Vec<u8>> {
    let headers: Vec<(String, Vec<u8>)> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect();
    let (target, headers) = (request.target.to_string(), answer::encode(&headers)?);
    let parts = [request.method.as_str().as_bytes(), target.as_bytes(), &headers];
    let mut out = vec![VERSION];
    for part in parts {
        out.extend_from_slice(&u32::try_from(part.len()).ok()?.to_be_bytes());
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&request.body);
    Some(out)
}

pub(super) fn decode(bytes: &[u8]) -> Option<StoredRequest> {
    let (&VERSION, mut rest) = bytes.split_first()? else { return None };
    let mut length = || rest.try_get_u32().ok().and_then(|length| usize::try_from(length).ok());
    let lengths = [length()?, length()?, length()?];
    let [method, target, headers] = lengths.map(|length| rest.split_off(..length));
    let mut map = HeaderMap::new();
    for (name, value) in answer::decode(headers?)? {
        map.append(HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(&value).ok()?);
    }
    Some(StoredRequest {
        method: Method::from_bytes(method?).ok()?,
        target: Uri::try_from(target?).ok()?,
        headers: map,
        body: Bytes::copy_from_slice(rest),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::key::{Key, Tenant};

    fn id(tenant: &str, key: &str) -> KeyId {
        KeyId::new(Tenant::parse(tenant).unwrap(), Key::parse(key).unwrap())
    }

    fn request() -> StoredRequest {
        let mut headers = HeaderMap::new();
        headers.append("x-twice", HeaderValue::from_static("a"));
        headers.append("x-twice", HeaderValue::from_bytes(b"\xff b").unwrap());
        StoredRequest {
            method: Method::PATCH,
            target: Uri::from_static("/v1/charges?x=%2F"),
            headers,
            body: Bytes::from_static(b"canary"),
        }
    }

    #[test]
    fn a_stored_request_is_read_back_unless_truncated() {
        let bytes = encode(&request()).unwrap();
        assert_eq!(decode(&bytes), Some(request()));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_none_or(|read| read.body.len() < request().body.len()), "{cut}");
        }
        assert_eq!(decode(&[&[2], &bytes[1..]].concat()), None);
    }

    #[test]
    fn only_the_same_key_and_record_open_sealed_bytes() {
        let sealer = Sealer::new(&[7; SEAL_KEY_BYTES]).unwrap();
        let (acme, other) = (id("acme", "k-1"), id("acme", "k-2"));
        let sealed = sealer.seal(&acme, encode(&request()).unwrap()).unwrap();
        assert!(!sealed.windows(6).any(|bytes| bytes == b"canary"));
        assert_eq!(decode(&sealer.open(&acme, &sealed).unwrap()), Some(request()));
        assert_ne!(sealer.seal(&acme, encode(&request()).unwrap()).unwrap(), sealed, "a nonce is used once");
        assert_eq!(sealer.open(&other, &sealed), None);
        assert_eq!(Sealer::new(&[8; SEAL_KEY_BYTES]).unwrap().open(&acme, &sealed), None);
        for at in [0, NONCE_LEN, sealed.len() - 1] {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert_eq!(sealer.open(&acme, &bent), None, "{at}");
        }
        assert_eq!(sealer.open(&acme, &sealed[..5]), None);
        assert!(Sealer::new(&[7; 16]).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = decode(&bytes);
            prop_assert!(Sealer::new(&[7; SEAL_KEY_BYTES]).unwrap().open(&id("a", "k"), &bytes).is_none());
        }
    }
}
