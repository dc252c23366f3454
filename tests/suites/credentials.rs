//! Access: signed tokens rule by rule here, files of credentials that change while a gateway runs
//! and the trusted front's door in `served`. `signing` makes the tokens. They are judged by
//! credentials that were read from files, at a date that the test names.

mod served;
mod signing;

use crate::support::*;
use onceway::config::load_credentials;
use onceway::gateway::credentials::Credentials;
use onceway::gateway::credentials::caller::{Caller, Voucher};
use ring::hmac;
use signing::{SigningKey, encode, jwks, message};

const ISS: &str = "https://accounts.example.com";
const AUD: &str = "https://api.example.com";
/// The date of the tests, in seconds.
const NOW: i64 = 1_800_000_000;

fn section(name: &str, iss: &str, algorithms: &str, more: &str) -> String {
    format!(
        "[[issuer]]\nname = \"{name}\"\niss = \"{iss}\"\njwks = \"{name}.json\"\nalgorithms = {algorithms}\naudience = [\"{AUD}\", \"other\"]\ntenant_claim = \"tenant\"\n{more}"
    )
}

fn load(folder: &TempDir, text: &str) -> Credentials {
    let file = folder.path().join("credentials.toml");
    fs::write(&file, text).unwrap();
    load_credentials(&file).unwrap_or_else(|errors| panic!("{errors}"))
}

fn issuer(algorithms: &str, keys: &[&SigningKey], more: &str) -> Credentials {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("accounts.json"), jwks(keys)).unwrap();
    load(&folder, &section("accounts", ISS, algorithms, more))
}

fn one(alg: &'static str, more: &str) -> (SigningKey, Credentials) {
    let key = SigningKey::new("k", alg);
    let credentials = issuer(&format!("[\"{alg}\"]"), &[&key], more);
    (key, credentials)
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
        let (key, credentials) = one(alg, "");
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
        let (same, pinned) = one(alg, "");
        assert_eq!(ask(&credentials, &same.token(&claims())), None, "{alg}");
        assert!(ask(&pinned, &same.token(&claims())).is_some(), "{alg}");
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
    for secret in
        [modulus.as_bytes(), key.jwk().to_string().as_bytes(), include_bytes!("credentials/rsa.pem")]
    {
        let signed = message(&json!({"alg": "HS256", "kid": "k"}), &claims());
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        assert_eq!(ask(&credentials, &format!("{signed}.{}", encode(tag.as_ref()))), None);
    }
}

#[test]
fn tokens_with_keys_or_extensions_are_refused() {
    let (key, credentials) = one("ES256", "");
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
    let (key, credentials) = one("ES256", "");
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
    let token = key.token(&with("nbf", json!(NOW)));
    for (more, leeway) in [("", 30), ("leeway = \"0s\"\n", 0), ("leeway = \"5m\"\n", 300)] {
        let credentials = issuer("[\"EdDSA\"]", &[&key], more);
        let (from, until) = ((NOW - leeway) * 1_000, (NOW + 60 + leeway) * 1_000);
        for (millis, valid) in [(from - 1, false), (from, true), (until - 1, true), (until, false)] {
            assert_eq!(at(&credentials, &token, millis).is_some(), valid, "{leeway} s, {millis}");
        }
    }
}

#[test]
fn the_file_names_claims_and_the_issuers_tenants() {
    let nobody = Caller { principal: None, ..ann() };
    let initech = with("tenant", json!("initech"));
    let of_initech = Caller::new(Tenant::parse("initech").unwrap(), Voucher::Issuer(ISS), Some("ann"));
    for (more, claims, caller) in [
        ("principal_claim = \"client_id\"\n", claims(), Some(nobody)),
        ("principal_claim = \"client_id\"\n", with("client_id", json!("ann")), Some(ann())),
        ("tenants = [\"globex\", \"acme\"]\n", claims(), Some(ann())),
        ("tenants = [\"globex\", \"acme\"]\n", initech.clone(), None),
        // Without a list, for all.
        ("", initech, Some(of_initech)),
    ] {
        let (key, credentials) = one("ES256", more);
        assert_eq!(ask(&credentials, &key.token(&claims)), caller, "{more} {claims}");
    }
}

#[test]
fn an_issuer_speaks_for_itself_only() {
    let (ours, theirs) = (SigningKey::new("k", "ES256"), SigningKey::new("k", "ES256"));
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (name, iss, key) in [("ours", ISS, &ours), ("theirs", "https://theirs.example.com", &theirs)] {
        fs::write(folder.path().join(format!("{name}.json")), jwks(&[key])).unwrap();
        text += &section(name, iss, "[\"ES256\"]", "");
    }
    let credentials = load(&folder, &text);
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
    let (key, credentials) = one("ES256", "");
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
