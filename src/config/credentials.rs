//! `credentials.toml`: API tokens by their SHA-256, issuers of signed tokens by public keys.
//!
//! The file holds only digests and public keys, so that its readers cannot use it. No message
//! repeats a token's digest: its author may have written the token itself.

use std::time::Duration;

use toml::de::DeValue;

use super::jwks;
use super::reader::{self, Problems, Section, Source};
use super::values::tenant;
use crate::gateway::credentials::caller::{Caller, PRINCIPAL_LIMIT, Voucher};
use crate::gateway::credentials::issuer::{Algorithm, Issuer};
use crate::gateway::credentials::{Credentials, TokenDigest};

/// Algorithms that may be pinned: public keys only.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
];

/// The reference files with tokens, which anybody can use. Only a check warns: a trial runs.
const REFERENCE: [&str; 2] =
    [include_str!("../../config/credentials.toml"), include_str!("../../config/operators.toml")];
const KNOWN: &str =
    "this token is one of the reference file's, which everybody knows: list digests of your own tokens only";

/// Most that an issuer's clock may be off, in seconds.
const MOST_LEEWAY: u64 = 300;

/// Reads the file. With `named`, every token must name the principal that a route binds to.
pub(super) fn read(source: &Source, named: bool, problems: &Problems) -> Option<Credentials> {
    let document = source.parse(problems)?;
    let top = Section::top(source, &document, problems);
    let (tokens, issuers) = (top.tables("credential"), top.tables("issuer"));
    if tokens.is_empty() && issuers.is_empty() {
        top.fail(
            "no credential is listed, so nobody could send a key: write a [[credential]] with tenant and sha256, or an [[issuer]]",
        );
    }
    let mut credentials = Credentials::default();
    for section in tokens {
        token(section, named, &mut credentials);
    }
    let mut known = Vec::new();
    for section in issuers {
        if let Some(issuer) = issuer(section, &mut known) {
            credentials.add_issuer(issuer);
        }
    }
    top.finish();
    Some(credentials)
}

fn token(section: Section<'_>, named: bool, credentials: &mut Credentials) {
    let tenant = section.required("tenant", "name the tenant that the token belongs to", tenant);
    let principal = section.optional("principal", principal);
    if named && !section.has("principal") {
        section.fail(
            "principal is missing: a route has bind = \"principal\", so say whose token this is, such as principal = \"ledger-service\"",
        );
    }
    if let (Some(tenant), Some(digest)) = (tenant, digest_of(&section)) {
        let caller = Caller::new(tenant, Voucher::File, principal.as_deref());
        if let Some(Caller { tenant, .. }) = credentials.insert(digest, caller) {
            let why = format!("this token is listed already, for tenant {tenant}: list it once");
            section.fail_at("sha256", why);
        }
    }
    section.finish();
}

fn issuer(mut section: Section<'_>, known: &mut Vec<String>) -> Option<Issuer> {
    let advice = "name the issuer, such as name = \"accounts\"; messages call it so";
    if let Some(name) = section.required("name", advice, reader::text) {
        section.rename(format!("issuer {name:?}"));
    }
    let advice = "write what its tokens have as iss, exactly, such as iss = \"https://accounts.example.com\"";
    let iss = section.required("iss", advice, reader::text);
    if let Some(iss) = iss.as_ref().filter(|iss| known.contains(iss)) {
        section.fail_at("iss", format!("{iss:?} is the iss of an issuer above: list each issuer once"));
    }
    known.extend(iss.clone());
    let advice = "pin what its keys sign with, such as algorithms = [\"ES256\"]; there is no default";
    let algorithms = section.required("algorithms", advice, |value| {
        reader::some(value, "name at least one algorithm", |one| reader::word(one, &ALGORITHMS))
    });
    let advice = "write what its tokens for this gateway have as aud, such as audience = [\"https://api.example.com\"]";
    let audience = section.required("audience", advice, |value| {
        reader::some(value, "name at least one audience", reader::text)
    });
    let advice = "name the claim that holds the tenant, such as tenant_claim = \"tenant\", or \"sub\"";
    let tenant_claim = section.required("tenant_claim", advice, reader::text);
    let tenants = section.optional("tenants", |value| reader::list(value, tenant));
    if tenants.as_ref().is_some_and(Vec::is_empty) {
        let why = "tenants is empty, so no token of this issuer would count: name them, or remove it";
        section.fail_at("tenants", why);
    }
    let principal_claim = section.optional("principal_claim", reader::text);
    let leeway = section.span("leeway", 0, MOST_LEEWAY, Duration::from_secs(30));
    let advice = "name the file of its public keys (RFC 7517), such as jwks = \"accounts.jwks.json\"";
    let file = section.required_located("jwks", advice, |value| section.path(value));
    let problems = section.problems;
    section.finish();
    let keys = file.zip(algorithms).and_then(|(file, algorithms)| jwks::read(&file, &algorithms, problems));
    Some(Issuer {
        iss: iss?,
        audience: audience?,
        tenant_claim: tenant_claim?,
        tenants,
        principal_claim: principal_claim.unwrap_or_else(|| "sub".to_owned()),
        leeway,
        keys: keys?,
    })
}

fn principal(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    if text.len() > PRINCIPAL_LIMIT {
        return Err(format!("must have at most {PRINCIPAL_LIMIT} bytes"));
    }
    Ok(text)
}

/// Reads the digest of a token, and warns of one of the reference files.
pub(super) fn digest_of(section: &Section<'_>) -> Option<TokenDigest> {
    let advice = "write the token's digest, as `printf %s TOKEN | sha256sum` prints it";
    let digest = section.required("sha256", advice, token_digest)?;
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    if REFERENCE.iter().any(|file| file.contains(&digits)) {
        section.warn_at("sha256", KNOWN);
    }
    Some(digest)
}

fn token_digest(value: &DeValue<'_>) -> Result<TokenDigest, String> {
    let text = reader::text(value)?;
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let pairs = digits.filter(|digits| digits.len() == 64).map(|digits| {
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect::<Vec<_>>()
    });
    pairs.and_then(|bytes| TokenDigest::try_from(bytes).ok()).ok_or_else(|| {
        "must be 64 hex digits, as `printf %s TOKEN | sha256sum` prints them; never write the token itself"
            .to_owned()
    })
}
