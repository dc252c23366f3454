//! `credentials.toml`: the callers. API tokens by their SHA-256, issuers of signed tokens by their
//! public keys.
//!
//! The file holds only digests and public keys, so that its readers cannot use it. `jwks` reads the
//! keys. This file must never repeat a token's digest in a message: its author may have written the
//! token itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeValue;

use super::reader::{self, At, Problems, Section, Source};
use super::values::tenant;
use super::{jwks, published};
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

/// Most that an issuer's clock may be off.
const MOST_LEEWAY: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub(super) struct CredentialsFile {
    path: PathBuf,
    /// Set if some route binds its keys to the principal, so that every token must name one.
    named: bool,
}

impl CredentialsFile {
    /// Makes the reader of a file. If `named` is set, every token must name its principal.
    pub fn new(path: &Path, named: bool) -> Self {
        Self { path: path.to_owned(), named }
    }

    /// Reads the file. Errors are added to `problems`.
    pub fn read(&self, wanted_by: &At, problems: &Problems) -> Option<Credentials> {
        let source = Source::read(&self.path, wanted_by, problems)?;
        self.read_text(&source, problems)
    }

    /// Like [`CredentialsFile::read`], for a text that was read already.
    pub fn read_text(&self, source: &Source, problems: &Problems) -> Option<Credentials> {
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
            self.token(section, &mut credentials);
        }
        let mut known = Vec::new();
        for section in issuers {
            if let Some(issuer) = self.issuer(section, &mut known, problems) {
                credentials.add_issuer(issuer);
            }
        }
        top.finish();
        Some(credentials)
    }

    fn token(&self, section: Section<'_>, credentials: &mut Credentials) {
        let tenant = section.required("tenant", "name the tenant that the token belongs to", tenant);
        let principal = section.optional("principal", principal);
        if self.named && !section.has("principal") {
            section.fail(
                "principal is missing: a route has bind = \"principal\", so say whose token this is, such as principal = \"ledger-service\"",
            );
        }
        let advice = "write the token's digest, as `printf %s TOKEN | sha256sum` prints it";
        let digest = section.required("sha256", advice, digest_of);
        if digest.as_ref().is_some_and(published::token) {
            section.warn_at("sha256", published::TOKEN);
        }
        if let (Some(tenant), Some(digest)) = (tenant, digest) {
            let caller = Caller::new(tenant, Voucher::File, principal.as_deref());
            if let Some(before) = credentials.insert(digest, caller) {
                let tenant = before.tenant;
                section.fail_at(
                    "sha256",
                    format!("this token is listed already, for tenant {tenant}: list it once"),
                );
            }
        }
        section.finish();
    }

    fn issuer(
        &self,
        mut section: Section<'_>,
        known: &mut Vec<String>,
        problems: &Problems,
    ) -> Option<Issuer> {
        let advice = "name the issuer, such as name = \"accounts\"; messages call it so";
        if let Some(name) = section.required("name", advice, reader::text) {
            section.rename(format!("issuer {name:?}"));
        }
        let advice =
            "write what its tokens have as iss, exactly, such as iss = \"https://accounts.example.com\"";
        let iss = section.required("iss", advice, reader::text);
        if let Some(iss) = iss.as_ref().filter(|iss| known.contains(iss)) {
            section.fail_at("iss", format!("{iss:?} is the iss of an issuer above: list each issuer once"));
        }
        known.extend(iss.clone());
        let advice = "pin what its keys sign with, such as algorithms = [\"ES256\"]; there is no default";
        let algorithms = section.required("algorithms", advice, algorithms);
        let advice = "write what its tokens for this gateway have as aud, such as audience = [\"https://api.example.com\"]";
        let audience = section.required("audience", advice, audience);
        let advice = "name the claim that holds the tenant, such as tenant_claim = \"tenant\", or \"sub\"";
        let tenant_claim = section.required("tenant_claim", advice, reader::text);
        let tenants = section.optional("tenants", |value| reader::list(value, tenant));
        if tenants.as_ref().is_some_and(Vec::is_empty) {
            section.fail_at(
                "tenants",
                "tenants is empty, so no token of this issuer would count: name them, or remove it"
                    .to_owned(),
            );
        }
        let principal_claim = section.optional("principal_claim", reader::text);
        let leeway = section.optional("leeway", |value| reader::time(value, Duration::ZERO, MOST_LEEWAY));
        let base = self.path.parent().unwrap_or(Path::new("")).to_owned();
        let advice = "name the file of its public keys (RFC 7517), such as jwks = \"accounts.jwks.json\"";
        let file =
            section.required_located("jwks", advice, |value| reader::text(value).map(|text| base.join(text)));
        section.finish();
        let keys =
            file.zip(algorithms).and_then(|(file, algorithms)| jwks::read(&file, &algorithms, problems));
        Some(Issuer {
            iss: iss?,
            audience: audience?,
            tenant_claim: tenant_claim?,
            tenants,
            principal_claim: principal_claim.unwrap_or_else(|| "sub".to_owned()),
            leeway: leeway.unwrap_or(Duration::from_secs(30)),
            keys: keys?,
        })
    }
}

fn algorithms(value: &DeValue<'_>) -> Result<Vec<Algorithm>, String> {
    let list = reader::list(value, |one| reader::word(one, &ALGORITHMS))?;
    if list.is_empty() { Err("must name at least one algorithm".to_owned()) } else { Ok(list) }
}

fn audience(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let list = reader::list(value, reader::text)?;
    if list.is_empty() { Err("must name at least one audience".to_owned()) } else { Ok(list) }
}

fn principal(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    if text.len() > PRINCIPAL_LIMIT {
        return Err(format!("must have at most {PRINCIPAL_LIMIT} bytes"));
    }
    Ok(text)
}

/// Reads the digest of a token.
pub(super) fn digest_of(value: &DeValue<'_>) -> Result<TokenDigest, String> {
    let wrong =
        "must be 64 hex digits, as `printf %s TOKEN | sha256sum` prints them; never write the token itself";
    let text = reader::text(value)?;
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let bytes: Vec<u8> = digits
        .ok_or(wrong)?
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
        .collect();
    if text.len() != 64 {
        return Err(wrong.to_owned());
    }
    TokenDigest::try_from(bytes).map_err(|_| wrong.to_owned())
}
