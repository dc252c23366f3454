//! SHA-256 digests that two different inputs, or two different purposes, cannot share.
//!
//! Each use has a domain of its own. Digests must not place keys (that is xxh3's work in `ring`).

use std::fmt;

use sha2::{Digest, Sha256};

/// 32 bytes of SHA-256. Shown as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest32([u8; 32]);

impl Digest32 {
    /// A digest that was computed or stored elsewhere.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A digest read back from a store or a peer; `None` unless `bytes` are 32.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Reads 64 hex digits in lower case, and nothing else: each digest has one spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let pair = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        Self::from_slice(&bytes?).filter(|digest| digest.to_string() == text)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// SHA-256 over the domain and the parts, each preceded by its length in bytes as a big-endian u64.
///
/// The lengths make the encoding one-to-one, so no byte can move from one part to the next
/// unnoticed. A domain has one fixed meaning. If its parts change, it needs a new name.
pub fn digest(domain: &str, parts: &[&[u8]]) -> Digest32 {
    let mut hasher = Sha256::new();
    for part in std::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    Digest32(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        // python3: sha256(len8(b"d")+b"d"+len8(b"ab")+b"ab"+len8(b"")+b"")
        let hex = digest("d", &[b"ab", b""]).to_string();
        assert_eq!(hex, "6cdb5d66517cf1604a3986389c12564f6a8e654652b2a3637ee86e9eb3e00fe3");
    }

    #[test]
    fn shown_as_hex_and_read_back_by_length() {
        let bytes: Vec<u8> = (0..32).collect();
        let digest = Digest32::from_slice(&bytes).unwrap();
        assert_eq!(format!("{digest:?}"), "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
        assert_eq!(digest.as_bytes().as_slice(), bytes);
        assert_eq!(Digest32::from_slice(&bytes[1..]), None);
        assert_eq!(Digest32::from_slice(&[0; 33]), None);
    }
}
