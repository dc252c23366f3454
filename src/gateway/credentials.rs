//! Credentials: from the client's `Authorization` header to the tenant, by digest.
//!
//! Neighbours: `config` reads the API-key file, [`super::admit`] asks. Only SHA-256 digests of tokens are held, so neither a memory
//! dump of this map nor its file gives a token away, and looking a digest up leaks nothing about other tokens. It must not
//! take a tenant from anything but a verified credential.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use crate::protocol::key::Tenant;

/// SHA-256 of the bytes of a token.
pub type TokenDigest = [u8; 32];

/// All known tokens, by digest. Several tokens may belong to one tenant: rotating a token keeps the tenant.
#[derive(Clone, Debug, Default)]
pub struct Credentials(BTreeMap<TokenDigest, Tenant>);

impl Credentials {
    /// Adds a token's digest; the tenant it belonged to before, if any.
    pub fn insert(&mut self, token: TokenDigest, tenant: Tenant) -> Option<Tenant> {
        self.0.insert(token, tenant)
    }

    /// The tenant of exactly one `Authorization: Bearer` header with a known token; `None` otherwise.
    pub fn tenant(&self, headers: &HeaderMap) -> Option<&Tenant> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
            return None;
        }
        self.0.get(&digest(token))
    }
}

/// The digest under which a token is known: plain SHA-256, as `printf %s TOKEN | sha256sum` prints it.
pub fn digest(token: &[u8]) -> TokenDigest {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(headers: &[&str]) -> Option<String> {
        let mut credentials = Credentials::default();
        credentials.insert(digest(b"sk_one"), Tenant::parse("acme").unwrap());
        let mut map = HeaderMap::new();
        for header in headers {
            map.append(AUTHORIZATION, header.parse().unwrap());
        }
        credentials.tenant(&map).map(|tenant| tenant.as_str().to_owned())
    }

    #[test]
    fn only_one_known_bearer_token_names_a_tenant() {
        assert_eq!(ask(&["Bearer sk_one"]).as_deref(), Some("acme"));
        assert_eq!(ask(&["bearer sk_one"]).as_deref(), Some("acme"));
        for wrong in [
            &[][..],
            &["Bearer sk_two"],
            &["Bearer "],
            &["Basic sk_one"],
            &["Bearer sk_one", "Bearer sk_one"],
            &["sk_one"],
        ] {
            assert_eq!(ask(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_digest_is_plain_sha256() {
        assert_eq!(digest(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
