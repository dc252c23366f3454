//! `credentials.toml`: API tokens by their SHA-256, issuers of signed tokens by public keys.
//!
//! The file holds only digests and public keys, so that its readers cannot use it. No message
//! repeats a token's digest: its author may have written the token itself.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{DecodingKey, DecodingKeyKind};
use serde_json::Value;
use toml::de::DeValue;

use super::problems::Weight;
use super::reader::{self, At, Located, Problems, Section, Source};
use super::values::tenant;
use crate::gateway::credentials::caller::{Caller, PRINCIPAL_LIMIT, Voucher};
use crate::gateway::credentials::issuer::{Algorithm, Issuer, VerifyingKey};
use crate::gateway::credentials::{Credentials, TokenDigest};
use crate::protocol::digest::Digest32;

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
    let keys = file.zip(algorithms).and_then(|(file, algorithms)| self::keys(&file, &algorithms, problems));
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
    let digits = Digest32::new(digest).to_string();
    if REFERENCE.iter().any(|file| file.contains(&digits)) {
        section.note_at(Weight::Known, "sha256", KNOWN);
    }
    Some(digest)
}

fn token_digest(value: &DeValue<'_>) -> Result<TokenDigest, String> {
    let digest = Digest32::parse(&reader::text(value)?.to_ascii_lowercase());
    digest.map(|digest| *digest.as_bytes()).ok_or_else(|| {
        "must be 64 hex digits, as `printf %s TOKEN | sha256sum` prints them; never write the token itself"
            .to_owned()
    })
}

const LIMIT: usize = 256 * 1024;
const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// The public keys of the reference file. Only a check warns of them.
const KNOWN_KEYS: &str = include_str!("../../config/accounts.jwks.json");

/// Reads an issuer's keys, a local JWK Set (RFC 7517), each with the pinned algorithms that fit it.
/// A key that could be misused is an error, and is not skipped. Blocks.
fn keys(file: &Located<PathBuf>, pinned: &[Algorithm], problems: &Problems) -> Option<Vec<VerifyingKey>> {
    problems.looks_at(&file.value);
    let text = bytes(&file.value).map_err(|why| problems.add(&file.at, why)).ok()?;
    let whole = At::file(&file.value);
    let set: Value = match serde_json::from_slice(&text) {
        Ok(set) => set,
        Err(error) => {
            let at = At { line: error.line(), ..whole };
            problems.add(&at, "not JSON: write a JWK Set, {\"keys\": [...]}");
            return None;
        }
    };
    let is_right = Cell::new(true);
    let fail = |text: &str| {
        is_right.set(false);
        problems.add(&whole, text);
    };
    let Some(listed) = set.get("keys").and_then(Value::as_array) else {
        fail("has no list of keys: write a JWK Set, {\"keys\": [...]}");
        return None;
    };
    let mut keys: Vec<VerifyingKey> = Vec::new();
    for (number, value) in listed.iter().enumerate() {
        let name = match value.get("kid").and_then(Value::as_str) {
            Some(kid) => format!("key {kid:?}"),
            None => format!("key number {}", number + 1),
        };
        match key(value, pinned) {
            Ok(Some(key)) if keys.iter().any(|other| other.kid == key.kid && key.kid.is_some()) => {
                fail(&format!("{name}: its kid is that of a key above: give each its own"));
            }
            Ok(Some(key)) => {
                if is_known(value) {
                    problems.note(Weight::Known, &whole, format!(
                        "{name}: is a key of the reference file, whose tokens would be believed whatever tenant they name: take your issuer's"
                    ));
                }
                keys.push(key);
            }
            Ok(None) => {}
            Err(why) => fail(&format!("{name}: {why}")),
        }
    }
    if keys.len() > 1 && keys.iter().any(|key| key.kid.is_none()) {
        fail("several keys, and not all have a kid: tokens say by it which one is meant");
    }
    if keys.is_empty() && is_right.get() {
        fail("has no key to verify with");
    }
    is_right.get().then_some(keys)
}

/// True if the key is one of the reference file's, by its coordinate.
fn is_known(key: &Value) -> bool {
    let x = key.get("x").and_then(Value::as_str);
    x.is_some_and(|x| KNOWN_KEYS.contains(&format!("\"x\": \"{x}\"")))
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let (shown, mut text) = (path.display(), Vec::new());
    File::open(path)
        .and_then(|file| file.take(LIMIT as u64 + 1).read_to_end(&mut text))
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    match text.len() > LIMIT {
        true => Err(format!("{shown} is longer than {LIMIT} bytes: keep current keys only")),
        false => Ok(text),
    }
}

/// Reads one key. `None` if the key is for encryption, which onceway does not use.
fn key(value: &Value, pinned: &[Algorithm]) -> Result<Option<VerifyingKey>, String> {
    if value.get("kty").and_then(Value::as_str) == Some("oct") || value.get("k").is_some() {
        return Err("is symmetric, so whoever verifies could sign: use an issuer with public keys".to_owned());
    }
    if value.get("d").is_some() {
        return Err(
            "is a private key: write its public half only, and replace it, as it was shown here".to_owned()
        );
    }
    let jwk: Jwk = serde_json::from_value(value.clone())
        .map_err(|_| "is no JWK of a known form (RFC 7517)".to_owned())?;
    match jwk.common.public_key_use {
        None | Some(PublicKeyUse::Signature) => {}
        Some(PublicKeyUse::Encryption) => return Ok(None),
        Some(PublicKeyUse::Other(_)) => return Err("has a use other than \"sig\"".to_owned()),
    }
    let key = DecodingKey::from_jwk(&jwk)
        .map_err(|_| "is of no known type, or its numbers are not base64url".to_owned())?;
    let size = match key.kind() {
        DecodingKeyKind::SecretOrDer(point) => point.len(),
        DecodingKeyKind::RsaModulusExponent { n, .. } => n.len(),
    };
    let (fitting, right_size): (&[Algorithm], bool) = match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => (&[Algorithm::ES256], size == 65),
            EllipticCurve::P384 => (&[Algorithm::ES384], size == 97),
            _ => return Err("is of a curve that is not supported: use P-256, P-384 or Ed25519".to_owned()),
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (&[Algorithm::EdDSA], size == 32)
        }
        AlgorithmParameters::RSA(_) => (&RSA, (256..=1024).contains(&size)),
        _ => return Err("is of a type that is not supported: use RSA, EC or Ed25519".to_owned()),
    };
    if !right_size {
        return Err("has not the size of its type (RSA: 2048 to 8192 bits)".to_owned());
    }
    let own = value.get("alg").and_then(Value::as_str);
    let fits = |one: &&Algorithm| fitting.contains(one) && own.is_none_or(|own| own == format!("{one:?}"));
    let algorithms: Vec<Algorithm> = pinned.iter().filter(fits).copied().collect();
    if algorithms.is_empty() {
        return Err("fits none of the issuer's algorithms: pin its algorithm, or remove the key".to_owned());
    }
    Ok(Some(VerifyingKey { kid: jwk.common.key_id, algorithms, key }))
}
