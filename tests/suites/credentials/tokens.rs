//! Acceptance of signed tokens: every algorithm that can be pinned, and one case per rule that a
//! token can break.
//!
//! `signing` makes the tokens. They are judged by credentials that were read from files, at a date
//! that the test names. A test must not read a clock.

use super::signing::{SigningKey, encode, jwks, message};
use crate::support::*;
use onceway::config::load_credentials;
use onceway::gateway::credentials::Credentials;
use onceway::gateway::credentials::caller::{Caller, Voucher};
use onceway::protocol::time::Date;
use ring::hmac;

const ISS: &str = "https://accounts.example.com";
const AUD: &str = "https://api.example.com";
/// The date of the tests, in seconds.
const NOW: i64 = 1_800_000_000;

/// Credentials of one issuer with these keys and more lines.
fn issuer(algorithms: &str, keys: &[&SigningKey], more: &str) -> Credentials {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("keys.json"), jwks(keys)).unwrap();
    let text = format!(
        "[[issuer]]\nname = \"accounts\"\niss = \"{ISS}\"\njwks = \"keys.json\"\nalgorithms = {algorithms}\naudience = [\"{AUD}\", \"other\"]\ntenant_claim = \"tenant\"\n{more}"
    );
    let file = folder.path().join("credentials.toml");
    fs::write(&file, text).unwrap();
    load_credentials(&file).unwrap_or_else(|errors| panic!("{errors}"))
}

fn at(credentials: &Credentials, token: &str, millis: i64) -> Option<Caller> {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    credentials.caller(&headers, Date(millis))
}

fn ask(credentials: &Credentials, token: &str) -> Option<Caller> {
    at(credentials, token, NOW * 1_000)
}

fn claims() -> Value {
    json!({"iss": ISS, "aud": AUD, "exp": NOW + 60, "tenant": "acme", "sub": "ann"})
}

/// The good claims with one of them replaced, or left out.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn ann() -> Caller {
    Caller::new(Tenant::parse("acme").unwrap(), Voucher::Issuer(ISS), Some("ann"))
}

#[test]
fn good_tokens_of_every_algorithm_name_the_caller() {
    for alg in ["ES256", "ES384", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] {
        let key = SigningKey::new("k", alg);
        let credentials = issuer(&format!("[\"{alg}\"]"), &[&key], "");
        assert_eq!(ask(&credentials, &key.token(&claims())), Some(ann()), "{alg}");
        let other = if alg.ends_with("256") { "EdDSA" } else { "ES256" };
        let stranger = SigningKey::new("k", other);
        assert_eq!(ask(&credentials, &stranger.token(&claims())), None, "{alg}: a stranger's key");
        let mut changed = key.token(&claims());
        changed.replace_range(changed.len() - 8..changed.len() - 4, "AAAA");
        assert_eq!(ask(&credentials, &changed), None, "{alg}: another signature");
    }
}

#[test]
fn the_key_is_found_by_kid_alone() {
    let (old, new) = (SigningKey::new("old", "ES256"), SigningKey::new("new", "ES256"));
    let both = issuer("[\"ES256\"]", &[&old, &new], "");
    let only_new = issuer("[\"ES256\"]", &[&new], "");
    assert_eq!(ask(&both, &old.token(&claims())), Some(ann()));
    assert_eq!(ask(&both, &new.token(&claims())), Some(ann()));
    assert_eq!(ask(&only_new, &old.token(&claims())), None, "a key that was taken out");
    for header in [
        json!({"alg": "ES256"}),
        json!({"alg": "ES256", "kid": "other"}),
        json!({"alg": "ES256", "kid": "old"}),
    ] {
        assert_eq!(ask(&both, &new.token_with(&header, &claims())), None, "{header}");
    }
}

