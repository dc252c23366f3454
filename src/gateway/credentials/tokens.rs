//! Credentials: find a request's caller: a tenant and, if it is named, a principal.
//!
//! A tenant comes from a verified credential or a trusted front ([`Vouched`]), and from nothing
//! else that a client can write. Of API tokens only SHA-256 digests are held, so no dump discloses
//! one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::caller::Caller;
use super::issuer::{self, Issuer};
use crate::protocol::time::Date;

/// SHA-256 of the bytes of a token.
pub type TokenDigest = [u8; 32];

/// The caller that a listener's trusted front names; only such a listener sets this extension.
/// `None`: it named no tenant, or more than one, and nothing else may name one.
#[derive(Clone, Debug)]
pub struct Vouched(pub Option<Caller>);

/// All known credentials. Several may belong to one tenant: rotating one keeps the tenant.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    tokens: BTreeMap<TokenDigest, Caller>,
    issuers: Vec<Issuer>,
}

impl Credentials {
    /// Adds an API token by its digest. Returns its earlier caller, if any.
    pub fn insert(&mut self, token: TokenDigest, caller: Caller) -> Option<Caller> {
        self.tokens.insert(token, caller)
    }

    /// Adds an issuer of signed tokens, whose `iss` is not known yet.
    pub fn add_issuer(&mut self, issuer: Issuer) {
        self.issuers.push(issuer);
    }

    /// The caller of a request with exactly one `Authorization` header. It is a known API token, or
    /// signed by a known issuer and valid at `now`, by the wall clock.
    pub fn caller(&self, headers: &HeaderMap, now: Date) -> Option<Caller> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let token = &*token(value.as_bytes())?;
        // An API token may look like a signed one, so the digest is compared first: a match is
        // proof.
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

/// The token of `Bearer TOKEN`, or of `Basic` as the user without a password.
fn token(credential: &[u8]) -> Option<Cow<'_, [u8]>> {
    let space = credential.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = (&credential[..space], &credential[space + 1..]);
    let token = if scheme.eq_ignore_ascii_case(b"bearer") {
        Cow::Borrowed(rest)
    } else if scheme.eq_ignore_ascii_case(b"basic") {
        Cow::Owned(BASE64.decode(rest).ok()?.strip_suffix(b":")?.to_vec())
    } else {
        return None;
    };
    (!token.is_empty()).then_some(token)
}

/// A token's digest: plain SHA-256, as `printf %s TOKEN | sha256sum` prints it.
pub fn digest(token: &[u8]) -> TokenDigest {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::credentials::caller::Voucher;
    use crate::protocol::key::Tenant;

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
        // `sk_one:`
        assert_eq!(ask(&["Basic c2tfb25lOg=="]).as_deref(), Some("acme"));
        for wrong in [
            &[][..],
            &["Bearer sk_two"],
            &["Bearer "],
            &["Basic sk_one"],
            // `sk_one`, `sk_one:x`, `:sk_one` and `:`
            &["Basic c2tfb25l"],
            &["Basic c2tfb25lOng="],
            &["Basic OnNrX29uZQ=="],
            &["Basic Og=="],
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
