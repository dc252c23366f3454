//! Issuers: signed tokens (JWT, RFC 7519), verified by RFC 8725 with keys from a local file only.
//!
//! The algorithm is pinned for the key. Keys that a token names itself are refused, as is `crit`.
//! Must not fetch anything, and no refusal may hold any part of a token.

use std::time::Duration;

use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::{DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::caller::{Caller, PRINCIPAL_LIMIT, Voucher};
use super::signature;
use crate::protocol::key::Tenant;
use crate::protocol::time::Date;

pub use jsonwebtoken::Algorithm;

/// Bytes of a signed token, at most.
pub const TOKEN_LIMIT: usize = 8 * 1024;

/// One issuer, and the rules for its tokens.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// Required value of `iss`, exactly.
    pub iss: String,
    /// Of these, `aud` must name at least one.
    pub audience: Vec<String>,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The tenants that it may name; `None`: any.
    pub tenants: Option<Vec<Tenant>>,
    /// The claim that names the principal. A token without it names none.
    pub principal_claim: String,
    /// Time after `exp`, and before `nbf`, for which a token still counts: clocks differ.
    pub leeway: Duration,
    /// The public keys. Their key ids differ.
    pub keys: Vec<VerifyingKey>,
}

/// A public key of an issuer.
#[derive(Clone, Debug)]
pub struct VerifyingKey {
    /// Its key id, which the token's `kid` must equal; `None` only if it is the issuer's one key.
    pub kid: Option<String>,
    /// The algorithms that are pinned for the issuer and fit this key.
    pub algorithms: Vec<Algorithm>,
    pub key: DecodingKey,
}

/// Reason why a token is not accepted. For operators; clients always get 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refused {
    #[error("it is no known token and not three base64url parts either")]
    NotSigned,
    #[error("it is longer than a signed token may be")]
    TooLong,
    #[error("its header or its claims are malformed")]
    Malformed,
    #[error("its header names keys of its own, or extensions that must be understood")]
    ForeignHeader,
    #[error("its issuer is not known")]
    UnknownIssuer,
    #[error("its issuer has no key of this kid")]
    UnknownKey,
    #[error("its algorithm is not pinned for the issuer, or does not fit the key")]
    Algorithm,
    #[error("its signature is wrong, or it lacks iss, aud or exp, or is not for this audience")]
    NotProven,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
    #[error("it names no tenant, or a malformed one")]
    NoTenant,
    #[error("it names a tenant that its issuer does not speak for")]
    ForeignTenant,
}

/// The caller that a known issuer signed the token for, or the first rule that it breaks.
pub fn verify(issuers: &[Issuer], token: &[u8], now: Date) -> Result<Caller, Refused> {
    let token = str::from_utf8(token).ok().filter(|token| is_signed(token)).ok_or(Refused::NotSigned)?;
    if token.len() > TOKEN_LIMIT {
        return Err(Refused::TooLong);
    }
    let header = decode_header(token).map_err(|_| Refused::Malformed)?;
    check_header(&header)?;
    // Not verified yet: it only chooses the issuer whose rules apply, and those check the issuer
    // again.
    let said: Claims = insecure_decode_claims(token).map_err(|_| Refused::Malformed)?;
    let issuer = issuers.iter().find(|issuer| issuer.iss == said.iss).ok_or(Refused::UnknownIssuer)?;
    issuer.verify(token, &header, now)
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
}

fn is_signed(token: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    token.split('.').count() == 3 && token.split('.').all(is_part)
}

fn check_header(header: &Header) -> Result<(), Refused> {
    let Header { jku, jwk, x5u, x5c, crit, enc, zip, .. } = header;
    let foreign = jku.is_some() || jwk.is_some() || x5u.is_some() || x5c.is_some();
    let extended = crit.is_some() || enc.is_some() || zip.is_some();
    if foreign || extended { Err(Refused::ForeignHeader) } else { Ok(()) }
}

impl Issuer {
    fn verify(&self, token: &str, header: &Header, now: Date) -> Result<Caller, Refused> {
        let key = self.keys.iter().find(|key| key.kid == header.kid).ok_or(Refused::UnknownKey)?;
        if !key.algorithms.contains(&header.alg) {
            return Err(Refused::Algorithm);
        }
        signature::install();
        let mut rules = Validation::new(header.alg);
        rules.set_required_spec_claims(&["exp", "aud", "iss"]);
        rules.set_issuer(std::slice::from_ref(&self.iss));
        rules.set_audience(&self.audience);
        // Checked below by the port's clock: the crate would read the system's.
        rules.validate_exp = false;
        let claims: Map<String, Value> =
            decode(token, &key.key, &rules).map_err(|_| Refused::NotProven)?.claims;
        self.check_times(&claims, now)?;
        self.caller(&claims)
    }

    fn check_times(&self, claims: &Map<String, Value>, now: Date) -> Result<(), Refused> {
        let seconds =
            |name| claims.get(name).map(|value| value.as_f64().ok_or(Refused::Malformed)).transpose();
        let (now, leeway) = (now.as_millis() as f64 / 1_000.0, self.leeway.as_secs_f64());
        let until: f64 = seconds("exp")?.ok_or(Refused::NotProven)?;
        if now >= until + leeway {
            return Err(Refused::Expired);
        }
        match seconds("nbf")? {
            Some(from) if now < from - leeway => Err(Refused::NotYet),
            Some(_) | None => Ok(()),
        }
    }

    fn caller(&self, claims: &Map<String, Value>) -> Result<Caller, Refused> {
        let tenant = claims.get(&self.tenant_claim).and_then(Value::as_str).ok_or(Refused::NoTenant)?;
        let tenant = Tenant::parse(tenant).map_err(|_| Refused::NoTenant)?;
        if self.tenants.as_ref().is_some_and(|tenants| !tenants.contains(&tenant)) {
            return Err(Refused::ForeignTenant);
        }
        let principal = match claims.get(&self.principal_claim) {
            None => None,
            Some(Value::String(name)) if (1..=PRINCIPAL_LIMIT).contains(&name.len()) => Some(name.as_str()),
            Some(_) => return Err(Refused::Malformed),
        };
        Ok(Caller::new(tenant, Voucher::Issuer(&self.iss), principal))
    }
}
