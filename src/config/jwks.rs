//! Public keys of an issuer: a local JWK Set (RFC 7517), each key with the pinned algorithms that
//! fit.
//!
//! A key that could be misused is an error, and is not skipped. Nothing is fetched, and no message
//! repeats key material.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{DecodingKey, DecodingKeyKind};
use serde_json::Value;

use super::reader::{At, Located, Problems};
use crate::gateway::credentials::issuer::{Algorithm, VerifyingKey};

/// Most bytes of a file of keys.
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
const REFERENCE: &str = include_str!("../../config/accounts.jwks.json");

/// Reads the keys. Errors are added to `problems`. Blocks.
pub(super) fn read(
    file: &Located<PathBuf>,
    pinned: &[Algorithm],
    problems: &Problems,
) -> Option<Vec<VerifyingKey>> {
    problems.looks_at(&file.value);
    let text = text(&file.value).map_err(|why| problems.add(&file.at, why)).ok()?;
    let whole = At::file(&file.value);
    let set: Value = match serde_json::from_slice(&text) {
        Ok(set) => set,
        Err(error) => {
            let at = At { line: error.line(), ..whole };
            problems.add(&at, "not JSON: write a JWK Set, {\"keys\": [...]}");
            return None;
        }
    };
    let fail = |text: &str| problems.add(&whole, text);
    let Some(listed) = set.get("keys").and_then(Value::as_array) else {
        fail("has no list of keys: write a JWK Set, {\"keys\": [...]}");
        return None;
    };
    let mut keys: Vec<VerifyingKey> = Vec::new();
    let before = problems.count();
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
                    problems.warn(&whole, format!(
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
    if keys.is_empty() && problems.count() == before {
        fail("has no key to verify with");
    }
    (problems.count() == before).then_some(keys)
}

/// True if the key is one of the reference file's, by its coordinate.
fn is_known(key: &Value) -> bool {
    let x = key.get("x").and_then(Value::as_str);
    x.is_some_and(|x| REFERENCE.contains(&format!("\"x\": \"{x}\"")))
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
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