#[test]
fn the_algorithm_must_be_pinned_and_fit_the_key() {
    let key = SigningKey::new("k", "RS256");
    let credentials = issuer("[\"RS256\", \"ES256\"]", &[&key], "");
    assert_eq!(ask(&credentials, &key.token(&claims())), Some(ann()));
    // Right signatures with the same key, by algorithms that are not pinned for it.
    for alg in ["RS512", "PS256"] {
        let same = SigningKey::new("k", alg);
        assert_eq!(ask(&credentials, &same.token(&claims())), None, "{alg}");
        assert!(ask(&issuer(&format!("[\"{alg}\"]"), &[&same], ""), &same.token(&claims())).is_some());
    }
    // The key is right, but the header names another algorithm.
    for alg in ["ES256", "none", "None", "HS256", "RS257", ""] {
        let header = json!({"alg": alg, "kid": "k"});
        assert_eq!(ask(&credentials, &key.token_with(&header, &claims())), None, "{alg:?}");
    }
    let unsigned = format!("{}.", message(&json!({"alg": "none", "kid": "k"}), &claims()));
    assert_eq!(ask(&credentials, &unsigned), None);
    // The public key used as a shared secret, in every form that an attacker may guess.
    let modulus = key.jwk()["n"].as_str().unwrap().to_owned();
    for secret in [modulus.as_bytes(), key.jwk().to_string().as_bytes(), include_bytes!("rsa.pem")] {
        let signed = message(&json!({"alg": "HS256", "kid": "k"}), &claims());
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        assert_eq!(ask(&credentials, &format!("{signed}.{}", encode(tag.as_ref()))), None);
    }
}

#[test]
fn tokens_with_keys_or_extensions_are_refused() {
    let key = SigningKey::new("k", "ES256");
    let credentials = issuer("[\"ES256\"]", &[&key], "");
    let plain = json!({"alg": "ES256", "kid": "k", "typ": "at+jwt"});
    assert_eq!(ask(&credentials, &key.token_with(&plain, &claims())), Some(ann()));
    for (name, value) in [
        ("jku", json!("https://evil.example/keys")),
        ("x5u", json!("https://evil.example/chain")),
        ("x5c", json!(["MIIB"])),
        ("jwk", key.jwk()),
        ("crit", json!(["exp"])),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
    ] {
        let mut header = plain.clone();
        header[name] = value;
        assert_eq!(ask(&credentials, &key.token_with(&header, &claims())), None, "{name}");
    }
}

#[test]
fn every_required_claim_must_be_right() {
    let key = SigningKey::new("k", "ES256");
    let credentials = issuer("[\"ES256\"]", &[&key], "");
    let good = [
        claims(),
        with("aud", json!(["x", "other"])),
        with("nbf", json!(NOW)),
        with("exp", json!(NOW as f64 + 0.5)),
        with("iat", json!(NOW + 1_000_000)),
    ];
    for claims in good {
        assert_eq!(ask(&credentials, &key.token(&claims)), Some(ann()), "{claims}");
    }
    let bad = [
        without("exp"),
        with("exp", json!(null)),
        with("exp", json!("never")),
        with("exp", json!((NOW + 60).to_string())),
        without("aud"),
        with("aud", json!("https://elsewhere.example.com")),
        with("aud", json!([])),
        with("aud", json!(["x", "y"])),
        with("aud", json!(7)),
        without("iss"),
        with("iss", json!(format!("{ISS}/"))),
        with("iss", json!([ISS])),
        with("nbf", json!(NOW + 3_600)),
        with("nbf", json!("soon")),
        without("tenant"),
        with("tenant", json!("")),
        with("tenant", json!("ac me")),
        with("tenant", json!(["acme"])),
        with("tenant", json!("t".repeat(65))),
        with("sub", json!("")),
        with("sub", json!(7)),
        with("sub", json!("s".repeat(256))),
        json!("no object"),
        json!([]),
    ];
    for claims in bad {
        assert_eq!(ask(&credentials, &key.token(&claims)), None, "{claims}");
    }
}

#[test]
fn a_token_lasts_from_nbf_to_exp_with_leeway() {
    let key = SigningKey::new("k", "EdDSA");
    let mut claims = claims();
    claims["nbf"] = json!(NOW);
    let token = key.token(&claims);
    for (more, leeway) in [("", 30), ("leeway = \"0s\"\n", 0), ("leeway = \"5m\"\n", 300)] {
        let credentials = issuer("[\"EdDSA\"]", &[&key], more);
        let (from, until) = ((NOW - leeway) * 1_000, (NOW + 60 + leeway) * 1_000);
        for (millis, valid) in [(from - 1, false), (from, true), (until - 1, true), (until, false)] {
            assert_eq!(at(&credentials, &token, millis).is_some(), valid, "{leeway} s, {millis}");
        }
    }
}

