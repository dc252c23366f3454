//! Credentials: from what a request shows to who asks, a tenant and, where it is named, a principal.
//!
//! Neighbours: `config` reads the file of credentials, [`super::admit`] asks, [`issuer`] verifies signed tokens. Of API tokens only
//! SHA-256 digests are held, so neither a memory dump of this map nor its file gives one away, and looking a digest up leaks
//! nothing about others. A tenant comes from a verified credential, or from the front of a listener that is bound to one
//! ([`Vouched`]); it must not be taken from anything else that a client can write.

pub mod issuer;
mod signature;

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use crate::protocol::digest::Digest32;
use crate::protocol::key::Tenant;
use crate::protocol::time::Date;
use issuer::Issuer;

/// SHA-256 of the bytes of a token.
pub type TokenDigest = [u8; 32];

/// The most bytes of a principal's name.
pub const PRINCIPAL_LIMIT: usize = 255;

/// Who asks, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The account. Keys belong to it, never to a credential.
    pub tenant: Tenant,
    /// Who of the tenant, where the credential names somebody: a digest, by which alone records may be bound to a principal.
    pub principal: Option<Digest32>,
}

/// Who vouches for a principal's name. The same name from two of them is two principals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voucher<'a> {
    /// The file of credentials, for an API token.
    File,
    /// The issuer of this `iss`.
    Issuer(&'a str),
    /// A trusted front.
    Front,
}

impl Caller {
    /// A caller, the principal by its name.
    pub fn new(tenant: Tenant, voucher: Voucher<'_>, principal: Option<&str>) -> Self {
        let (kind, by) = match voucher {
            Voucher::File => ("file", ""),
            Voucher::Issuer(iss) => ("issuer", iss),
            Voucher::Front => ("front", ""),
        };
        let named = |name: &str| {
            let parts = [kind, by, tenant.as_str(), name].map(str::as_bytes);
            crate::protocol::digest::digest("onceway/principal/1", &parts)
        };
        let principal = principal.map(named);
        Self { tenant, principal }
    }
}

/// What the trusted front of a listener vouches for: an extension of the request that only such a listener sets. `None`: the
/// front named no tenant, or not one alone, and the request has no other way to name one.
#[derive(Clone, Debug)]
pub struct Vouched(pub Option<Caller>);

/// All that is known of who may ask. Several credentials may belong to one tenant: rotating one keeps the tenant.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    tokens: BTreeMap<TokenDigest, Caller>,
    issuers: Vec<Issuer>,
}

impl Credentials {
    /// Adds an API token by its digest; whose it was before, if anybody's.
    pub fn insert(&mut self, token: TokenDigest, caller: Caller) -> Option<Caller> {
        self.tokens.insert(token, caller)
    }

    /// Adds an issuer of signed tokens. There must be none of the same `iss` yet: the first one is asked.
    pub fn add_issuer(&mut self, issuer: Issuer) {
        self.issuers.push(issuer);
    }

    /// Who sends exactly one `Authorization: Bearer` header with a known API token or with a token that a known issuer signed;
    /// `None` for everybody else. `now` is the wall clock's: a signed token says itself how long it lasts.
    pub fn caller(&self, headers: &HeaderMap, now: Date) -> Option<Caller> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
            return None;
        }
        // An API token may look like a signed one, so the digest is asked first: a match proves what it is.
        if let Some(caller) = self.tokens.get(&digest(token)) {
            return Some(caller.clone());
        }
        match issuer::verify(&self.issuers, token, now) {
            Ok(caller) => Some(caller),
            Err(refused) => {
                tracing::debug!(%refused, "a bearer token is not accepted");
                None
            }
        }
    }
}

/// The digest under which a token is known: plain SHA-256, as `printf %s TOKEN | sha256sum` prints it.
pub fn digest(token: &[u8]) -> TokenDigest {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme(principal: Option<&str>) -> Caller {
        Caller::new(Tenant::parse("acme").unwrap(), Voucher::File, principal)
    }

    fn ask(headers: &[&str]) -> Option<String> {
        let mut credentials = Credentials::default();
        credentials.insert(digest(b"sk_one"), acme(None));
        let mut map = HeaderMap::new();
        for header in headers {
            map.append(AUTHORIZATION, header.parse().unwrap());
        }
        credentials.caller(&map, Date(0)).map(|caller| caller.tenant.as_str().to_owned())
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
    fn a_principal_is_one_name_of_one_tenant_by_one_voucher() {
        let globex = Tenant::parse("globex").unwrap();
        let all = [
            acme(Some("ann")),
            acme(Some("bob")),
            acme(None),
            Caller::new(acme(None).tenant, Voucher::Front, Some("ann")),
            Caller::new(acme(None).tenant, Voucher::Issuer("https://a"), Some("ann")),
            Caller::new(acme(None).tenant, Voucher::Issuer("https://b"), Some("ann")),
            Caller::new(globex, Voucher::File, Some("ann")),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|other| other.principal != one.principal), "{index}");
        }
        assert_eq!(acme(Some("ann")), acme(Some("ann")));
    }

    #[test]
    fn the_digest_is_plain_sha256() {
        assert_eq!(digest(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
