//! Fingerprints: they show if two requests under a key ask the same (docs/protocol.md#rule-1).
//!
//! `gateway::policy::canonical` makes the canonical body.

use serde::{Deserialize, Serialize};

pub use super::digest::Digest32;
use super::digest::digest;

const RAW: &str = "onceway/fingerprint/raw/1";
const CANONICAL: &str = "onceway/fingerprint/canonical/1";
const SIGNATURE: &str = "onceway/fingerprint/signature/1";
const HEADERS: &str = "onceway/fingerprint/headers/1";

/// Digests of what a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Over method, target and the body's bytes as sent.
    pub raw: Digest32,
    /// Over method, target and the body's lossless canonical form, if any, or business signature.
    pub canonical: Option<Digest32>,
}

impl Fingerprint {
    /// True if this request asks the same as the stored one: equal bytes, or else equal canonical
    /// forms. A missing one matches nothing: bodies that cannot be compared are different.
    pub fn same(&self, stored: &Fingerprint) -> bool {
        self.raw == stored.raw || (self.canonical.is_some() && self.canonical == stored.canonical)
    }

    /// The digests of a request on a route where these headers are part of what it asks, each with
    /// its values in their order. Without headers nothing changes.
    pub fn with_headers(self, headers: &[(&str, Vec<&[u8]>)]) -> Self {
        if headers.is_empty() {
            return self;
        }
        let with = |inner: Digest32| {
            let counts: Vec<[u8; 8]> =
                headers.iter().map(|(_, values)| (values.len() as u64).to_be_bytes()).collect();
            let mut parts: Vec<&[u8]> = vec![inner.as_bytes()];
            for ((name, values), count) in headers.iter().zip(&counts) {
                parts.extend([name.as_bytes(), count]);
                parts.extend(values);
            }
            digest(HEADERS, &parts)
        };
        Self { raw: with(self.raw), canonical: self.canonical.map(with) }
    }
}

/// The raw digest: `target` is the path and query as sent, `body` every byte of the body.
pub fn raw(method: &str, target: &str, body: &[u8]) -> Digest32 {
    digest(RAW, &[method.as_bytes(), target.as_bytes(), body])
}

/// The canonical digest: as [`raw`], over the body's canonical form, and never equal to a raw one.
pub fn canonical(method: &str, target: &str, canonical_body: &[u8]) -> Digest32 {
    digest(CANONICAL, &[method.as_bytes(), target.as_bytes(), canonical_body])
}

/// The digest of a business signature: as [`canonical`], over the route's `rule` and the parts of
/// the body that it selects. A changed rule makes no two requests the same.
pub fn signature(method: &str, target: &str, rule: &str, selected: &[u8]) -> Digest32 {
    digest(SIGNATURE, &[method.as_bytes(), target.as_bytes(), rule.as_bytes(), selected])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden() {
        // python3 hashlib: sha256 over len8(part)+part for domain, method, target, body.
        let (method, target, body) = ("POST", "/v1/charges?x=1", br#"{"amount":100}"#);
        let signed = signature(method, target, "include\n/amount", b"\"amount\"/=100\n");
        for (digest, golden) in [
            (raw(method, target, body), "6ae41da902deb3069ab94d16bfa7d6f0ee46cb17811e8193029635461c93fe8a"),
            (
                canonical(method, target, body),
                "344c7bab337d8f5e6567cc1744f1322b658b6063468cce413f98f3a8c7c2e68e",
            ),
            (signed, "34afe64b24cc20373c6007440da6a28e39b113296a0e0f727bed50751705d18a"),
            (raw("POST", "/", b""), "601fe91110977c87597770caff6fdb6c71c01f88129b9738fc01057abb6fc321"),
        ] {
            assert_eq!(digest.to_string(), golden);
        }
    }

    #[test]
    fn headers_that_count_are_part_of_what_is_asked() {
        let plain =
            Fingerprint { raw: raw("POST", "/", b"1"), canonical: Some(canonical("POST", "/", b"1")) };
        let with = |headers: &[(&str, Vec<&[u8]>)]| plain.with_headers(headers);
        assert_eq!(with(&[]), plain);
        let all = [
            plain,
            with(&[("a", vec![])]),
            with(&[("a", vec![b""])]),
            with(&[("a", vec![b"1"])]),
            with(&[("a", vec![b"1", b"2"])]),
            with(&[("a", vec![b"2", b"1"])]),
            with(&[("a", vec![b"1"]), ("b", vec![])]),
            with(&[("a", vec![]), ("b", vec![b"1"])]),
            with(&[("b", vec![b"1"])]),
        ];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                assert_eq!(one.same(other), at == other_at, "{at} {other_at}");
            }
        }
        let spaced = Fingerprint { raw: raw("POST", "/", b" 1"), ..plain };
        assert!(spaced.with_headers(&[("a", vec![b"1"])]).same(&with(&[("a", vec![b"1"])])));
    }

    #[test]
    fn same_by_raw_or_by_both_canonical() {
        let (one, two) = (raw("POST", "/", b"1"), raw("POST", "/", b"2"));
        let (x, y) = (canonical("POST", "/", b"x"), canonical("POST", "/", b"y"));
        let table = [
            (one, None, one, None, true),
            (one, None, two, None, false),
            (one, Some(x), two, Some(x), true),
            (one, Some(x), two, Some(y), false),
            (one, Some(x), two, None, false),
            (one, None, two, Some(x), false),
            (one, Some(x), one, None, true),
            (one, Some(x), one, Some(y), true),
        ];
        for (raw, canonical, stored_raw, stored_canonical, want) in table {
            let new = Fingerprint { raw, canonical };
            let stored = Fingerprint { raw: stored_raw, canonical: stored_canonical };
            assert_eq!(new.same(&stored), want, "{new:?} {stored:?}");
            assert_eq!(stored.same(&new), want);
        }
    }

    proptest! {
        #[test]
        fn a_byte_that_moves_changes_the_digest(
            text in "[ -~]{2,40}",
            (a, b, c, d) in (0usize..40, 0usize..40, 0usize..40, 0usize..40),
        ) {
            let cut = |x: usize, y: usize| {
                let (x, y) = (x.min(y).min(text.len()), x.max(y).min(text.len()));
                (&text[..x], &text[x..y], &text.as_bytes()[y..])
            };
            let (one, two) = (cut(a, b), cut(c, d));
            prop_assert_eq!(raw(one.0, one.1, one.2) == raw(two.0, two.1, two.2), one == two);
            prop_assert_eq!(canonical(one.0, one.1, one.2) == canonical(two.0, two.1, two.2), one == two);
            prop_assert_ne!(raw(one.0, one.1, one.2), canonical(one.0, one.1, one.2));
            prop_assert_ne!(canonical(one.0, one.1, one.2), signature(one.0, one.1, "", one.2));
        }
    }
}