#[test]
fn the_file_names_the_claims_of_tenant_and_principal() {
    let key = SigningKey::new("k", "ES256");
    let credentials = issuer("[\"ES256\"]", &[&key], "principal_claim = \"client_id\"\n");
    let caller = ask(&credentials, &key.token(&claims())).unwrap();
    assert_eq!((caller.tenant.as_str(), caller.principal), ("acme", None));
    let named = ask(&credentials, &key.token(&with("client_id", json!("ann")))).unwrap();
    assert_eq!(named, ann());
}

#[test]
fn an_issuer_speaks_for_its_listed_tenants_only() {
    let key = SigningKey::new("k", "ES256");
    let credentials = issuer("[\"ES256\"]", &[&key], "tenants = [\"globex\", \"acme\"]\n");
    assert_eq!(ask(&credentials, &key.token(&claims())), Some(ann()));
    assert_eq!(ask(&credentials, &key.token(&with("tenant", json!("initech")))), None);
    let open = issuer("[\"ES256\"]", &[&key], "");
    assert!(ask(&open, &key.token(&with("tenant", json!("initech")))).is_some(), "without one, for all");
}

#[test]
fn an_issuer_speaks_for_itself_only() {
    let (ours, theirs) = (SigningKey::new("k", "ES256"), SigningKey::new("k", "ES256"));
    let folder = tempfile::tempdir().unwrap();
    let section = |name: &str, iss: &str| {
        format!(
            "[[issuer]]\nname = \"{name}\"\niss = \"{iss}\"\njwks = \"{name}.json\"\nalgorithms = [\"ES256\"]\naudience = [\"{AUD}\"]\ntenant_claim = \"tenant\"\n"
        )
    };
    fs::write(folder.path().join("ours.json"), jwks(&[&ours])).unwrap();
    fs::write(folder.path().join("theirs.json"), jwks(&[&theirs])).unwrap();
    let file = folder.path().join("credentials.toml");
    fs::write(&file, section("ours", ISS) + &section("theirs", "https://theirs.example.com")).unwrap();
    let credentials = load_credentials(&file).unwrap();
    let of_theirs = with("iss", json!("https://theirs.example.com"));
    assert_eq!(ask(&credentials, &ours.token(&claims())), Some(ann()));
    assert_eq!(ask(&credentials, &theirs.token(&claims())), None);
    assert_eq!(ask(&credentials, &ours.token(&of_theirs)), None);
    let foreign = ask(&credentials, &theirs.token(&of_theirs)).unwrap();
    assert_eq!(foreign.tenant, ann().tenant);
    assert_ne!(foreign.principal, ann().principal, "the same name by another issuer is another principal");
}

#[test]
fn garbage_and_oversized_tokens_are_refused() {
    let key = SigningKey::new("k", "ES256");
    let credentials = issuer("[\"ES256\"]", &[&key], "");
    let good = key.token(&claims());
    let parts: Vec<&str> = good.split('.').collect();
    let (fits, over) = (with("pad", json!("p".repeat(5_000))), with("pad", json!("p".repeat(6_200))));
    assert!(key.token(&fits).len() < 8_192 && key.token(&over).len() > 8_192);
    assert_eq!(ask(&credentials, &key.token(&fits)), Some(ann()));
    for token in [
        key.token(&over),
        "a.b.c".to_owned(),
        "..".to_owned(),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}.{}", parts[2]),
        format!("{good}="),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}..{}", parts[0], parts[2]),
        format!("{}.{}.{}", parts[1], parts[0], parts[2]),
        format!("{}.{}.{}", encode(b"{}"), parts[1], parts[2]),
        format!("{}.{}.{}", encode(b"\xff\xfe"), parts[1], parts[2]),
        format!(" {good}"),
    ] {
        assert_eq!(ask(&credentials, &token), None, "{token}");
    }
}
